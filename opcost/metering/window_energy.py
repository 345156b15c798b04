"""The energy of a window, with its error: samples place the energy in time, the energy counter scales it.

Over a span from one tick of the counter to another the counter gives the energy. The samples give the share of it that
is in the window, which may begin and end at any moment:

    energy = (energy of the span by the counter) x (energy of the window by samples) / (energy of the span by samples)

So a fault of the samples that both have alike, as under pulses of tens of milliseconds, cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from opcost.estimates import Estimate, FloatArray
from opcost.metering.pieces import Pieces
from opcost.metering.readings import Readings
from opcost.power.trace import Window

SHORTEST_SPAN_S = 1.0
"""The shortest span of the counter, if earlier ticks are known: two errors of a tick's time are then 0.2 % of it."""

LEAST_SPAN_RATIO = 0.5
"""The smallest share of a window that a span covers. Outside of it the counter shows nothing."""

LEAST_COVERAGE_RATIO = 0.95
"""The smallest share of a window with readings. A mean over less says little about the rest."""

LARGEST_ERROR_RATIO = 0.25
"""From this standard error on, as a share of the energy, a window is not resolved: its 95 % interval is +-50 %."""

PULSED_ERROR_RATIO = 0.09
"""Standard error of samples that no counter scales, under a load that alternates between idle and busy. The root mean
square of ``pulsed_deviation_ratio`` over 11 H200 boards (``database/meter_qualifications.csv``)."""

STEADY_ERROR_RATIO = 0.003
"""The same under a steady load: seven times the largest deviation there, since the counter confirms nothing."""


@dataclass(frozen=True)
class WindowEnergy:
    """The energy of a window, or the reason why it is unknown.

    ``coverage_ratio`` is the share of the window for which there are readings.
    """

    energy_j: Estimate | None
    meter: str
    coverage_ratio: float
    missing_reason: str | None = None


def window_energy(readings: Readings, window: Window) -> WindowEnergy:
    """Return the energy of a window by the readings around it."""
    meter = readings.sample_meter if len(readings.samples.power_w) else readings.counter_meter
    if readings.missing_reason is not None:
        return WindowEnergy(None, meter, 0.0, readings.missing_reason)
    if window.duration_s < readings.resolution_s or window.duration_s <= 0:
        return WindowEnergy(None, meter, 0.0, _too_short(window.duration_s, meter, readings.resolution_s))
    pieces = readings.pieces
    coverage_ratio = min(1.0, pieces.covered_s(window) / window.duration_s)
    if coverage_ratio < LEAST_COVERAGE_RATIO:
        reason = f"{meter} has readings for {coverage_ratio:.0%} of the window only"
        return WindowEnergy(None, meter, coverage_ratio, reason)
    energy_j, scaled_by = _energy(readings, pieces, window)
    energy_j = energy_j.times(1 / coverage_ratio).with_error((1 - coverage_ratio) * energy_j.value)
    meter = f"{meter}, scaled by {scaled_by}" if scaled_by else meter
    unresolved = _unresolved(energy_j, window, meter)
    return WindowEnergy(None if unresolved else energy_j, meter, coverage_ratio, unresolved)


def _energy(readings: Readings, pieces: Pieces, window: Window) -> tuple[Estimate, str]:
    """Return the energy of the covered part of a window, and the name of the counter that scaled it."""
    if not len(readings.samples.power_w):
        return _by_the_counter(readings, pieces, window), ""
    span = _span(readings, window)
    if span is None:
        return _by_samples_alone(readings, window), ""
    return _scaled(readings, window, *span), readings.counter_meter


def _by_the_counter(readings: Readings, pieces: Pieces, window: Window) -> Estimate:
    """Return the energy by a counter alone; its ticks are the ends of the window, or near them."""
    energy_j = pieces.energy_j(window)
    # Ticks may be so near each other that their own power says nothing.
    mean_w = energy_j.value / window.duration_s
    return energy_j.with_error(math.sqrt(2) * mean_w * readings.tick_error_s)


def _by_samples_alone(readings: Readings, window: Window) -> Estimate:
    samples = readings.samples
    energy_j = samples.energy_j(window).with_error(_placement_error_j(readings, window, None))
    inside = samples.touch(window)
    energy_j = energy_j.with_error(samples.timing_error_j(inside))
    swing_ratio = _swing_ratio(samples.power_w[inside])
    return energy_j.with_error(energy_j.value * math.hypot(STEADY_ERROR_RATIO, swing_ratio * PULSED_ERROR_RATIO))


