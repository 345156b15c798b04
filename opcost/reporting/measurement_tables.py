"""Tables of measurements and of qualified meters, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from opcost.measuring.flags import OF_OTHER_PROGRAMS
from opcost.measuring.known_device import QualificationRow
from opcost.measuring.qualification import MINIMUM_RISING
from opcost.measuring.record import are_different
from opcost.reporting.tables import Column, Table, dry_run_note, print_line, print_origin, print_table, titled
from opcost.running.plan import Reason
from opcost.stages.measure_operators import FullModelReport, OperatorsReport, UnitReport
from opcost.units import UNKNOWN, duration, millijoules, milliseconds, percent, watts

DROPPED_FIRST = {"read cost": 5, "averaging time": 4, "rise time": 3, "noise": 2, "update period": 1}
"""Columns of a qualification that a narrow terminal leaves out; the others decide whether a meter is used."""

REASONS = {
    Reason.MISSING: "without a row",
    Reason.OTHER_BOARD: "with rows of another board only",
    Reason.SHORTER: "with rows that are shorter or less precise than asked",
    Reason.NO_ENERGY: "with rows without energy",
    Reason.FLAGGED: "with flagged rows",
}

PARTS = {
    "start": "to start",
    "qualification": "to qualify the meters of a new board",
    "drift_checks": "for drift checks",
}
"""The parts of a run's time besides its measurements."""

Report: TypeAlias = OperatorsReport | FullModelReport


def print_qualification(rows: Sequence[QualificationRow]) -> None:
    first = rows[0]
    table = [
        replace(column, text=_averaging) if column.title == "averaging time" else column
        for column in titled(type(first), DROPPED_FIRST)
    ]
    print_table(f"Meters of {first.device_product} ({first.device_uuid})", table, rows)
    slope, error = first.power_per_kelvin_ratio, first.power_per_kelvin_standard_error_ratio
    shown = "not measurable" if slope is None else f"{percent(slope, digits=2)} ± {percent(error, digits=2)} per kelvin"
    print_line(f"power temperature coefficient: {shown}")
    for row in rows:
        if row.polling_deviation_ratio is not None:
            more = percent(row.polling_deviation_ratio, digits=2)
            print_line(f"{row.quality.meter}: {more} more if read at every tick than if read once a second")
    before, after = watts(first.idle_power_w), watts(first.idle_power_after_load_w)
    print_line(f"idle power: {before} before the first load, {after} right after the load")
    driver = f"driver {first.driver_version}" if first.driver_version else ""
    print_origin(first.device_product, driver, f"torch {first.torch_version}", first.qualified_at.partition("T")[0])


def _averaging(row: QualificationRow) -> str:
    quality = row.quality
    if quality.averaging_time_s is not None or quality.update_period_s is None:
        return milliseconds(quality.averaging_time_s)
    return f"under {milliseconds(MINIMUM_RISING * quality.update_period_s)}"


def print_operator_measurements(reports: Sequence[OperatorsReport], dry_run: bool) -> None:
    _print_operators(reports, dry_run)
    has_wholes = any(report.planned and report.has_whole for report in reports)
    wholes = ["not in this time: whole models, which the same command with --whole measures, too"] * has_wholes
    _print_time(reports, dry_run, wholes)


def print_units(reports: Sequence[UnitReport], dry_run: bool) -> None:
    operators, wholes = [report.operators for report in reports], [report.whole for report in reports]
    _print_operators(operators, dry_run)
    _print_wholes(wholes, dry_run)
    _print_time([*operators, *wholes], dry_run)


def print_full_models(reports: Sequence[FullModelReport], dry_run: bool) -> None:
    _print_wholes(reports, dry_run)
    _print_time(reports, dry_run, ())


def announced(reports: Sequence[UnitReport]) -> str:
    """Return the expected time of each model and of the whole run in one line."""
    each = [f"{report.name} {duration(report.expected_s)}" for report in reports if report.expected_s]
    if not each:
        return "nothing is missing on this board"
    besides_s = reports[0].operators.besides_s
    total_s = besides_s + sum(report.expected_s for report in reports)
    return f"about {duration(total_s)}: {', '.join(each)}, besides them {duration(besides_s)}"


def _print_operators(reports: Sequence[OperatorsReport], dry_run: bool) -> None:
    table: Table[OperatorsReport] = (
        Column("model", lambda one: one.name, "left"),
        Column("tuples", lambda one: str(one.tuples), drop=5),
        Column("measurements", lambda one: str(one.wanted), drop=2),
        Column("reused", lambda one: str(one.found), drop=4),
        Column("measured", lambda one: str(one.measured), drop=3),
        Column("failed", lambda one: str(one.failed), drop=1),
        Column("remaining", lambda one: str(one.remaining)),
        _time_column(dry_run),
        Column("done", lambda one: ("yes, elsewhere" if one.remaining else "yes") if one.done else "no"),
    )
    print_table("Operator measurements" + dry_run_note(dry_run, "nothing was measured"), table, reports)
    for report in reports:
        without = f"no energy for {report.without_energy} of {report.wanted}"
        print_line(*(f"{report.name}: failed: {reason}" for reason in report.reasons))
        print_line(*(f"{report.name}: {without}: {reason}" for reason in report.energy_missing_reasons))
        if report.remaining and not dry_run:
            print_line(f"{report.name}: {report.remaining} remain: {_rest(report)}")
    if any(report.wanted > report.tuples for report in reports):
        print_line("A tuple on several kinds of input data, or in several states, needs a measurement for each.")


