"""What a card's meters are worth: how fast, how noisy, and right by how much, from loads that are known in time.

The procedure runs one steady load: a pause, a step that lasts, pulses of several lengths, and a rest. A meter that
misses part of the time agrees with the others under the step and not under the pulses; one that averages over a second
follows the step late. Power that follows the temperature of the step tells watts per kelvin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from opcost.estimates import Estimate, correlation_length
from opcost.measuring.meter_quality import GOOD, REFERENCE, STEADY_ONLY, UNCHECKED, MeterQuality
from opcost.measuring.ports import Workload
from opcost.power.ports import Clock, Meter
from opcost.power.trace import PowerTrace, Window, device_state, fresh_readings, fresh_rows

PAUSE_S = 2.0
STEP_S = 12.0
PULSES_S = 3.0
QUIET_S = 4.5
"""Three readings of a meter that looks once in a second and needs one to rise."""
REST_S = 2.0
REST_FROM_S = 0.5
"""At rest the quick meters show a device that does nothing, its clocks still up."""
PULSES = ((0.03, 0.07), (0.04, 0.04), (0.01, 0.03), (0.05, 0.05))
"""Seconds on and off: in step with meters that look every 0.1 s, and out of step. Rounds of a load last 10 ms."""

SETTLED_S = 3.0
"""After a step every known meter shows the new power, and the device has warmed most of its way."""

WARMING_FROM_S = 0.5
"""After a step the quick meters have passed their overshoot, and the temperature still rises."""

HALF_ROUND_S = 0.005
PLATEAU_RATIO = 0.05
PLATEAU_S = 0.5
MINIMUM_ON_THE_WAY = 3
"""Of readings between two powers, to tell how long a meter takes from one to the other."""

GOOD_RATIO = 0.02
"""How far a good meter may be from the reference under a steady load."""

GOOD_PULSED_RATIO = 0.05
"""How far under pulses: their edges fall somewhere into a reading of any meter."""

STEP_RATIO = 0.005
"""By so much powers of H200s step without a change of load or temperature (a standard deviation; the largest of some
minutes are 2 %, ``docs/log/meters.md``): a slope over few degrees may be one of these."""

MINIMUM_READINGS = 3

MINIMUM_TEMPERATURES = 3
"""Different temperatures (meters round to a degree) that a slope needs."""


@dataclass(frozen=True)
class Pulses:
    """A time of pulses."""

    on_s: float
    off_s: float
    window: Window


@dataclass(frozen=True)
class Course:
    """When a qualification did what (epoch)."""

    pause: Window
    step: Window
    pulses: tuple[Pulses, ...]
    rest: Window

    @property
    def settled(self) -> Window:
        """The part of the step in which all known meters show its power."""
        return Window(self.step.begin_s + SETTLED_S, self.step.end_s)


def run_course(
    workload: Workload, meter: Meter, clock: Clock, pause: Callable[[float], None]
) -> tuple[Course, PowerTrace]:
    """Run the loads while all meters log; return when what was done, and the log with the other meters' as checks.

    Args:
        workload: a steady load with rounds of a few milliseconds.
        meter: logs everything there is.
        clock: tells the time.
        pause: does nothing for some seconds.
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
    return Course(Window(begin_s, step_begin_s), Window(step_begin_s, step_end_s), pulses, rest), trace


def run_quietly(workload: Workload, meter: Meter, clock: Clock) -> tuple[Window, PowerTrace]:
    """Run the load for ``QUIET_S`` while a meter logs that reads rarely, as in campaigns; return when, and the log."""
    meter.start()
    try:
        begin_s = clock.read().epoch_s
        _run_for(workload, clock, QUIET_S)
        window = Window(begin_s, clock.read().epoch_s)
    finally:
        trace = meter.stop()
    return window, trace


