"""The raw result of a loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from opcost.estimates import Estimate, FloatArray, mean_over_placements, without_placement_effects
from opcost.power.ports import ClockReading
from opcost.power.trace import Window

MINIMUM_PRECISE_CHUNKS = 10
"""The fewest chunks whose spread may end a loop by its precision."""

NO_KERNEL_S = 5e-8
"""Calls that take less than this time launch no kernel: the shortest takes 20 times as long (H200, in a graph)."""


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
    def independent_chunks(self) -> int:
        """The number of independent chunks: at most one for each placement if there are several."""
        chunks = len(self.chunk_durations_s)
        return chunks if self.placements == 1 else min(chunks, self.placements)

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
        if not self.moments or len(self.chunk_durations_s) - skipped < MINIMUM_PRECISE_CHUNKS:
            return None
        return self._chunks(skipped, len(self.chunk_durations_s))

    def until(self, epoch_s: float) -> Loop | None:
        """Return the chunks that had ended at a moment; None if they are few."""
        chunks = sum(moment.epoch_s <= epoch_s for moment in self.moments[1:])
        if chunks < MINIMUM_PRECISE_CHUNKS:
            return None
        return self._chunks(0, chunks)

    def _chunks(self, first: int, end: int) -> Loop:
        """Return the loop of the chunks from the first to that before the end."""
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