def _rest(report: OperatorsReport) -> str:
    """Return why measurements remain, and the remedy: without other programs, if these have disturbed them."""
    doubts = ", ".join(f"{number} {flag}" for flag, number in report.doubts.items())
    flagged = [f"{report.doubtful} are flagged ({doubts}) and may be off by any factor"] * bool(report.doubtful)
    unreached = report.remaining - report.failed - report.doubtful
    parts = [f"{report.failed} failed", *flagged, *[f"{unreached} were not reached"] * (unreached > 0)]
    ending = (
        "end other programs that use the device, and "
        if any(one.value in report.doubts for one in OF_OTHER_PROGRAMS)
        else ""
    )
    return f"{', '.join(parts)}; {ending}repeat the command"


def _print_wholes(reports: Sequence[FullModelReport], dry_run: bool) -> None:
    def when(report: FullModelReport) -> str:
        if report.newly_measured or report.failed:
            return "now" if report.newly_measured else "failed"
        return "earlier" if report.time_s is not None else "not yet"

    figures: Table[FullModelReport] = (
        Column("time", lambda one: milliseconds(one.time_s)),
        Column("energy", lambda one: millijoules(one.energy_j)),
        Column("power", lambda one: watts(one.power_w), drop=2),
    )
    table: Table[FullModelReport] = (
        Column("model", lambda one: one.name, "left"),
        # A plan of models without any row has no figures.
        *(figures if not dry_run or any(report.time_s is not None for report in reports) else ()),
        Column("measured", when, drop=1),
        _time_column(dry_run),
    )
    print_table("Whole models, per run" + dry_run_note(dry_run, "nothing was measured"), table, reports)
    for report in reports:
        if report.reason:
            print_line(f"{report.name}: {report.reason}")
        if are_different(report.builds_time_range_ratio):
            difference = percent(report.builds_time_range_ratio)
            print_line(f"{report.name}: {report.builds} builds differ by {difference} in time; the median counts")


def _time_column(dry_run: bool) -> Column[Report]:
    def text(report: Report) -> str:
        time_s = report.expected_s if dry_run else report.taken_s
        return duration(time_s) if time_s else UNKNOWN

    return Column("time needed" if dry_run else "time taken", text)


def _print_time(reports: Sequence[Report], dry_run: bool, later: Sequence[str] = ()) -> None:
    if not dry_run:
        _print_taken(reports)
        print_origin(*sorted({report.device_product for report in reports}))
        return
    for report in (one for one in reports if one.planned):
        numbers = [(number, REASONS[Reason(text)]) for text, number in report.planned.items()]
        of_whole = isinstance(report, FullModelReport)
        planned = [f"the whole model, {words}" if of_whole else f"{number} {words}" for number, words in numbers]
        print_line(f"{report.name}: to be measured: {', '.join(planned)}")
    for device, product in sorted({(report.device, report.device_product) for report in reports}):
        print_line(f"device: {device}" + (f" ({product})" if product != device else ""))
    for assumed in {report.assumed for report in reports if report.assumed is not None}:
        driver = f", driver {assumed.driver_version}" if assumed.driver_version else ""
        versions = f"torch {assumed.torch_version}{driver}"
        print_line(f"assumed: {versions}; with other versions everything is measured again")
    needed_s = sum(report.expected_s for report in reports)
    parts_s = reports[0].besides_parts_s if reports else {}
    parts = [f"{duration(needed_s)} to measure"]
    for name, time_s in parts_s.items():
        parts.append(f"{duration(time_s)} {PARTS[name]}" if time_s else f"no time {PARTS[name]}, which have rows")
    total_s = needed_s + sum(parts_s.values())
    print_line(f"total time needed: {duration(total_s)}" + (f" ({', '.join(parts)})" if total_s else ""), *later)
    print_origin()


def _print_taken(reports: Sequence[Report]) -> None:
    taken_s = sum(report.taken_s for report in reports)
    besides_s = reports[0].besides_s if reports else 0.0
    steps = dict.fromkeys(step for report in reports for step in report.steps_s)
    steps_s = {step.replace("_", " "): sum(report.steps_s.get(step, 0.0) for report in reports) for step in steps}
    if steps_s:
        steps_s["between measurements"] = taken_s - sum(steps_s.values())
    besides_parts_s = reports[0].besides_parts_s if taken_s else {}
    parts_s = {**steps_s, **{PARTS[name]: time_s for name, time_s in besides_parts_s.items()}}
    parts = [f"{duration(time_s)} {what}" for what, time_s in parts_s.items() if round(time_s)]
    print_line(f"total time taken: {duration(taken_s + besides_s)}" + (f" ({', '.join(parts)})" if parts else ""))
