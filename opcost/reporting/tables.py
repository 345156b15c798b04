"""What each script prints: a table for people, or JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from opcost.operators.whitelist import Share
from opcost.reporting.terminal import print_line, print_table
from opcost.stages.census import CensusRow
from opcost.units import UNKNOWN, duration, gigaflop, megabytes, millijoules, milliseconds, percent, ratio, watts

if TYPE_CHECKING:
    # Only for types: a comparison must not wait for torch, which the measuring stages import, nor block 1 for numpy.
    from opcost.comparing.coverage import CostShare
    from opcost.comparing.row import ComparisonRow
    from opcost.measuring.qualification import MeterQuality, QualificationRow
    from opcost.stages.advise import Advice, ModelAdvice
    from opcost.stages.compare import ComparingReport
    from opcost.stages.count import CountPlan, CountReport
    from opcost.stages.filter import FilterReport
    from opcost.stages.kernels import KernelsReport
    from opcost.stages.make_configs import ConfigReport
    from opcost.stages.measure_models import FullModelReport
    from opcost.stages.measure_operators import OperatorsReport
    from opcost.stages.replay import RebuildReport

MOSTLY = 0.5
"""A share of measured time below which a verdict rests on estimates."""

OPERATORS_SHOWN = 12
"""Operators outside the whitelist that are named on the screen."""

Known: TypeAlias = "tuple[float | None, float | None]"
"""A value and its error, None where they are not known."""

MISSING_SHOWN = 3
"""Missing operators of one comparison that are named on the screen."""


def print_json(reports: Sequence[Any]) -> None:
    """Print one list with one object per report on stdout; figures are in SI units."""
    print(json.dumps([asdict(report) for report in reports], indent=2))


def print_count_plans(plans: Sequence[CountPlan]) -> None:
    """Print what block 0 would do."""
    columns = ("model", "as", "on", "counted before")
    rows = [(plan.name, plan.model, plan.device, "yes" if plan.counted_before else "no") for plan in plans]
    print_table("Models that would be run once (dry run: nothing was run)", columns, rows)
    print_line(f"time needed in all: about {duration(sum(plan.expected_s for plan in plans))}")


def print_counts(reports: Sequence[CountReport]) -> None:
    """Print what block 0 counted."""
    columns = (
        "model",
        "modules",
        "functions",
        "tuples",
        "FLOPs",
        "in tuples",
        "in whitelist",
        "bytes",
        "in tuples",
        "in whitelist",
    )
    rows = [
        (
            report.name,
            str(report.module_calls),
            str(report.function_calls),
            str(report.unique_tuples),
            gigaflop(report.flops),
            _share(report.counted_flops, report.flops),
            _share(report.whitelisted_flops, report.flops),
            megabytes(report.bytes),
            _share(report.counted_bytes, report.bytes),
            _share(report.whitelisted_bytes, report.bytes),
        )
        for report in reports
    ]
    print_table("Operator calls and tuples of one run", columns, rows)
    for report in reports:
        if report.outside:
            print_line(f"{report.name}: in no tuple: {', '.join(report.outside)}")


def print_configs(reports: Sequence[ConfigReport], dry_run: bool) -> None:
    """Print which configs were made, and how many were there already."""
    made = [report for report in reports if report.made]
    for report in made:
        print_line(f"{'would be written' if dry_run else 'written'}: {report.path}")
    print_line(f"{len(made)} written, {len(reports) - len(made)} there already" + _dry(dry_run, "nothing was written"))


def print_kernels(reports: Sequence[KernelsReport]) -> None:
    """Print how much of each model's kernel time tuples account for, alone and in the model, and what differs."""
    columns = ("model", "calls", "in the model", "alone", "alone / in model", "same kernels")
    rows = []
    for report in reports:
        alone_s = [kind.alone_s for kind in report.kinds]
        sum_s = None if None in alone_s else sum(time_s for time_s in alone_s if time_s is not None)
        calls = sum(kind.calls for kind in report.kinds)
        rows.append(_kernel_cells(report.name, calls, report.kernel_time_s, sum_s, report.same_kernels_ratio))
        for kind in report.kinds:
            same_ratio = kind.same_kernels_s / kind.in_model_s if kind.in_model_s else None
            rows.append(_kernel_cells(f"  {kind.operator}", kind.calls, kind.in_model_s, kind.alone_s, same_ratio))
    print_table("Kernel time in one run of the model, and of its tuples alone", columns, rows)
    for report in reports:
        print_line(f"{report.name}: {percent(report.counted_ratio)} of kernel time inside counted calls")
        for line in report.differences:
            print_line(f"{report.name}: {line}")


