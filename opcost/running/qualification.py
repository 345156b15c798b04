"""Qualification of a board's power meters, and of its power temperature coefficient."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from opcost.columns import present_moment
from opcost.errors import CannotMeasureError, UserError
from opcost.estimates import standard_error_of, value_of
from opcost.measuring.known_device import (
    KnownMeters,
    QualificationRow,
    QualificationTable,
    power_temperature_coefficient,
)
from opcost.measuring.protocol import ANY
from opcost.measuring.qualification import (
    STEADY_LOAD,
    idle_power_w,
    power_temperature_coefficient_per_kelvin,
    qualities,
    ratio_of_means,
    reference_among,
    run_loads,
    run_with_rare_reads,
)
from opcost.measuring.record import REFERENCE_TEMPERATURE_C
from opcost.measuring.setting import USUAL
from opcost.power.log_rows import new_log_name
from opcost.power.ports import COUNTER, SAMPLES, short_name
from opcost.running.apparatus import Apparatus, OpenApparatus
from opcost.storage.database import Database
from opcost.units import percent

REFERENCE = COUNTER
"""The short name of the meter that others are compared with: it misses no time. If there is none, or the others agree
that it is wrong, the best other one takes its place."""

UNDECIDED_RATIO = 0.1
"""Deviation of two meters from which neither is trusted if there is no third one."""

RETRIED_AFTER = timedelta(days=1)
"""The time until an incomplete qualification is tried again."""


@contextmanager
def qualified(
    open_apparatus: OpenApparatus,
    device: str | None,
    database: Database,
    with_meter: bool,
    table: QualificationTable | None = None,
) -> Iterator[Apparatus]:
    """Open a device, and first qualify its meters, if it has any, unless that has been done under its driver.

    ``table`` has the known qualifications and gets new ones, None for that of the database.
    """
    table = table or database.meter_qualifications
    log = logging.getLogger(__name__)
    with open_apparatus(device, database, with_meter) as apparatus:
        board = (apparatus.circumstances(ANY).device_uuid, apparatus.conditions(USUAL).driver_version)
        # The oldest first.
        rows = [row for row in table.rows() if (row.device_uuid, row.driver_version) == board]
        if with_meter and apparatus.meters.every_tick is not None and not _is_known(rows, apparatus.meters.names):
            log.warning("qualifying the meters of this board (once): about 30 s")
            try:
                new = qualify_meters(apparatus, table)
            except (UserError, CannotMeasureError) as error:
                new = []
                text = "meters not qualified, energies not normalised to %g °C: %s"
                log.warning(text, REFERENCE_TEMPERATURE_C, error)
            if new and power_temperature_coefficient(new) is None:
                log.warning(
                    "energies not normalised to %g °C: the board's temperature hardly changed, or the load reached the "
                    "power limit. The first run after 24 hours tries again.",
                    REFERENCE_TEMPERATURE_C,
                )
            rows += new
        found = {row.quality.meter: row.quality for row in rows}
        for name, quality in found.items():
            if not quality.is_right_when_steady:
                text = "meter %s: %s; other meters are preferred, unless --meter names it"
                log.warning(text, name, quality.verdict)
        coefficient = power_temperature_coefficient(rows)
        known = replace(apparatus.known, power_coefficient_per_kelvin=coefficient, meters=KnownMeters(found))
        yield replace(apparatus, known=known, drift_case=STEADY_LOAD if apparatus.is_gpu else None)


def _is_known(rows: list[QualificationRow], names: Iterable[str]) -> bool:
    """Return whether a qualification is complete, or was tried recently: some boards or meters never complete it."""
    missing = set(names) - {short_name(row.quality.meter) for row in rows}
    latest = max((datetime.fromisoformat(row.qualified_at) for row in rows), default=None)
    return (not missing and power_temperature_coefficient(rows) is not None) or (
        latest is not None and datetime.now(timezone.utc) - latest < RETRIED_AFTER
    )


def qualify_meters(apparatus: Apparatus, table: QualificationTable) -> list[QualificationRow]:
    """Qualify a device's meters and append the rows. Raises UserError: it has only one, or they have no readings."""
    if apparatus.meters.every_tick is None:
        raise UserError("--qualify: a CPU has no second meter to compare with; name a GPU")
    log_name = new_log_name("qualification")
    with apparatus.workload(STEADY_LOAD, USUAL) as workload:
        timeline, trace = run_loads(workload, apparatus.meters.every_tick(log_name), apparatus.clock, apparatus.pause)
        quiet, quiet_trace = run_with_rare_reads(workload, apparatus.meters.meter(f"{log_name}-quiet"), apparatus.clock)
    traces = {logged.source.name: logged for logged in (trace, *trace.checks)}
    names = {short_name(name): name for name in traces}
    reference, samples = (names.get(name, name) for name in (REFERENCE, SAMPLES))
    found = qualities(timeline, trace, reference_among(timeline, trace, reference))
    if not found:
        raise UserError(f"--qualify: {trace.missing_reason}")
    compared = {quality.meter: abs(ratio) for quality in found if (ratio := quality.steady_deviation_ratio) is not None}
    if len(compared) == 2 and max(compared.values()) > UNDECIDED_RATIO:
        differ = f"{' and '.join(compared)} differ by {percent(max(compared.values()), 0)} under a steady load"
        raise UserError(f"--qualify: {differ}, and no third meter shows which one is right")
    coefficient = power_temperature_coefficient_per_kelvin(timeline, trace)
    read_times_s = apparatus.meters.read_times_s()
    # Relative to the samples in both runs, since the device warms up.
    often = ratio_of_means(trace, timeline.settled, reference, samples)
    rarely = ratio_of_means(quiet_trace, quiet, reference, samples)
    polling_ratio = None if often is None or rarely is None else often / rarely - 1
    conditions = apparatus.conditions(USUAL)
    rows = [
        QualificationRow(
            device_uuid=apparatus.circumstances(ANY).device_uuid,
            driver_version=conditions.driver_version,
            quality=quality,
            read_time_s=read_times_s.get(quality.meter),
            polling_deviation_ratio=polling_ratio if quality.meter == reference else None,
            power_per_kelvin_ratio=value_of(coefficient),
            power_per_kelvin_standard_error_ratio=standard_error_of(coefficient),
            idle_power_w=apparatus.meters.idle_power_w,
            idle_power_after_load_w=idle_power_w(traces[quality.meter], timeline.rest),
            qualified_at=present_moment(),
            device_product=conditions.device_product,
            torch_version=conditions.torch_version,
        )
        for quality in found
    ]
    for row in rows:
        table.append(row)
    return rows
