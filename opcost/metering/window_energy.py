"""The energy of a window, with its error: samples place the energy in time, the energy counter scales it.

Over a span from one tick of the counter to another the counter gives the energy. The samples give the share of it that
is in the window, which may begin and end at any moment:

    energy = (energy of the span by the counter) x (energy of the window by samples) / (energy of the span by samples)

So a fault of the samples that both have alike, as under pulses of tens of milliseconds, cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from opcost.estimates import Estimate, FloatArray
from opcost.metering.pieces import NO_PIECES, Pieces, pieces_of_ticks
from opcost.power.trace import Window

PLACEMENT_ERROR_S = 0.015
"""Standard error of the time at which samples and counter of a GPU show a change of the load. In the recorded steps of
an H200 and an H100 (``tests/recordings``) samples follow 5 ms and 12 to 19 ms later; their times scatter by 7 ms. Of 62
windows on another H200, 85 % of the 95 % intervals contained the counted energy with 10 ms, and 95 % do with 15 ms
(``docs/data/metered_windows.csv``)."""

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


@dataclass(frozen=True, eq=False)
class Readings:
    """The readings of a device around a window, or the reason why there are none.

    ``samples`` are the power as a function of time, no pieces where the device has no samples. ``ticks`` are readings
    of an energy counter: epoch seconds and J, oldest first. ``resolution_s`` is the shortest window that the meters
    resolve, ``tick_error_s`` the standard error of a tick's time, and ``placement_error_s`` that of the time at which
    the meters show a change of the load.
    """

    samples: Pieces = NO_PIECES
    ticks: Sequence[tuple[float, float]] = ()
    sample_meter: str = ""
    counter_meter: str = ""
    resolution_s: float = 0.0
    tick_error_s: float = 0.0
    placement_error_s: float = PLACEMENT_ERROR_S
    missing_reason: str | None = None

    @property
    def pieces(self) -> Pieces:
        """The samples, or the counter from tick to tick where there are none."""
        return self.samples if len(self.samples.power_w) else pieces_of_ticks(self.ticks)


class EnergySource(Protocol):
    """A device whose energy is metered, from ``open`` to ``close`` in threads of its own."""

    @property
    def device(self) -> str:
        """The device's name in results: ``cuda:0``, ``cpu``, ``dram``."""

    @property
    def uuid(self) -> str | None:
        """The UUID of a GPU, None for other devices."""

    @property
    def idle_power_w(self) -> float | None:
        """The power before anything was metered, None if the device was not idle then."""

    def edge(self) -> None:
        """A window begins or ends now: read a meter that may be read at any moment. It takes less than 0.1 ms."""

    def readings(self, window: Window) -> Readings:
        """Return the readings around a window that has ended; wait for the last ones, some tenths of a second."""

    def forget_before(self, epoch_s: float) -> None:
        """Drop readings that no later window needs."""

    def close(self) -> None:
        """End the device's threads."""


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
        lengths = (
            f"{window.duration_s * 1e3:.3g} ms is shorter than {meter} resolves, {readings.resolution_s * 1e3:.3g} ms"
        )
        return WindowEnergy(None, meter, 0.0, f"the window of {lengths}")
    pieces = readings.pieces
    coverage_ratio = min(1.0, pieces.covered_s(window) / window.duration_s)
    if coverage_ratio < LEAST_COVERAGE_RATIO:
        reason = f"{meter} has readings for {coverage_ratio:.0%} of the window only"
        return WindowEnergy(None, meter, coverage_ratio, reason)
    span = _span(readings, window) if len(readings.samples.power_w) else None
    if not len(readings.samples.power_w):
        energy_j = pieces.energy_j(window)
        # The ticks are the ends of the window, or near them, and maybe too near each other for a power of their own.
        energy_j = energy_j.with_error(math.sqrt(2) * energy_j.value / window.duration_s * readings.tick_error_s)
    elif span is None:
        energy_j = _by_samples_alone(readings, window)
    else:
        energy_j = _scaled(readings, window, *span)
        meter = f"{meter}, scaled by {readings.counter_meter}"
    energy_j = energy_j.times(1 / coverage_ratio).with_error((1 - coverage_ratio) * energy_j.value)
    unresolved = _unresolved(energy_j, window, meter)
    return WindowEnergy(None if unresolved else energy_j, meter, coverage_ratio, unresolved)


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
    inside, spanned = samples.touch(window), samples.touch(span)
    rest_w = samples.power_w[spanned & ~inside]
    unlikeness = abs(_swing_ratio(samples.power_w[inside]) - _swing_ratio(rest_w)) if len(rest_w) else 0.0
    inside_j, spanned_j = samples.energy_j(window), samples.energy_j(span)
    scale, share = counted_j / spanned_j.value, inside_j.value / spanned_j.value
    ends_w = math.hypot(samples.power_at_w(span.begin_s), samples.power_at_w(span.end_s))
    errors_j = (
        inside_j.standard_error,
        share * spanned_j.standard_error,
        share * ends_w * readings.tick_error_s,
        abs(1 - share) * samples.timing_error_j(inside),
        share * samples.timing_error_j(spanned & ~inside),
        abs(scale - 1) * inside_j.value * abs(1 - share) * unlikeness,
    )
    energy_j = Estimate(scale * inside_j.value, scale * math.hypot(*errors_j))
    return energy_j.with_error(_placement_error_j(readings, window, span) * scale)


def _swing_ratio(power_w: FloatArray) -> float:
    """Return how far powers lie from their mean, as a share of it (standard deviation), at most 1."""
    mean_w = float(power_w.mean())
    return min(1.0, float(power_w.std()) / mean_w) if mean_w > 0 else 1.0


def _placement_error_j(readings: Readings, window: Window, span: Window | None) -> float:
    """Return how much the samples' energy changes, as they are shifted by the error of their time to either side."""

    samples, error_s = readings.samples, readings.placement_error_s

    def energy_j(shift_s: float) -> float:
        inside_j = samples.energy_j(Window(window.begin_s + shift_s, window.end_s + shift_s)).value
        if span is None:
            return inside_j
        spanned_j = samples.energy_j(span).value
        return (
            inside_j
            * spanned_j
            / (samples.energy_j(Window(span.begin_s + shift_s, span.end_s + shift_s)).value or spanned_j)
        )

    here_j = energy_j(0.0)
    return math.sqrt(((energy_j(error_s) - here_j) ** 2 + (energy_j(-error_s) - here_j) ** 2) / 2)


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


def _unresolved(energy_j: Estimate, window: Window, meter: str) -> str | None:
    if energy_j.value <= 0:
        return f"{meter} stands still"
    error_ratio = energy_j.standard_error / energy_j.value
    if error_ratio <= LARGEST_ERROR_RATIO:
        return None
    return f"{meter} does not resolve this window of {window.duration_s:.3g} s: standard error {error_ratio:.0%}"
