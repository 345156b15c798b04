"""Errors of sums: what adds up, and what a quantile of few families is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opcost.prediction.intervals import (
    FEWEST_SCORES,
    ModelCalls,
    groups_of,
    sum_deviation,
    sum_factor,
    weighted_quantile,
)


def factor(errors: list[float], wholes: list[ModelCalls]) -> float | None:
    number = len(errors)
    return sum_factor(["a"] * number, np.ones(number), np.array(errors), np.full(number, 0.1), wholes)


def models(families: list[str]) -> list[ModelCalls]:
    """Return models of one sample each."""
    return [ModelCalls(family, (place,), (2,)) for place, family in enumerate(families)]


def test_errors_of_one_kind_add_up_and_those_of_kinds_do_not() -> None:
    costs, deviations = np.array([1.0, 2.0, 4.0]), np.array([0.1, 0.1, 0.1])
    assert sum_deviation(["a", "a", "b"], costs, deviations) == pytest.approx(math.hypot(0.3, 0.4))


def test_errors_of_all_calls_far_from_samples_add_up() -> None:
    groups = groups_of(["a", "b", "b"], np.array([True, True, False]))
    assert sum_deviation(groups, np.ones(3), np.full(3, 0.1)) == pytest.approx(math.hypot(0.2, 0.1))


def test_a_sum_with_an_unknown_deviation_has_none() -> None:
    assert math.isnan(sum_deviation(["a", "b"], np.ones(2), np.array([0.1, np.nan])))


def test_too_few_families_have_no_quantile() -> None:
    errors = [0.1 * place for place in range(FEWEST_SCORES)]
    families = [f"family {place}" for place in range(FEWEST_SCORES)]
    assert factor(errors, models(families)) == pytest.approx(8.0)
    assert factor(errors, models([*families[:-1], families[0]])) is None
    assert factor([], []) is None


def test_a_family_counts_once_however_many_models_it_has() -> None:
    # Twelve bad models of one family among nineteen others: one twentieth of all families, so they are in the tenth.
    errors, families = [0.1] * 19 + [0.9] * 12, [f"family {place}" for place in range(19)] + ["bad"] * 12
    assert factor(errors, models(families)) == pytest.approx(1.0)


def test_models_with_an_unknown_cost_have_no_score() -> None:
    errors, families = [0.1] * 9 + [math.nan] * 5, [f"family {place}" for place in range(14)]
    assert factor(errors, models(families)) == pytest.approx(1.0)


def test_intervals_cover_nine_tenths_of_further_families() -> None:
    random = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        errors = 0.1 * random.standard_normal(16).repeat(3)
        families = [f"family {place}" for place in range(15)]
        width = factor(list(errors[:45]), models([name for name in families for _ in range(3)]))
        assert width is not None
        covered.append(abs(errors[-1]) <= 0.1 * width)
    assert 0.86 < np.mean(covered) < 0.98


def test_equal_weights_give_the_usual_quantile() -> None:
    assert weighted_quantile(np.arange(1.0, 20.0), np.ones(19)) == 18
    assert weighted_quantile(np.arange(1.0, 9.0), np.ones(8)) is None