def _scaled(readings: Readings, window: Window, span: Window, counted_j: float) -> Estimate:
    """Return the share of a span's energy that is in a window.

    The error has the parts of samples at the ends of window and span, the scatter of their times, the times of the
    ticks, and the time at which the samples show a change. It also has what the scale may differ between inside and
    outside: as much as it differs from 1, where one is a steady load and the other is not.
    """
    samples = readings.samples
    inside_j, spanned_j = samples.energy_j(window), samples.energy_j(span)
    scale, share = counted_j / spanned_j.value, inside_j.value / spanned_j.value
    ends_w = math.hypot(samples.power_at_w(span.begin_s), samples.power_at_w(span.end_s))
    errors_j = (
        inside_j.standard_error,
        share * spanned_j.standard_error,
        share * ends_w * readings.tick_error_s,
        abs(1 - share) * samples.timing_error_j(samples.touch(window)),
        share * samples.timing_error_j(samples.touch(span) & ~samples.touch(window)),
        abs(scale - 1) * inside_j.value * abs(1 - share) * _unlikeness(samples, window, span),
    )
    energy_j = Estimate(scale * inside_j.value, scale * math.hypot(*errors_j))
    return energy_j.with_error(_placement_error_j(readings, window, span) * scale)


def _unlikeness(samples: Pieces, window: Window, span: Window) -> float:
    """Return by how much the load swings differently in a window and in the rest of a span: 0 if alike, at most 1."""
    inside, spanned = samples.touch(window), samples.touch(span)
    rest_w = samples.power_w[spanned & ~inside]
    return abs(_swing_ratio(samples.power_w[inside]) - _swing_ratio(rest_w)) if len(rest_w) else 0.0


def _swing_ratio(power_w: FloatArray) -> float:
    """Return how far powers lie from their mean, as a share of it (standard deviation), at most 1."""
    mean_w = float(power_w.mean())
    return min(1.0, float(power_w.std()) / mean_w) if mean_w > 0 else 1.0


def _placement_error_j(readings: Readings, window: Window, span: Window | None) -> float:
    """Return how much the samples' energy changes, as they are shifted by the error of their time to either side."""

    def energy_j(shift_s: float) -> float:
        inside_j = readings.samples.energy_j(_shifted(window, shift_s)).value
        if span is None:
            return inside_j
        spanned_j = readings.samples.energy_j(span).value
        return inside_j * spanned_j / (readings.samples.energy_j(_shifted(span, shift_s)).value or spanned_j)

    here_j, error_s = energy_j(0.0), readings.placement_error_s
    return math.sqrt(((energy_j(error_s) - here_j) ** 2 + (energy_j(-error_s) - here_j) ** 2) / 2)


def _shifted(window: Window, shift_s: float) -> Window:
    return replace(window, begin_s=window.begin_s + shift_s, end_s=window.end_s + shift_s)


def _span(readings: Readings, window: Window) -> tuple[Window, float] | None:
    """Return the span from tick to tick around a window and its energy by the counter, None if none is fit.

    It begins at the last tick before the window, or earlier to be long enough, and ends at the first one after it.
    """
    ticks = readings.ticks
    if len(ticks) < 2:
        return None
    moments_s = np.array([epoch_s for epoch_s, _ in ticks])
    last = min(int(np.searchsorted(moments_s, window.end_s)), len(ticks) - 1)
    latest_begin_s = min(window.begin_s, moments_s[last] - SHORTEST_SPAN_S)
    first = max(int(np.searchsorted(moments_s, latest_begin_s, side="right")) - 1, 0)
    span = Window(float(moments_s[first]), float(moments_s[last]))
    counted_j = ticks[last][1] - ticks[first][1]
    shared_s = min(span.end_s, window.end_s) - max(span.begin_s, window.begin_s)
    spanned_s = readings.samples.covered_s(span)
    is_fit = shared_s >= LEAST_SPAN_RATIO * window.duration_s and counted_j > 0
    if not is_fit or spanned_s < 0.999 * span.duration_s or readings.samples.energy_j(span).value <= 0:
        return None
    return span, counted_j


def _too_short(duration_s: float, meter: str, resolution_s: float) -> str:
    return f"the window of {duration_s * 1e3:.3g} ms is shorter than {meter} resolves, {resolution_s * 1e3:.3g} ms"


def _unresolved(energy_j: Estimate, window: Window, meter: str) -> str | None:
    """Return the reason why an energy is no result, None if it is one."""
    if energy_j.value <= 0:
        return f"{meter} stands still"
    error_ratio = energy_j.standard_error / energy_j.value
    if error_ratio <= LARGEST_ERROR_RATIO:
        return None
    return f"{meter} does not resolve this window of {window.duration_s:.3g} s: standard error {error_ratio:.0%}"
