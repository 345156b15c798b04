"""The cost of a window: seconds, and the energy of each device with its error, or why it is unknown.

Samples place the energy in time, the energy counter scales it (``docs/metering.md``). Readings are power as a function
of time that is constant in pieces. A reading is the mean power of a piece, not the power at a moment. Where a window
ends inside a piece, neighbouring pieces show between which powers the power changed, and in which direction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Annotated

import numpy as np
import numpy.typing as npt

from opcost import html_text
from opcost.columns import ABOVE_0, COUNT_FROM_1, FROM_0, MOMENT, SHARE, SIGNED, Column, Columns
from opcost.estimates import Estimate, FloatArray, standard_error_of, sum_of_independent, value_of
from opcost.power.ports import ClockReading
from opcost.power.trace import Window
from opcost.units import UNKNOWN, percent, significant

LARGEST_CLOCK_STEP_S = 0.01
"""Beyond that the wall clock was set during a window, so readings cannot be placed in it."""

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

NEIGHBOURS = 25
"""Pieces on each side in which the lowest and highest power of the load are looked for: 0.5 s of samples."""

GAP_RATIO = 5.0
"""Time between two readings, in averaging times, from which readings between them were lost."""

LARGEST_SCALE = 1.5
"""Ratio of the counter's energy and that of the samples, either way, from which one of both is broken. Under pulses an
H200's differ by up to 1.15 (``database/meter_qualifications.csv``)."""

UNSEEN_RATIO = 0.3
"""Standard deviation of the power between two ticks of a counter, as a share of it. The error of a part of a second is
then as large as that under a load that is on and off for 0.3 s each, which a tick a second does not show."""