def ratio_of_means(trace: PowerTrace, load: Window, name: str, other_name: str) -> float | None:
    """Return one meter's mean power over another's, while the readings of the first cover a load.

    None where one of them shows nothing. Both are the trace's source or that of one of its checks.
    """
    by_name = {logged.source.name: logged for logged in (trace, *trace.checks)}
    if not by_name.keys() >= {name, other_name}:
        return None
    ours, theirs = by_name[name], by_name[other_name]
    epoch_s, power_w = fresh_rows(ours, _after_rise(load, ours))
    if not len(epoch_s):
        return None
    other_w = fresh_readings(theirs, Window(float(epoch_s[0]) - ours.source.averaging_time_s, float(epoch_s[-1])))
    return float(power_w.mean() / other_w.mean()) if other_w.any() else None


def qualities(course: Course, trace: PowerTrace, reference: str | None) -> list[MeterQuality]:
    """Return what each meter of a trace and its checks is worth.

    Args:
        course: when what was done.
        trace: of one meter; those of the others are its checks.
        reference: the name of the meter that is right, None for the first one.
    """
    traces = [logged for logged in (trace, *trace.checks) if logged.missing_reason is None]
    sound = [logged for logged in traces if _shows_power(logged, course.settled)]
    right = next((logged for logged in sound if logged.source.name == reference), sound[0] if sound else None)
    if right is None:
        return [_worthless(logged) for logged in traces]
    own = right.source.name
    verdict = REFERENCE if own == reference else UNCHECKED
    qualities = [_quality(course, logged, right) for logged in traces]
    return [replace(quality, verdict=verdict) if quality.meter == own else quality for quality in qualities]


def reference_among(course: Course, trace: PowerTrace, preferred: str) -> str | None:
    """Return the name of the meter that the others are to be held against; None where the preferred one says nothing.

    That is the preferred one, unless two others agree within ``GOOD_RATIO`` that it is further off: then the first of
    these. Energy counters of some cards are known to be wrong.
    """
    traces = [logged for logged in (trace, *trace.checks) if logged.missing_reason is None]
    right = next((logged for logged in traces if logged.source.name == preferred), None)
    if right is None or not len(fresh_readings(right, course.settled)):
        return None
    deviations = ((logged, _deviation(logged, right, course.settled)) for logged in traces)
    others = [logged for logged, ratio in deviations if ratio is not None and abs(ratio) > GOOD_RATIO]
    for one, other in combinations(others, 2):
        if abs(_deviation(one, other, course.settled) or 0.0) <= GOOD_RATIO:
            return one.source.name
    return preferred


def idle_power_w(trace: PowerTrace, window: Window) -> float | None:
    """Return the power of a device that does nothing for a while, its first half second left out."""
    readings = fresh_readings(trace, Window(window.begin_s + REST_FROM_S, window.end_s))
    return float(readings.mean()) if len(readings) else None


def watts_per_kelvin(course: Course, trace: PowerTrace) -> Estimate | None:
    """Return by how much power rises with the temperature, as a share per kelvin; None where that cannot be seen.

    From the step, while the device warms: the slope of the mean reading at each degree over the temperature, which is
    that of the log that has one, each degree weighted by its readings: the first few tell of a chip that is not yet as
    warm all through. Its error is that of a least-squares slope of as many points as degrees, since readings at one
    degree are alike, and of a step of the power within them. A power at its cap does not follow the temperature, and
    has no slope.
    """
    logs = [logged for logged in (trace, *trace.checks) if not np.isnan(logged.temperature_c).all()]
    if not logs:
        return None
    window = Window(course.step.begin_s + WARMING_FROM_S, course.step.end_s)
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


def _pulses(workload: Workload, clock: Clock, pause: Callable[[float], None], on_s: float, off_s: float) -> Pulses:
    begin = clock.read()
    for number in range(round(PULSES_S / (on_s + off_s))):
        pulse_s = begin.monotonic_s + number * (on_s + off_s)
        while clock.read().monotonic_s < pulse_s + on_s - HALF_ROUND_S:
            # No round ahead: a pulse ends when it is to end.
            workload.run(1)
            workload.finish()
        pause(max(0.0, pulse_s + on_s + off_s - clock.read().monotonic_s))
    return Pulses(on_s, off_s, Window(begin.epoch_s, clock.read().epoch_s))


