"""Sparse polynomials: Lasso with a penalty chosen by ten-fold cross-validation.

This is the method of NeuralPower (Cai, Juan, Stamoulis and Marculescu, ACML 2017), here for logarithms of sizes and of
costs over the roofline, whose products of powers NeuralPower's polynomials of sizes approximate.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LassoCV

from opcost.estimates import FloatArray
from opcost.prediction.fitted import Fitted, IntArray, Polynomial, Scaling, terms

FOLDS = 10
PENALTIES = 10
MOST_FEATURES = 12
"""The most features of the products of two: those that correlate most with the targets."""

LEAST_SAMPLES = 30
"""The fewest samples for a choice among the terms of degree 2; with fewer, all terms are of degree 1."""


@dataclass(frozen=True)
class PolynomialLearner:
    """Fits a polynomial of degree 2. ``penalty`` is None before it is chosen."""

    name: str = "polynomials"
    is_common: bool = False
    penalty: float | None = None

    def tuned(self, features: FloatArray, targets: FloatArray) -> PolynomialLearner:
        """Return the method with the penalty that predicts held-out samples best."""
        products, _ = _terms_of(features, targets)
        folds = min(FOLDS, len(targets))
        with _few_steps():
            found = LassoCV(alphas=PENALTIES, cv=folds, precompute=True, **LIMITS).fit(products, _scaled(targets))
        return replace(self, penalty=float(found.alpha_))

    def for_errors(self) -> PolynomialLearner:
        return self

    def fit(self, features: FloatArray, targets: FloatArray) -> Fitted:
        """Return the polynomial that fits the targets."""
        if self.penalty is None:
            return self.tuned(features, targets).fit(features, targets)
        products, factors = _terms_of(features, targets)
        with _few_steps():
            lasso = Lasso(self.penalty, precompute=True, **LIMITS).fit(products, _scaled(targets))
        used, spread = np.flatnonzero(lasso.coef_), _spread(targets)
        return Polynomial(
            *(Scaling.of(features), factors[used], spread * lasso.coef_[used], spread * float(lasso.intercept_)),
            *(float(targets.min()), float(targets.max())),
        )


LIMITS = {"max_iter": 300, "tol": 1e-3}


@contextmanager
def _few_steps() -> Iterator[None]:
    """Expect that the search ends early: the prediction of held-out samples decides, not the last digit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _terms_of(features: FloatArray, targets: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the terms of samples, and the factors of each."""
    scaled = Scaling.of(features).scaled(features)
    correlations = np.abs(scaled.T @ (targets - targets.mean()))
    chosen = sorted(np.argsort(-correlations, kind="stable")[:MOST_FEATURES])
    pairs = itertools.combinations_with_replacement(chosen, 2) if len(targets) >= LEAST_SAMPLES else ()
    factors = np.array([*((one, -1) for one in chosen), *pairs], dtype=np.int64).reshape(-1, 2)
    return terms(scaled, factors), factors


def _spread(targets: FloatArray) -> float:
    return float(np.std(targets)) or 1.0


def _scaled(targets: FloatArray) -> FloatArray:
    scaled: FloatArray = targets / _spread(targets)
    return scaled
