"""Qualification of a board's power meters: latency, noise and bias, from loads whose timing is known.

A meter that samples only part of the time agrees with the others under a long step and deviates under pulses. One that
averages over a second follows the step late. The rise of power during the step gives the power temperature coefficient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from opcost.estimates import Estimate, correlation_length
from opcost.measuring.known_device import GOOD, REFERENCE, STEADY_ONLY, UNCHECKED, MeterQuality
from opcost.measuring.workload import Workload
from opcost.operators.counts import Case
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.power.ports import Clock, Meter
from opcost.power.trace import PowerTrace, Window, device_state, fresh_readings, fresh_rows

SIDE = 8192
STEADY_LOAD = Case(
    OperatorTuple(
        "torch.add",
        inputs=(TensorSpec((SIDE, SIDE), "float32"), TensorSpec((SIDE, SIDE), "float32", identity=1)),
        mode=None,
    )
)
"""Adds 256 MB to 256 MB: bound by memory, so that it stays below the power limit (H200: 657 of 700 W)."""

PAUSE_S = 2.0
STEP_S = 12.0
PULSES_S = 3.0
RARE_READS_S = 4.5
"""Long enough for three readings of a meter that updates once a second and needs one update to rise."""

REST_S = 2.0
REST_FROM_S = 0.5
"""Begin of the rest after which quick meters show the idle power, while clocks are still high."""

PULSES = ((0.03, 0.07), (0.04, 0.04), (0.01, 0.03), (0.05, 0.05))
"""Seconds on and off, in step and out of step with meters that update every 0.1 s. A round of the load takes 10 ms."""

SETTLED_S = 3.0
"""Time after a step from which every known meter shows the new power and most of the temperature's rise is over."""

WARMING_FROM_S = 0.5
"""Time after a step from which quick meters have passed their overshoot, while the temperature still rises."""

HALF_ROUND_S = 0.005
PLATEAU_RATIO = 0.05
PLATEAU_S = 0.5
MINIMUM_RISING = 3
"""The fewest readings between two powers for an estimate of the averaging time."""

SHORTEST_AVERAGING_S = 0.1
"""A load's own power takes 43 ms to 74 ms to rise (15 boards, H100 and H200), so a shorter rise does not show that the
meter averages. The memory of its noise does (``correlation_time_s``)."""

GOOD_RATIO = 0.02
"""The largest deviation of a good meter from the reference under a steady load."""

GOOD_PULSED_RATIO = 0.05
"""The largest deviation of a good meter under pulses. It is larger because edges of pulses fall within readings."""

STEP_RATIO = 0.005
"""Standard deviation of steps in the power of H200s without a change of load or temperature, relative to the power. The
largest within minutes are 2 % (``docs/log/meters.md``). Such a step may look like a temperature coefficient."""

MINIMUM_READINGS = 3

MINIMUM_TEMPERATURES = 3
"""The fewest different temperatures, rounded to degrees, for a power temperature coefficient."""


@dataclass(frozen=True)
class Timeline:
    """The windows of the loads of a qualification (epoch)."""

    pause: Window
    step: Window
    pulses: tuple[Window, ...]
    rest: Window

    @property
    def settled(self) -> Window:
        """The part of the step in which all known meters show its power."""
        return Window(self.step.begin_s + SETTLED_S, self.step.end_s)


def run_loads(
    workload: Workload, meter: Meter, clock: Clock, pause: Callable[[float], None]
) -> tuple[Timeline, PowerTrace]:
    """Run all loads while all meters log at their full rate; return the loads' windows and the trace.

    The ``workload`` has rounds of a few milliseconds. Traces of other meters are checks of the first.
    """
    workload.run(1)
    workload.finish()
    meter.start()
    try:
        begin_s = clock.read().epoch_s
        pause(PAUSE_S)
        step_begin_s = clock.read().epoch_s
        _run_for(workload, clock, STEP_S)
        step_end_s = clock.read().epoch_s
        pulses = tuple(_pulses(workload, clock, pause, on_s, off_s) for on_s, off_s in PULSES)
        rest_begin_s = clock.read().epoch_s
        pause(REST_S)
        rest = Window(rest_begin_s, clock.read().epoch_s)
    finally:
        trace = meter.stop()
    return Timeline(Window(begin_s, step_begin_s), Window(step_begin_s, step_end_s), pulses, rest), trace


def run_with_rare_reads(workload: Workload, meter: Meter, clock: Clock) -> tuple[Window, PowerTrace]:
    """Run the load for ``RARE_READS_S`` while a meter logs as rarely as in campaigns; return window and trace."""
    meter.start()
    try:
        begin_s = clock.read().epoch_s
        _run_for(workload, clock, RARE_READS_S)
        window = Window(begin_s, clock.read().epoch_s)
    finally:
        trace = meter.stop()
    return window, trace


