"""Learned costs: a card with declared truth is learned, intervals hold, and what was never seen is named."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from opcost import learners
from opcost.learners import folds_of, learned_from
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.operators.values import NORMAL_DATA
from opcost.prediction.learned_costs import (
    COVERAGE,
    ENERGY,
    FAR,
    SMALL_CALLS_ERROR,
    TIME,
    UNKNOWN_HALF_WIDTH,
    Deviations,
    Forest,
    HeldOut,
    LearnedCosts,
    Lesson,
    ModelCalls,
    Surroundings,
    conformal_quantile,
    to_bytes,
)
from opcost.prediction.samples import (
    Boards,
    Samples,
    card_of,
    family_of,
    feature_names,
    kind_of,
    raw_features,
    shape_of,
)

TREES = 20
FAMILIES = [f"family {number}" for number in range(12)]


def linear(rows: int, inputs: int, outputs: int) -> OperatorCount:
    operator = OperatorTuple(
        "torch.nn.Linear",
        (("in_features", inputs), ("out_features", outputs)),
        (TensorSpec((rows, inputs), "float32"),),
    )
    moved = 4 * (rows * inputs + inputs * outputs + rows * outputs)
    return OperatorCount(
        operator, 1, 2 * rows * inputs * outputs, moved, TensorSpec((rows, outputs), "float32"),
        operations=(("addmm", 1),),
    )  # fmt: skip


def relu(rows: int, width: int) -> OperatorCount:
    spec = TensorSpec((rows, width), "float32")
    return OperatorCount(
        OperatorTuple("torch.nn.ReLU", (), (spec,)), 1, 0, 8 * rows * width, spec, operations=(("relu", 1),)
    )


def truth(count: OperatorCount) -> tuple[float, float]:
    """Return time in s and power in W of a call: the declared truth."""
    time_s = 2e-6 + (count.flop or 0) / 4e13 + count.memory_bytes / 3e12
    return time_s, 120 + 400 * (1 - 2e-6 / time_s)


def drawn(number: int, seed: int) -> list[OperatorCount]:
    random = np.random.default_rng(seed)
    counts = []
    for _ in range(number):
        rows, inputs, outputs = (int(2**power) for power in random.uniform(5, 11, 3))
        counts += [linear(rows, inputs, outputs), relu(rows, outputs)]
    return counts


def samples_of(counts: list[OperatorCount], noise: float = 0.01) -> Samples:
    random = np.random.default_rng(1)
    costs = [truth(count) for count in counts]
    times_s = np.array([time_s for time_s, _ in costs]) * np.exp(noise * random.standard_normal(len(counts)))
    kinds = tuple(map(kind_of, counts))
    return Samples(
        raw=np.array([raw_features(count, NORMAL_DATA) for count in counts]),
        kinds=kinds,
        shapes=tuple(shape_of(kind, count.operator) for kind, count in zip(kinds, counts, strict=True)),
        families=tuple(frozenset([FAMILIES[place // 2 % len(FAMILIES)]]) for place in range(len(counts))),
        times_s=times_s,
        energies_j=times_s * np.array([power_w for _, power_w in costs]),
        boards=Boards({}, 0.02),
    )


def lesson(samples: Samples, models: Sequence[ModelCalls] = ()) -> dict[str, Lesson]:
    return {"one": Lesson(samples, models, card_of(samples, 100, 700.0))}


COUNTS = drawn(120, seed=0)


@pytest.fixture(scope="module")
def learned() -> LearnedCosts:
    samples = samples_of(COUNTS)
    models = [
        ModelCalls(family, places, (3,) * len(places))
        for family in FAMILIES
        if (places := tuple(place for place, own in enumerate(samples.families) if family in own))
    ]
    return learned_from(lesson(samples, models), TREES)


def test_costs_that_were_never_measured_are_predicted(learned: LearnedCosts) -> None:
    others = drawn(60, seed=5)
    found = learned.costs([(count, NORMAL_DATA) for count in others])
    times_s, powers_w = np.array([truth(count) for count in others]).T
    assert np.median(np.abs(found.times_s / times_s - 1)) < 0.03
    assert np.median(np.abs(found.energies_j / (times_s * powers_w) - 1)) < 0.04


@pytest.mark.parametrize("wrong", [np.zeros(0), np.zeros((2, 2)), np.array(["x"]), None])
def test_arrays_of_another_form_are_noticed_before_use(learned: LearnedCosts, wrong: object) -> None:
    learned.try_all()
    for kind, around in learned.surroundings.items():
        found = replace(learned, surroundings={**learned.surroundings, kind: replace(around, points=wrong)})
        with pytest.raises((ArithmeticError, AttributeError, LookupError, TypeError, ValueError)):
            found.try_all()


def test_intervals_of_calls_and_of_sums_hold_the_truth(learned: LearnedCosts) -> None:
    others = drawn(200, seed=6)
    found = learned.costs([(count, NORMAL_DATA) for count in others])
    actual_s = np.array([truth(count)[0] for count in others])
    factor = learned.deviations[TIME].factor
    within = np.abs(np.log(found.times_s / actual_s)) <= factor * found.time_deviations
    assert 0.8 < within.mean() < 0.99
    held = []
    for start in range(0, len(others), 20):
        part = slice(start, start + 20)
        of_part = (found.groups[part], found.times_s[part], found.time_deviations[part], found.is_small[part])
        half_s = learned.half_width(TIME, *of_part)
        held.append(abs(found.times_s[part].sum() - actual_s[part].sum()) <= half_s)
    assert sum(held) >= 0.8 * len(held)


def test_what_lies_far_from_all_samples_is_outside(learned: LearnedCosts) -> None:
    calls = [relu(300, 512), relu(10**6, 512), linear(10**6, 512, 512)]
    found = learned.costs([(one, NORMAL_DATA) for one in calls])
    assert list(found.is_outside) == [False, True, True]
    # All that is extrapolated has errors of the same sign.
    assert found.groups == ("relu", FAR, FAR)


def test_a_kind_without_samples_is_outside(learned: LearnedCosts) -> None:
    unknown = replace(relu(64, 64), operations=(("erfinv", 1),))
    found = learned.costs([(unknown, NORMAL_DATA), (relu(64, 64), NORMAL_DATA)])
    assert (list(found.is_outside), list(found.is_new)) == ([True, False], [True, False])
    # Two kinds are too few for a quantile of their own.
    assert learned.deviations[TIME].factor * found.time_deviations[0] == pytest.approx(UNKNOWN_HALF_WIDTH)
    assert found.time_deviations[1] < 0.1


def test_small_calls_of_a_sum_share_an_error(learned: LearnedCosts) -> None:
    small, large = relu(32, 64), relu(2**11, 2**11)
    found = learned.costs([(small, NORMAL_DATA), (large, NORMAL_DATA)])
    assert list(found.is_small) == [True, False]
    none = np.zeros(2)
    half_s = learned.half_width(TIME, found.groups, found.times_s, none, found.is_small)
    assert half_s == pytest.approx(SMALL_CALLS_ERROR * found.times_s[0])


def test_the_factor_of_a_sum_is_at_least_that_of_calls(learned: LearnedCosts) -> None:
    of_call = learned.deviations[TIME].factor
    arguments = (TIME, ["relu"], np.ones(1), np.full(1, 0.1), np.zeros(1, dtype=bool))
    for of_sums, factor in ((0.0, of_call), (0.5 * of_call, of_call), (2 * of_call, 2 * of_call)):
        sums = {TIME: {"": of_sums}} if of_sums else {}
        assert replace(learned, sum_factors=sums).half_width(*arguments) == pytest.approx(0.1 * factor)


def slower(samples: Samples, factor: float) -> Samples:
    """Return samples of a card with all rates lower by a factor, with the same power."""
    return replace(samples, times_s=factor * samples.times_s, energies_j=factor * samples.energies_j)


def test_costs_of_a_kind_that_was_measured_on_another_card_only_are_learned_from_it() -> None:
    samples, other = samples_of(COUNTS), slower(samples_of(COUNTS[::2]), 3.0)
    lessons = {"one": Lesson(samples, (), card_of(samples, 100)), "other": Lesson(other, (), card_of(other, 100))}
    found = learned_from(lessons, TREES)
    on_other = found.under("other")
    assert found.card == found.cards["one"]
    relus = [(relu(2**power, 2**9), NORMAL_DATA) for power in range(6, 11)]
    costs = on_other.costs(relus)
    assert not costs.is_new.any()
    times_s = np.array([3 * truth(count)[0] for count, _ in relus])
    # The rate of the memory is known from products only, which do not reach it.
    assert np.median(np.abs(costs.times_s / times_s - 1)) < 0.4
    assert 2 < np.median(costs.times_s / found.costs(relus).times_s) < 6


def test_sums_under_conditions_with_few_families_are_at_least_as_far_off_as_the_worst_of_them() -> None:
    samples = samples_of(COUNTS, noise=0.02)
    wrong = replace(samples, times_s=samples.times_s * np.where(np.arange(len(samples)) % 24 < 2, 1.5, 1.0))
    models = [
        ModelCalls(family, places, (3,) * len(places))
        for family in FAMILIES
        if (places := tuple(place for place, own in enumerate(samples.families) if family in own))
    ]
    card = card_of(samples, 100)
    lessons = {"many": Lesson(samples, models, card), "few": Lesson(wrong, models[:1], card)}
    factors = learned_from(lessons, TREES).sum_factors[TIME]
    assert factors["few"] >= factors[""]
    assert factors["few"] > factors["many"]


def test_powers_are_shares_of_the_limit(learned: LearnedCosts) -> None:
    calls = [(COUNTS[0], NORMAL_DATA)]
    lower = replace(learned, card=replace(learned.card, power_limit_w=learned.card.power_limit_w / 2))
    assert lower.costs(calls).energies_j == pytest.approx(learned.costs(calls).energies_j / 2)
    assert lower.costs(calls).times_s == pytest.approx(learned.costs(calls).times_s)


def test_without_energies_times_are_still_predicted() -> None:
    samples = samples_of(COUNTS)
    blind = replace(samples, energies_j=np.full(len(samples), np.nan))
    found = learned_from(lesson(blind), TREES)
    assert ENERGY not in found.deviations
    costs = found.costs([(COUNTS[0], NORMAL_DATA)])
    assert costs.times_s[0] == pytest.approx(truth(COUNTS[0])[0], rel=0.1)
    assert np.isnan(costs.energies_j[0])


def test_one_known_energy_is_enough() -> None:
    samples = samples_of(COUNTS[:20])
    energies_j = np.where(np.arange(len(samples)) == 3, samples.energies_j, np.nan)
    found = learned_from(lesson(replace(samples, energies_j=energies_j)), TREES)
    (call,) = found.costs([(COUNTS[3], NORMAL_DATA)]).energies_j
    assert call > 0


def test_learning_is_deterministic_on_one_thread_with_fewer_trees_for_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    grow, trees, threads = learners.grown, [], set()

    def probed(features: np.ndarray, targets: np.ndarray, number: int) -> Forest:
        trees.append(number)
        threads.update(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return grow(features, targets, number)

    monkeypatch.setattr(learners, "grown", probed)
    monkeypatch.setattr(learners, "TREES_FOR_ERRORS", 2)
    with threadpool_limits(2):
        first, second = (to_bytes(learned_from(lesson(samples_of(COUNTS[:40])), 3)) for _ in range(2))
    assert first == second
    assert set(trees) == {2, 3}
    assert threads == {1}


@pytest.mark.parametrize("name", ["families", "shapes", "kinds"])
def test_no_group_is_on_both_sides_of_a_fold(name: str) -> None:
    own = getattr(samples_of(COUNTS), name)
    groups = [frozenset([one]) if isinstance(one, str) else one for one in own]
    folds = folds_of([sorted(one) for one in groups], 5)
    assert sorted(place for _, places in folds for place in places) == list(range(len(own)))
    for sides in folds:
        known, predicted = (frozenset().union(*(groups[place] for place in side)) for side in sides)
        assert not known & predicted


def test_a_sample_of_two_families_is_learned_from_with_neither() -> None:
    folds = folds_of([["a"], ["b"], ["a", "b"], ["c"]], 3)
    assert len(folds) == 3
    for known, predicted in folds:
        if {0, 1} & set(predicted):
            assert 2 not in known


def test_the_quantile_counts_the_call_to_come() -> None:
    assert conformal_quantile(np.arange(1.0, 10.0)) == 9
    # Of 11 that are as likely, the 10th: the 9th would cover 82 %.
    assert conformal_quantile(np.arange(1.0, 11.0)) == 10
    assert conformal_quantile(np.arange(1.0, 20.0)) == 18
    assert conformal_quantile(np.array([2.0])) == 2


def test_a_kind_of_its_own_has_the_mean_of_both_functions(learned: LearnedCosts) -> None:
    function, table = learned.functions[TIME], np.random.default_rng(0).uniform(0, 3, (4, len(feature_names())))
    of_trees, of_both = (one.predict(table, ["relu"] * 4) for one in (replace(function, smooth={}), function))
    assert of_both == pytest.approx((of_trees + function.smooth["relu"].predict(table)) / 2)


def test_deviations_grow_with_the_distance_and_cover_the_errors() -> None:
    random = np.random.default_rng(3)
    distances = random.uniform(0, 2, 2000)
    errors = 0.1 * (0.05 + distances) * random.standard_normal(2000)
    inside = np.zeros(2000, dtype=bool)
    found = Deviations.of(HeldOut(["one"] * 2000, distances, inside, errors))
    assert found.exponent == pytest.approx(1, abs=0.1)
    fresh = 0.1 * (0.05 + distances) * random.standard_normal(2000)
    within = np.abs(fresh) <= found.factor * found.deviations(["one"] * 2000, distances, inside)
    assert within.mean() == pytest.approx(COVERAGE, abs=0.02)


def test_samples_around_a_call_are_its_distance_away() -> None:
    around = Surroundings.of(np.arange(10.0).reshape(-1, 1))
    distances = around.distances(np.array([[3.0], [3.5], [100.0]]))
    assert distances[0] == pytest.approx(0, abs=1e-6)
    assert distances[1] == pytest.approx(0.5 / np.arange(10.0).std(), rel=1e-6)
    assert distances[2] > around.outside_from


@pytest.mark.parametrize(
    ("name", "family"), [("resnet50", "resnet"), ("wide_resnet50_2", "resnet"), ("vit_b_16", "vit"), ("ViT", "vit")]
)
def test_models_of_one_family_have_one_name(name: str, family: str) -> None:
    assert family_of(OperatorTuple(f"torchvision.models.{name}")) == family
