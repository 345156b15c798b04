"""Tables of counts, whitelists, replays and drawn lists, and of what a database holds, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from opcost.columns import fields_of, grouped
from opcost.comparing.comparison import NO_RESULT_RATIO, NOTICEABLE_RATIO
from opcost.estimates import Estimate, value_of
from opcost.measuring.conditions import ADDED_FIELDS, Conditions, differing_fields
from opcost.operators.counts import FORMULA_REMEDY, Share, flop_missing_reason
from opcost.reporting.ranking_notes import condition_words
from opcost.reporting.tables import (
    Column,
    Table,
    doubt_mark,
    dry_run_note,
    of_texts,
    print_commands,
    print_line,
    print_origin,
    print_table,
    shared_facts,
    steps_of_list,
)
from opcost.stages.filter import FilterReport
from opcost.units import UNKNOWN, duration, gigaflop, megabytes, millijoules, milliseconds, number_of, percent, ratio

if TYPE_CHECKING:
    # Only for types: these modules import torch, or are not needed.
    from opcost.comparing.coverage import Addition
    from opcost.stages.advise import Advice, ModelAdvice
    from opcost.stages.count import CensusRow, CountPlan, CountReport
    from opcost.stages.holdings import HeldTier, Holdings
    from opcost.stages.sample_operators import DrawnKind, SampleReport
    from opcost.stages.strangers import Stranger
    from opcost.stages.verify import RebuildReport


MOSTLY = 0.5
"""A share of measured time below which a verdict rests on estimates."""

OPERATORS_SHOWN, MODELS_SHOWN = 12, 3
"""Operators outside the whitelist, and models with rows in part, that are named on the screen."""


def print_count_plans(plans: Sequence[CountPlan]) -> None:
    table: Table[CountPlan] = (
        Column("model", lambda one: one.name, "left"),
        Column("input", lambda one: one.model, "left", drop=1, wraps=32),
        Column("device", lambda one: one.device, "left"),
        Column("already counted", lambda one: "yes" if one.counted_before else "no", drop=2),
    )
    print_table("Models to count (dry run: nothing was run)", table, plans)
    print_line(f"total time needed: about {duration(sum(plan.expected_s for plan in plans))}")
    print_origin()


def print_counts(reports: Sequence[CountReport]) -> None:
    def flops(report: CountReport) -> str:
        is_least = report.flops is None and report.least_flops
        return f"≥ {gigaflop(report.least_flops)}" if is_least else gigaflop(report.flops)

    def share(part: int | None, whole: int | None) -> str:
        return percent(part / whole if whole and part is not None else None)

    table: Table[CountReport] = (
        Column("model", lambda one: one.name, "left"),
        Column("modules", lambda one: str(one.module_calls), drop=4),
        Column("functions", lambda one: str(one.function_calls), drop=4),
        Column("tuples", lambda one: str(one.unique_tuples)),
        Column("FLOPs", flops),
        Column("FLOPs in tuples", lambda one: share(one.counted_flops, one.flops), drop=3),
        Column("FLOPs in whitelist", lambda one: share(one.whitelisted_flops, one.flops), drop=1),
        Column("bytes", lambda one: megabytes(one.bytes)),
        Column("bytes in tuples", lambda one: share(one.counted_bytes, one.bytes), drop=3),
        Column("bytes in whitelist", lambda one: share(one.whitelisted_bytes, one.bytes), drop=2),
    )
    print_table("Operator calls and tuples of one run", table, reports)
    for report in reports:
        outside = [f"operations in no tuple: {', '.join(report.outside)}"] * bool(report.outside)
        print_line(*(f"{report.name}: {line}" for line in (*outside, *report.left_out)))
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


def print_rebuilds(reports: Sequence[RebuildReport]) -> None:
    numbers = [(one.operators, one.rebuilt, len(one.value_dependent), len(one.failures)) for one in reports]
    names = [*(report.name for report in reports), "total"]
    rows = [*numbers, [sum(column) for column in zip(*numbers, strict=True)] or [0] * 4]
    cells = [[name, *map(str, row)] for name, row in zip(names, rows, strict=True)]
    table = of_texts("model", "new tuples", "same as counted", "value-dependent", "failed")
    print_table("Operator tuples rebuilt and run alone", table, cells)
    for report in reports:
        print_line(*(f"{report.name}: value-dependent: {line}" for line in report.value_dependent))
        print_line(*(f"{report.name}: failed: {line}" for line in report.failures))
    print_origin()


def print_strangers(found: Sequence[Stranger]) -> None:
    def added(value: Estimate | None, unit: Callable[[float | None], str]) -> str:
        return UNKNOWN if value is None else f"{unit(value.value)} ± {percent(value.standard_error / value.value)}"

    table: Table[Stranger] = (
        Column("operator", lambda one: one.operator, "left", wraps=40),
        Column("host", lambda one: one.host, "left"),
        Column("calls", lambda one: str(one.inserted), drop=1),
        Column("time of host, per call", lambda one: added(one.growth.time_s, milliseconds)),
        Column("in state over it", lambda one: ratio(one.time_ratio)),
        Column("warm", lambda one: milliseconds(value_of(one.warm.time_s)), drop=2),
        Column("energy of host, per call", lambda one: added(one.growth.energy_j, millijoules)),
        Column("in state over it", lambda one: ratio(one.energy_ratio)),
    )
    print_table("Operators in foreign models", table, found)
    for name, ratios in (("time", [one.time_ratio for one in found]), ("energy", [one.energy_ratio for one in found])):
        errors = [abs(one - 1) for one in ratios if one is not None]
        if errors:
            half, most = (percent(float(one)) for one in np.quantile(errors, (0.5, 0.9), method="higher"))
            print_line(
                f"{name}: {len(errors)} in state, half of them within {half} and 90 % within {most} of their growth"
            )
    print_line(*(f"{one.operator} in {one.host}: {one.reason}" for one in found if one.reason))
    print_origin()


def print_sample(report: SampleReport, dry_run: bool) -> None:
    table: Table[DrawnKind] = (
        Column("kind", lambda one: one.kind, "left"),
        Column("known tuples", lambda one: str(one.known), drop=1),
        Column("drawn tuples", lambda one: str(one.drawn)),
        Column("largest FLOPs", lambda one: gigaflop(one.flop) if one.drawn else UNKNOWN),
        Column("largest bytes", lambda one: megabytes(one.memory_bytes) if one.drawn else UNKNOWN),
    )
    number = len(report.tuples)
    title = f"{number_of(number, 'operator tuple')} drawn"
    print_table(title + dry_run_note(dry_run, "nothing was written"), table, report.kinds)
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
        print_commands(steps_of_list(report.name, "measure them"), "Next steps")


def print_census(rows: Sequence[CensusRow]) -> None:
    table: Table[CensusRow] = (
        Column("model", lambda row: row.name or "total", "left"),
        Column("calls", lambda row: str(row.calls)),
        Column("tuples", lambda row: str(row.tuples)),
        Column("shared tuples", lambda row: str(row.shared_tuples)),
        Column("unshared tuples", lambda row: str(row.unshared_tuples)),
    )
    print_table("Calls and tuples of operators that compute something", table, rows)
    print_origin()


def print_selections(reports: Sequence[FilterReport], dry_run: bool) -> None:
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
    table: Table[tuple[str, int, Share]] = (
        Column("model", lambda row: row[0], "left"),
        Column("tuples", lambda row: str(row[1] or UNKNOWN)),
        Column("calls", lambda row: str(row[2].calls or UNKNOWN)),
        Column("share of calls", lambda row: percent(row[2].calls_ratio), drop=1),
        Column("share of FLOPs", lambda row: percent(row[2].flop_ratio)),
        Column("share of bytes", lambda row: percent(row[2].memory_bytes_ratio)),
    )
    title = "Operators kept and dropped by the whitelist" + dry_run_note(dry_run, "nothing was written")
    print_table(title, table, rows)
    for report in reports:
        numbers = f"{report.kept_tuples} kept tuples, {report.measurements} measurements"
        print_line(f"{report.name}: {numbers} (one for each kind of input data)")
    print_origin()


def print_advice(advice: Advice, is_written: bool) -> None:
    def mark(one: ModelAdvice) -> str:
        return doubt_mark(one.doubtful_ratio >= NO_RESULT_RATIO)

    def reached(one: ModelAdvice) -> str:
        if one.name is None:
            return "by all" if one.is_reached else "not by all"
        doubts = (", time only" * (one.energy_ratio is None), ", estimated" * (one.measured_ratio < MOSTLY))
        return ("yes" if one.is_reached else "no") + "".join(doubts)

    table: Table[ModelAdvice] = (
        Column("model", lambda one: one.name or "mean", "left"),
        Column("time", lambda one: percent(one.time_ratio) + mark(one)),
        Column("energy", lambda one: percent(one.energy_ratio) + mark(one) * (one.energy_ratio is not None)),
        Column("measured", lambda one: percent(one.measured_ratio, digits=0), drop=1),
        Column("time of the whole", lambda one: percent(one.whole_time_ratio), drop=2),
        Column("energy of the whole", lambda one: percent(one.whole_energy_ratio), drop=3),
        Column("reached", reached, "left", wraps=12),
        Column("to add", lambda one: ", ".join(add.operator for add in one.additions if one.name), "left", wraps=20),
    )
    conditions, target = advice.conditions, f"target {100 * advice.target_ratio:g} %"
    under = f"{target} ({conditions.device_product}, {conditions.precision}, {conditions.execution})"
    title = "Coverage by the old whitelist" if is_written else "Coverage by the whitelist"
    print_table(f"{title}, {under}", table, (*advice.models, advice.all_models))
    lower, _, upper = advice.estimated_ratios
    print_line(
        "Operators without a row are estimated from FLOPs and bytes.",
        f"Estimated over measured time of measured operators: {lower:.2f} to {upper:.2f} (quartiles).",
    )
    flagged = [one for one in advice.models if one.doubtful_ratio >= NOTICEABLE_RATIO]
    if flagged:
        named = "; ".join(f"{one.name} {percent(one.doubtful_ratio)}" for one in flagged)
        print_line(f"A part of the time is from flagged measurements, which can be off by any factor: {named}")
    outside = advice.all_models.additions
    if outside:
        shares: Table[Addition] = (
            Column("mean share of a model", lambda one: one.operator, "left"),
            Column("time", lambda one: percent(one.share.time_ratio)),
            Column("energy", lambda one: percent(one.share.energy_ratio)),
        )
        print_line("")
        print_table("Operators outside the whitelist", shares, outside[:OPERATORS_SHOWN])
        if len(outside) > OPERATORS_SHOWN:
            print_line(f"and {len(outside) - OPERATORS_SHOWN} more; --json names them")
    label = "written" if is_written else "smallest whitelist that reaches the target"
    print_line(f"{label}: {', '.join(advice.smallest)}")
    if advice.no_longer:
        print_line(f"{'removed' if is_written else 'not needed for the target'}: {', '.join(advice.no_longer)}")
    print_origin(*shared_facts([conditions]))


# The rows that a database holds

IN_FIRST_COLUMN = frozenset({"device_type", "device_product", "precision", "matmul_tf32", "cudnn_tf32", "execution"})
"""Conditions that the first column and the title name in any case."""


def print_holdings(found: Sequence[Holdings], top: int | None = None) -> None:
    """Print a table for each device, and models measured in part, at most ``top`` for each set of conditions."""
    if not found:
        print_line("No row.")
        return
    for product, of_product in groupby(found, key=lambda one: one.conditions.device_product):
        held = list(of_product)
        labelled = list(zip(_labels([one.conditions for one in held]), held, strict=True))
        facts = [fact for fact in shared_facts([one.conditions for one in held]) if fact != product]
        title = f"Rows of {product}" + (f": {', '.join(facts)}" if facts else "")
        table: Table[tuple[str, Holdings]] = (
            Column("conditions", lambda each: each[0], "left", wraps=24),
            Column("tuples", lambda each: f"{each[1].tuples:,}"),
            Column("wholes", lambda each: f"{each[1].wholes:,}", drop=1),
            Column("complete", lambda each: f"{len(each[1].complete):,}"),
            Column("in part", lambda each: f"{len(each[1].partial):,}"),
            Column("missing", lambda each: f"{each[1].missing:,}" if each[1].partial else UNKNOWN),
            Column("to measure", lambda each: duration(each[1].expected_s) if each[1].partial else UNKNOWN),
        )
        print_table(title, table, labelled)
        # The conditions with the most tuples come first.
        usual = {one.conditions.precision: one for one in reversed(held)}
        of_tiers = grouped([(tier, one) for one in usual.values() for tier in one.tiers], lambda each: each[0].tier)
        for number, tiers in sorted(of_tiers.items()):
            for tier, one in tiers:
                print_line(f"Tier {number} in {one.conditions.precision}: {_tier_words(tier)}", hanging=2)
        most = top or MODELS_SHOWN
        for label, one in labelled:
            # Those that lack the fewest tuples come first.
            texts = [
                f"{each.name} lacks {each.missing} of {number_of(each.tuples, 'tuple')} ({duration(each.expected_s)})"
                for each in one.partial[:most]
            ]
            more = f" and {len(one.partial) - most} more" if len(one.partial) > most else ""
            if texts:
                print_line(f"In part in {label}: {', '.join(texts)}{more}", hanging=2)
    print_line(
        "Complete: models of which each operator that computes something has a row. In part: models with some rows "
        "under the same conditions, the tuples that they lack, and the time to measure these, without starting. "
        "Tiers of configs say what a database is to hold, 1 first; the time of calls without a row is expected."
    )
    print_origin()


def _tier_words(tier: HeldTier) -> str:
    counted = f", {tier.models - tier.uncounted} of them counted" if tier.uncounted else ""
    texts = [f"{number_of(tier.models, 'case')}{counted}"]
    if tier.calls_ratio is not None:
        texts.append(f"{percent(tier.calls_ratio)} of the calls and {percent(tier.time_ratio)} of the time have rows")
    if tier.missing:
        texts.append(f"{number_of(tier.missing, 'tuple')} missing ({duration(tier.expected_s)})")
    return ", ".join(texts)


def _labels(conditions: Sequence[Conditions]) -> list[str]:
    """Return precision, execution, and the other conditions that differ; switches at torch's default are left out."""
    names = set(differing_fields(conditions)) - IN_FIRST_COLUMN
    fields = [field for field in fields_of(Conditions) if field.name in names]
    labels = []
    for one in conditions:
        shown = [each for each in fields if not (each.name in ADDED_FIELDS and getattr(one, each.name) is None)]
        labels.append(", ".join([one.precision, one.execution, *(condition_words(each, one) for each in shown)]))
    return labels