def ratio_of_means(trace: PowerTrace, load: Window, name: str, other_name: str) -> float | None:
    """Return the ratio of two meters' mean powers over a load, as far as the first has readings; None without any."""
    by_name = {logged.source.name: logged for logged in (trace, *trace.checks)}
    if not by_name.keys() >= {name, other_name}:
        return None
    ours, theirs = by_name[name], by_name[other_name]
    epoch_s, power_w = fresh_rows(ours, _after_rise(load, ours))
    if not len(epoch_s):
        return None
    other_w = fresh_readings(theirs, Window(float(epoch_s[0]) - ours.source.averaging_time_s, float(epoch_s[-1])))
    return float(power_w.mean() / other_w.mean()) if other_w.any() else None


def qualities(timeline: Timeline, trace: PowerTrace, reference: str | None) -> list[MeterQuality]:
    """Return the quality of each meter of a trace and its checks; ``reference`` is right, None for the first one."""
    traces = [logged for logged in (trace, *trace.checks) if logged.missing_reason is None]
    sound = [logged for logged in traces if _shows_power(logged, timeline.settled)]
    right = next((logged for logged in sound if logged.source.name == reference), sound[0] if sound else None)
    if right is None:
        return [_without_power(logged) for logged in traces]
    own = right.source.name
    verdict = REFERENCE if own == reference else UNCHECKED
    qualities = [_quality(timeline, logged, right) for logged in traces]
    return [replace(quality, verdict=verdict) if quality.meter == own else quality for quality in qualities]


def reference_among(timeline: Timeline, trace: PowerTrace, preferred: str) -> str | None:
    """Return the name of the reference meter; None if the preferred one has no readings.

    It is the first of two others that agree with each other and not with the preferred one: some counters are wrong.
    """
    traces = [logged for logged in (trace, *trace.checks) if logged.missing_reason is None]
    right = next((logged for logged in traces if logged.source.name == preferred), None)
    if right is None or not len(fresh_readings(right, timeline.settled)):
        return None
    deviations = ((logged, _deviation(logged, right, timeline.settled)) for logged in traces)
    others = [logged for logged, ratio in deviations if ratio is not None and abs(ratio) > GOOD_RATIO]
    for one, other in combinations(others, 2):
        if abs(_deviation(one, other, timeline.settled) or 0.0) <= GOOD_RATIO:
            return one.source.name
    return preferred


def idle_power_w(trace: PowerTrace, window: Window) -> float | None:
    """Return the mean power of an idle device in W over a window without its first half second; None if unknown."""
    readings = fresh_readings(trace, Window(window.begin_s + REST_FROM_S, window.end_s))
    return float(readings.mean()) if len(readings) else None


def power_temperature_coefficient_per_kelvin(timeline: Timeline, trace: PowerTrace) -> Estimate | None:
    """Return the board's power temperature coefficient in 1/K; None if the step does not show it.

    It is the slope of power over temperature while the device warms, relative to the mean power. The fit uses the mean
    power at each degree, weighted by the number of readings: the first few are of a chip that is not yet evenly warm.
    The error is that of the least-squares slope with one point per degree, since readings at one degree are correlated,
    combined with that of one step of the power (``STEP_RATIO``). Power at the power limit has no coefficient.
    """
    logs = [logged for logged in (trace, *trace.checks) if not np.isnan(logged.temperature_c).all()]
    if not logs:
        return None
    window = Window(timeline.step.begin_s + WARMING_FROM_S, timeline.step.end_s)
    if (device_state(trace, window).power_capped_ratio or 0.0) > 0:
        return None
    epoch_s, power_w = fresh_rows(trace, window)
    temperature_c = np.interp(epoch_s, logs[0].epoch_s, logs[0].temperature_c)
    rounded_c = np.round(temperature_c)
    degrees, readings = np.unique(rounded_c, return_counts=True)
    if len(degrees) < MINIMUM_TEMPERATURES or not power_w.any():
        return None
    at_degree_w = np.array([power_w[rounded_c == degree].mean() for degree in degrees])
    at_degree_c = np.array([temperature_c[rounded_c == degree].mean() for degree in degrees])
    weights = readings / readings.mean()
    slope, offset = np.polyfit(at_degree_c, at_degree_w, 1, w=np.sqrt(weights))
    residuals = at_degree_w - slope * at_degree_c - offset
    squared_spread = float(np.sum(weights * (at_degree_c - np.average(at_degree_c, weights=weights)) ** 2))
    error = math.sqrt(float(np.sum(weights * residuals**2)) / max(len(degrees) - 2, 1) / squared_spread)
    mean_w = float(power_w.mean())
    step_error = STEP_RATIO / float(at_degree_c[-1] - at_degree_c[0])
    return Estimate(float(slope) / mean_w, math.hypot(error / mean_w, step_error))


