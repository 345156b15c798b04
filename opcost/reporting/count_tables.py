"""What was counted, kept and replayed, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opcost.operators.whitelist import Share
from opcost.reporting.tables import _dry
from opcost.reporting.terminal import print_line, print_table
from opcost.stages.filter import FilterReport
from opcost.units import UNKNOWN, duration, gigaflop, megabytes, percent

if TYPE_CHECKING:
    # Only for types: block 1 must not import torch, as these stages do.
    from opcost.stages.count import CensusRow, CountPlan, CountReport
    from opcost.stages.replay import RebuildReport


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
