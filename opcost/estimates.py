"""Means with standard errors, and the propagation of errors through sums, products and ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

NORMAL_QUANTILE = 1.959964
"""Half the width of a 95 % interval in standard errors, for a normal distribution."""

BATCHES = 15
"""The number of batches of batch means; 10 to 30 are recommended (Schmeiser, Operations Research 30 (1982),
556-568)."""

LEAST_SERIES = 10
"""The fewest values from which an autoregressive model is estimated: one of order 2 has 6 degrees of freedom."""

LARGEST_ORDER = 8
VALUES_PER_COEFFICIENT = 4
"""Limits of the order of an autoregressive model. A beat takes two coefficients."""

EVIDENCE = 4.0
"""From this difference of Akaike criteria, a model has considerably less support (Burnham and Anderson, Model Selection
and Multimodel Inference, 2002, 2.6)."""

SMALLEST_GAIN = 0.05
"""Smallest 1 - sum of the coefficients of a model. Below it the values drift, and a model does not know their mean."""

LEAST_SHARE = 0.5
"""The smallest error of values that beat about their mean, as a share of that of independent values. A window that does
not hold whole beats has an error that no model of the beats shows."""


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error (one standard deviation of the value), both in the same unit."""

    value: float
    standard_error: float

    def times(self, count: float) -> Estimate:
        """Return ``count`` times this estimate. The error is multiplied, too: all calls share one mean."""
        return Estimate(count * self.value, abs(count) * self.standard_error)

    def with_error(self, error: float) -> Estimate:
        return Estimate(self.value, math.hypot(self.standard_error, error))

    def less(self, other: Estimate) -> Estimate:
        return sum_of_independent([self, other.times(-1)])

    def multiplied_by(self, other: Estimate) -> Estimate:
        """Return the product with an independent estimate, to first order (as energy = power x time)."""
        error = math.hypot(self.value * other.standard_error, other.value * self.standard_error)
        return Estimate(self.value * other.value, error)

    def divided_by(self, other: Estimate) -> Estimate:
        """Return the ratio to an independent estimate, to first order. Raises ZeroDivisionError: that one is zero."""
        quotient = self.value / other.value
        error = math.hypot(self.standard_error, quotient * other.standard_error) / abs(other.value)
        return Estimate(quotient, error)


def sum_of_independent(estimates: Iterable[Estimate]) -> Estimate:
    """Return the sum of independent estimates. Their errors add in quadrature."""
    terms = list(estimates)
    return Estimate(math.fsum(term.value for term in terms), math.hypot(*(term.standard_error for term in terms)))


