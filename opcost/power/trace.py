"""Power traces: the rows that a meter logged, the fresh readings among them, and the mean power of a window.

A meter repeats a value until it has a new one; a fresh reading is the first row of a new value. A meter also averages
over a time of its own. The mean therefore uses fresh readings only and excludes the meter's rise time. Readings within
one averaging time are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import numpy.typing as npt

from opcost.estimates import (
    BATCHES,
    LEAST_SERIES,
    Estimate,
    FloatArray,
    correlation_length,
    error_of_beating,
    independent_averages,
    mean_of_readings,
)
from opcost.power.ports import PowerSource

MINIMUM_INDEPENDENT = 1.01
"""The error of a mean can be estimated from more than this number of independent readings."""

LONG_WINDOW = 2 * BATCHES
"""Independent readings from which the noise is estimated from the window itself, not from the qualification. Batches
are then four times as long as the noise is correlated."""

SIGNIFICANT_CHANGE = 2.5
"""Number of standard errors from which the two halves of a window differ. By coincidence 1 % of them do; of 610 short
loops of two H100 and two H200 3 % did (``docs/log/speed.md``)."""

MINIMUM_READINGS = 5
"""The fewest fresh readings that give an energy. The spread of fewer does not determine the error of their mean."""


NO_POWER_SOURCE = PowerSource("none", rise_time_s=0.0, averaging_time_s=0.0)


@dataclass(frozen=True)
class Window:
    """A time window in epoch seconds."""

    begin_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s

    def holds(self, epoch_s: FloatArray) -> npt.NDArray[np.bool_]:
        """Return which moments are inside, both ends included; shape (n,)."""
        inside: npt.NDArray[np.bool_] = (epoch_s >= self.begin_s) & (epoch_s <= self.end_s)
        return inside


@dataclass(frozen=True, eq=False)
class PowerTrace:
    """The rows that a meter logged around one measurement, oldest first.

    All arrays have shape (n,) and hold NaN where the meter gave no value. ``power_capped`` and ``thermal_slowdown``
    are 1 where the device was throttled for that reason, else 0. ``busy_ratio`` is the share of about 0.2 s before a
    row in which a kernel ran. ``missing_reason`` is the reason why a trace holds no power at all. ``log_name`` names
    the file with the raw rows. ``checks`` are the traces of other meters at the same time, the best first. If
    ``checks_stand_in``, they give the power of a window in which this meter has none.
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
class DeviceState:
    """Means of the device's state over a window, None where unknown. Ratios are shares of the log's rows."""

    temperature_c: float | None
    sm_clock_hz: float | None
    power_capped_ratio: float | None
    thermal_slowdown_ratio: float | None
    memory_temperature_c: float | None = None
    busy_ratio: float | None = None


def no_trace(reason: str, source: PowerSource = NO_POWER_SOURCE) -> PowerTrace:
    """Return an empty trace, for a meter that is missing or reports no power."""
    nothing = np.empty(0)
    return replace(trace_of_power(source, nothing, nothing), missing_reason=reason)


def trace_of_power(source: PowerSource, epoch_s: FloatArray, power_w: FloatArray) -> PowerTrace:
    """Return the trace of a meter that reports power only; both arrays have shape (n,)."""
    unknown = np.full(len(power_w), math.nan)
    return PowerTrace(source, epoch_s, power_w, unknown, unknown, unknown, unknown, unknown, unknown)


