"""Benches of plans: a product that need not be here, a device in this process; and how a request opens one."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from opcost.errors import UserError
from opcost.measuring.conditions import WARM, Circumstances, Conditions, usual_execution
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.qualification import STEADY_LOAD
from opcost.measuring.record import MeasuredCases, MeasurementRow
from opcost.measuring.setting import DEVICES, Setting, is_part_of
from opcost.operators.counts import Case, conditions_key
from opcost.running.bench import Bench, open_child_bench
from opcost.running.device_lock import DeviceBusyError
from opcost.running.engine import Executor, LocalExecutor, OpenBench, Worker
from opcost.running.expected_times import RowTally
from opcost.running.request import RunRequest
from opcost.running.several_gpus import named_gpus, open_several_gpus
from opcost.storage.database import Database
from opcost.units import short_uuid
from opcost.version import __version__

if TYPE_CHECKING:
    # They import torch, which the parent of a measuring process need not wait for.
    from opcost.running.apparatus import ReadyModels

PARSED = 100
"""The rows of each set of conditions that are parsed: they show its product, and whether it has a meter."""


def _how(one: Conditions) -> tuple[str, str, str, str]:
    return one.precision, one.execution, one.cache, one.attention


@dataclass(frozen=True)
class PlannedBench:
    """Implements ``Bench`` for a product, on a board that no row is of; it cannot measure.

    ``rows`` are some of the product, or of another one that stands in for it, at least one under each set of its
    conditions. ``numbers`` are those of all rows by the key of their conditions.
    """

    device: str
    rows: Sequence[MeasurementRow]
    numbers: Mapping[str, int]
    is_stand_in: bool
    is_gpu: bool
    has_meter: bool
    drift_case: Case | None
    step_times_s: Mapping[str, float] = field(default_factory=dict)

    def conditions(self, setting: Setting) -> Conditions:
        """Return the conditions with the most rows in a setting, the newest of several.

        If no row is in this setting, they are those of another setting with this one's precision, execution and cache.
        """
        execution = setting.execution or usual_execution(self.rows[0].conditions.device_type)
        # Rows in state follow the warm ones.
        wanted = setting.precision, execution, WARM, setting.attention
        newest = {
            row.conditions: (self.numbers[conditions_key(row.key)], row.measurement.ended_at) for row in self.rows
        }
        found = max(newest, key=lambda one: (_how(one) == wanted, newest[one]))
        conditions = replace(found, precision=setting.precision, execution=execution, cache=setting.cache)
        return replace(conditions, device_product=self.device).with_attention(setting.attention)

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances:
        return Circumstances(
            device_uuid=None,
            host_cpu="",
            python_version="",
            opcost_version=__version__,
            torchvision_version=None,
            warm_up_s=protocol.warm_up_s,
            loop_s=protocol.loop_s if protocol.relative_error is None else None,
            relative_error=protocol.relative_error,
        )

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> MeasuredCases:
        raise AssertionError(f"{self.device}: a plan measures nothing")


@dataclass(frozen=True)
class AssumedVersions:
    """The software that a plan assumes on a device that is not here; with another one everything is measured."""

    torch_version: str
    driver_version: str | None


def assumed_versions(bench: Bench, setting: Setting) -> AssumedVersions | None:
    """Return the versions that a plan assumes; None on a device that is here, and for a product without rows."""
    if not isinstance(bench, PlannedBench) or bench.is_stand_in:
        return None
    conditions = bench.conditions(setting)
    return AssumedVersions(conditions.torch_version, conditions.driver_version)


@contextmanager
def open_planned_bench(device: str | None, database: Database, with_meter: bool) -> Iterator[PlannedBench]:
    """Yield a bench of the product that a name means; if it has no rows, the most similar one stands in.

    Raises UserError: the database has no rows, or the name is a part of several products' names.
    """
    name = str(device)
    operators, wholes = RowTally(PARSED), RowTally(PARSED)
    rows = [*database.operator_measurements.rows(operators), *database.full_model_measurements.rows(wholes)]
    numbers = operators.numbers + wholes.numbers
    of_gpus = {row.conditions.device_product: row.conditions.device_type == "cuda" for row in rows}
    meant = sorted(product for product in of_gpus if is_part_of(name, product))
    exact = [product for product in meant if product.casefold() == name.casefold()]
    if len(meant) > 1 and not exact:
        raise UserError(f"--device {name}: a part of several names ({', '.join(meant)}); name one of them")
    product = next(iter([*exact, *meant]), "")
    is_stand_in = not product
    if is_stand_in:
        if not rows:
            raise UserError(f"--device {name}: no row of it, nor of another device to plan with; use {DEVICES}")
        products = sorted(one for one in of_gpus if of_gpus[one]) or sorted(of_gpus)
        product = max(products, key=lambda one: difflib.SequenceMatcher(None, one.casefold(), name.casefold()).ratio())
        text = "no rows of %s: times are expected from rows of %s, and everything is to be measured"
        logging.getLogger(__name__).warning(text, name, product)
    own = [row for row in rows if row.conditions.device_product == product]
    is_gpu = own[0].conditions.device_type == "cuda"
    has_meter = any(row.measurement.energy_j is not None for row in own)
    drift_case = STEADY_LOAD if is_gpu else None
    yield PlannedBench(name if is_stand_in else product, own, numbers, is_stand_in, is_gpu, has_meter, drift_case)


def waiting(opener: OpenBench) -> OpenBench:
    """Return an opener that waits for a device that another campaign holds."""

    @contextmanager
    def opened(device: str | None, database: Database, with_meter: bool) -> Iterator[Bench | Executor]:
        with ExitStack() as stack:
            bench = None
            while bench is None:
                try:
                    bench = stack.enter_context(opener(device, database, with_meter))
                except DeviceBusyError as busy:
                    logging.getLogger(__name__).warning("waiting: %s", busy.lines[0].partition(";")[0])
                    busy.wait()
            yield bench

    return opened


def bench_opener(request: RunRequest) -> OpenBench:
    """Return how a request's devices are opened. Raises UserError: only a dry run takes a product's name."""
    opener = _opener(request)
    return waiting(opener) if request.wait and request.is_here else opener


def _opener(request: RunRequest) -> OpenBench:
    if request.scheduler is not None:
        from opcost.running.many_hosts import open_many_hosts

        return partial(open_many_hosts, request.scheduler, request.products)
    if request.gpus:
        devices = named_gpus(request.gpus)
        return partial(open_planned_gpus if request.dry_run else open_several_gpus, devices)
    if not request.is_product:
        return open_local_bench if request.dry_run else open_child_bench
    if not request.dry_run:
        raise UserError(
            f"--device {request.device}: not a device; use {DEVICES} (the name of a product needs --dry-run)"
        )
    return open_planned_bench


@contextmanager
def open_planned_gpus(
    devices: Mapping[str, str], _: str | None, database: Database, with_meter: bool
) -> Iterator[Executor]:
    """Yield workers that measure nothing, for GPUs of this host that are like the first one: names and UUIDs."""
    with open_local_bench(next(iter(devices)), database, with_meter) as bench:
        executor = LocalExecutor(bench)
        executor.workers = tuple(Worker(name, "", short_uuid(uuid)) for name, uuid in devices.items())
        yield executor


@contextmanager
def open_local_bench(
    device: str | None, database: Database, with_meter: bool, ready: ReadyModels | None = None
) -> Iterator[Bench]:
    """Open a device in this process: to measure nothing, or ``ready`` models, which are objects of this process."""
    from opcost.running.apparatus import open_apparatus
    from opcost.running.qualification import qualified

    with qualified(partial(open_apparatus, ready=ready or {}), device, database, with_meter) as apparatus:
        yield apparatus