def _quality(course: Course, trace: PowerTrace, reference: PowerTrace) -> MeterQuality:
    if not _shows_power(trace, course.settled):
        return _worthless(trace)
    epoch_s, power_w = fresh_rows(trace, course.settled)
    steady = _deviation(trace, reference, course.settled)
    pulsed = [_deviation(trace, reference, _after_rise(pulses.window, trace)) for pulses in course.pulses]
    worst = max((ratio for ratio in pulsed if ratio is not None), key=abs, default=None)
    residuals = power_w - np.polyval(np.polyfit(epoch_s - epoch_s[0], power_w, 2), epoch_s - epoch_s[0])
    period_s = float(np.percentile(np.diff(epoch_s), 25))
    rise_time_s = _rise_time_s(trace, course.step, float(power_w.mean()))
    lag_s, averaging_time_s = _smoothing_s(trace, course, rise_time_s)
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
        verdict=_verdict(steady, worst),
    )


def _shows_power(trace: PowerTrace, window: Window) -> bool:
    readings = fresh_readings(trace, window)
    return len(readings) >= MINIMUM_READINGS and float(readings.mean()) > 0


def _worthless(trace: PowerTrace) -> MeterQuality:
    return MeterQuality(trace.source.name, None, None, None, None, None, None, None, None, "shows no power")


def _verdict(steady: float | None, pulsed: float | None) -> str:
    if steady is None or abs(steady) > GOOD_RATIO:
        return "not in agreement" if steady is None else f"{steady:+.1%} off under a steady load"
    return GOOD if pulsed is not None and abs(pulsed) <= GOOD_PULSED_RATIO else STEADY_ONLY


def _deviation(trace: PowerTrace, reference: PowerTrace, window: Window) -> float | None:
    """Return by what share a meter's mean differs from the reference's."""
    ours, theirs = (fresh_readings(logged, window) for logged in (trace, reference))
    return float(ours.mean() / theirs.mean()) - 1 if len(ours) and theirs.any() else None


def _after_rise(window: Window, trace: PowerTrace) -> Window:
    """Leave out the time in which a meter still shows what was before."""
    return Window(min(window.begin_s + trace.source.rise_time_s, window.end_s), window.end_s)


def _rise_time_s(trace: PowerTrace, step: Window, plateau_w: float) -> float | None:
    """Return how long after a step a meter first shows the plateau to within 5 %."""
    epoch_s, power_w = fresh_rows(trace, step)
    near = np.abs(power_w - plateau_w) <= PLATEAU_RATIO * plateau_w
    return float(epoch_s[near][0] - step.begin_s) if near.any() else None


def _smoothing_s(trace: PowerTrace, course: Course, rise_time_s: float | None) -> tuple[float | None, float | None]:
    """Return how long after a step a meter's readings are on their way, and how long that takes them.

    Those of a moving average are on a straight line meanwhile, from the old power to the new one. None where fewer than
    ``MINIMUM_ON_THE_WAY`` readings are, or no line rises.
    """
    step = course.step
    before_w = fresh_readings(trace, course.pause)
    if rise_time_s is None or not len(before_w):
        return None, None
    after_w = fresh_readings(trace, Window(step.begin_s + rise_time_s, step.begin_s + rise_time_s + PLATEAU_S))
    epoch_s, power_w = fresh_rows(trace, Window(step.begin_s, step.begin_s + rise_time_s))
    low_w, high_w = float(before_w[-1]), float(np.median(after_w))
    share = (power_w - low_w) / (high_w - low_w)
    on_the_way = (share > PLATEAU_RATIO) & (share < 1 - PLATEAU_RATIO)
    if np.count_nonzero(on_the_way) < MINIMUM_ON_THE_WAY:
        return None, None
    slope, at_begin = np.polyfit(epoch_s[on_the_way] - step.begin_s, share[on_the_way], 1)
    return (float(-at_begin / slope), float(1 / slope)) if slope > 0 else (None, None)
