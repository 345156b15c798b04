"""Gaussian processes on the residuals of the roofline (Rasmussen and Williams, 2006)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize

from opcost.estimates import FloatArray
from opcost.prediction.fitted import Fitted, GaussianProcess, Scaling, squared_distances

LENGTH, VARIANCE, NOISE = 6.0, 1.0, 1e-2
LENGTH_RANGE, VARIANCE_RANGE, NOISE_RANGE = (0.5, 1e3), (1e-3, 1e3), (1e-6, 1.0)
"""The first length of each scaled feature and variances of the function and of the noise, and the limits. Variances are
over that of the targets."""

JITTER = 1e-8

MULTIPLE_FROM = 0.98
"""Correlation from which a feature counts as a multiple of another one."""

SAMPLES_FOR_LENGTHS = 300
STEPS = 40
"""The most samples and steps for the search of lengths, which takes most of the time. All samples are used then."""


@dataclass(frozen=True)
class Kernel:
    """A Matérn kernel of order 3/2 with a length for each feature, and the variances of the function and the noise."""

    variance: float
    lengths: FloatArray
    noise: float

    @staticmethod
    def of(logarithms: FloatArray) -> Kernel:
        variance, *lengths, noise = np.exp(logarithms)
        return Kernel(float(variance), np.array(lengths), float(noise))

    def covariances(self, scaled: FloatArray) -> FloatArray:
        return self.covariances_and_decays(scaled)[0]

    def covariances_and_decays(self, scaled: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the covariances of samples, noise included, and the exponentials in them."""
        points = scaled / self.lengths
        distances = np.sqrt(3.0 * squared_distances(points, points))
        decays: FloatArray = np.exp(-distances)
        found: FloatArray = self.variance * (1.0 + distances) * decays
        found[np.diag_indices_from(found)] = self.variance + self.noise + JITTER
        return found, decays


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
        some = np.random.default_rng(0).permutation(len(features))[:SAMPLES_FOR_LENGTHS]
        scaled = scaling.scaled(features)[some]
        _, _, scaled_targets = _scaled(targets)
        number = scaled.shape[1]
        start = np.log([VARIANCE, *[LENGTH] * number, NOISE])
        bounds = np.log([VARIANCE_RANGE, *[LENGTH_RANGE] * number, NOISE_RANGE])
        found = minimize(
            lambda logarithms: unlikelihood(logarithms, scaled, scaled_targets[some]),
            start,
            method="L-BFGS-B",
            jac=True,
            bounds=bounds,
            options={"maxiter": STEPS},
        )
        return replace(self, kernel=Kernel.of(found.x), scaling=scaling)

    def for_errors(self) -> GaussianProcessLearner:
        return self

    def fit(self, features: FloatArray, targets: FloatArray) -> Fitted:
        """Return the process that fits the targets."""
        if self.kernel is None or self.scaling is None:
            return self.tuned(features, targets).fit(features, targets)
        scaled = self.scaling.scaled(features)
        centre, spread, scaled_targets = _scaled(targets)
        solved = cho_solve(cho_factor(self.kernel.covariances(scaled)), scaled_targets)
        weights = spread * self.kernel.variance * solved
        return GaussianProcess(self.scaling, self.kernel.lengths, scaled / self.kernel.lengths, weights, centre)


def unlikelihood(logarithms: FloatArray, scaled: FloatArray, targets: FloatArray) -> tuple[float, FloatArray]:
    """Return the negative logarithm of the marginal likelihood, and its gradient (Rasmussen and Williams, 5.8, 5.9).

    scikit-learn keeps an array of samples x samples x features for the gradient. Here the squared differences are
    expanded into matrix products, which takes a tenth of the time.

    Args:
        logarithms: of the kernel's variance, lengths and noise.
        scaled: the scaled features of the samples.
        targets: of the samples, with a mean near 0.
    """
    kernel = Kernel.of(logarithms)
    points = scaled / kernel.lengths
    covariances, decays = kernel.covariances_and_decays(scaled)
    factor = cho_factor(covariances, lower=True)
    weights = cho_solve(factor, targets)
    slopes = np.outer(weights, weights) - _inverse(factor[0])
    by_distance = 3.0 * kernel.variance * slopes * decays
    of_lengths = by_distance.sum(axis=1) @ points**2 - np.sum(points * (by_distance @ points), axis=0)
    of_noise = np.trace(slopes) / 2
    of_variance = np.sum(slopes * covariances) / 2 - (kernel.noise + JITTER) * of_noise
    determinant = float(np.sum(np.log(np.diag(factor[0]))))
    likelihood = -float(targets @ weights) / 2 - determinant - len(targets) / 2 * math.log(2 * math.pi)
    return -likelihood, -np.array([of_variance, *of_lengths, kernel.noise * of_noise])


def _inverse(factor: FloatArray) -> FloatArray:
    lower: FloatArray = np.tril(dpotri(factor, lower=True)[0])
    inverse: FloatArray = lower + lower.T
    inverse[np.diag_indices_from(inverse)] /= 2
    return inverse


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
    centre, spread = float(np.median(targets)), float(np.std(targets)) or 1.0
    return centre, spread, (targets - centre) / spread
