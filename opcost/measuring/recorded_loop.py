"""The raw result of a loop, its precision so far, and a forecast of whether it will reach its target."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from opcost.estimates import Estimate, FloatArray, half_width_ratio, mean_over_placements, without_placement_effects
from opcost.power.ports import ClockReading
from opcost.power.trace import MeteredPower, Window

MINIMUM_PRECISE_CHUNKS = 10
"""The fewest chunks whose spread may end a loop by its precision."""

NO_KERNEL_S = 5e-8
"""Calls that take less than this time launch no kernel: the shortest takes 20 times as long (H200, in a graph)."""


CHECKS_IN_A_ROW = 2
"""The number of successive checks that must agree."""

GIVE_UP_AFTER_S = 2.0
"""The time from which a loop ends if it would not reach its target precision in the longest time allowed."""

FALLING_RATIO = 0.9
"""The smallest reduction of the error that a doubling of the loop's time must give. Independent noise gives 0.7. An
error that stays above has slow drift, such as launches from Python, whose mean no loop of 30 s determines to 1 %."""

NEAR_RATIO = 1.5
"""A loop is not given up for an error that stopped falling if it is this near to the target, because errors themselves
are known to about 20 %."""


@dataclass(frozen=True)
class Loop:
    """The raw result of a loop: two or more consecutive chunks between two clock readings, and the load's begin.

    ``chunk_iterations`` are the numbers of iterations of the chunks. ``placements`` is the number of memory placements
    in which chunks ran in turn. ``moments`` are the readings before, between and after the chunks, empty if not kept.
    A loop ``is_too_heavy`` if it was ended because it would be throttled.
    """

    load_begin: ClockReading
    begin: ClockReading
    end: ClockReading
    chunk_durations_s: tuple[float, ...]
    chunk_iterations: tuple[int, ...]
    placements: int = 1
    moments: tuple[ClockReading, ...] = ()
    is_too_heavy: bool = False

    @property
    def iterations(self) -> int:
        return sum(self.chunk_iterations)

    @property
    def time_s(self) -> Estimate:
        return mean_over_placements(np.array(self.chunk_durations_s), np.array(self.chunk_iterations), self.placements)

    @property
    def launches_no_kernel(self) -> bool:
        return self.time_s.value < NO_KERNEL_S

    @property
    def times_s(self) -> FloatArray:
        times_s: FloatArray = np.array(self.chunk_durations_s) / np.array(self.chunk_iterations)
        return times_s

    @property
    def in_one_placement(self) -> Loop:
        left_s = without_placement_effects(
            np.array(self.chunk_durations_s), np.array(self.chunk_iterations), self.placements
        )
        return replace(self, chunk_durations_s=tuple(map(float, left_s)), placements=1)

    @property
    def later_half(self) -> Loop | None:
        """The loop without its first half, whole rounds of placements; None if few chunks would be left."""
        skipped = math.ceil(len(self.chunk_durations_s) / 2 / self.placements) * self.placements
        return self._chunks(skipped, len(self.chunk_durations_s)) if self.moments else None

    def until(self, epoch_s: float) -> Loop | None:
        """Return the chunks that had ended at a moment; None if they are few."""
        return self._chunks(0, sum(moment.epoch_s <= epoch_s for moment in self.moments[1:]))

    def _chunks(self, first: int, end: int) -> Loop | None:
        """Return the loop of the chunks from the first to that before the end; None if they are few."""
        if end - first < MINIMUM_PRECISE_CHUNKS:
            return None
        return replace(
            self,
            begin=self.moments[first],
            end=self.moments[end],
            chunk_durations_s=self.chunk_durations_s[first:end],
            chunk_iterations=self.chunk_iterations[first:end],
            moments=self.moments[first : end + 1],
        )

    @property
    def duration_s(self) -> float:
        return self.end.monotonic_s - self.begin.monotonic_s

    @property
    def window(self) -> Window:
        return Window(self.begin.epoch_s, self.end.epoch_s)


def energy_of_iteration_j(loop: Loop, power: MeteredPower) -> Estimate | None:
    """Return the energy of one iteration in J, None if the power is unknown.

    Power and time are treated as independent. The error is too large if the device is throttled, because time then
    rises as power falls.
    """
    return None if power.mean.estimate_w is None else power.mean.estimate_w.multiplied_by(loop.time_s)


def is_precise(loop: Loop, power: MeteredPower, relative_error: float) -> bool:
    """Return whether the 95 % intervals of time and energy are within a relative error; without a meter only the time
    counts.

    Calls that launch no kernel are always precise.
    """
    if loop.launches_no_kernel:
        return True
    is_short = len(loop.chunk_durations_s) < MINIMUM_PRECISE_CHUNKS
    return not is_short and half_width_ratio_of(loop, power) <= relative_error


def half_width_ratio_of(loop: Loop, power: MeteredPower) -> float:
    """Return half the width of the 95 % interval of time or energy over its value, the larger of both.

    It is infinite if the energy is not known yet. Without a power meter only the time counts.
    """
    chunks = len(loop.chunk_durations_s)
    # Chunks in one of several placements are not independent of each other.
    independent = chunks if loop.placements == 1 else min(chunks, loop.placements)
    time_ratio = half_width_ratio(loop.time_s, independent)
    if power.trace.missing_reason is not None:
        return time_ratio
    energy_j = energy_of_iteration_j(loop, power)
    if energy_j is None:
        return math.inf
    return max(time_ratio, half_width_ratio(energy_j, min(independent, power.mean.readings)))


class Forecast:
    """Predicts from a loop's errors so far whether it will reach its target precision in time."""

    def __init__(self, relative_error: float, loop_s: float) -> None:
        self._relative_error = relative_error
        self._loop_s = loop_s
        self._earlier: tuple[float, float] | None = None
        self._unlikely_checks = 0

    def is_hopeless(self, loop: Loop, power: MeteredPower) -> bool:
        """Return whether this check and the ones before it found that the loop will not reach its target. Short loops
        and few readings say nothing.
        """
        readings = len(loop.chunk_durations_s)
        if power.trace.missing_reason is None:
            readings = min(readings, 0 if power.mean.estimate_w is None else power.mean.readings)
        if loop.duration_s < GIVE_UP_AFTER_S or readings < MINIMUM_PRECISE_CHUNKS:
            return False
        ratio = half_width_ratio_of(loop, power)
        # Errors fall with the root of the time at best.
        is_out_of_reach = ratio * math.sqrt(loop.duration_s / self._loop_s) > self._relative_error
        is_near = ratio <= NEAR_RATIO * self._relative_error
        is_unlikely = is_out_of_reach or (self._stays(loop.duration_s, ratio) and not is_near)
        self._unlikely_checks = self._unlikely_checks + 1 if is_unlikely else 0
        return self._unlikely_checks == CHECKS_IN_A_ROW

    @property
    def is_unlikely(self) -> bool:
        """Whether the last check found the target precision out of reach."""
        return self._unlikely_checks > 0

    def _stays(self, duration_s: float, ratio: float) -> bool:
        """Return whether the error has hardly fallen since half of the time."""
        if self._earlier is None:
            self._earlier = duration_s, ratio
        earlier_s, earlier_ratio = self._earlier
        if duration_s < 2 * earlier_s:
            return False
        if ratio <= FALLING_RATIO * earlier_ratio:
            self._earlier = duration_s, ratio
            return False
        return True
