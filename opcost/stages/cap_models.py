"""A model as the work of a power-cap sweep, apart from it: programs import that without the readers of configs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.protocol import SINGLE_SHARE, MeasurementProtocol, protocol_for
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import is_meant
from opcost.metering.cap_rows import CapCost
from opcost.operators.counts import case_key
from opcost.operators.training import whole_case
from opcost.power.log_rows import new_log_name
from opcost.prediction.durations import MODEL_BUILDING_S
from opcost.running.bench import HoldingBench
from opcost.running.expected_times import BETWEEN_S, starting_s
from opcost.running.request import RunRequest
from opcost.storage.configs import ModelConfig, model_tuple
from opcost.storage.database import Database
from opcost.units import short_uuid

OpenHoldingBench: TypeAlias = Callable[[str | None, Database, bool], AbstractContextManager[HoldingBench]]


@dataclass(frozen=True)
class ModelWork:
    """Implements ``CapWork`` for a model that a bench holds: one iteration by the usual procedure."""

    name: str
    bench: HoldingBench
    protocol: MeasurementProtocol
    is_steady: bool = True

    def measure(self) -> CapCost:
        try:
            found = self.bench.repeat(self.protocol, new_log_name("power-cap")).measurement
        except CannotMeasureError as error:
            raise UserError(f"{self.name}: cannot be measured: {error}") from error
        return CapCost(found.time_s, found.energy_j, found.energy_standard_error_j, found.energy_missing_reason)


@contextmanager
def open_model(
    request: RunRequest, config: ModelConfig, uuid: str, loop_s: float, open_bench: OpenHoldingBench
) -> Iterator[ModelWork]:
    """Build a model in a measuring process on a board; a ``UserError`` for another board, or if it cannot be built."""
    with open_bench(request.device, request.database, True) as bench:
        protocol = protocol_for(bench.is_gpu, loop_s)
        if bench.circumstances(protocol).device_uuid != short_uuid(uuid):
            orders = "torch and the driver number the GPUs in different orders"
            raise UserError(f"--device {request.device}: {orders}; set CUDA_DEVICE_ORDER=PCI_BUS_ID")
        try:
            bench.hold(whole_case(model_tuple(config)), request.setting_of(config))
        except CannotMeasureError as error:
            raise UserError(f"{config.name}: cannot be built: {error}") from error
        yield ModelWork(config.name, bench, protocol)


def at_full_clocks(database: Database, config: ModelConfig, device: str | None) -> MeasurementRow | None:
    """Return the newest row of a whole model on a device that has a power, which says which caps slow it, or None."""
    key = whole_case(model_tuple(config)).key
    rows = database.full_model_measurements.rows(lambda row_key: case_key(row_key) == key)
    known = [row for row in rows if is_meant(device, row.conditions) and row.measurement.power_w is not None]
    return max(known, key=lambda row: row.measurement.ended_at, default=None)


def expected_s(measurements: int, loop_s: float) -> float:
    """Return the time of a sweep of a model in s, its start and build included."""
    one = protocol_for(is_gpu=True, loop_s=loop_s)
    of_one_s = one.warm_up_s + one.loop_s + SINGLE_SHARE * loop_s + BETWEEN_S
    return measurements * of_one_s + MODEL_BUILDING_S + starting_s(True)
