"""Fitted functions: what is kept predicts as scikit-learn does, and recovers what is known."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from opcost.learners import FEATURE_RATIO, grown
from opcost.prediction.learned_costs import LENGTH, NOISE, Forest, Scaling, Smooth, squared_distances


def smooth(features: np.ndarray, targets: np.ndarray) -> Smooth:
    return Smooth.of_each(features, targets[:, np.newaxis])[0]


FITS = {"trees": lambda features, targets: grown(features, targets, 30), "smooth": smooth}


def samples(number: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return features, of which one is constant and one a multiple of another, and a smooth function of two."""
    random = np.random.default_rng(seed)
    free = random.uniform(-1, 1, (number, 3)).astype(np.float32).astype(float)
    features = np.column_stack([free, np.full(number, 3.0), 2 * free[:, 0]])
    return features, np.sin(2 * free[:, 0]) + 0.5 * free[:, 1] ** 2


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_each_predicts_what_it_has_not_seen(fit: Callable[..., Forest | Smooth]) -> None:
    others, expected = samples(100, seed=1)
    predicted = fit(*samples(250)).predict(others)
    assert predicted.shape == (100,)
    assert np.sqrt(np.mean((predicted - expected) ** 2)) < 0.3 * np.std(expected)


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
@pytest.mark.parametrize("number", [1, 8])
def test_few_samples_and_equal_targets_are_enough(fit: Callable[..., Forest | Smooth], number: int) -> None:
    features, targets = samples(number)
    assert np.isfinite(fit(features, targets).predict(features)).all()
    assert fit(features, np.full(number, 2.5)).predict(features) == pytest.approx(2.5)


def test_a_forest_is_that_of_scikit_learn() -> None:
    features, targets = samples(200)
    others, _ = samples(50, seed=1)
    theirs = ExtraTreesRegressor(7, max_features=FEATURE_RATIO, random_state=0).fit(features, targets)
    assert grown(features, targets, 7).predict(others) == pytest.approx(theirs.predict(others))


def test_a_smooth_function_is_the_process_of_scikit_learn() -> None:
    features, targets = samples(60)
    others, _ = samples(300, seed=1)
    scaling, middle = Scaling.of(features), np.median(targets)
    theirs = GaussianProcessRegressor(Matern(LENGTH, nu=1.5), alpha=NOISE, optimizer=None)
    theirs.fit(scaling.scaled(features), targets - middle)
    expected = middle + theirs.predict(scaling.scaled(others))
    assert smooth(features, targets).predict(others) == pytest.approx(expected, abs=1e-6)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 3))
def test_distances_are_those_of_each_pair_whatever_the_blocks(rows: int, others: int, features: int) -> None:
    random = np.random.default_rng(rows)
    left, right = random.normal(size=(rows, features)), random.normal(size=(others, features))
    expected = ((left[:, np.newaxis] - right) ** 2).sum(axis=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opcost.prediction.learned_costs.PRODUCTS_ON_ONE_THREAD", 60)
        assert squared_distances(left, right) == pytest.approx(expected)


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
