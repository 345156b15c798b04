"""Deviations of predicted costs: of kinds with enough samples, with few of them and with none, and far from all."""

import math

import numpy as np
import pytest

from opcost.prediction.learned_costs import (
    COVERAGE,
    FEWEST_SCORES,
    PRIOR_SAMPLES,
    TOO_FEW,
    UNKNOWN_HALF_WIDTH,
    Deviations,
    HeldOut,
    ModelCalls,
    class_of,
    groups_of,
    sum_deviation,
    sum_factor,
    sum_scores,
    weighted_quantile,
)

FEW_ERRORS = 3
SEED = 0


def held_out(
    classes: list[str], distances: list[float] | np.ndarray, errors: list[float] | np.ndarray, outside: object = False
) -> HeldOut:
    is_outside = np.broadcast_to(np.array(outside, dtype=bool), len(classes))
    return HeldOut(classes, np.array(distances, dtype=float), is_outside, np.array(errors, dtype=float))


def found(unknown_kinds: int = FEWEST_SCORES) -> Deviations:
    """Return the deviations of a kind ``known``, of others that were held out whole, and of one with few samples."""
    others = [f"other {place}" for place in range(unknown_kinds)]
    classes = ["known"] * 40 + others + ["few"] * FEW_ERRORS
    distances = [0.0] * 40 + [math.nan] * unknown_kinds + [TOO_FEW] * FEW_ERRORS
    errors = [0.02] * 40 + [0.4] * unknown_kinds + [0.05] * FEW_ERRORS
    return Deviations.of(held_out(classes, distances, errors))


def expected(deviations: Deviations, classes: list[str], distances: list[float], outside: object = False) -> np.ndarray:
    is_outside = np.broadcast_to(np.array(outside, dtype=bool), len(classes))
    return deviations.deviations(classes, np.array(distances), is_outside)


def test_a_kind_with_few_samples_is_between_its_own_errors_and_those_of_unknown_kinds() -> None:
    deviations = found()
    known, few, unknown = expected(deviations, ["known", "few", "few"], [0.0, TOO_FEW, math.nan])
    assert known < few < unknown == deviations.unknown
    level = FEW_ERRORS * math.log(0.05) + PRIOR_SAMPLES * math.log(unknown)
    assert few == pytest.approx(math.exp(level / (FEW_ERRORS + PRIOR_SAMPLES)))


def test_few_samples_without_errors_of_their_own_are_as_uncertain_as_none() -> None:
    few, unknown = expected(found(), ["single", "single"], [TOO_FEW, math.nan])
    assert few == unknown


@pytest.mark.parametrize(("kinds", "half_width"), [(FEWEST_SCORES - 1, UNKNOWN_HALF_WIDTH), (FEWEST_SCORES, 0.4)])
def test_the_interval_of_a_kind_without_samples_is_that_of_kinds_that_were_held_out(
    kinds: int, half_width: float
) -> None:
    deviations = found(kinds)
    (unknown,) = expected(deviations, ["new"], [math.nan])
    assert deviations.factor * unknown == pytest.approx(half_width)


def test_each_kind_without_samples_weighs_the_same_however_many_samples_it_has() -> None:
    classes = ["known"] * 40 + ["many"] * 500 + [f"other {place}" for place in range(2 * FEWEST_SCORES)]
    distances = [0.0] * 40 + [math.nan] * (len(classes) - 40)
    errors = [0.02] * 40 + [3.0] * 500 + [0.4] * (2 * FEWEST_SCORES)
    deviations = Deviations.of(held_out(classes, distances, errors))
    assert deviations.factor * deviations.unknown == pytest.approx(0.4)


def test_nine_tenths_of_calls_of_each_category_are_within_their_intervals() -> None:
    random = np.random.default_rng(SEED)
    number = 4800
    classes = [f"kind {place % 12}" for place in range(number)]
    category = np.arange(number) // 12 % 4
    distances = np.choose(category, [0.1, 0.1, 2.0, math.nan])
    is_outside = category == 2
    errors = np.choose(category, [0.02, 0.02, 0.8, 0.9]) * random.standard_normal(number)
    half = number // 2
    deviations = Deviations.of(held_out(classes[:half], distances[:half], errors[:half], is_outside[:half]))
    half_widths = deviations.factor * deviations.deviations(classes, distances, is_outside)
    is_covered = (np.abs(errors) <= half_widths)[half:]
    for one in (0, 2):
        assert is_covered[category[half:] == one].mean() == pytest.approx(COVERAGE, abs=0.03)
    # Twelve kinds are few for a quantile of 90 %, so that it is near the largest error.
    assert 1 > is_covered[category[half:] == 3].mean() > COVERAGE


def test_a_call_far_from_all_samples_is_no_less_certain_than_one_of_an_unknown_kind() -> None:
    random = np.random.default_rng(SEED)
    distances = random.uniform(0, 2, 400)
    classes = ["one"] * 400 + [f"other {place}" for place in range(FEWEST_SCORES)]
    errors = [*(0.1 * (0.05 + distances) * random.standard_normal(400)), *[0.5] * FEWEST_SCORES]
    deviations = Deviations.of(held_out(classes, [*distances, *[math.nan] * FEWEST_SCORES], errors))
    far, inside = expected(deviations, ["one", "one"], [1e6, 0.5], [True, False])
    assert inside < far == deviations.unknown


def test_small_calls_of_a_kind_have_deviations_of_their_own() -> None:
    large, small = class_of("product", False, "a"), class_of("product", True, "a")
    deviations = Deviations.of(held_out([large, small] * 100, [0.1] * 200, [0.02, 0.2] * 100))
    of_large, of_small = expected(deviations, [large, small], [0.1, 0.1])
    assert of_small == pytest.approx(10 * of_large, rel=0.3)
    # A kind of which no small call was measured has the deviation of its larger ones.
    others = Deviations.of(held_out([large] * 100, [0.1] * 100, [0.02] * 100))
    assert len(set(expected(others, [large, small], [0.1, 0.1]))) == 1


def test_a_kind_has_deviations_of_its_own_under_each_conditions_and_their_mean_under_others() -> None:
    one, other, third = (class_of("product", False, name) for name in ("one", "other", "third"))
    deviations = Deviations.of(held_out([one, other] * 200, [0.1] * 400, [0.02, 0.2] * 200))
    of_one, of_other, of_third = expected(deviations, [one, other, third], [0.1] * 3)
    assert of_other == pytest.approx(10 * of_one, rel=0.3)
    assert of_one < of_third < of_other


def test_samples_without_an_error_are_left_out_when_parts_are_joined() -> None:
    parts = [held_out(["a", "b"], [0.1, 0.2], [math.nan, 0.3]), held_out(["c"], [math.nan], [0.4], True)]
    joined = HeldOut.joined(parts)
    assert joined.classes == ["b", "c"]
    assert list(joined.errors) == [0.3, 0.4]
    assert list(joined.is_outside) == [False, True]


# Errors of sums: what adds up, and what a quantile of few families is


def factor(errors: list[float], wholes: list[ModelCalls]) -> float | None:
    number = len(errors)
    scores = sum_scores(["a"] * number, np.ones(number), np.array(errors), np.full(number, 0.1), wholes)
    return sum_factor([one.family for one in wholes], scores)


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