def joined(traces: Iterable[PowerTrace], rank: Callable[[PowerTrace], int] = lambda _: 0) -> PowerTrace:
    """Return the traces of several meters as one: the first of them, with the others as its checks.

    They are sorted by rank, then by whether they hold power, then in the order given. If none holds power, the reasons
    are joined.
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


def fresh_readings(trace: PowerTrace, window: Window) -> FloatArray:
    """Return the fresh power readings inside the window in W (see ``fresh_rows``)."""
    return fresh_rows(trace, window)[1]


def fresh_rows(trace: PowerTrace, window: Window) -> tuple[FloatArray, FloatArray]:
    """Return the fresh power readings inside the window (both ends included): epoch in s, power in W.

    A row that repeats the previous value is no fresh reading, unless the value has lasted 1.5 update periods: then a
    new reading happened to be equal. If the update period is unknown, equal readings count once.
    """
    known = ~np.isnan(trace.power_w)
    epoch_s: FloatArray = trace.epoch_s[known]
    power_w: FloatArray = trace.power_w[known]
    if len(power_w) == 0:
        return epoch_s, power_w
    inside = window.holds(epoch_s)
    if trace.source.repeats_values:
        update_period_s = trace.source.update_period_s or math.inf
        # The first row is no fresh reading: it may repeat a value from before the log began.
        is_fresh = np.concatenate([[False], power_w[1:] != power_w[:-1]])
        appeared_s = epoch_s[0]
        for row in range(len(power_w)):
            if is_fresh[row]:
                appeared_s = epoch_s[row]
            elif epoch_s[row] - appeared_s >= 1.5 * update_period_s:
                # An equal reading counts once, also after a gap in the log.
                is_fresh[row] = True
                appeared_s = epoch_s[row] - 0.5 * update_period_s
        inside &= is_fresh
    return epoch_s[inside], power_w[inside]


def device_state(trace: PowerTrace, window: Window) -> DeviceState:
    """Return the means of the device's state over a window's rows; what the meter does not report is from checks."""
    inside = window.holds(trace.epoch_s)
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


@dataclass(frozen=True)
class MeanPower:
    """The mean power of a window with its error, or the reason why it is unknown.

    ``values_w`` are the fresh readings, shape (n,); ``readings`` is the number of independent readings that they
    correspond to, rounded down.
    """

    estimate_w: Estimate | None
    readings: int
    missing_reason: str | None = None
    values_w: FloatArray = field(default_factory=lambda: np.empty(0), compare=False)


def mean_power(trace: PowerTrace, load_begin_s: float, window: Window) -> MeanPower:
    """Return the mean power of fresh readings inside a window, from the rise time after the load's begin (epoch) on."""
    if trace.missing_reason is not None:
        return MeanPower(None, 0, trace.missing_reason)
    source = trace.source
    steady = Window(max(window.begin_s, load_begin_s + source.rise_time_s), window.end_s)
    readings = fresh_readings(trace, steady)
    if len(readings) < MINIMUM_READINGS:
        reason = f"{len(readings)} fresh readings of {source.name} in the window, {MINIMUM_READINGS} needed"
        return MeanPower(None, len(readings), reason)
    power = _mean_of(trace, readings, steady)
    half = len(power.values_w) // 2
    if power.estimate_w is None or not half:
        return power
    change_w = abs(float(power.values_w[half:].mean() - power.values_w[:half].mean()))
    # The error of the difference of two halves is twice that of the whole's mean.
    if change_w <= SIGNIFICANT_CHANGE * 2 * power.estimate_w.standard_error:
        return power
    return replace(power, estimate_w=Estimate(power.estimate_w.value, change_w / 2))


