"""Evaluation of a loop and its power trace: time, power and energy per iteration, with flags and notes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime, timezone

import numpy as np

from opcost.estimates import Estimate, estimate_of, mean_without_outliers, median, standard_error_of, value_of
from opcost.measuring.conditions import EAGER
from opcost.measuring.flags import Flag, flags_of, joined_notes
from opcost.measuring.known_device import UNKNOWN_DEVICE, KnownDevice, Repeatability
from opcost.measuring.loop import Loop, energy_of_iteration_j, is_throttled
from opcost.measuring.record import COEFFICIENT_SPREAD_PER_KELVIN, REFERENCE_TEMPERATURE_C, Measurement
from opcost.power.trace import DeviceState, MeanPower, MeteredPower, PowerTrace, device_state, no_trace, power_and_check

UNEVEN_RATIO = 1.5
"""Ratio of the median chunk's time to the shortest's from which a loop is flagged as uneven. Undisturbed loops on a GPU
stay below 1.1, also in eager execution."""

DISAGREEMENT_RATIO = 0.02
"""Relative difference from which two meters disagree. Two sound meters of one GPU agree within 0.5 % under a steady
load (H200, ``docs/log/meters.md``)."""

CLOCK_STEP_S = 0.05
"""Difference between wall clock and monotonic clock from which the wall clock was stepped: half a meter's update
period."""

AT_THE_LIMIT_RATIO = 0.98
"""Share of the power limit from which a lasting load is throttled (H200: 686 of 700 W; throttled loads draw 690 W in
long loops and 679 to 752 W in short ones). A loop of 0.3 s runs at full clocks up to 700 to 740 W."""

TOO_LIGHT_RATIO = 0.9
"""Share of the power limit below which a load cannot be throttled by it. If its clocks are low, the load before was
throttled."""


def evaluate(loop: Loop, trace: PowerTrace, device: KnownDevice = UNKNOWN_DEVICE) -> Measurement:
    """Return time and energy of an iteration of an eager loop; the trace's first check with a power may stand in."""
    trace = _without_rows_if_clock_stepped(trace, loop)
    power, check = power_and_check(trace, loop.load_begin.epoch_s, loop.window)
    check_w = None if check is None else check.mean.estimate_w
    state = device_state(trace, loop.window)
    unevenness, disagreement = _unevenness(loop), _disagreement(power, check)
    energy_j, power_w, values_w = energy_of_iteration_j(loop, power), power.mean.estimate_w, power.mean.values_w
    is_near_limit = _draws(AT_THE_LIMIT_RATIO, device.power_limit_w, power.mean)
    slowed_ratio = (state.power_capped_ratio or 0.0) if is_near_limit else 0.0
    at_reference_j = at_reference(energy_j, state.temperature_c, device.power_coefficient_per_kelvin, slowed_ratio)
    return Measurement(
        time_s=loop.time_s.value,
        time_standard_error_s=loop.time_s.standard_error,
        time_median_s=median(loop.times_s),
        time_without_outliers_s=mean_without_outliers(loop.times_s),
        iterations=loop.iterations,
        loop_time_s=loop.duration_s,
        started_at=_iso(loop.begin.epoch_s),
        ended_at=_iso(loop.end.epoch_s),
        energy_j=value_of(energy_j),
        energy_standard_error_j=standard_error_of(energy_j),
        energy_missing_reason=power.mean.missing_reason,
        energy_at_reference_j=value_of(at_reference_j),
        energy_at_reference_standard_error_j=standard_error_of(at_reference_j),
        power_w=value_of(power_w),
        power_standard_error_w=standard_error_of(power_w),
        power_median_w=None if power_w is None else median(values_w),
        power_without_outliers_w=None if power_w is None else mean_without_outliers(values_w),
        power_readings=power.mean.readings,
        meter=power.meter,
        check_power_w=value_of(check_w),
        check_power_standard_error_w=standard_error_of(check_w),
        check_meter=None if check is None else check.meter,
        **asdict(state),
        power_log=trace.log_name,
        executed_as=EAGER,
        duty_cycle=None,
        flags=flags_of(
            [
                *([Flag.NO_KERNEL] if loop.launches_no_kernel else []),
                *([Flag.UNEVEN] if unevenness else []),
                *([Flag.METERS_DISAGREE] if disagreement else []),
                *_of_the_state(power.mean, state, device),
            ]
        ),
        notes=joined_notes(unevenness, disagreement),
    )