MEDIAN_TO_DEVIATION = 1 / (0.674490 * math.sqrt(2))
"""Standard deviation of independent normal values over the median of the absolute differences of neighbours."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of constant power, oldest first; they do not overlap. All arrays have shape (n,).

    ``power_w[i]`` is the mean power from ``begin_s[i]`` to ``end_s[i]`` (epoch). Time between pieces is unknown.
    ``unseen_ratio`` is the standard deviation of the power within a piece, as a share of its mean, where it may change
    more than once and by more than neighbouring pieces show.
    """

    begin_s: FloatArray
    end_s: FloatArray
    power_w: FloatArray
    unseen_ratio: float = 0.0

    def covered_s(self, window: Window) -> float:
        first, last = self._within(window)
        return float(_overlap_s(self.begin_s[first:last], self.end_s[first:last], window).sum())

    def touch(self, window: Window) -> npt.NDArray[np.bool_]:
        touching: npt.NDArray[np.bool_] = (self.end_s > window.begin_s) & (self.begin_s < window.end_s)
        return touching

    def timing_error_j(self, chosen: npt.NDArray[np.bool_]) -> float:
        """Return the error of the energy of pieces (a mask) by the scatter of times, from how unequal pieces are."""
        duration_s = self.end_s - self.begin_s
        if len(duration_s) < 3:
            return 0.0
        steps_w = np.diff(self.power_w)[chosen[1:]]
        # One late time makes a piece longer and the next one shorter.
        time_scatter_s = float(np.sqrt(np.mean((duration_s - np.median(duration_s)) ** 2) / 2))
        return time_scatter_s * math.sqrt(float((steps_w**2).sum()))

    def power_at_w(self, epoch_s: float) -> float:
        """Return the power of the piece at a moment, or of the nearest one; 0 if there are no pieces."""
        if not len(self.power_w):
            return 0.0
        return float(self.power_w[min(int(np.searchsorted(self.end_s, epoch_s)), len(self.power_w) - 1)])

    def energy_j(self, window: Window) -> Estimate:
        """Return the energy of the part of a window that pieces cover; its error is that of the parts at both ends."""
        first, last = self._within(window)
        if first >= last:
            return Estimate(0.0, 0.0)
        begin_s, end_s, power_w = self.begin_s[first:last], self.end_s[first:last], self.power_w[first:last]
        parts_s = _overlap_s(begin_s, end_s, window)
        whole_j = float((power_w[1:-1] * parts_s[1:-1]).sum())
        ends = {first, last - 1}
        parts = [self._part_j(index, window) for index in ends]
        error_j = math.hypot(*(part.standard_error for part in parts))
        return Estimate(whole_j + math.fsum(part.value for part in parts), error_j)

    @cached_property
    def noise_w(self) -> float:
        """The standard deviation of quick noise: changes between neighbours that most pieces have."""
        if len(self.power_w) < 3:
            return 0.0
        return float(np.median(np.abs(np.diff(self.power_w)))) * MEDIAN_TO_DEVIATION

    def _within(self, window: Window) -> tuple[int, int]:
        first = int(np.searchsorted(self.end_s, window.begin_s, side="right"))
        return first, int(np.searchsorted(self.begin_s, window.end_s, side="left"))

    def _part_j(self, index: int, window: Window) -> Estimate:
        """Return the energy of the part of a piece that is inside a window.

        The power is taken to change once within the piece, between the lowest and the highest power nearby. Which came
        first is likelier the one that the piece before had. Noise within a piece of known mean is a Brownian bridge.
        """
        begin_s, duration_s = self.begin_s[index], self.end_s[index] - self.begin_s[index]
        from_ratio = max(0.0, (window.begin_s - begin_s) / duration_s)
        to_ratio = min(1.0, (window.end_s - begin_s) / duration_s)
        inside_ratio = to_ratio - from_ratio
        mean_w = float(self.power_w[index])
        nearby_w = self.power_w[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1]
        low_w, high_w = float(nearby_w.min()), float(nearby_w.max())
        if inside_ratio >= 1:
            return Estimate(mean_w * duration_s, 0.0)
        high_ratio = (mean_w - low_w) / (high_w - low_w) if high_w > low_w else 0.0
        first_ratio = max(0.0, min(to_ratio, high_ratio) - from_ratio)
        last_ratio = max(0.0, to_ratio - max(from_ratio, 1 - high_ratio))
        before_w = self.power_w[max(0, index - 1)]
        after_w = self.power_w[min(len(self.power_w) - 1, index + 1)]
        likely = 0.5 + 0.5 * float(before_w - after_w) / (high_w - low_w) if high_w > low_w else 0.5
        swing_j = (high_w - low_w) * duration_s
        expected_j = swing_j * (likely * first_ratio + (1 - likely) * last_ratio) + low_w * duration_s * inside_ratio
        order_j = swing_j * math.sqrt(likely * (1 - likely)) * abs(first_ratio - last_ratio)
        unseen_w = math.hypot(self.noise_w, self.unseen_ratio * mean_w)
        noise_j = unseen_w * duration_s * math.sqrt(inside_ratio * (1 - inside_ratio))
        return Estimate(expected_j, math.hypot(order_j, noise_j))


NO_PIECES = Pieces(np.empty(0), np.empty(0), np.empty(0))


def pieces_of_samples(epoch_s: FloatArray, power_w: FloatArray, averaging_time_s: float) -> Pieces:
    """Return the pieces of samples that follow each other without a pause; both arrays have shape (n,).

    A sample holds from the one before on, since times of samples are scattered and their averaging times are not. After
    a gap it holds for its own averaging time only. Samples that are not later than the one before are left out.
    """
    known = ~np.isnan(power_w)
    epoch_s, power_w = epoch_s[known], power_w[known]
    if not len(epoch_s):
        return NO_PIECES
    latest_s = np.maximum.accumulate(epoch_s)
    later = np.concatenate([[True], epoch_s[1:] > latest_s[:-1]])
    epoch_s, power_w = epoch_s[later], power_w[later]
    begin_s = np.concatenate([[epoch_s[0] - averaging_time_s], epoch_s[:-1]])
    is_after_gap = epoch_s - begin_s > GAP_RATIO * averaging_time_s
    begin_s[is_after_gap] = epoch_s[is_after_gap] - averaging_time_s
    return Pieces(begin_s, epoch_s, power_w)


