"""Predicted runs: their intervals, and the reasons why these are wide."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from simulated_machine import SIMULATED_CONDITIONS

from opcost.comparing.model_result import ModelResult
from opcost.comparing.predicted_run import (
    OTHER_CONDITIONS_ERRORS,
    Knowledge,
    PredictedRun,
    Range,
    Widened,
    WidthReason,
    predicted_run,
)
from opcost.comparing.ranking import Differences, SumErrors
from opcost.estimates import Estimate
from opcost.measuring.conditions import Conditions
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple, Phase, TensorSpec
from opcost.prediction.learned_costs import (
    ENERGY,
    POWER,
    SMALL_CALLS_ERROR,
    TIME,
    Deviations,
    Forest,
    Function,
    LearnedCosts,
    Scaling,
    Surroundings,
)
from opcost.prediction.samples import Boards, Card
from opcost.summing.summation import EnergyBasis, ModelCost

ROOT = Path(__file__).parents[2]
SPEC = TensorSpec((64, 64), "float32")
NO_ERRORS = SumErrors(Differences(9, 0.0, 0.0), Differences(9, 0.0, 0.0))


def count(name: str) -> OperatorCount:
    operator = OperatorTuple(f"torch.nn.{name}", (), (SPEC,))
    return OperatorCount(operator, 1, 0, 2**20, SPEC, operations=((name.lower(), 1),))


def learned(board_deviation: float = 0.0, unknown: float = 0.5) -> LearnedCosts:
    """Return costs in which a call of ReLU deviates by a tenth, with a factor of 2 for calls and sums."""
    scaling = Scaling(np.zeros(0, dtype=np.int64), np.zeros(0), np.ones(0))
    around = Surroundings(scaling, np.zeros((1, 0)), 0.5)
    # At a distance of 0 the exponent 0 leaves the deviation of the kind.
    deviations = Deviations({"relu": 0.1}, {}, unknown, 1.0, 0.0, 2.0)
    root = np.zeros(1, dtype=np.int64)
    function = Function(Forest(root, np.zeros(1), root, root, np.array([5.0]), root, 0), {}, {"relu": 0.0})
    return LearnedCosts(
        card=Card(1, 1e13, 1e13, 1e12, 1e-6),
        conditions="one",
        cards={},
        functions={TIME: function, POWER: function},
        surroundings={"relu": around},
        few={},
        deviations={TIME: deviations, ENERGY: deviations},
        sum_factors={TIME: {"": 2.0}, ENERGY: {"": 2.0}},
        boards=Boards({}, board_deviation),
        samples=1,
    )


def run_of(
    known: LearnedCosts,
    *operators: str | OperatorCount,
    errors: SumErrors = NO_ERRORS,
    limit_w: float | None = None,
    elsewhere: Sequence[ModelCost] = (),
    measured_s: float | None = None,
    start: Conditions | None = None,
) -> PredictedRun:
    counts = tuple(count(one) if isinstance(one, str) else one for one in operators)
    time = None if measured_s is None else Estimate(measured_s, 0.0)
    cost = ModelCost(time, None, None, EnergyBasis.MEASURED, (), counts, (), 0.0, 0.0)
    conditions = replace(SIMULATED_CONDITIONS, device_power_limit_w=limit_w)
    result = ModelResult(conditions, None, cost)
    of_runs = {phase: {True: errors, False: errors} for phase in Phase}
    return predicted_run(result, Knowledge(known, of_runs, start), elsewhere)


def half_width(one: Range | None) -> float:
    return float(np.log(one.upper / one.value))


def reasons(found: PredictedRun) -> list[WidthReason]:
    return [one.reason for one in found.widened]


def test_the_interval_is_the_factor_times_the_deviation_in_energy_with_the_differences_between_boards() -> None:
    found = run_of(learned(board_deviation=0.1), "ReLU")
    assert half_width(found.time_s) == pytest.approx(0.2)
    assert half_width(found.energy_j) == pytest.approx(np.hypot(0.2, 0.1645))
    assert [found.time_s.has(found.time_s.value * ratio) for ratio in (1.2, 1.3)] == [True, False]
    assert reasons(found) == [WidthReason.UNCORRECTED]


def test_a_kind_without_any_row_widens_the_interval_and_is_named_first() -> None:
    found = run_of(learned(), "ReLU", "Erf")
    assert half_width(found.time_s) == pytest.approx(2 * np.hypot(0.5, 0.1) / 2)
    assert found.widened[0] == Widened(WidthReason.NEW_KINDS, 0.5, ("Erf",))
    assert [(one.group, one.is_new) for one in found.calls] == [("erf", True), ("relu", False)]


@pytest.mark.parametrize(("factor", "is_reason"), [(1.1, False), (3.0, True), (0.2, True)])
def test_the_interval_reaches_to_what_predicted_operators_take_on_another_card(factor: float, is_reason: bool) -> None:
    alone = run_of(learned(), "ReLU", "Erf")
    (relu,) = [one for one in alone.calls if one.group == "relu"]
    there = Estimate(factor * relu.time_s, 0.0), Estimate(factor * (relu.energy_j or 0.0), 0.0)
    other = ModelCost(*there, None, EnergyBasis.MEASURED, (relu.count,), (), (), 0.0, 0.0)
    found = run_of(learned(), "ReLU", "Erf", elsewhere=[other])
    assert found.time_s.value == alone.time_s.value
    total_s = alone.time_s.value + (factor - 1) * relu.time_s
    ends = alone.time_s.including(total_s)
    assert (found.time_s.lower, found.time_s.upper) == pytest.approx((ends.lower, ends.upper))
    assert found.energy_j.has(alone.energy_j.value + (factor - 1) * (relu.energy_j or 0.0))
    reason = Widened(WidthReason.OTHER_CARD, 0.5, ("ReLU",))
    assert (reason in found.widened) == is_reason == (found.time_s != alone.time_s)


def test_a_predicted_part_is_off_by_a_factor_and_the_measured_part_is_not() -> None:
    """The end of the whole's interval is that of the predicted part beside the rest, not a factor of all."""
    known = run_of(learned(), "ReLU").time_s.value
    found = run_of(learned(), "ReLU", measured_s=9 * known).time_s
    assert found.lower == pytest.approx(known * (9 + np.exp(-0.2)))
    assert found.upper == pytest.approx(known * (9 + np.exp(0.2)))