def with_repeatability(measured: Measurement, repeatability: Repeatability) -> Measurement:
    """Return a measurement whose errors include the differences between builds and runs."""
    time_ratio, power_ratio = repeatability.time_ratio, repeatability.power_ratio
    energy_ratio = math.hypot(time_ratio, power_ratio)

    def wider(figure: Estimate | None, ratio: float) -> Estimate | None:
        return None if figure is None else figure.with_error(ratio * figure.value)

    time_s = measured.time.with_error(time_ratio * measured.time_s)
    energy_j, at_reference_j = wider(measured.energy, energy_ratio), wider(measured.energy_at_reference, energy_ratio)
    power_w = wider(estimate_of(measured.power_w, measured.power_standard_error_w), power_ratio)
    found = measured.with_figures(time_s, energy_j, at_reference_j)
    return replace(found, power_standard_error_w=standard_error_of(power_w))


def at_reference(
    energy_j: Estimate | None,
    temperature_c: float | None,
    power_coefficient_per_kelvin: Estimate | None,
    slowed_ratio: float = 0.0,
) -> Estimate | None:
    """Return an energy normalised to ``REFERENCE_TEMPERATURE_C``, None if any argument is unknown.

    The error grows with the difference in temperature, because coefficients differ between operators. The power does
    not depend on the temperature for ``slowed_ratio`` of the time, while it is at the power limit.
    """
    if energy_j is None or temperature_c is None or power_coefficient_per_kelvin is None:
        return None
    kelvin = (REFERENCE_TEMPERATURE_C - temperature_c) * (1 - slowed_ratio)
    slope_error = math.hypot(power_coefficient_per_kelvin.standard_error, COEFFICIENT_SPREAD_PER_KELVIN)
    return energy_j.multiplied_by(Estimate(1 + kelvin * power_coefficient_per_kelvin.value, abs(kelvin) * slope_error))


def _disagreement(power: MeteredPower, check: MeteredPower | None) -> str:
    power_w, check_w = power.mean.estimate_w, None if check is None else check.mean.estimate_w
    if power_w is None or check is None or check_w is None or check.trace.source.is_wrong:
        return ""
    difference_w = abs(power_w.value - check_w.value)
    error_w = math.hypot(power_w.standard_error, check_w.standard_error)
    if difference_w <= max(DISAGREEMENT_RATIO * power_w.value, 3 * error_w):
        return ""
    return f"{power_w.value:.1f} W by one meter and {check_w.value:.1f} W by another"


def _of_the_state(power: MeanPower, state: DeviceState, device: KnownDevice) -> Iterator[Flag]:
    if state.temperature_c is None and device.power_coefficient_per_kelvin is not None:
        # The device reports a temperature, but the log ended early.
        yield Flag.NO_TEMPERATURE
    if state.thermal_slowdown_ratio:
        yield Flag.THERMAL_SLOWDOWN
    if is_throttled(state):
        is_heavy = _draws(TOO_LIGHT_RATIO, device.power_limit_w, power) is not False
        yield Flag.POWER_CAPPED if is_heavy else Flag.CLOCKS_STILL_LOW
    elif _draws(AT_THE_LIMIT_RATIO, device.power_limit_w, power):
        yield Flag.POWER_CAP_UNKNOWN if state.power_capped_ratio is None else Flag.AT_POWER_LIMIT


def _draws(ratio: float, power_limit_w: float | None, power: MeanPower) -> bool | None:
    if power.estimate_w is None or power_limit_w is None:
        return None
    return power.estimate_w.value >= ratio * power_limit_w


def _unevenness(loop: Loop) -> str:
    """Return a note if chunks take much longer than the shortest, as when another process uses the device."""
    durations_s, iterations = np.array(loop.chunk_durations_s), np.array(loop.chunk_iterations)
    times_s = (durations_s[:-1] + durations_s[1:]) / (iterations[:-1] + iterations[1:])
    excess = median(times_s) / float(times_s.min())
    return f"the median chunk took {excess:.1f} times the shortest" if excess > UNEVEN_RATIO else ""


def _without_rows_if_clock_stepped(trace: PowerTrace, loop: Loop) -> PowerTrace:
    step_s = (loop.end.epoch_s - loop.load_begin.epoch_s) - (loop.end.monotonic_s - loop.load_begin.monotonic_s)
    is_empty = all(logged.missing_reason is not None for logged in (trace, *trace.checks))
    if abs(step_s) <= CLOCK_STEP_S or is_empty:
        return trace
    reason = f"the system clock was stepped by {step_s:+.2f} s during the measurement"
    return replace(no_trace(reason), source=trace.source, log_name=trace.log_name)


def _iso(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, tz=timezone.utc).isoformat(timespec="milliseconds")
