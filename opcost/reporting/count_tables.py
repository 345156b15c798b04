"""Tables of counts, whitelists, replays and drawn lists, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opcost.invocation import command
from opcost.measuring.protocol import USUAL_OPTIONS
from opcost.operators.counts import FORMULA_REMEDY, flop_missing_reason
from opcost.operators.whitelist import Share
from opcost.reporting.layout import Column
from opcost.reporting.tables import doubt_mark, dry_run_note, print_origin, shared_facts
from opcost.reporting.terminal import Cells, print_commands, print_line, print_records, print_table
from opcost.stages.filter import FilterReport
from opcost.units import UNKNOWN, duration, gigaflop, megabytes, number_of, percent

if TYPE_CHECKING:
    # Only for types: these modules import torch, or are not needed.
    from opcost.comparing.coverage import Addition
    from opcost.stages.advise import Advice, ModelAdvice
    from opcost.stages.count import CensusRow, CountPlan, CountReport
    from opcost.stages.replay import RebuildReport
    from opcost.stages.sample_operators import DrawnKind, SampleReport


MOSTLY = 0.5
"""A share of measured time below which a verdict rests on estimates."""

OPERATORS_SHOWN = 12
"""Operators outside the whitelist that are named on the screen."""


def print_count_plans(plans: Sequence[CountPlan]) -> None:
    """Print the plan of block 0."""
    columns: Cells[CountPlan] = (
        (Column("model", "left"), lambda one: one.name),
        (Column("input", "left", drop=1, wraps=32), lambda one: one.model),
        (Column("device", "left"), lambda one: one.device),
        (Column("already counted", drop=2), lambda one: "yes" if one.counted_before else "no"),
    )
    print_records("Models to count (dry run: nothing was run)", plans, columns)
    print_line(f"total time needed: about {duration(sum(plan.expected_s for plan in plans))}")
    print_origin()


def print_counts(reports: Sequence[CountReport]) -> None:
    """Print the counts of block 0."""
    columns: Cells[CountReport] = (
        (Column("model", "left"), lambda one: one.name),
        (Column("modules", drop=4), lambda one: str(one.module_calls)),
        (Column("functions", drop=4), lambda one: str(one.function_calls)),
        (Column("tuples"), lambda one: str(one.unique_tuples)),
        (Column("FLOPs"), _flops),
        (Column("FLOPs in tuples", drop=3), lambda one: _share(one.counted_flops, one.flops)),
        (Column("FLOPs in whitelist", drop=1), lambda one: _share(one.whitelisted_flops, one.flops)),
        (Column("bytes"), lambda one: megabytes(one.bytes)),
        (Column("bytes in tuples", drop=3), lambda one: _share(one.counted_bytes, one.bytes)),
        (Column("bytes in whitelist", drop=2), lambda one: _share(one.whitelisted_bytes, one.bytes)),
    )
    print_records("Operator calls and tuples of one run", reports, columns)
    for report in reports:
        if report.outside:
            print_line(f"{report.name}: operations in no tuple: {', '.join(report.outside)}")
        for line in report.left_out:
            print_line(f"{report.name}: {line}")
    incomplete = [report for report in reports if report.without_formula]
    for report in incomplete:
        gaps = ", ".join(
            f"{gap.operation} ({percent(gap.calls_ratio)} of calls, {percent(gap.memory_bytes_ratio)} of bytes)"
            for gap in report.without_formula
        )
        print_line(f"{report.name}: {flop_missing_reason([gaps])}")
    if incomplete:
        print_line(f"Their FLOPs are unknown, and in no total. To add a formula, {FORMULA_REMEDY}.")
    print_origin()


def _flops(report: CountReport) -> str:
    if report.flops is None:
        return f"≥ {gigaflop(report.least_flops)}" if report.least_flops else UNKNOWN
    return gigaflop(report.flops)


def _share(part: int | None, whole: int | None) -> str:
    return percent(part / whole if whole and part is not None else None)


def print_rebuilds(reports: Sequence[RebuildReport]) -> None:
    """Print the number of rebuilt tuples of each model, and the others with the reason."""
    numbers = [(one.operators, one.rebuilt, len(one.value_dependent), len(one.failures)) for one in reports]
    names = [*(report.name for report in reports), "total"]
    rows = [*numbers, [sum(column) for column in zip(*numbers, strict=True)] or [0] * 4]
    columns = ("model", "new tuples", "same as counted", "value-dependent", "failed")
    cells = [[name, *map(str, row)] for name, row in zip(names, rows, strict=True)]
    print_table("Operator tuples rebuilt and run alone", columns, cells)
    for report in reports:
        for line in report.value_dependent:
            print_line(f"{report.name}: value-dependent: {line}")
        for line in report.failures:
            print_line(f"{report.name}: failed: {line}")
    print_origin()


def print_sample(report: SampleReport, dry_run: bool) -> None:
    """Print the kinds of a drawn list, the expected time to measure it, and the next commands."""
    columns: Cells[DrawnKind] = (
        (Column("kind", "left"), lambda one: one.kind),
        (Column("known tuples", drop=1), lambda one: str(one.known)),
        (Column("drawn tuples"), lambda one: str(one.drawn)),
        (Column("largest FLOPs"), lambda one: gigaflop(one.flop) if one.drawn else UNKNOWN),
        (Column("largest bytes"), lambda one: megabytes(one.memory_bytes) if one.drawn else UNKNOWN),
    )
    number = len(report.tuples)
    title = f"{number_of(number, 'operator tuple')} drawn"
    print_records(title + dry_run_note(dry_run, "nothing was written"), report.kinds, columns)
    if number < report.wanted:
        print_line(f"Fewer than the {report.wanted} wanted: these kinds have no more valid ones with other sizes.")
    dropped = [one.kind for one in report.kinds if one.drawn and not one.whitelisted]
    if dropped:
        print_line(f"Not in the whitelist, so that block 1 drops them: {', '.join(dropped)}.")
    print_line(f"{'would be written' if dry_run else 'written'}: {report.path}")
    if report.expected_s is not None:
        print_line(f"expected time to measure on {report.device_product}: {duration(report.expected_s)}")
    print_origin()
    if not dry_run:
        print_line("\nNext steps:")
        print_commands(
            [
                (command("count", report.name, "--meta"), "run each tuple on shapes"),
                (command("filter", report.name), "keep those of the whitelist"),
                (command("measure", report.name, *USUAL_OPTIONS), "measure them"),
            ]
        )


def print_census(rows: Sequence[CensusRow]) -> None:
    """Print the numbers of calls and tuples of each model, and of all together."""
    columns: Cells[CensusRow] = (
        (Column("model", "left"), lambda row: row.name or "total"),
        (Column("calls"), lambda row: str(row.calls)),
        (Column("tuples"), lambda row: str(row.tuples)),
        (Column("shared tuples"), lambda row: str(row.shared_tuples)),
        (Column("unshared tuples"), lambda row: str(row.unshared_tuples)),
    )
    print_records("Calls and tuples of operators that compute something", rows, columns)
    print_origin()


def print_selections(reports: Sequence[FilterReport], dry_run: bool) -> None:
    """Print the operators that block 1 kept and dropped, with their shares of the model."""
    # Name, number of tuples, and share of the model.
    rows: list[tuple[str, int, Share]] = []
    for report in reports:
        kept, dropped = (
            [(f"    {one.operator}", one.unique_tuples, one.share) for one in report.operators if one.kept == is_kept]
            for is_kept in (True, False)
        )
        rows += [(f"{report.name}: kept", report.kept_tuples, report.kept), *kept]
        rows += [("  dropped", report.unique_tuples - report.kept_tuples, report.dropped), *dropped]
        rows.append(("  in no operator", 0, report.outside))
    columns: Cells[tuple[str, int, Share]] = (
        (Column("model", "left"), lambda row: row[0]),
        (Column("tuples"), lambda row: str(row[1] or UNKNOWN)),
        (Column("calls"), lambda row: str(row[2].calls or UNKNOWN)),
        (Column("share of calls", drop=1), lambda row: percent(row[2].calls_ratio)),
        (Column("share of FLOPs"), lambda row: percent(row[2].flop_ratio)),
        (Column("share of bytes"), lambda row: percent(row[2].memory_bytes_ratio)),
    )
    title = "Operators kept and dropped by the whitelist" + dry_run_note(dry_run, "nothing was written")
    print_records(title, rows, columns)
    for report in reports:
        numbers = f"{report.kept_tuples} kept tuples, {report.measurements} measurements"
        print_line(f"{report.name}: {numbers} (one for each kind of input data)")
    print_origin()


def print_advice(advice: Advice, is_written: bool) -> None:
    """Print the whitelist's coverage of each model, the operators to add, and the smallest sufficient whitelist."""
    # It imports numpy, which block 1 does not need.
    from opcost.comparing.remarks import NO_RESULT_RATIO, NOTICEABLE_RATIO

    def mark(one: ModelAdvice) -> str:
        return doubt_mark(one.doubtful_ratio >= NO_RESULT_RATIO)

    columns: Cells[ModelAdvice] = (
        (Column("model", "left"), lambda one: one.name or "mean"),
        (Column("time"), lambda one: percent(one.time_ratio) + mark(one)),
        (Column("energy"), lambda one: percent(one.energy_ratio) + mark(one) * (one.energy_ratio is not None)),
        (Column("measured", drop=1), lambda one: percent(one.measured_ratio, digits=0)),
        (Column("time of the whole", drop=2), lambda one: percent(one.whole_time_ratio)),
        (Column("energy of the whole", drop=3), lambda one: percent(one.whole_energy_ratio)),
        (Column("reached", "left", wraps=12), _reached),
        (
            Column("to add", "left", wraps=20),
            lambda one: ", ".join(add.operator for add in one.additions if one.name),
        ),
    )
    conditions, target = advice.conditions, f"target {100 * advice.target_ratio:g} %"
    under = f"{target} ({conditions.device_product}, {conditions.precision}, {conditions.execution})"
    title = "Coverage by the old whitelist" if is_written else "Coverage by the whitelist"
    print_records(f"{title}, {under}", (*advice.models, advice.all_models), columns)
    lower, _, upper = advice.estimated_ratios
    print_line("Operators without a row are estimated from FLOPs and bytes.")
    print_line(f"Estimated over measured time of measured operators: {lower:.2f} to {upper:.2f} (quartiles).")
    flagged = [one for one in advice.models if one.doubtful_ratio >= NOTICEABLE_RATIO]
    if flagged:
        named = "; ".join(f"{one.name} {percent(one.doubtful_ratio)}" for one in flagged)
        print_line(f"A part of the time is from flagged measurements, which can be off by any factor: {named}")
    outside = advice.all_models.additions
    if outside:
        shares: Cells[Addition] = (
            (Column("mean share of a model", "left"), lambda one: one.operator),
            (Column("time"), lambda one: percent(one.share.time_ratio)),
            (Column("energy"), lambda one: percent(one.share.energy_ratio)),
        )
        print_line("")
        print_records("Operators outside the whitelist", outside[:OPERATORS_SHOWN], shares)
        if len(outside) > OPERATORS_SHOWN:
            print_line(f"and {len(outside) - OPERATORS_SHOWN} more; --json names them")
    label = "written" if is_written else "smallest whitelist that reaches the target"
    print_line(f"{label}: {', '.join(advice.smallest)}")
    if advice.no_longer:
        print_line(f"{'removed' if is_written else 'not needed for the target'}: {', '.join(advice.no_longer)}")
    print_origin(*shared_facts([conditions]))


def _reached(model: ModelAdvice) -> str:
    if model.name is None:
        return "by all" if model.is_reached else "not by all"
    doubts = (", time only" * (model.energy_ratio is None), ", estimated" * (model.measured_ratio < MOSTLY))
    return ("yes" if model.is_reached else "no") + "".join(doubts)