def _kernel_cells(
    name: str, calls: int, in_model_s: float, alone_s: float | None, same_ratio: float | None
) -> tuple[str, ...]:
    time_ratio = None if alone_s is None or not in_model_s else alone_s / in_model_s
    return (name, str(calls), milliseconds(in_model_s), milliseconds(alone_s), ratio(time_ratio), percent(same_ratio))


def print_rebuilds(reports: Sequence[RebuildReport]) -> None:
    """Print how many tuples of each model are rebuilt, and those that are not by name and reason."""
    columns = ("model", "new tuples", "rebuilt", "value-dependent", "failed")
    rows = [
        (
            report.name,
            str(report.operators),
            str(report.rebuilt),
            str(len(report.value_dependent)),
            str(len(report.failures)),
        )
        for report in reports
    ]
    together = [str(sum(int(row[column]) for row in rows)) for column in range(1, len(columns))]
    print_table("Operator tuples rebuilt and run alone", columns, [*rows, ("all together", *together)])
    for report in reports:
        for line in report.value_dependent:
            print_line(f"{report.name}: depends on values: {line}")
        for line in report.failures:
            print_line(f"{report.name}: failed: {line}")


def print_qualification(rows: Sequence[QualificationRow]) -> None:
    """Print what each meter of a card is worth, and how its power follows its temperature."""
    columns = (
        *("meter", "a read takes", "new value every", "shows a step after", "averages over"),
        *("noise", "steady", "pulsed", "verdict"),
    )
    cells = [
        (
            row.quality.meter,
            milliseconds(row.read_time_s),
            milliseconds(row.quality.update_period_s),
            milliseconds(row.quality.rise_time_s),
            _averaging(row.quality),
            percent(row.quality.noise_ratio, digits=2),
            percent(row.quality.steady_deviation_ratio, digits=2),
            percent(row.quality.pulsed_deviation_ratio, digits=2),
            row.quality.verdict,
        )
        for row in rows
    ]
    print_table(f"Meters of {rows[0].device_product} ({rows[0].device_uuid})", columns, cells)
    slope, error = rows[0].power_per_kelvin_ratio, rows[0].power_per_kelvin_standard_error_ratio
    said = (
        "cannot be seen" if slope is None else f"is {percent(slope, digits=2)} ± {percent(error, digits=2)} per kelvin"
    )
    print_line(f"power that follows the temperature {said}")
    for row in rows:
        if row.polling_deviation_ratio is not None:
            more = percent(row.polling_deviation_ratio, digits=2)
            print_line(f"{row.quality.meter}: read at every tick it shows {more} more than read once in a second")
    before, after = watts(rows[0].idle_power_w), watts(rows[0].idle_power_after_load_w)
    print_line(f"idle: {before} before opcost ran anything, {after} right after the load")


def _averaging(quality: MeterQuality) -> str:
    """Return over how long a meter averages; where that is too short to be seen, what it is at most."""
    from opcost.measuring.qualification import MINIMUM_ON_THE_WAY

    if quality.averaging_time_s is not None or quality.update_period_s is None:
        return milliseconds(quality.averaging_time_s)
    return f"under {milliseconds(MINIMUM_ON_THE_WAY * quality.update_period_s)}"


