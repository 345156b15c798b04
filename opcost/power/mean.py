"""The mean power of a window, its error, and the check by another meter.

Meters repeat a value until they have a new one, and smooth it over a time of their own. A mean therefore rests on
fresh readings only, leaves out the time that the meter needs to follow the load, and counts as independent about as
many readings as averaging times fit into the window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from opcost.estimates import BATCHES, Estimate, FloatArray, correlation_length, independent_averages, mean_of_readings
from opcost.power.trace import PowerSource, PowerTrace, Window, fresh_readings

MINIMUM_INDEPENDENT = 1.01
"""A mean that rests on no more than one independent reading has no error that could be told."""


LONG_ENOUGH = 2 * BATCHES
"""Independent readings, by the noise that the qualification found, from which a window tells of its own noise: batches
are then four times as long as that lasts."""


MINIMUM_READINGS = 5
"""Fewer fresh readings than this give no energy: their spread says too little about the error of their mean."""


@dataclass(frozen=True)
class MeanPower:
    """The mean power of a window with its error, or the reason why there is none.

    ``values_w`` are the fresh readings that it is the mean of, shape (n,); ``readings`` is how many independent ones
    they are worth, rounded down.
    """

    estimate_w: Estimate | None
    readings: int
    missing_reason: str | None = None
    values_w: FloatArray = field(default_factory=lambda: np.empty(0), compare=False)


def mean_power(trace: PowerTrace, load_begin_s: float, window: Window) -> MeanPower:
    """Return the mean power of the fresh readings inside a window.

    Args:
        trace: the meter's rows.
        load_begin_s: when the load began (epoch); readings within the meter's rise time after it do not count.
        window: the span that the mean is wanted for (epoch).
    """
    if trace.missing_reason is not None:
        return MeanPower(None, 0, trace.missing_reason)
    source = trace.source
    steady = Window(max(window.begin_s, load_begin_s + source.rise_time_s), window.end_s)
    readings = fresh_readings(trace, steady)
    if len(readings) < MINIMUM_READINGS:
        reason = f"{len(readings)} fresh readings of {source.name} in the window, {MINIMUM_READINGS} needed"
        return MeanPower(None, len(readings), reason)
    smoothed = _readings_after_smoothing(readings, steady.duration_s, source)
    if smoothed < MINIMUM_INDEPENDENT:
        return _wandering(source, smoothed, steady.duration_s)
    of_known_noise = steady.duration_s / (2 * source.correlation_time_s) if source.correlation_time_s else math.inf
    if of_known_noise < LONG_ENOUGH:
        return _in_a_short_window(trace, readings, smoothed, of_known_noise)
    return _in_a_long_window(trace, readings, smoothed, steady.duration_s)


def _readings_after_smoothing(readings: FloatArray, duration_s: float, source: PowerSource) -> float:
    """Return how many independent readings the meter's own smoothing leaves of those in a window."""
    if not source.averaging_time_s:
        return float(len(readings))
    return min(len(readings), independent_averages(duration_s, source.averaging_time_s))


def _in_a_long_window(trace: PowerTrace, readings: FloatArray, smoothed: float, duration_s: float) -> MeanPower:
    """Return the mean of a window that shows itself how long its noise lasts, or of a meter of unknown noise."""
    source, independent = trace.source, smoothed
    if source.correlation_time_s:
        # That of a load may be of another kind than the meter's.
        independent = min(smoothed, len(readings) / (2 * correlation_length(readings - readings.mean())))
    if independent < MINIMUM_INDEPENDENT:
        return _wandering(source, independent, duration_s)
    least_w = source.noise_ratio * abs(float(readings.mean())) / math.sqrt(independent)
    if np.ptp(readings) == 0:
        return _power_of_one_value(trace, readings, least_w)
    mean_w = mean_of_readings(readings, independent)
    error_w = max(mean_w.standard_error, least_w)
    return MeanPower(Estimate(mean_w.value, error_w), math.floor(independent), values_w=readings)


def _in_a_short_window(trace: PowerTrace, readings: FloatArray, smoothed: float, of_known_noise: float) -> MeanPower:
    """Return the mean of a window so short that part of the noise hardly changes in it.

    What differs from reading to reading averages out as readings do (half the mean squared difference of neighbours:
    von Neumann, Annals of Mathematical Statistics 12 (1941), 367-395). What is slower is at least what the
    qualification found, which is known well, and averages out as slowly as that forgets itself. What the window shows
    beyond that is the load's own, and rests on few readings. How many all of it is worth is by Welch and Satterthwaite
    (Guide to the Expression of Uncertainty in Measurement, G.4.1).

    Args:
        trace: whose source is qualified.
        readings: in W, shape (n,).
        smoothed: how many of them the meter's smoothing leaves.
        of_known_noise: how many independent ones the qualified noise leaves; below 1 where it outlasts the window.
    """
    known_w2 = (trace.source.noise_ratio * float(readings.mean())) ** 2
    slow = max(1.0, min(of_known_noise, smoothed - 1))
    if np.ptp(readings) == 0:
        return _power_of_one_value(trace, readings, math.sqrt(known_w2 / slow))
    spread_w2 = float(np.var(readings, ddof=1))
    quick_w2 = min(spread_w2, float(np.mean(np.diff(readings) ** 2)) / 2)
    own_w2 = max(0.0, spread_w2 - quick_w2 - known_w2)
    variances = np.array([quick_w2 / (smoothed - 1), known_w2 / slow, own_w2 / slow])
    degrees = np.array([smoothed - 1, math.inf, max(1.0, slow - 1)])
    variance = float(variances.sum())
    effective = variance**2 / float(np.sum(variances**2 / degrees))
    tells = math.floor(min(smoothed, 1 + effective))
    return MeanPower(Estimate(float(readings.mean()), math.sqrt(variance)), tells, values_w=readings)


def _wandering(source: PowerSource, independent: float, duration_s: float) -> MeanPower:
    reason = f"{source.name} wanders for longer than the window lasts: {duration_s:.2f} s"
    return MeanPower(None, math.floor(independent), reason)


@dataclass(frozen=True)
class MeteredPower:
    """What one meter says of a window."""

    trace: PowerTrace
    mean: MeanPower

    @property
    def meter(self) -> str:
        """The name of the meter."""
        return self.trace.source.name


def power_and_check(trace: PowerTrace, load_begin_s: float, window: Window) -> tuple[MeteredPower, MeteredPower | None]:
    """Return the power by the best meter that has one, or by the only one that may give it, and by the next best.

    Args:
        trace, load_begin_s, window: as ``mean_power`` takes them.
    """
    metered = [MeteredPower(logged, mean_power(logged, load_begin_s, window)) for logged in (trace, *trace.checks)]
    known = [power for power in metered if power.mean.estimate_w is not None]
    best = (known or metered)[0] if trace.checks_stand_in else metered[0]
    return best, next((power for power in known if power is not best), None)


def _power_of_one_value(trace: PowerTrace, readings: FloatArray, least_w: float) -> MeanPower:
    """Return a power that did not move: known to within the meter's step, if the meter has ever moved.

    A value anywhere within a step is equally likely, so its standard error is the step / sqrt(12).
    """
    steps = np.abs(np.diff(trace.power_w[~np.isnan(trace.power_w)]))
    if not steps.any():
        reason = f"{trace.source.name} showed one single value, {readings[0]:g} W, from begin to end: it may be stuck"
        return MeanPower(None, len(readings), reason)
    error_w = max(float(steps[steps > 0].min()) / math.sqrt(12), least_w)
    return MeanPower(Estimate(float(readings[0]), error_w), len(readings), values_w=readings)
