"""Predicted runs: their intervals, or the reason why these are unknown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opcost.comparing.predicted_run import Knowledge, PredictedRun, Range, SumErrors, predicted_run
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import META, OperatorTuple, TensorSpec
from opcost.prediction.features import Card
from opcost.prediction.fitted import Constant, Scaling
from opcost.prediction.intervals import Deviations, Surroundings
from opcost.prediction.learned import POWER, TIME, KindFunctions
from opcost.prediction.learned_costs import ENERGY, LearnedCosts
from opcost.prediction.samples import Boards
from opcost.summing.energy import EnergyBasis
from opcost.summing.summation import ModelCost

SPEC = TensorSpec((64, 64), "float32")


def count(name: str) -> OperatorCount:
    operator = OperatorTuple(f"torch.nn.{name}", (), (SPEC,))
    return OperatorCount(operator, 1, 0, 2**20, SPEC, operations=((name.lower(), 1),))


def learned(board_deviation: float = 0.0, unknown: float = np.nan) -> LearnedCosts:
    """Return costs in which a call of ReLU deviates by a tenth, with a factor of 2 for sums."""
    scaling = Scaling(np.zeros(0, dtype=np.int64), np.zeros(0), np.ones(0))
    around = Surroundings(scaling, np.zeros((1, 0)), 0.5)
    # At a distance of 0 the exponent 0 leaves the deviation of the kind.
    deviations = Deviations({"relu": 0.1}, {}, unknown, 0.0, 2.0)
    function = KindFunctions({}, Constant(5.0), {"relu": 0.0})
    return LearnedCosts(
        card=Card(100, 1e13, 1e13, 1e12, 1e-6),
        functions={TIME: function, POWER: function},
        surroundings={"relu": around},
        few={},
        deviations={TIME: deviations, ENERGY: deviations},
        sum_factors={TIME: 2.0, ENERGY: 2.0},
        boards=Boards({}, board_deviation),
        methods={},
        samples=1,
    )


def run_of(known: LearnedCosts, *names: str, limit_w: float | None = None) -> PredictedRun:
    counts = tuple(map(count, names))
    whole = OperatorTuple("torchvision.models.resnet18", (), (SPEC,))
    model = OperatorCounts(whole, counts, 0, 0, 0, "2.0", META)
    cost = ModelCost(None, None, None, EnergyBasis.MEASURED, (), counts, (), 0.0, 0.0)
    return predicted_run(model, cost, Knowledge(known, None, None, SumErrors(0.0, 0.0), limit_w))


def half_width(one: Range | None) -> float:
    assert one is not None
    assert one.upper is not None
    return float(np.log(one.upper / one.value))


def test_the_interval_is_the_factor_times_the_deviation() -> None:
    found = run_of(learned(), "ReLU")
    assert half_width(found.time_s) == pytest.approx(0.2)
    assert found.interval_missing_reason is None


def test_the_interval_of_energy_includes_the_differences_between_boards() -> None:
    found = run_of(learned(board_deviation=0.1), "ReLU")
    assert half_width(found.time_s) == pytest.approx(0.2)
    assert half_width(found.energy_j) == pytest.approx(np.hypot(0.2, 0.1645))


def test_an_operation_of_unknown_errors_leaves_the_interval_unknown_and_is_named_first() -> None:
    found = run_of(learned(), "ReLU", "Erf")
    assert (found.time_s.lower, found.time_s.upper) == (None, None)
    assert found.time_s.value > 0
    assert found.interval_missing_reason == "the errors of operations without enough samples are unknown (erf)"
    assert [one.kind for one in found.calls] == ["erf", "relu"]
    assert run_of(learned(unknown=0.5), "ReLU", "Erf").interval_missing_reason is None


def test_a_kind_with_few_samples_makes_a_narrower_interval_than_one_without() -> None:
    known = learned(unknown=0.5)
    near = replace(known.surroundings["relu"], outside_from=0.5)
    deviations = {cost: replace(one, few={"erf": 0.15}) for cost, one in known.deviations.items()}
    without = run_of(replace(known, deviations=deviations), "ReLU", "Erf")
    with_few = run_of(replace(known, deviations=deviations, few={"erf": near}), "ReLU", "Erf")
    assert half_width(with_few.time_s) < 0.5 * half_width(without.time_s)
    assert half_width(with_few.energy_j) < 0.5 * half_width(without.energy_j)
    assert (without.outside_time_ratio, with_few.outside_time_ratio) == (0.5, 0.0)


def test_sums_of_too_few_families_leave_the_interval_unknown() -> None:
    found = run_of(replace(learned(), sum_factors={}), "ReLU")
    assert found.time_s.upper is None
    assert found.energy_j is not None
    assert found.energy_j.lower is None
    assert found.interval_missing_reason == "whole models of fewer than 9 families are measured"
    of_time = run_of(replace(learned(), sum_factors={TIME: 2.0}), "ReLU")
    assert of_time.time_s.upper is not None
    assert of_time.interval_missing_reason == found.interval_missing_reason


def test_a_run_that_draws_more_than_the_power_limit_has_no_interval() -> None:
    power_w = run_of(learned(), "ReLU").power_w
    assert power_w is not None
    below, above = (run_of(learned(), "ReLU", limit_w=ratio * power_w) for ratio in (1.0, 0.9))
    assert (below.is_above_limit, below.interval_missing_reason) == (False, None)
    assert (above.is_above_limit, above.time_s.value) == (True, below.time_s.value)
    assert above.energy_j is not None
    assert {above.time_s.lower, above.time_s.upper, above.energy_j.lower, above.energy_j.upper} == {None}
    assert f"power limit of {0.9 * power_w:.0f} W" in str(above.interval_missing_reason)


def test_a_multiple_of_an_unknown_interval_is_unknown() -> None:
    assert Range(2.0, None, None).times(0.5) == Range(1.0, None, None)
    assert Range(2.0, 1.0, 4.0).times(0.5) == Range(1.0, 0.5, 2.0)
