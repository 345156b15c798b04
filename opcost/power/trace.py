"""Power traces: what a meter logged, which of it counts, and the mean power that follows.

Meters repeat a value until they have a new one, and smooth it over a time of their own. A mean therefore rests on
fresh readings only, leaves out the time that the meter needs to follow the load, and counts as independent about as
many readings as averaging times fit into the window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import numpy.typing as npt

from opcost.estimates import (
    BATCHES,
    Estimate,
    FloatArray,
    correlation_length,
    independent_averages,
    mean_of_readings,
)

MINIMUM_INDEPENDENT = 1.01
"""A mean that rests on no more than one independent reading has no error that could be told."""

LONG_ENOUGH = 2 * BATCHES
"""Independent readings, by the noise that the qualification found, from which a window tells of its own noise: batches
are then four times as long as that lasts."""

MINIMUM_READINGS = 5
"""Fewer fresh readings than this give no energy: their spread says too little about the error of their mean."""


@dataclass(frozen=True)
class PowerSource:
    """What is known of a meter.

    ``rise_time_s`` is how long after a step of the load its readings still show the old one; ``averaging_time_s`` is
    the time over which one reading averages; ``update_period_s`` is the longest time that it takes to a new reading,
    0 if unknown. ``repeats_values`` is False for a meter of whose rows each is a reading of its own.

    What a qualification has found, both 0 where unknown: ``correlation_time_s`` is the integral of the noise's
    autocorrelation, half an update period for independent readings; ``noise_ratio`` the standard deviation of a
    reading, as a share of the power. ``is_wrong`` says that it was found off under a steady load,
    ``is_for_steady_loads`` that it was right there and wrong under pulses.
    """

    name: str
    rise_time_s: float
    averaging_time_s: float
    update_period_s: float = 0.0
    repeats_values: bool = True
    correlation_time_s: float = 0.0
    noise_ratio: float = 0.0
    is_wrong: bool = False
    is_for_steady_loads: bool = False


NO_POWER_SOURCE = PowerSource("none", rise_time_s=0.0, averaging_time_s=0.0)


@dataclass(frozen=True)
class Window:
    """A span of time in epoch seconds."""

    begin_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True, eq=False)
class PowerTrace:
    """The rows that a meter logged around one measurement, oldest first.

    All arrays have shape (n,) and hold NaN where the meter gave no value. ``power_capped`` and ``thermal_slowdown``
    are 1 where the device held its clocks down for that reason, else 0; ``busy_ratio`` is the share of some 0.2 s
    before a row in which a kernel ran. ``missing_reason`` says why a trace holds no power at all; ``log_name`` names
    the file with the raw rows. ``checks`` are what other meters logged meanwhile, the best first; if
    ``checks_stand_in`` they give the power of a window of which this meter has none.
    """

    source: PowerSource
    epoch_s: FloatArray
    power_w: FloatArray
    temperature_c: FloatArray
    memory_temperature_c: FloatArray
    sm_clock_hz: FloatArray
    power_capped: FloatArray
    thermal_slowdown: FloatArray
    busy_ratio: FloatArray
    missing_reason: str | None = None
    log_name: str | None = None
    checks: tuple[PowerTrace, ...] = ()
    checks_stand_in: bool = True


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


@dataclass(frozen=True)
class DeviceState:
    """Means of the device's state over a window; None where the log says nothing. Ratios are shares of its rows."""

    temperature_c: float | None
    sm_clock_hz: float | None
    power_capped_ratio: float | None
    thermal_slowdown_ratio: float | None
    memory_temperature_c: float | None = None
    busy_ratio: float | None = None


def no_trace(reason: str, source: PowerSource = NO_POWER_SOURCE) -> PowerTrace:
    """Return the trace of a meter that is not there, or says nothing."""
    nothing = np.empty(0)
    return replace(trace_of_power(source, nothing, nothing), missing_reason=reason)