def pieces_of_ticks(ticks: Sequence[tuple[float, float]]) -> Pieces:
    """Return the pieces from tick to tick of an energy counter: pairs of epoch seconds and J."""
    if len(ticks) < 2:
        return NO_PIECES
    epoch_s, energy_j = np.array(ticks, dtype=np.float64).T
    duration_s = np.diff(epoch_s)
    later = duration_s > 0
    power_w = np.diff(energy_j)[later] / duration_s[later]
    return Pieces(epoch_s[:-1][later], epoch_s[1:][later], power_w, UNSEEN_RATIO)


def _overlap_s(begin_s: FloatArray, end_s: FloatArray, window: Window) -> FloatArray:
    inside: FloatArray = np.minimum(end_s, window.end_s) - np.maximum(begin_s, window.begin_s)
    return np.maximum(inside, 0.0)


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


class EnergySource:
    """A device whose energy is metered, from when it is made to ``close``, in threads of its own if it needs them.

    ``device`` is its name in results: ``cuda:0``, ``cpu``, ``dram``. ``uuid`` is that of a GPU. ``idle_power_w`` is the
    power before anything was metered, None if the device was not idle then.
    """

    device: str
    uuid: str | None = None
    idle_power_w: float | None = None

    def edge(self) -> None:
        """A window begins or ends now: read a meter that may be read at any moment. It takes less than 0.1 ms."""

    def readings(self, window: Window) -> Readings:
        """Return the readings around a window that has ended; wait for the last ones, some tenths of a second."""
        raise NotImplementedError

    def forget_before(self, epoch_s: float) -> None:
        """Drop readings that no later window needs."""

    def close(self) -> None:
        """End the device's threads."""


@dataclass(frozen=True)
class WindowEnergy:
    """The energy of a window, or why it is unknown. ``coverage_ratio`` is the share of the window with readings."""

    energy_j: Estimate | None
    meter: str
    coverage_ratio: float
    missing_reason: str | None = None


def window_energy(readings: Readings, window: Window) -> WindowEnergy:
    """Return the energy of a window by the readings around it."""
    has_samples = bool(len(readings.samples.power_w))
    meter = readings.sample_meter if has_samples else readings.counter_meter
    reason = readings.missing_reason
    if reason is None and (window.duration_s < readings.resolution_s or window.duration_s <= 0):
        resolved = f"shorter than {meter} resolves, {readings.resolution_s * 1e3:.3g} ms"
        reason = f"the window of {window.duration_s * 1e3:.3g} ms is {resolved}"
    if reason is not None:
        return WindowEnergy(None, meter, 0.0, reason)
    pieces = readings.pieces
    coverage_ratio = min(1.0, pieces.covered_s(window) / window.duration_s)
    if coverage_ratio < LEAST_COVERAGE_RATIO:
        reason = f"{meter} has readings for {coverage_ratio:.0%} of the window only"
        return WindowEnergy(None, meter, coverage_ratio, reason)
    span = _span(readings, window) if has_samples else None
    if not has_samples:
        energy_j = pieces.energy_j(window)
        # The ticks are the ends of the window, or near them, and maybe too near each other for a power of their own.
        energy_j = energy_j.with_error(math.sqrt(2) * energy_j.value / window.duration_s * readings.tick_error_s)
    elif span is None:
        inside = pieces.touch(window)
        doubt_ratio = math.hypot(STEADY_ERROR_RATIO, _swing_ratio(pieces.power_w[inside]) * PULSED_ERROR_RATIO)
        energy_j = pieces.energy_j(window).with_error(_placement_error_j(readings, window, None))
        energy_j = energy_j.with_error(pieces.timing_error_j(inside)).with_error(energy_j.value * doubt_ratio)
    else:
        ratio = span[1] / pieces.energy_j(span[0]).value
        if not 1 / LARGEST_SCALE <= ratio <= LARGEST_SCALE:
            reason = (
                f"{readings.counter_meter} has {ratio:.2g} times the energy of {meter}: which one is right is unknown"
            )
            return WindowEnergy(None, meter, coverage_ratio, reason)
        energy_j = _scaled(readings, window, *span)
        meter = f"{meter}, scaled by {readings.counter_meter}"
    energy_j = energy_j.times(1 / coverage_ratio).with_error((1 - coverage_ratio) * energy_j.value)
    if energy_j.value <= 0:
        return WindowEnergy(None, meter, coverage_ratio, f"{meter} stands still")
    error_ratio = energy_j.standard_error / energy_j.value
    if error_ratio <= LARGEST_ERROR_RATIO:
        return WindowEnergy(energy_j, meter, coverage_ratio)
    unresolved = f"does not resolve this window of {window.duration_s:.3g} s: standard error {error_ratio:.0%}"
    return WindowEnergy(None, meter, coverage_ratio, f"{meter} {unresolved}")


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
        shifted_j = samples.energy_j(Window(span.begin_s + shift_s, span.end_s + shift_s)).value
        return inside_j * spanned_j / (shifted_j or spanned_j)

    here_j = energy_j(0.0)
    return math.sqrt(((energy_j(error_s) - here_j) ** 2 + (energy_j(-error_s) - here_j) ** 2) / 2)