def print_census(rows: Sequence[CensusRow]) -> None:
    """Print how many calls and tuples each model has, and all together."""
    columns = ("model", "calls", "tuples", "shared with others", "its own")
    cells = [
        (row.name or "all together", str(row.calls), str(row.tuples), str(row.shared_tuples), str(row.unshared_tuples))
        for row in rows
    ]
    print_table("Census of operators that compute something (dropout and the like left out)", columns, cells)


def print_selections(reports: Sequence[FilterReport], dry_run: bool) -> None:
    """Print what block 1 kept and dropped, each with its shares of the model."""
    columns = ("model", "tuples", "calls", "share of calls", "of FLOPs", "of bytes")
    rows = []
    for report in reports:
        rows.append(_share_row(f"{report.name}: kept", report.kept_tuples, report.kept))
        rows.extend(_operator_rows(report, kept=True))
        rows.append(_share_row("  dropped", report.unique_tuples - report.kept_tuples, report.dropped))
        rows.extend(_operator_rows(report, kept=False))
        rows.append(_share_row("  in no operator", 0, report.outside))
    print_table("Operators after the whitelist" + _dry(dry_run, "nothing was written"), columns, rows)
    for report in reports:
        tuples, measurements = report.kept_tuples, report.measurements
        print_line(
            f"{report.name}: {tuples} tuples, each on every kind of values that it saw: {measurements} measurements"
        )


def print_operator_measurements(reports: Sequence[OperatorsReport], dry_run: bool) -> None:
    """Print what block 2 measured for each model."""
    columns = ("model", "measurements", "settled before", "measured", "failed", "remaining", "time needed", "done")
    rows = [
        (
            report.name,
            str(report.wanted),
            str(report.found),
            str(report.measured),
            str(report.failed),
            str(report.remaining),
            duration(report.expected_s),
            ("yes, but not here" if report.remaining else "yes") if report.done else "no",
        )
        for report in reports
    ]
    print_table("Operator measurements" + _dry(dry_run, "nothing was measured"), columns, rows)
    for report in reports:
        for reason in report.reasons:
            print_line(f"{report.name}: failed: {reason}")
        for reason in report.energy_missing_reasons:
            print_line(f"{report.name}: no energy for {report.without_energy} of {report.wanted}: {reason}")
        if report.remaining and not dry_run:
            print_line(f"{report.name}: {report.remaining} failed or were disturbed: a later run measures them again")
    if dry_run:
        print_line(f"time needed in all: {duration(sum(report.expected_s for report in reports))}")


def print_full_models(reports: Sequence[FullModelReport], dry_run: bool) -> None:
    """Print time and energy of each whole model."""
    columns = ("model", "time", "energy", "power", "measured", "time needed")
    rows = [
        (
            report.name,
            milliseconds(report.time_s),
            millijoules(report.energy_j),
            watts(report.power_w),
            _when(report),
            duration(report.expected_s),
        )
        for report in reports
    ]
    print_table("Whole models, per run" + _dry(dry_run, "nothing was measured"), columns, rows)
    if dry_run:
        print_line(f"time needed in all: {duration(sum(report.expected_s for report in reports))}")
    for report in reports:
        if report.reason:
            print_line(f"{report.name}: {report.reason}")


def print_comparisons(reports: Sequence[ComparingReport], dry_run: bool) -> None:
    """Print sums beside wholes, a line for time and one for energy, then what the reader must know about each."""
    columns = ("model", "", "sum of operators", "whole model", "sum / whole", "corrected", "in the sum", "missing")
    labelled = [list(zip(one.labels, one.comparisons, strict=True)) for one in reports]
    compared = [one for of_model in labelled for one in of_model]
    if compared:
        rows = [cells for label, row in compared for cells in _comparison_cells(label, row)]
        print_table("Sum of operators and whole model" + _dry(dry_run, "nothing was written"), columns, rows)
        print_line("± is one standard error within these runs; another run or board may differ by more.")
        for celsius in sorted({row.reference_temperature_c for _, row in compared if row.reference_temperature_c}):
            print_line(f"Energies are those at {celsius:g} °C, where all of a model's are known there.")
        if any(row.correction_time_s is not None for _, row in compared):
            print_line("Corrected: with what calls take longer among others than alone, for what caches hold.")
        print_line("")
        pieces = ("model", "", "modules", "functions", "caches", "dropped", "not measured", "not explained")
        print_table("What makes the whole model", pieces, [cells for one in compared for cells in _gap_cells(*one)])
        print_line("What was dropped or not measured is estimated from FLOPs and bytes, where it has no row.")
    for report, of_model in zip(reports, labelled, strict=True):
        if report.reason:
            print_line(f"{report.name}: {report.reason}")
        for label, row in of_model:
            for line in _comparison_remarks(row):
                print_line(f"{label}: {line}")