def trace_of_power(source: PowerSource, epoch_s: FloatArray, power_w: FloatArray) -> PowerTrace:
    """Return the trace of a meter that tells nothing but power; both arrays have shape (n,)."""
    unknown = np.full(len(power_w), math.nan)
    return PowerTrace(source, epoch_s, power_w, unknown, unknown, unknown, unknown, unknown, unknown)


def joined(traces: Iterable[PowerTrace], rank: Callable[[PowerTrace], int] = lambda _: 0) -> PowerTrace:
    """Return what several meters logged as one trace: the first of them, with the others as its checks.

    Lower ranks come first, then meters that say anything before those that say nothing, then the order is as given.
    Where none says anything, all reasons are told.
    """
    apart = [replace(logged, checks=()) for trace in traces for logged in (trace, *trace.checks)]
    first, *others = sorted(apart, key=lambda logged: (rank(logged), logged.missing_reason is not None))
    reasons = [logged.missing_reason for logged in (first, *others)]
    return replace(
        first,
        checks=tuple(others),
        log_name=next((logged.log_name for logged in apart if logged.log_name is not None), None),
        missing_reason="; ".join(map(str, dict.fromkeys(reasons))) if all(reasons) else first.missing_reason,
    )


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


def fresh_readings(trace: PowerTrace, window: Window) -> FloatArray:
    """Return the power readings in W that first appeared inside the window (see ``fresh_rows``)."""
    return fresh_rows(trace, window)[1]


def fresh_rows(trace: PowerTrace, window: Window) -> tuple[FloatArray, FloatArray]:
    """Return the power readings that first appeared inside the window (both ends included): epoch in s, power in W.

    A row that repeats the value of the row before it is no new reading, unless the value has lasted well into the
    meter's next update period: then a new reading happened to be equal. Where the update period is unknown, equal
    readings count once, so the number of readings is never too large.
    """
    known = ~np.isnan(trace.power_w)
    epoch_s: FloatArray = trace.epoch_s[known]
    power_w: FloatArray = trace.power_w[known]
    if len(power_w) == 0:
        return epoch_s, power_w
    inside = (epoch_s >= window.begin_s) & (epoch_s <= window.end_s)
    if trace.source.repeats_values:
        inside &= _is_fresh(epoch_s, power_w, trace.source.update_period_s or math.inf)
    return epoch_s[inside], power_w[inside]


def _is_fresh(epoch_s: FloatArray, power_w: FloatArray, update_period_s: float) -> npt.NDArray[np.bool_]:
    """Return which rows show a new reading. The first does not: it may repeat a value from before the log began."""
    is_fresh: npt.NDArray[np.bool_] = np.concatenate([[False], power_w[1:] != power_w[:-1]])
    appeared_s = epoch_s[0]
    for row in range(len(power_w)):
        if is_fresh[row]:
            appeared_s = epoch_s[row]
        elif epoch_s[row] - appeared_s >= 1.5 * update_period_s:
            # After a gap in the log, too, an equal reading counts once.
            is_fresh[row] = True
            appeared_s = epoch_s[row] - 0.5 * update_period_s
    return is_fresh


def device_state(trace: PowerTrace, window: Window) -> DeviceState:
    """Return the means of temperatures, clock, slowdown reasons and load over the rows inside the window.

    What the trace's own meter does not tell comes from the others that logged meanwhile.
    """
    inside = (trace.epoch_s >= window.begin_s) & (trace.epoch_s <= window.end_s)
    state = DeviceState(
        temperature_c=_known_mean(trace.temperature_c[inside]),
        sm_clock_hz=_known_mean(trace.sm_clock_hz[inside]),
        power_capped_ratio=_known_mean(trace.power_capped[inside]),
        thermal_slowdown_ratio=_known_mean(trace.thermal_slowdown[inside]),
        memory_temperature_c=_known_mean(trace.memory_temperature_c[inside]),
        busy_ratio=_known_mean(trace.busy_ratio[inside]),
    )
    for check in trace.checks:
        other = asdict(device_state(check, window))
        state = replace(state, **{name: other[name] for name, value in asdict(state).items() if value is None})
    return state


def _known_mean(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
