"""Tables of the advice on a whitelist, on a terminal."""

from __future__ import annotations

from opcost.comparing.coverage import CostShare
from opcost.comparing.doubts import FLAGGED_RATIO
from opcost.reporting.tables import doubt_mark, print_origin, shared_facts
from opcost.reporting.terminal import Column, print_line, print_table
from opcost.stages.advise import Advice, ModelAdvice
from opcost.units import percent

MOSTLY = 0.5
"""A share of measured time below which a verdict rests on estimates."""

OPERATORS_SHOWN = 12
"""Operators outside the whitelist that are named on the screen."""


def print_advice(advice: Advice, is_written: bool) -> None:
    """Print the whitelist's coverage of each model, the operators to add, and the smallest sufficient whitelist."""
    from opcost.comparing.remark_rules import NOTICEABLE_RATIO

    columns = (
        Column("model", "left"),
        Column("time"),
        Column("energy"),
        Column("measured", drop=1),
        Column("time of the whole", drop=2),
        Column("energy of the whole", drop=3),
        Column("reached", "left", wraps=12),
        Column("to add", "left", wraps=20),
    )
    conditions, target = advice.conditions, f"target {100 * advice.target_ratio:g} %"
    under = f"{target} ({conditions.device_product}, {conditions.precision}, {conditions.execution})"
    title = "Coverage by the old whitelist" if is_written else "Coverage by the whitelist"
    print_table(f"{title}, {under}", columns, [_advice_cells(model) for model in (*advice.models, advice.all_models)])
    lower, _, upper = advice.estimated_ratios
    print_line("Operators without a row are estimated from FLOPs and bytes.")
    print_line(f"Estimated over measured time of measured operators: {lower:.2f} to {upper:.2f} (quartiles).")
    flagged = [one for one in advice.models if one.doubtful_ratio >= NOTICEABLE_RATIO]
    if flagged:
        shares = "; ".join(f"{one.name} {percent(one.doubtful_ratio)}" for one in flagged)
        print_line(f"A part of the time is from flagged measurements, which can be off by any factor: {shares}")
    outside = [[one.operator, *_shares(one.share)] for one in advice.all_models.additions]
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


def _advice_cells(model: ModelAdvice) -> tuple[str, ...]:
    mark = doubt_mark(model.doubtful_ratio >= FLAGGED_RATIO)
    to_add = [addition.operator for addition in model.additions] if model.name else []
    return (
        model.name or "mean",
        percent(model.time_ratio) + mark,
        percent(model.energy_ratio) + mark * (model.energy_ratio is not None),
        percent(model.measured_ratio, digits=0),
        percent(model.whole_time_ratio),
        percent(model.whole_energy_ratio),
        _reached(model),
        ", ".join(to_add),
    )


def _reached(model: ModelAdvice) -> str:
    """Return whether a model reaches the target, or whether all models do."""
    if model.name is None:
        return "by all" if model.is_reached else "not by all"
    doubts = (", time only" * (model.energy_ratio is None), ", estimated" * (model.measured_ratio < MOSTLY))
    return ("yes" if model.is_reached else "no") + "".join(doubts)


def _shares(share: CostShare) -> tuple[str, str]:
    return percent(share.time_ratio), percent(share.energy_ratio)