def _run_for(workload: Workload, clock: Clock, duration_s: float) -> None:
    begin_s = clock.read().monotonic_s
    while clock.read().monotonic_s - begin_s < duration_s:
        workload.run(1)
    workload.finish()


def _pulses(workload: Workload, clock: Clock, pause: Callable[[float], None], on_s: float, off_s: float) -> Window:
    begin = clock.read()
    for number in range(round(PULSES_S / (on_s + off_s))):
        pulse_s = begin.monotonic_s + number * (on_s + off_s)
        while clock.read().monotonic_s < pulse_s + on_s - HALF_ROUND_S:
            # Waiting for each round ends the pulse on time.
            workload.run(1)
            workload.finish()
        pause(max(0.0, pulse_s + on_s + off_s - clock.read().monotonic_s))
    return Window(begin.epoch_s, clock.read().epoch_s)


def _quality(timeline: Timeline, trace: PowerTrace, reference: PowerTrace) -> MeterQuality:
    if not _shows_power(trace, timeline.settled):
        return _without_power(trace)
    epoch_s, power_w = fresh_rows(trace, timeline.settled)
    steady = _deviation(trace, reference, timeline.settled)
    pulsed = [_deviation(trace, reference, _after_rise(pulses, trace)) for pulses in timeline.pulses]
    worst = max((ratio for ratio in pulsed if ratio is not None), key=abs, default=None)
    residuals = power_w - np.polyval(np.polyfit(epoch_s - epoch_s[0], power_w, 2), epoch_s - epoch_s[0])
    period_s = float(np.percentile(np.diff(epoch_s), 25))
    # The time from the step to the first reading near the plateau.
    step_s, step_w = fresh_rows(trace, timeline.step)
    near = np.abs(step_w - power_w.mean()) <= PLATEAU_RATIO * power_w.mean()
    rise_time_s = float(step_s[near][0] - timeline.step.begin_s) if near.any() else None
    lag_s, averaging_time_s = _smoothing_s(trace, timeline, rise_time_s)
    verdict = GOOD if worst is not None and abs(worst) <= GOOD_PULSED_RATIO else STEADY_ONLY
    if steady is None or abs(steady) > GOOD_RATIO:
        verdict = "not in agreement" if steady is None else f"{steady:+.1%} off under a steady load"
    return MeterQuality(
        meter=trace.source.name,
        update_period_s=period_s,
        rise_time_s=rise_time_s,
        lag_s=lag_s,
        averaging_time_s=averaging_time_s,
        noise_ratio=float(residuals.std() / power_w.mean()),
        correlation_time_s=correlation_length(residuals) * period_s,
        steady_deviation_ratio=steady,
        pulsed_deviation_ratio=worst,
        verdict=verdict,
    )


def _shows_power(trace: PowerTrace, window: Window) -> bool:
    readings = fresh_readings(trace, window)
    return len(readings) >= MINIMUM_READINGS and float(readings.mean()) > 0


def _without_power(trace: PowerTrace) -> MeterQuality:
    return MeterQuality(trace.source.name, None, None, None, None, None, None, None, None, "shows no power")


def _deviation(trace: PowerTrace, reference: PowerTrace, window: Window) -> float | None:
    ours, theirs = (fresh_readings(logged, window) for logged in (trace, reference))
    return float(ours.mean() / theirs.mean()) - 1 if len(ours) and theirs.any() else None


def _after_rise(window: Window, trace: PowerTrace) -> Window:
    return Window(min(window.begin_s + trace.source.rise_time_s, window.end_s), window.end_s)


def _smoothing_s(trace: PowerTrace, timeline: Timeline, rise_time_s: float | None) -> tuple[float | None, float | None]:
    """Return the lag of a meter after a step and its averaging time in s; None if too few readings rise, or too fast.

    Readings of a moving average rise on a straight line from the old power to the new one.
    """
    step = timeline.step
    before_w = fresh_readings(trace, timeline.pause)
    if rise_time_s is None or not len(before_w):
        return None, None
    after_w = fresh_readings(trace, Window(step.begin_s + rise_time_s, step.begin_s + rise_time_s + PLATEAU_S))
    epoch_s, power_w = fresh_rows(trace, Window(step.begin_s, step.begin_s + rise_time_s))
    low_w, high_w = float(before_w[-1]), float(np.median(after_w))
    share = (power_w - low_w) / (high_w - low_w)
    is_rising = (share > PLATEAU_RATIO) & (share < 1 - PLATEAU_RATIO)
    if np.count_nonzero(is_rising) < MINIMUM_RISING:
        return None, None
    slope, at_begin = np.polyfit(epoch_s[is_rising] - step.begin_s, share[is_rising], 1)
    return (float(-at_begin / slope), float(1 / slope)) if 0 < slope <= 1 / SHORTEST_AVERAGING_S else (None, None)