def print_files(what: str, paths: Sequence[Path]) -> None:
    """Say on stderr what became of some files, in a line; nothing of none."""
    if paths:
        print(f"{what}: {', '.join(map(str, paths))}", file=sys.stderr)


def print_advice(advice: Advice, is_written: bool) -> None:
    """Print what the whitelist reaches of each model, what it lacks, and the smallest one that would do."""
    from opcost.comparing.comparison import NOTICEABLE_RATIO

    columns = ("model", "of time", "of energy", "measured", "of the whole: time", "energy", "reached", "to add")
    conditions, target = advice.conditions, f"{100 * advice.target_ratio:g} % wanted"
    under = f"{target} ({conditions.device_product}, {conditions.precision}, {conditions.execution})"
    title = "What the whitelist covered before" if is_written else "What the whitelist covers"
    print_table(f"{title}, {under}", columns, [_advice_cells(model) for model in (*advice.models, advice.all_models)])
    lower, _, upper = advice.estimated_ratios
    print_line(
        "What is not measured is estimated from FLOPs and bytes: half of what is measured comes out at "
        f"{lower:.2f} to {upper:.2f} times its time."
    )
    for model in advice.models:
        if model.doubtful_ratio >= NOTICEABLE_RATIO:
            print_line(f"{model.name}: {percent(model.doubtful_ratio)} of its time is of doubtful measurements")
    lacking = [[one.operator, *_shares(one.share)] for one in advice.all_models.additions]
    if lacking:
        shown = lacking[:OPERATORS_SHOWN]
        print_line("")
        print_table("Not in the whitelist", ("mean share of a model", "of time", "of energy"), shown)
        if len(lacking) > len(shown):
            print_line(f"and {len(lacking) - len(shown)} more; --json names them")
    print_line(f"{'written' if is_written else 'the smallest whitelist that reaches it'}: {', '.join(advice.smallest)}")
    if advice.no_longer:
        print_line(f"no longer in it: {', '.join(advice.no_longer)}")


def _advice_cells(model: ModelAdvice) -> tuple[str, ...]:
    to_add = [addition.operator for addition in model.additions] if model.name else []
    return (
        model.name or "on average",
        percent(model.time_ratio),
        percent(model.energy_ratio),
        percent(model.measured_ratio, digits=0),
        percent(model.whole_time_ratio),
        percent(model.whole_energy_ratio),
        _reached(model),
        ", ".join(to_add),
    )


def _reached(model: ModelAdvice) -> str:
    """Return whether a model reaches the target, or whether all do."""
    if model.name is None:
        return "by all" if model.is_reached else "not by all"
    doubts = (", time only" * (model.energy_ratio is None), ", estimated" * (model.measured_ratio < MOSTLY))
    return ("yes" if model.is_reached else "no") + "".join(doubts)


def _shares(share: CostShare) -> tuple[str, str]:
    return percent(share.time_ratio), percent(share.energy_ratio)


