"""Means and their errors, and how errors go through sums, products and ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

BATCHES = 15
"""Batch means want 10 to 30 batches (Schmeiser, Operations Research 30 (1982), 556-568)."""


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error (one standard deviation of the value), both in the same unit."""

    value: float
    standard_error: float

    def times(self, count: float) -> Estimate:
        """Return ``count`` times this estimate: n calls of one operator share one mean, so the error grows by n."""
        return Estimate(count * self.value, abs(count) * self.standard_error)

    def multiplied_by(self, other: Estimate) -> Estimate:
        """Return the product with an independent estimate, to first order (as energy = power x time)."""
        error = math.hypot(self.value * other.standard_error, other.value * self.standard_error)
        return Estimate(self.value * other.value, error)

    def divided_by(self, other: Estimate) -> Estimate:
        """Return the ratio to an independent estimate, to first order.

        Raises:
            ZeroDivisionError: the other estimate is zero.
        """
        quotient = self.value / other.value
        error = math.hypot(self.standard_error, quotient * other.standard_error) / abs(other.value)
        return Estimate(quotient, error)


def sum_of_independent(estimates: Iterable[Estimate]) -> Estimate:
    """Return the sum of independent estimates: errors add in quadrature."""
    terms = list(estimates)
    return Estimate(math.fsum(term.value for term in terms), math.hypot(*(term.standard_error for term in terms)))


def mean_of_readings(readings: FloatArray, independent: int) -> Estimate:
    """Return the mean of equally weighted readings, of which only ``independent`` tell something new.

    Args:
        readings: meter readings, shape (n,), n at least 2, any unit.
        independent: how many of them are independent, 1 to n (a one-second moving average holds one per second).

    Raises:
        ValueError: fewer than two readings, or an impossible number of independent ones.
    """
    if len(readings) < 2 or not 1 <= independent <= len(readings):
        raise ValueError(f"{len(readings)} readings, {independent} of them independent")
    spread = float(np.std(readings, ddof=1))
    return Estimate(float(np.mean(readings)), spread / math.sqrt(independent))


def mean_of_chunks(durations_s: FloatArray, iterations: npt.NDArray[np.int64]) -> Estimate:
    """Return the time per iteration of consecutive chunks of a loop, in s.

    The mean weighs every iteration equally. Its error comes from the means of up to ``BATCHES`` batches of
    consecutive chunks, so that slow drifts and correlated neighbours do not make it look smaller than it is.

    Args:
        durations_s: how long each chunk took, shape (n,), n at least 2.
        iterations: how many iterations each chunk holds, shape (n,).

    Raises:
        ValueError: fewer than two chunks.
    """
    if len(durations_s) < 2:
        raise ValueError("the error of a mean needs at least two chunks")
    edges = np.linspace(0, len(durations_s), min(BATCHES, len(durations_s)) + 1).astype(int)[:-1]
    batch_iterations = np.add.reduceat(iterations, edges)
    batch_means = np.add.reduceat(durations_s, edges) / batch_iterations
    mean = float(durations_s.sum() / iterations.sum())
    weights = batch_iterations / batch_iterations.sum()
    variance = float(np.sum(weights**2 * (batch_means - mean) ** 2)) * len(edges) / (len(edges) - 1)
    return Estimate(mean, math.sqrt(variance))
