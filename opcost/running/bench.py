"""The port through which a campaign measures: a device with its meters, in this process or in another; its times."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from typing import Protocol, TypeAlias

from opcost.measuring.conditions import Circumstances, Conditions, measurement_key
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement, MeasurementRow, StepTimes
from opcost.measuring.setting import Setting
from opcost.operators.cases import Case
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.storage.database import Database

SIDE = 8192
STEADY_LOAD = Case(
    OperatorTuple(
        "torch.add",
        inputs=(TensorSpec((SIDE, SIDE), "float32"), TensorSpec((SIDE, SIDE), "float32", identity=1)),
        mode=None,
    )
)
"""Adds 256 MB to 256 MB: bound by memory, so that it stays below the power limit (H200: 657 of 700 W)."""


class Bench(Protocol):
    """A device that is ready to measure."""

    @property
    def device(self) -> str:
        """The torch device: ``cpu`` or ``cuda:N``."""

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""

    @property
    def has_meter(self) -> bool:
        """Whether the device has a meter of energy."""

    @property
    def drift_case(self) -> Case | None:
        """The case that a campaign measures repeatedly to detect drift, None for no drift checks."""

    @property
    def step_times_s(self) -> Mapping[str, float]:
        """The time spent so far in each step of measurements, in s; empty if unknown."""

    def conditions(self, setting: Setting) -> Conditions:
        """Return the conditions of measurements in a setting.

        Raises UserError: the device does not support the setting, or has no such meter.
        """

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances:
        """Return the circumstances of measurements with a protocol."""

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> Measurement:
        """Measure an operator or a model; its raw power log gets a name.

        Raises CannotMeasureError: it cannot be measured here.
        """


OpenBench: TypeAlias = Callable[[str | None, Database, bool], AbstractContextManager[Bench]]
"""Makes a device ready. Arguments: its name (None for a GPU if there is one), the database, whether to log power."""


class SpentTime:
    """Adds up the durations of its contexts, and the time of each step of a bench in them, in s.

    Names of steps have underscores for spaces, as the keys of JSON have.
    """

    def __init__(self, bench: Bench) -> None:
        self.total_s = 0.0
        self.steps_s: dict[str, float] = {}
        self._bench = bench
        self._begin_s = 0.0
        self._steps_before_s: dict[str, float] = {}

    def __enter__(self) -> SpentTime:
        self._begin_s = time.monotonic()
        self._steps_before_s = dict(self._bench.step_times_s)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.total_s += time.monotonic() - self._begin_s
        for step, time_s in self._bench.step_times_s.items():
            name = step.replace(" ", "_")
            spent_s = time_s - self._steps_before_s.get(step, 0.0)
            self.steps_s[name] = self.steps_s.get(name, 0.0) + spent_s


def measured_row(
    bench: Bench, case: Case, setting: Setting, protocol: MeasurementProtocol, circumstances: Circumstances
) -> MeasurementRow:
    """Measure an operator or a model on a bench and return its row.

    Raises CannotMeasureError: it cannot be measured here.
    """
    conditions = bench.conditions(setting)
    key = measurement_key(case, conditions)
    log_name = f"{key}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{os.getpid()}"
    spent = SpentTime(bench)
    try:
        with spent:
            measurement = bench.measure(case, setting, protocol, log_name)
    finally:
        steps = ", ".join(f"{name.replace('_', ' ')} {time_s:.3f} s" for name, time_s in spent.steps_s.items())
        logging.getLogger(__name__).info("took %.3f s: %s", spent.total_s, steps or "in one step")
    return MeasurementRow(
        key=key,
        operator=case.operator.operator,
        measurement=measurement,
        parameters=case.operator.parameters_text,
        inputs=case.operator.inputs_text,
        training_mode=case.operator.mode,
        input_data=str(case.input_data),
        order_seed=protocol.order_seed,
        conditions=conditions,
        circumstances=circumstances,
        step_times=StepTimes(spent.total_s, **{f"{name}_s": time_s for name, time_s in spent.steps_s.items()}),
    )
