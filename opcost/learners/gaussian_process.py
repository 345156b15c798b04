"""Gaussian processes on the residuals of the roofline (Rasmussen and Williams, 2006)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern, WhiteKernel

from opcost.estimates import FloatArray
from opcost.prediction.fitted import Fitted, GaussianProcess, Scaling

LENGTH, NOISE = 6.0, 1e-2
LENGTH_RANGE, VARIANCE_RANGE, NOISE_RANGE = (0.5, 1e3), (1e-3, 1e3), (1e-6, 1.0)
"""The first length of each scaled feature and variance of the noise, and the limits. Variances are over that of the
targets."""

JITTER = 1e-8

MULTIPLE_FROM = 0.98
"""Correlation from which a feature counts as a multiple of another one."""

SAMPLES_FOR_LENGTHS = 150
STEPS = 20
"""The most samples and steps for the search of lengths, which takes most of the time. All samples are used then."""


@dataclass(frozen=True)
class GaussianProcessLearner:
    """Fits a Gaussian process with a length of its own for each feature.

    ``kernel`` has the lengths and variances, and ``scaling`` the features that they are of; None before they are
    searched for.
    """

    name: str = "Gaussian process"
    is_common: bool = False
    kernel: Kernel | None = None
    scaling: Scaling | None = None

    def tuned(self, features: FloatArray, targets: FloatArray) -> GaussianProcessLearner:
        """Return the method with the lengths and variances that make these targets likeliest."""
        scaling = _independent(Scaling.of(features), features)
        scaled = scaling.scaled(features)
        _, _, scaled_targets = _scaled(targets)
        lengths = np.full(scaled.shape[1], LENGTH)
        product = ConstantKernel(1.0, VARIANCE_RANGE) * Matern(lengths, LENGTH_RANGE, nu=1.5)
        some = np.random.default_rng(0).permutation(len(scaled))[:SAMPLES_FOR_LENGTHS]
        with warnings.catch_warnings():
            # Few steps are enough, and a length at its limit means that a feature does not matter.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = GaussianProcessRegressor(
                product + WhiteKernel(NOISE, NOISE_RANGE), alpha=JITTER, optimizer=_few_steps
            ).fit(scaled[some], scaled_targets[some])
        return replace(self, kernel=found.kernel_, scaling=scaling)

    def fit(self, features: FloatArray, targets: FloatArray) -> Fitted:
        """Return the process that fits the targets."""
        if self.kernel is None or self.scaling is None:
            return self.tuned(features, targets).fit(features, targets)
        scaled = self.scaling.scaled(features)
        centre, spread, scaled_targets = _scaled(targets)
        # scikit-learn's own fit also calculates the likelihood, for which it factorises the matrix once more.
        covariances = self.kernel(scaled)
        covariances[np.diag_indices_from(covariances)] += JITTER
        product = self.kernel.k1
        lengths = np.broadcast_to(np.asarray(product.k2.length_scale, dtype=float), (scaled.shape[1],))
        weights = spread * product.k1.constant_value * cho_solve(cho_factor(covariances), scaled_targets)
        return GaussianProcess(self.scaling, np.array(lengths), scaled / lengths, weights, centre)


def _independent(scaling: Scaling, features: FloatArray) -> Scaling:
    """Return the scaling of features that are hardly a multiple of another one, of which the first stays.

    The search takes as long as there are features, and lengths of multiples mean nothing.
    """
    correlations = np.abs(np.corrcoef(scaling.scaled(features).T)).reshape(len(scaling.columns), -1)
    kept: list[int] = []
    for place in range(len(scaling.columns)):
        if not kept or correlations[place, kept].max() < MULTIPLE_FROM:
            kept.append(place)
    return Scaling(scaling.columns[kept], scaling.means[kept], scaling.deviations[kept])


def _scaled(targets: FloatArray) -> tuple[float, float, FloatArray]:
    """Return the targets' median and deviation, and the targets less the one and over the other."""
    centre, spread = float(np.median(targets)), float(np.std(targets)) or 1.0
    return centre, spread, (targets - centre) / spread


def _few_steps(function, start, bounds):  # type: ignore[no-untyped-def]
    """Minimise as scikit-learn does, with fewer steps."""
    found = minimize(function, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": STEPS})
    return found.x, found.fun