def test_a_call_of_unknown_flops_is_as_uncertain_as_one_of_an_unknown_kind() -> None:
    found = run_of(learned(), count("ReLU"), replace(count("ReLU"), operator=count("Net").operator, flop=None))
    assert found.widened[0] == Widened(WidthReason.UNKNOWN_FLOP, 0.5, ("Net",))
    assert [one.time_deviation for one in found.calls] == [0.5, 0.1]
    assert found.outside_time_ratio == 0.5


def test_calls_that_leave_multiprocessors_without_work_widen_the_interval_by_the_error_that_they_share() -> None:
    found = run_of(replace(learned(), card=Card(100, 1e13, 1e13, 1e12, 1e-6)), "ReLU")
    assert half_width(found.time_s) == pytest.approx(np.hypot(0.2, SMALL_CALLS_ERROR))
    assert found.widened[0] == Widened(WidthReason.SMALL_CALLS, 1.0, ("ReLU",))


def test_a_kind_with_few_samples_makes_a_narrower_interval_than_one_without() -> None:
    known = learned()
    near = replace(known.surroundings["relu"], outside_from=0.5)
    deviations = {cost: replace(one, few={"erf": 0.15}) for cost, one in known.deviations.items()}
    without = run_of(replace(known, deviations=deviations), "ReLU", "Erf")
    with_few = run_of(replace(known, deviations=deviations, few={"erf": near}), "ReLU", "Erf")
    assert half_width(with_few.time_s) < 0.5 * half_width(without.time_s)
    assert half_width(with_few.energy_j) < 0.5 * half_width(without.energy_j)
    assert (without.outside_time_ratio, with_few.outside_time_ratio) == (0.5, 0.0)


def test_with_wholes_of_too_few_families_the_interval_is_that_of_calls() -> None:
    found = run_of(replace(learned(), sum_factors={}), "ReLU")
    assert half_width(found.time_s) == pytest.approx(0.2)
    assert WidthReason.FEW_FAMILIES in reasons(found)
    assert WidthReason.FEW_FAMILIES in reasons(run_of(replace(learned(), sum_factors={TIME: {"": 2.0}}), "ReLU"))


def test_the_interval_of_a_run_that_draws_more_than_the_power_limit_is_wider() -> None:
    power_w = run_of(learned(), "ReLU").power_w
    assert power_w is not None
    below, above = (run_of(learned(), "ReLU", limit_w=ratio * power_w) for ratio in (1.0, 0.8))
    assert (below.is_above_limit, above.is_above_limit) == (False, True)
    assert above.time_s.value == below.time_s.value
    assert above.time_s.upper == pytest.approx(below.time_s.upper / 0.8)
    assert above.time_s.lower == below.time_s.lower
    assert above.energy_j.lower == pytest.approx(0.8 * below.energy_j.lower)


def test_rates_of_other_conditions_widen_the_interval_by_the_error_that_all_calls_share() -> None:
    found = run_of(learned(), "ReLU", start=SIMULATED_CONDITIONS)
    shared = OTHER_CONDITIONS_ERRORS
    assert half_width(found.time_s) == pytest.approx(np.hypot(0.2, shared[TIME]))
    assert half_width(found.energy_j) == pytest.approx(np.hypot(0.2, shared[ENERGY]))
    assert WidthReason.OTHER_CONDITIONS in reasons(found)
    assert found.start == SIMULATED_CONDITIONS


@pytest.mark.parametrize("cost", [TIME, ENERGY])
def test_that_error_is_the_largest_quantile_of_conditions_that_were_left_out(cost: str) -> None:
    rows = pd.read_csv(ROOT / "docs/data/prediction/unseen_conditions.csv")
    errors = np.log(rows[f"{cost}_ratio"]).abs().groupby(rows["left_out"])
    assert len(errors) == 6
    assert OTHER_CONDITIONS_ERRORS[cost] == pytest.approx(errors.quantile(0.9, interpolation="higher").max(), abs=0.01)


@pytest.mark.parametrize("is_assumed", [True, False])
def test_the_interval_has_the_expected_error_of_sums(is_assumed: bool) -> None:
    found = run_of(learned(), "ReLU", errors=SumErrors(Differences(9, 0.0, 0.1), Differences(9, 0.0, 0.3), is_assumed))
    assert half_width(found.time_s) == pytest.approx(np.hypot(0.2, 0.1))
    assert half_width(found.energy_j) == pytest.approx(np.hypot(0.2, 0.3))
    assert (WidthReason.FEW_WHOLES in reasons(found)) == is_assumed


def test_a_multiple_has_multiples_of_the_ends_and_a_measured_value_those_of_normal_errors() -> None:
    assert Range(2.0, 1.0, 4.0).times(0.5) == Range(1.0, 0.5, 2.0)
    assert Range.of(Estimate(2.0, 0.1)) == Range(2.0, pytest.approx(2 - 0.1645), pytest.approx(2 + 0.1645))