def _comparison_cells(label: str, row: ComparisonRow) -> tuple[tuple[str, ...], tuple[str, ...]]:
    time_ratio = _with_error(row.time_ratio, row.time_standard_error_ratio)
    energy_ratio = _with_error(row.energy_ratio, row.energy_standard_error_ratio)
    missing = f"{row.missing_operators} of {row.summed_operators + row.missing_operators}"
    corrected_time = _corrected(
        (row.time_ratio, row.time_standard_error_ratio),
        (row.correction_time_s, row.correction_time_standard_error_s),
        row.full_time_s,
    )
    corrected_energy = _corrected(
        (row.energy_ratio, row.energy_standard_error_ratio),
        (row.correction_energy_j, row.correction_energy_standard_error_j),
        row.full_energy_j,
    )
    time = (milliseconds(row.time_s), milliseconds(row.full_time_s), time_ratio, corrected_time)
    energy = (millijoules(row.energy_j), millijoules(row.full_energy_j), energy_ratio, corrected_energy)
    return (
        (label, "time", *time, f"{percent(row.flop_ratio)} of FLOPs", missing),
        (f"  {row.conditions.device_product}", "energy", *energy, f"{percent(row.memory_bytes_ratio)} of bytes", ""),
    )


def _corrected(sum_ratio: Known, correction: Known, whole: float | None) -> str:
    """Return what sum and correction are of the whole, with the error of both."""
    (value_ratio, error_ratio), (more, more_error) = sum_ratio, correction
    if value_ratio is None or error_ratio is None or more is None or more_error is None or not whole:
        return UNKNOWN
    return _with_error(value_ratio + more / whole, math.hypot(error_ratio, more_error / whole))


def _gap_cells(label: str, row: ComparisonRow) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the pieces of the whole's time and energy as shares of it."""
    times_s = (row.correction_time_s, row.dropped_time_s, row.unmeasured_time_s, row.unexplained_time_s)
    energies_j = (row.correction_energy_j, row.dropped_energy_j, row.unmeasured_energy_j, row.unexplained_energy_j)
    return (
        (label, "time", *_pieces(row.time_s, row.function_time_s, times_s, row.full_time_s)),
        ("", "energy", *_pieces(row.energy_j, row.function_energy_j, energies_j, row.full_energy_j)),
    )


def _pieces(
    summed: float | None, functions: float | None, others: Sequence[float | None], whole: float | None
) -> list[str]:
    modules = None if summed is None or functions is None else summed - functions
    return [percent(None if value is None or not whole else value / whole) for value in (modules, functions, *others)]


def _comparison_remarks(row: ComparisonRow) -> list[str]:
    missing = [operator for operator in row.missing.split(" | ") if operator]
    lines = [f"missing: {operator}" for operator in missing[:MISSING_SHOWN]]
    if len(missing) > MISSING_SHOWN:
        lines.append(f"missing: {len(missing) - MISSING_SHOWN} more; --json and sum_vs_full.csv name them")
    lines += [remark for remark in row.remarks.split(" | ") if remark]
    if row.energy_missing_reason:
        lines.append(f"no energy: {row.energy_missing_reason}")
    return lines


def _operator_rows(report: FilterReport, kept: bool) -> list[tuple[str, ...]]:
    return [
        _share_row(f"    {operator.operator}", operator.unique_tuples, operator.share)
        for operator in report.operators
        if operator.kept == kept
    ]


def _share_row(name: str, tuples: int, share: Share) -> tuple[str, ...]:
    return (
        name,
        str(tuples) if tuples else UNKNOWN,
        str(share.calls) if share.calls else UNKNOWN,
        percent(share.calls_ratio),
        percent(share.flop_ratio),
        percent(share.memory_bytes_ratio),
    )


def _share(part: int | None, whole: int) -> str:
    return percent(part / whole if whole and part is not None else None)


def _with_error(value_ratio: float | None, error_ratio: float | None) -> str:
    return ratio(value_ratio) if error_ratio is None else f"{ratio(value_ratio)} ± {ratio(error_ratio)}"


def _when(report: FullModelReport) -> str:
    if report.newly_measured:
        return "now"
    if report.failed:
        return "failed"
    return "earlier" if report.time_s is not None else "not yet"


def _dry(dry_run: bool, what: str) -> str:
    return f" (dry run: {what})" if dry_run else ""
