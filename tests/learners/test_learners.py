"""Learners: what they keep predicts as scikit-learn does, and recovers what is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from threadpoolctl import threadpool_info, threadpool_limits

from opcost.learners.gaussian_process import JITTER, GaussianProcessLearner, Kernel, unlikelihood
from opcost.learners.neighbours import NeighbourLearner
from opcost.learners.polynomials import PolynomialLearner
from opcost.learners.training import learned_from
from opcost.learners.trees import FEATURE_RATIO, TREES, TREES_FOR_ERRORS, TreeLearner
from opcost.prediction.fitted import Forest, Learner, squared_distances

LEARNERS: tuple[Learner, ...] = (TreeLearner(), GaussianProcessLearner(), NeighbourLearner(), PolynomialLearner())


def samples(number: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return features, of which one is constant and one a multiple of another, and a smooth function of two."""
    random = np.random.default_rng(seed)
    free = random.uniform(-1, 1, (number, 3)).astype(np.float32).astype(float)
    features = np.column_stack([free, np.full(number, 3.0), 2 * free[:, 0]])
    return features, np.sin(2 * free[:, 0]) + 0.5 * free[:, 1] ** 2


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.name)
def test_each_predicts_what_it_has_not_seen(learner: Learner) -> None:
    features, targets = samples(300)
    others, expected = samples(100, seed=1)
    predicted = learner.tuned(features, targets).fit(features[:250], targets[:250]).predict(others)
    assert predicted.shape == (100,)
    assert np.sqrt(np.mean((predicted - expected) ** 2)) < 0.3 * np.std(expected)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.name)
@pytest.mark.parametrize("number", [8, 9])
def test_few_samples_and_equal_targets_are_enough(learner: Learner, number: int) -> None:
    features, targets = samples(number)
    for known in (targets, np.full(number, 2.5)):
        fitted = learner.tuned(features, known).fit(features, known)
        assert np.isfinite(fitted.predict(features)).all()
    assert fitted.predict(features) == pytest.approx(2.5)


def test_a_forest_is_that_of_scikit_learn() -> None:
    features, targets = samples(200)
    others, _ = samples(50, seed=1)
    theirs = ExtraTreesRegressor(7, max_features=FEATURE_RATIO, random_state=0).fit(features, targets)
    assert TreeLearner(trees=7).fit(features, targets).predict(others) == pytest.approx(theirs.predict(others))


def test_only_errors_are_learned_with_fewer_trees() -> None:
    features, targets = samples(40)
    learner = TreeLearner()
    assert [len(one.fit(features, targets).roots) for one in (learner, learner.for_errors())] == [
        TREES,
        TREES_FOR_ERRORS,
    ]
    assert TreeLearner(trees=5).for_errors() == TreeLearner(trees=5)


def test_linear_algebra_is_trained_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def probed(*_: object) -> None:
        threads.extend(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")

    monkeypatch.setattr("opcost.learners.training.learned_costs", probed)
    with threadpool_limits(2):
        learned_from(None, [], 100)  # type: ignore[arg-type]
    assert set(threads) == {1}


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 3))
def test_distances_are_those_of_each_pair_whatever_the_blocks(rows: int, others: int, features: int) -> None:
    random = np.random.default_rng(rows)
    left, right = random.normal(size=(rows, features)), random.normal(size=(others, features))
    expected = ((left[:, np.newaxis] - right) ** 2).sum(axis=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opcost.prediction.fitted.PRODUCTS_ON_ONE_THREAD", 60)
        assert squared_distances(left, right) == pytest.approx(expected)


def theirs_of(kernel: Kernel) -> object:
    """Return scikit-learn's kernel."""
    return ConstantKernel(kernel.variance) * Matern(kernel.lengths, nu=1.5) + WhiteKernel(kernel.noise)


def test_a_process_is_that_of_scikit_learn() -> None:
    features, targets = samples(60)
    others, _ = samples(20, seed=1)
    tuned = GaussianProcessLearner().tuned(features, targets)
    assert tuned.scaling is not None
    assert tuned.kernel is not None
    centre, spread = np.median(targets), np.std(targets)
    theirs = GaussianProcessRegressor(theirs_of(tuned.kernel), alpha=JITTER, optimizer=None)
    theirs.fit(tuned.scaling.scaled(features), (targets - centre) / spread)
    expected = centre + spread * theirs.predict(tuned.scaling.scaled(others))
    assert tuned.fit(features, targets).predict(others) == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.floats(-1.5, 1.5), min_size=5, max_size=5))
@settings(max_examples=20, deadline=None)
def test_the_likelihood_and_its_gradient_are_those_of_scikit_learn(logarithms: list[float]) -> None:
    features, targets = samples(40)
    scaled = features[:, :3]
    theirs = GaussianProcessRegressor(theirs_of(Kernel.of(np.array(logarithms))), alpha=JITTER, optimizer=None)
    value, gradient = theirs.fit(scaled, targets).log_marginal_likelihood(np.array(logarithms), eval_gradient=True)
    found, slopes = unlikelihood(np.array(logarithms), scaled, targets)
    assert found == pytest.approx(-value, rel=1e-6)
    assert slopes == pytest.approx(-gradient, rel=1e-5, abs=1e-5)


def test_a_feature_that_is_a_multiple_of_another_has_no_length() -> None:
    tuned = GaussianProcessLearner().tuned(*samples(60))
    assert tuned.scaling is not None
    assert list(tuned.scaling.columns) == [0, 1, 2]


def test_neighbours_give_their_own_values_back() -> None:
    features, targets = samples(50)
    assert NeighbourLearner().fit(features, targets).predict(features) == pytest.approx(targets, abs=1e-3)


@given(st.integers(0, 2**32 - 1))
def test_polynomials_stay_within_what_was_seen(seed: int) -> None:
    features, targets = samples(40, seed)
    fitted = PolynomialLearner(penalty=1e-3).fit(features, targets)
    predicted = fitted.predict(100 * features)
    assert targets.min() <= predicted.min() <= predicted.max() <= targets.max()


def forest(lower: int = 1, upper: int = 2, feature: int = 0, root: int = 0) -> Forest:
    """Return a tree with two leaves, perhaps with a mistake."""
    places = [np.array(one) for one in ([feature, 0, 0], [lower, 1, 2], [upper, 1, 2], [root])]
    features, lowers, uppers, roots = places
    return Forest(features, np.zeros(3), lowers, uppers, np.array([0.0, 1.0, 2.0]), roots, 1)


def test_a_tree_goes_down_to_its_leaves() -> None:
    assert list(forest().predict(np.array([[-1.0], [0.0], [1.0]]))) == [1, 1, 2]


@pytest.mark.parametrize("mistake", [{"lower": -1}, {"upper": 3}, {"upper": 0}, {"feature": -1}, {"root": 3}])
def test_nodes_that_lead_nowhere_are_refused(mistake: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="out of"):
        forest(**mistake)
