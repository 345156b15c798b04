"""What the advice says of a whitelist, on a terminal."""

from __future__ import annotations

from opcost.comparing.coverage import CostShare
from opcost.reporting.tables import MOSTLY, OPERATORS_SHOWN
from opcost.reporting.terminal import print_line, print_table
from opcost.stages.advise import Advice, ModelAdvice
from opcost.units import percent


def print_advice(advice: Advice, is_written: bool) -> None:
    """Print what the whitelist reaches of each model, what it lacks, and the smallest one that would do."""
    from opcost.comparing.remark_rules import NOTICEABLE_RATIO

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
