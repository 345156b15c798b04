"""Qualification: what the meters of a card are worth, and how its power follows its temperature."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from opcost.apparatus import Apparatus, Meters, NamedMeter, OpenApparatus
from opcost.csv_database import CsvTable
from opcost.errors import CannotMeasureError, UserError
from opcost.meter_qualification import MeterQuality, idle_power_w, qualities, run_course, watts_per_kelvin
from opcost.operators import OperatorTuple, TensorSpec
from opcost.ports import FULL_LOOP_S, MeasurementProtocol, Meter
from opcost.power import PowerTrace
from opcost.request import METER_QUALIFICATIONS
from opcost.statistics import Estimate, standard_error_of, value_of
from opcost.subjects import Subject

REFERENCE = "NVML energy counter"
"""It misses no time: other meters are held against it. Where there is none, against the best other one."""

SIDE = 8192
STEADY_LOAD = Subject(
    OperatorTuple(
        "torch.add",
        inputs=(TensorSpec((SIDE, SIDE), "float32"), TensorSpec((SIDE, SIDE), "float32", identity=1)),
        mode=None,
    )
)
"""Adds 256 MB to 256 MB: bound by memory and no nearer to a power cap than that lets it (H200: 657 of 700 W)."""

PRECISION = "torch-default"


@dataclass(frozen=True)
class QualificationRow:
    """One meter of one board under one driver.

    ``power_per_kelvin_ratio`` is the board's, as a share of power. Idle power, by this meter, is that before the load
    (clocks down, if the board had rested) and right after it (clocks up).
    """

    device_uuid: str | None
    driver_version: str | None
    quality: MeterQuality
    power_per_kelvin_ratio: float | None
    power_per_kelvin_standard_error_ratio: float | None
    idle_power_w: float | None
    idle_power_after_load_w: float | None
    qualified_at: str
    device_product: str
    torch_version: str


@contextmanager
def qualified(
    open_apparatus: OpenApparatus, device: str | None, database: Path, with_meter: bool
) -> Iterator[Apparatus]:
    """Open a device whose meters are qualified; do that first where it has not been done under this driver.

    Args:
        open_apparatus: makes the device ready.
        device, database, with_meter: what it takes; without a meter nothing is qualified.
    """
    table = CsvTable(database / METER_QUALIFICATIONS, QualificationRow)
    with open_apparatus(device, database, with_meter) as apparatus:
        rows = _rows_of(apparatus, table)
        if _power_per_kelvin(rows) is None and with_meter and apparatus.all_meters is not None:
            rows += _qualified_if_possible(apparatus, table)
        yield replace(
            apparatus,
            power_per_kelvin=_power_per_kelvin(rows),
            meters=_known_meters(apparatus.meters, rows),
            sentinel=STEADY_LOAD if apparatus.is_gpu else None,
        )


def _qualified_if_possible(apparatus: Apparatus, table: CsvTable[QualificationRow]) -> list[QualificationRow]:
    log = logging.getLogger(__name__)
    log.warning("the meters of this board are qualified first: half a minute, once")
    try:
        rows = qualify_meters(apparatus, table)
    except (UserError, CannotMeasureError) as error:
        log.warning("not qualified, so energies are not referred to one temperature: %s", error)
        return []
    if _power_per_kelvin(rows) is None:
        log.warning("its temperature hardly moved, so energies are not referred to one: the next run tries again")
    return rows


def _rows_of(apparatus: Apparatus, table: CsvTable[QualificationRow]) -> list[QualificationRow]:
    """Return what is known of a board's meters under its present driver, the oldest first."""
    board = (_uuid(apparatus), apparatus.conditions(PRECISION).driver_version)
    return [row for row in table.rows() if (row.device_uuid, row.driver_version) == board]


class KnownMeter:
    """A meter with what its qualification has found of it: how long it takes to rise, and its noise."""

    def __init__(self, meter: Meter, found: Mapping[str, MeterQuality]) -> None:
        self._meter = meter
        self._found = found

    def start(self) -> None:
        """Begin a measurement."""
        self._meter.start()

    def log(self) -> PowerTrace:
        """Return the rows so far."""
        return self._known(self._meter.log())

    def stop(self) -> PowerTrace:
        """End the measurement and return its rows."""
        return self._known(self._meter.stop())

    def _known(self, trace: PowerTrace) -> PowerTrace:
        checks = tuple(map(self._known, trace.checks))
        quality = self._found.get(trace.source.name)
        if quality is None:
            return replace(trace, checks=checks)
        source = replace(
            trace.source,
            rise_time_s=max(trace.source.rise_time_s, quality.rise_time_s or 0.0),
            correlation_time_s=quality.correlation_time_s or 0.0,
            noise_ratio=quality.noise_ratio or 0.0,
        )
        return replace(trace, source=source, checks=checks)


def _known_meters(meters: Meters, rows: list[QualificationRow]) -> Meters:
    """Return the meters with what is known of them, those last that were found wrong; which that is, is told."""
    latest = {row.quality.meter: row.quality for row in rows}
    wrong = [name for name in meters if name in latest and not latest[name].is_right_when_steady]
    for name in wrong:
        logging.getLogger(__name__).warning(
            "%s: %s; another meter is used where there is one", name, latest[name].verdict
        )
    return {name: partial(_known_meter, meters[name], latest) for name in sorted(meters, key=wrong.__contains__)}


def _known_meter(meter: NamedMeter, found: Mapping[str, MeterQuality], log_name: str) -> Meter:
    return KnownMeter(meter(log_name), found)


def _power_per_kelvin(rows: list[QualificationRow]) -> Estimate | None:
    if not rows:
        return None
    slope, error = rows[-1].power_per_kelvin_ratio, rows[-1].power_per_kelvin_standard_error_ratio
    return None if slope is None or error is None else Estimate(slope, error)


def _uuid(apparatus: Apparatus) -> str | None:
    return apparatus.circumstances(MeasurementProtocol(0.0, FULL_LOOP_S)).device_uuid


def qualify_meters(apparatus: Apparatus, table: CsvTable[QualificationRow]) -> list[QualificationRow]:
    """Qualify the meters of a device and keep what was found.

    Raises:
        UserError: the device has but one meter, or its meters say nothing.
    """
    if apparatus.all_meters is None:
        raise UserError("--qualify: there is no second meter to compare with on a CPU; name a GPU")
    log_name = f"qualification-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}"
    with apparatus.precision(PRECISION), apparatus.workload(STEADY_LOAD) as workload:
        course, trace = run_course(workload, apparatus.all_meters(log_name), apparatus.clock, apparatus.pause)
    found = qualities(course, trace, REFERENCE)
    if not found:
        raise UserError(f"--qualify: {trace.missing_reason}")
    traces = {logged.source.name: logged for logged in (trace, *trace.checks)}
    slope = watts_per_kelvin(course, trace)
    conditions = apparatus.conditions(PRECISION)
    rows = [
        QualificationRow(
            device_uuid=_uuid(apparatus),
            driver_version=conditions.driver_version,
            quality=quality,
            power_per_kelvin_ratio=value_of(slope),
            power_per_kelvin_standard_error_ratio=standard_error_of(slope),
            idle_power_w=idle_power_w(traces[quality.meter], course.pause),
            idle_power_after_load_w=idle_power_w(traces[quality.meter], course.rest),
            qualified_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            device_product=conditions.device_product,
            torch_version=conditions.torch_version,
        )
        for quality in found
    ]
    for row in rows:
        table.append(row)
    return rows