def weighted_mean(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of independent estimates, weighted by the inverse squares of their errors. No error may be 0."""
    weights = [estimate.standard_error**-2 for estimate in estimates]
    total = math.fsum(weights)
    value = math.fsum(w * estimate.value for w, estimate in zip(weights, estimates, strict=True)) / total
    return Estimate(value, total**-0.5)


def combined(estimates: Sequence[Estimate]) -> Estimate:
    """Return the weighted mean of several measurements of one quantity, its error scaled by their scatter.

    The error is multiplied by the Birge ratio, the root of chi squared per degree of freedom, if that is above 1
    (Particle Data Group, Review of Particle Physics, introduction, 5.2.2). The errors of several must not be 0.
    """
    if len(estimates) == 1:
        return estimates[0]
    mean = weighted_mean(estimates)
    chi_squared = math.fsum(((one.value - mean.value) / one.standard_error) ** 2 for one in estimates)
    return mean.with_error(mean.standard_error * math.sqrt(max(0.0, chi_squared / (len(estimates) - 1) - 1)))


def mean_of_readings(readings: FloatArray, independent: float) -> Estimate:
    """Return the mean of equally weighted readings, of which ``independent`` are independent.

    The error is the larger of two estimates: the spread over the independent readings, which accounts for the meter's
    averaging, and batch means, which account for slow changes of the power. Readings are in order of time, in any unit;
    for the number of independent ones, above 1, see ``independent_averages``. Raises ValueError: fewer than two
    readings, or an impossible number of independent readings.
    """
    if len(readings) < 2 or not 1 < independent <= len(readings):
        raise ValueError(f"{len(readings)} readings, {independent} of them independent")
    batches = mean_of_chunks(readings, np.full(len(readings), 1))
    # np.std divides by n: with n independent readings this is the usual standard error of a mean.
    from_spread = float(np.std(readings)) / math.sqrt(independent - 1)
    return Estimate(batches.value, max(from_spread, batches.standard_error))


def error_of_beating(values: FloatArray) -> tuple[float, int] | None:
    """Return the standard error of the mean of evenly spaced values that beat about it, and its degrees of freedom.

    It is None if they do not beat, so that the mean is no better known than that of independent values.

    The variance of a mean of n values is their spectrum at frequency zero over n; that of an autoregressive model is
    its residual variance over (1 - the sum of its coefficients) squared (Fishman, Management Science 18 (1971), 21-38).
    The order of the model is that of the smallest corrected Akaike criterion (Hurvich and Tsai, Biometrika 76 (1989),
    297-307), which must be below that of independent values by ``EVIDENCE``. The error is at least ``LEAST_SHARE`` of
    that of independent values. ``values`` are at least ``LEAST_SERIES``, in any unit.
    """
    count = len(values)
    residuals = values - values.mean()
    of_independent = math.sqrt(float(residuals @ residuals) / (count - 1) / count)
    largest = min(LARGEST_ORDER, count // VALUES_PER_COEFFICIENT)
    # All orders predict the same values, so that their criteria can be compared.
    predicted = residuals[largest:]
    all_lagged = np.column_stack([residuals[largest - lag : count - lag] for lag in range(1, largest + 1)])
    best, best_criterion = (of_independent, 0), math.inf
    for order in range(largest + 1):
        lagged = all_lagged[:, :order]
        coefficients = np.linalg.lstsq(lagged, predicted, rcond=None)[0]
        unexplained = predicted - lagged @ coefficients
        squares, free = float(unexplained @ unexplained), len(predicted) - order - 2
        gain = 1 - float(coefficients.sum())
        if squares <= 0 or free < 1 or gain < SMALLEST_GAIN:
            continue
        criterion = len(predicted) * math.log(squares / len(predicted)) + 2 * (order + 1) * len(predicted) / free
        if criterion < best_criterion:
            # The first order, 0, is that of independent values.
            best_criterion = criterion if order else criterion - EVIDENCE
            best = math.sqrt(squares / (len(predicted) - order) / count) / gain, order
    error, order = best
    if not order or error >= of_independent:
        return None
    return max(error, LEAST_SHARE * of_independent), count - 1 - 2 * order


def total_if_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of these values, None if one of them is unknown."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def ratio_if_known(value: float | None, divisor: float | None) -> float | None:
    """Return a ratio, None if one of both is unknown or the divisor is 0."""
    return None if value is None or not divisor else value / divisor


def correlation_length(residuals: FloatArray) -> float:
    """Return the integral of the autocorrelation of evenly spaced values up to its first zero, in steps.

    It is 0.5 for independent values. The mean of n values has the error of n / (2 x this) independent values.
    ``residuals`` are values minus their mean or a trend, shape (n,).
    """
    variance = float(np.mean(residuals**2))
    total = 0.5
    for lag in range(1, len(residuals) // 2):
        correlation = float(np.mean(residuals[:-lag] * residuals[lag:])) / variance if variance else 0.0
        if correlation <= 0:
            break
        total += correlation
    return total


def independent_averages(duration_s: float, averaging_time_s: float) -> float:
    """Return the number of independent values of a moving average within a window, above 1.

    The variance of the values' mean is the variance of one value divided by this number, for a quantity that varies
    independently from moment to moment: Bayley and Hammersley, Supplement to the Journal of the Royal Statistical
    Society 8 (1946), 184-197, with the triangular autocorrelation of a moving average. Both times are above 0.
    """
    averages = duration_s / averaging_time_s
    if averages < 1:
        return 1 / (1 - averages / 3)
    return averages / (1 - 1 / (3 * averages))


def mean_of_chunks(durations_s: FloatArray, iterations: npt.NDArray[np.int64]) -> Estimate:
    """Return the time per iteration of consecutive chunks of a loop, in s.

    Every iteration has the same weight. The error is that of up to ``BATCHES`` batch means of consecutive chunks, so
    that slow drift and correlated neighbours do not make it too small. Both arrays have the shape (n,), n at least 2.
    Raises ValueError: fewer than two chunks.
    """
    if len(durations_s) < 2:
        raise ValueError("the error of a mean needs at least two chunks")
    batches = min(BATCHES, len(durations_s))
    batch_durations_s, batch_iterations = in_batches(durations_s, iterations, batches)
    batch_means = batch_durations_s / batch_iterations
    mean = float(durations_s.sum() / iterations.sum())
    weights = batch_iterations / batch_iterations.sum()
    variance = float(np.sum(weights**2 * (batch_means - mean) ** 2)) * batches / (batches - 1)
    return Estimate(mean, math.sqrt(variance))


def in_batches(
    durations_s: FloatArray, iterations: npt.NDArray[np.int64], batches: int
) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Return the durations and iterations of consecutive chunks joined to a number of batches, shape (batches,)."""
    edges = np.linspace(0, len(durations_s), batches + 1).astype(int)[:-1]
    return np.add.reduceat(durations_s, edges), np.add.reduceat(iterations, edges)


def mean_over_placements(durations_s: FloatArray, iterations: npt.NDArray[np.int64], placements: int) -> Estimate:
    """Return the time per iteration of chunks that ran in several memory placements in turn, in s.

    Chunk k ran in placement k modulo ``placements``. The error is at least that of a mean over the placements.
    """
    estimate = mean_of_chunks(durations_s, iterations)
    seen = min(placements, len(durations_s))
    if seen < 2:
        return estimate
    error_s = float(np.std(_means_of_placements(durations_s, iterations, placements), ddof=1)) / math.sqrt(seen)
    return Estimate(estimate.value, max(estimate.standard_error, error_s))


def without_placement_effects(
    durations_s: FloatArray, iterations: npt.NDArray[np.int64], placements: int
) -> FloatArray:
    """Return durations without the differences between placements, in s, shape (n,).

    The residuals are scaled for the degrees of freedom that the placements' means take, so that they scatter as in one
    placement. Durations of fewer than two rounds are returned unchanged, because the two kinds of scatter cannot be
    distinguished. For the arguments see ``mean_over_placements``.
    """
    chunks = len(durations_s)
    if placements < 2 or chunks < 2 * placements:
        return durations_s
    of_placement_s = np.resize(_means_of_placements(durations_s, iterations, placements), chunks) * iterations
    of_all_s = iterations * (durations_s.sum() / iterations.sum())
    left_s: FloatArray = of_all_s + (durations_s - of_placement_s) * math.sqrt(chunks / (chunks - placements))
    return left_s


def _means_of_placements(durations_s: FloatArray, iterations: npt.NDArray[np.int64], placements: int) -> FloatArray:
    placement = np.arange(len(durations_s)) % placements
    means_s: FloatArray = np.bincount(placement, weights=durations_s) / np.bincount(placement, weights=iterations)
    return means_s


def median(values: FloatArray) -> float:
    """Return the median of values, shape (n,), n at least 1."""
    return float(np.median(values))


def mean_without_outliers(values: FloatArray) -> float:
    """Return the mean of the values within three standard deviations of the mean, shape (n,), n at least 1."""
    distance = np.abs(values - values.mean())
    # The second term keeps values that differ by rounding errors only.
    return float(values[distance <= 3 * values.std() + 1e-12 * abs(values.mean())].mean())


def is_within(estimate: Estimate, readings: int, relative_error: float) -> bool:
    """Return whether an estimate's 95 % interval is within a relative error of its value, see ``half_width_ratio``."""
    return half_width_ratio(estimate, readings) <= relative_error


def half_width_ratio(estimate: Estimate, readings: int) -> float:
    """Return half the width of the 95 % interval over the value, infinite if unknown, as of fewer than two readings."""
    degrees = min(readings, BATCHES) - 1
    if degrees <= 0:
        return math.inf
    half_width = student_quantile(degrees) * estimate.standard_error
    if estimate.value == 0:
        return math.inf if half_width else 0.0
    return half_width / abs(estimate.value)


def student_quantile(degrees: int) -> float:
    """Return half the width of a 95 % interval in standard errors, for few degrees of freedom.

    Student's quantile by its expansion about the normal quantile (Abramowitz and Stegun, Handbook of Mathematical
    Functions, 26.7.5). The error is below 1 % from 3 degrees of freedom on; the result is too small for fewer.
    """
    z = NORMAL_QUANTILE
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / degrees**power for power, term in enumerate(terms, start=1))


def estimate_of(value: float | None, standard_error: float | None) -> Estimate | None:
    """Return an estimate, None if its value or its error is None."""
    return None if value is None or standard_error is None else Estimate(value, standard_error)


def estimate_fields(name: str, unit: str, estimate: Estimate | None) -> dict[str, Any]:
    """Return two fields of a row: ``time_s`` and ``time_standard_error_s`` for the name ``time`` and the unit ``s``."""
    values = value_of(estimate), standard_error_of(estimate)
    return dict(zip((f"{name}_{unit}", f"{name}_standard_error_{unit}"), values, strict=True))


def value_of(estimate: Estimate | None) -> float | None:
    """Return an estimate's value, None without an estimate."""
    return None if estimate is None else estimate.value


def standard_error_of(estimate: Estimate | None) -> float | None:
    """Return an estimate's standard error, None without an estimate."""
    return None if estimate is None else estimate.standard_error