def _span(readings: Readings, window: Window) -> tuple[Window, float] | None:
    """Return the span of ticks around a window, long enough, and its energy by the counter; None if none is fit."""
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


@dataclass(frozen=True)
class DeviceEnergy:
    """The energy of one device in a window, in J, with its standard error; None with a reason where it is unknown.

    ``coverage_ratio`` is the share of the window for which its meter has readings. ``above_idle_j`` is the energy
    without ``idle_power_w`` times the window's length, where it was asked for and the idle power is known.
    """

    device: str
    meter: str
    energy_j: float | None
    energy_standard_error_j: float | None
    coverage_ratio: float
    missing_reason: str | None = None
    idle_power_w: float | None = None
    above_idle_j: float | None = None

    def __str__(self) -> str:
        if self.energy_j is None or self.energy_standard_error_j is None:
            return f"{self.device}: {UNKNOWN} ({self.missing_reason})"
        error = percent(self.energy_standard_error_j / self.energy_j, 2)
        above = "" if self.above_idle_j is None else f", {significant(self.above_idle_j)} J above idle"
        return f"{self.device}: {significant(self.energy_j)} J ± {error}{above} ({self.meter})"


@dataclass(frozen=True, repr=False)
class WindowResult:
    """The cost of a window.

    ``begin_s`` is the epoch in s. ``repeats`` is how often the code ran within the window, 1 unless
    ``EnergyMeter.measure`` repeated it. ``exception`` names the type of the exception that ended the window.
    """

    label: str
    begin_s: float
    duration_s: float
    devices: tuple[DeviceEnergy, ...]
    repeats: int = 1
    exception: str | None = None

    @property
    def energy(self) -> Estimate | None:
        """The energy of all devices with its standard error in J, None if that of any is unknown."""
        known = [
            Estimate(device.energy_j, device.energy_standard_error_j or 0.0)
            for device in self.devices
            if device.energy_j is not None
        ]
        return sum_of_independent(known) if known and len(known) == len(self.devices) else None

    @property
    def energy_j(self) -> float | None:
        return None if self.energy is None else self.energy.value

    @property
    def energy_per_repeat_j(self) -> float | None:
        return None if self.energy_j is None else self.energy_j / self.repeats

    @property
    def time_per_repeat_s(self) -> float:
        return self.duration_s / self.repeats

    @property
    def missing_reason(self) -> str | None:
        reasons = [device.missing_reason for device in self.devices if device.missing_reason is not None]
        return "; ".join(dict.fromkeys(reasons)) or None

    def __str__(self) -> str:
        name = f"{self.label}: " if self.label else ""
        return f"{name}{significant(self.duration_s)} s, {'; '.join(map(str, self.devices))}"

    def __repr__(self) -> str:
        return f"<WindowResult {self}>"

    def _repr_html_(self) -> str:
        return windows_html([self])