def _mean_of(trace: PowerTrace, readings: FloatArray, steady: Window) -> MeanPower:
    source = trace.source
    smoothed = float(len(readings))
    if source.averaging_time_s:
        smoothed = min(smoothed, independent_averages(steady.duration_s, source.averaging_time_s))
    if smoothed < MINIMUM_INDEPENDENT:
        return _noise_outlasts_window(source, smoothed, steady.duration_s)
    of_known_noise = steady.duration_s / (2 * source.correlation_time_s) if source.correlation_time_s else math.inf
    is_apart = smoothed > len(readings) - 1
    if source.correlation_time_s and is_apart and len(readings) >= LEAST_SERIES:
        beating = error_of_beating(readings)
        if beating is not None:
            # Readings beat about their mean, as those of a load with a period of its own do. The known noise averages
            # over ``of_known_noise`` readings. A short window does not show it, so it is added; the error of a long
            # window contains it, and is at least as large.
            beat_w, degrees = beating
            value_w = float(readings.mean())
            known_w = source.noise_ratio * abs(value_w) / math.sqrt(max(1.0, min(of_known_noise, len(readings))))
            error_w = max(beat_w, known_w) if of_known_noise >= LONG_WINDOW else math.hypot(beat_w, known_w)
            return MeanPower(Estimate(value_w, error_w), degrees + 1, values_w=readings)
    if of_known_noise < LONG_WINDOW:
        return _in_a_short_window(trace, readings, smoothed, of_known_noise)
    # The window is long enough to estimate its noise, or the meter's noise is unknown.
    independent = smoothed
    if source.correlation_time_s:
        # The noise of the load may be correlated for longer than the meter's.
        independent = min(smoothed, len(readings) / (2 * correlation_length(readings - readings.mean())))
    if independent < MINIMUM_INDEPENDENT:
        return _noise_outlasts_window(source, independent, steady.duration_s)
    least_w = source.noise_ratio * abs(float(readings.mean())) / math.sqrt(independent)
    if np.ptp(readings) == 0:
        return _power_of_one_value(trace, readings, least_w)
    mean_w = mean_of_readings(readings, independent)
    error_w = max(mean_w.standard_error, least_w)
    return MeanPower(Estimate(mean_w.value, error_w), math.floor(independent), values_w=readings)


def _in_a_short_window(trace: PowerTrace, readings: FloatArray, smoothed: float, of_known_noise: float) -> MeanPower:
    """Return the mean of a window that is too short to show its slow noise.

    The variance has three parts. Quick noise: half the mean squared difference of neighbouring readings (von Neumann,
    Annals of Mathematical Statistics 12 (1941), 367-395), averaged over all readings. Slow noise of the meter: known
    from its qualification, averaged over ``of_known_noise`` readings. Slow noise of the load: the rest of the window's
    variance, which rests on as few readings. The effective degrees of freedom follow Welch and Satterthwaite (Guide to
    the Expression of Uncertainty in Measurement, G.4.1).

    ``smoothed`` is the number of independent readings, given the meter's averaging time, and ``of_known_noise`` that
    given the qualified noise, below 1 if the noise outlasts the window. ``readings`` are in W, shape (n,). The meter of
    ``trace`` is qualified.
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
    independent = math.floor(min(smoothed, 1 + effective))
    return MeanPower(Estimate(float(readings.mean()), math.sqrt(variance)), independent, values_w=readings)


def _noise_outlasts_window(source: PowerSource, independent: float, duration_s: float) -> MeanPower:
    reason = f"the noise of {source.name} outlasts the window of {duration_s:.2f} s"
    return MeanPower(None, math.floor(independent), reason)


@dataclass(frozen=True)
class MeteredPower:
    """The mean power of a window by one meter."""

    trace: PowerTrace
    mean: MeanPower

    @property
    def meter(self) -> str:
        return self.trace.source.name


def power_and_check(trace: PowerTrace, load_begin_s: float, window: Window) -> tuple[MeteredPower, MeteredPower | None]:
    """Return the power by the best meter that has one (the trace's, if no check stands in), and by the next best."""
    metered = [MeteredPower(logged, mean_power(logged, load_begin_s, window)) for logged in (trace, *trace.checks)]
    known = [power for power in metered if power.mean.estimate_w is not None]
    best = (known or metered)[0] if trace.checks_stand_in else metered[0]
    return best, next((power for power in known if power is not best), None)


def _power_of_one_value(trace: PowerTrace, readings: FloatArray, least_w: float) -> MeanPower:
    """Return a constant power: known to within the meter's resolution, if the trace shows another value at all.

    All values within one step of the resolution are equally likely, so the standard error is the step / sqrt(12).
    """
    steps = np.abs(np.diff(trace.power_w[~np.isnan(trace.power_w)]))
    if not steps.any():
        reason = f"{trace.source.name} showed a single value, {readings[0]:g} W, from begin to end: it may be stuck"
        return MeanPower(None, len(readings), reason)
    error_w = max(float(steps[steps > 0].min()) / math.sqrt(12), least_w)
    return MeanPower(Estimate(float(readings[0]), error_w), len(readings), values_w=readings)
