"""Tables of counts, whitelists, replays and drawn lists, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opcost.invocation import command
from opcost.measuring.protocol import USUAL_OPTIONS
from opcost.operators.counts import FORMULA_REMEDY, flop_missing_reason
from opcost.operators.whitelist import Share
from opcost.reporting.tables import doubt_mark, dry_run_note, print_origin, shared_facts
from opcost.reporting.terminal import Cells, Column, print_commands, print_line, print_records, print_table
from opcost.stages.filter import FilterReport
from opcost.units import UNKNOWN, duration, gigaflop, megabytes, number_of, percent

if TYPE_CHECKING:
    from opcost.stages.advise import Advice, ModelAdvice

    # Only for types: these modules import torch, or are not needed.
    from opcost.stages.count import CensusRow, CountPlan, CountReport
    from opcost.stages.replay import RebuildReport
    from opcost.stages.sample_operators import DrawnKind, SampleReport


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
    _print_formula_gaps(reports)
    print_origin()


def _flops(report: CountReport) -> str:
    if report.flops is None:
        return f"≥ {gigaflop(report.least_flops)}" if report.least_flops else UNKNOWN
    return gigaflop(report.flops)


def _print_formula_gaps(reports: Sequence[CountReport]) -> None:
    """Print the operations without a formula of each model with their shares, and the remedy."""
    incomplete = [report for report in reports if report.without_formula]
    for report in incomplete:
        gaps = ", ".join(
            f"{gap.operation} ({percent(gap.calls_ratio)} of calls, {percent(gap.memory_bytes_ratio)} of bytes)"
            for gap in report.without_formula
        )
        print_line(f"{report.name}: {flop_missing_reason([gaps])}")
    if incomplete:
        print_line(f"Their FLOPs are unknown, and in no total. To add a formula, {FORMULA_REMEDY}.")


def print_rebuilds(reports: Sequence[RebuildReport]) -> None:
    """Print the number of rebuilt tuples of each model, and the others with the reason."""
    columns = ("model", "new tuples", "same as counted", "value-dependent", "failed")
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
    print_table("Operator tuples rebuilt and run alone", columns, [*rows, ("total", *together)])
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
    columns = ("model", "calls", "tuples", "shared tuples", "unshared tuples")
    cells = [
        (row.name or "total", str(row.calls), str(row.tuples), str(row.shared_tuples), str(row.unshared_tuples))
        for row in rows
    ]
    print_table("Calls and tuples of operators that compute something", columns, cells)
    print_origin()


def print_selections(reports: Sequence[FilterReport], dry_run: bool) -> None:
    """Print the operators that block 1 kept and dropped, with their shares of the model."""
    columns = (
        Column("model", "left"),
        Column("tuples"),
        Column("calls"),
        Column("share of calls", drop=1),
        Column("share of FLOPs"),
        Column("share of bytes"),
    )
    rows = []
    for report in reports:
        rows.append(_share_row(f"{report.name}: kept", report.kept_tuples, report.kept))
        rows.extend(_operator_rows(report, kept=True))
        rows.append(_share_row("  dropped", report.unique_tuples - report.kept_tuples, report.dropped))
        rows.extend(_operator_rows(report, kept=False))
        rows.append(_share_row("  in no operator", 0, report.outside))
    print_table(
        "Operators kept and dropped by the whitelist" + dry_run_note(dry_run, "nothing was written"), columns, rows
    )
    for report in reports:
        tuples, measurements = report.kept_tuples, report.measurements
        print_line(
            f"{report.name}: {tuples} kept tuples, {measurements} measurements (one for each kind of input data)"
        )
    print_origin()


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


def _share(part: int | None, whole: int | None) -> str:
    return percent(part / whole if whole and part is not None else None)


MOSTLY = 0.5
"""A share of measured time below which a verdict rests on estimates."""

OPERATORS_SHOWN = 12
"""Operators outside the whitelist that are named on the screen."""


def print_advice(advice: Advice, is_written: bool) -> None:
    """Print the whitelist's coverage of each model, the operators to add, and the smallest sufficient whitelist."""
    # Both import numpy, which block 1 does not need.
    from opcost.comparing.ranking import FLAGGED_RATIO
    from opcost.comparing.remark_rules import NOTICEABLE_RATIO

    def mark(one: ModelAdvice) -> str:
        return doubt_mark(one.doubtful_ratio >= FLAGGED_RATIO)

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
            lambda one: ", ".join(addition.operator for addition in one.additions if one.name),
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
        shares = "; ".join(f"{one.name} {percent(one.doubtful_ratio)}" for one in flagged)
        print_line(f"A part of the time is from flagged measurements, which can be off by any factor: {shares}")
    outside = [
        (one.operator, percent(one.share.time_ratio), percent(one.share.energy_ratio))
        for one in advice.all_models.additions
    ]
    if outside:
        shown = outside[:OPERATORS_SHOWN]
        print_line("")
        print_table("Operators outside the whitelist", ("mean share of a model", "time", "energy"), shown)
        if len(outside) > len(shown):
            print_line(f"and {len(outside) - len(shown)} more; --json names them")
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