def windows_html(results: Sequence[WindowResult]) -> str:
    """Return a table of windows, a row for each device, with the reason of an unknown energy in the meter's place."""
    rows = []
    for result in results:
        for one in result.devices:
            texts = [UNKNOWN, UNKNOWN, UNKNOWN, one.missing_reason or ""]
            if one.energy_j is not None:
                error = percent((one.energy_standard_error_j or 0.0) / one.energy_j, 2)
                power_w = significant(one.energy_j / result.duration_s)
                texts = [significant(one.energy_j), error, power_w, one.meter]
            rows.append((result.label or "window", significant(result.duration_s), one.device, *texts))
    return html_text.table(("window", "s", "device", "J", "± (standard error)", "W", "meter"), rows)


def result_of(
    sources: Sequence[EnergySource], label: str, begin: ClockReading, end: ClockReading, above_idle: bool = False
) -> WindowResult:
    """Return the cost of a window on all devices; wait for their last readings."""
    duration_s = end.monotonic_s - begin.monotonic_s
    window = Window(begin.epoch_s, end.epoch_s)
    is_placed = abs(window.duration_s - duration_s) <= LARGEST_CLOCK_STEP_S
    clock_set = WindowEnergy(None, "", 0.0, "the clock was set during the window")
    devices = []
    for source in sources:
        energy = window_energy(source.readings(window), window) if is_placed else clock_set
        energy_j, idle_power_w = value_of(energy.energy_j), source.idle_power_w if above_idle else None
        device = DeviceEnergy(
            device=source.device,
            meter=energy.meter,
            energy_j=energy_j,
            energy_standard_error_j=standard_error_of(energy.energy_j),
            coverage_ratio=energy.coverage_ratio,
            missing_reason=energy.missing_reason,
            idle_power_w=idle_power_w,
            above_idle_j=None if energy_j is None or idle_power_w is None else energy_j - idle_power_w * duration_s,
        )
        devices.append(device)
    return WindowResult(label, window.begin_s, duration_s, tuple(devices))


@dataclass(frozen=True)
class MeteredWindowRow(Columns):
    """A window of one device. Where its energy is empty, ``energy_missing_reason`` says why."""

    label: Annotated[str | None, Column("the window's label")]
    started_at: Annotated[str, Column("begin of the window", MOMENT)]
    time_s: Annotated[float, Column("length of the window", FROM_0)]
    repeats: Annotated[int, Column("runs of the code within the window", COUNT_FROM_1)]
    device: Annotated[str, Column("device: cuda:N, cpu, dram")]
    meter: Annotated[str | None, Column("meter, and the counter that scales it")]
    energy_j: Annotated[float | None, Column("in the window, idle power included", ABOVE_0)]
    energy_standard_error_j: Annotated[float | None, Column("one standard error of that", FROM_0)]
    coverage_ratio: Annotated[float, Column("share of the window with readings", SHARE)]
    idle_power_w: Annotated[float | None, Column("before the meter was opened, if asked for", FROM_0)]
    energy_above_idle_j: Annotated[float | None, Column("energy without idle power, if asked for", SIGNED)]
    energy_missing_reason: Annotated[str | None, Column("reason of an empty energy")]
    exception: Annotated[str | None, Column("type of the exception that ended the window")]


def window_rows(result: WindowResult) -> Iterator[MeteredWindowRow]:
    """Yield a row for each device of a window."""
    for device in result.devices:
        yield MeteredWindowRow(
            label=result.label or None,
            started_at=datetime.fromtimestamp(result.begin_s, tz=timezone.utc).isoformat(timespec="microseconds"),
            time_s=result.duration_s,
            repeats=result.repeats,
            device=device.device,
            meter=device.meter or None,
            energy_j=device.energy_j,
            energy_standard_error_j=device.energy_standard_error_j,
            coverage_ratio=device.coverage_ratio,
            idle_power_w=device.idle_power_w,
            energy_above_idle_j=device.above_idle_j,
            energy_missing_reason=device.missing_reason,
            exception=result.exception,
        )
