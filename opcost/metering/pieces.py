"""Power as a function of time that is constant in pieces, from the readings of a meter with their averaging time.

A reading is the mean power of a piece, not the power at a moment. Where a window ends inside a piece, the energy of the
part inside depends on how the power changed within the piece. The neighbouring pieces show between which powers it
changed, and in which direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from opcost.estimates import Estimate, FloatArray
from opcost.power.trace import Window

NEIGHBOURS = 25
"""Pieces on each side in which the lowest and highest power of the load are looked for: 0.5 s of samples."""

GAP_RATIO = 5.0
"""Time between two readings, in averaging times, from which readings between them were lost."""

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
        """Return how much of a window the pieces cover, in s."""
        first, last = self._within(window)
        return float(_overlap_s(self.begin_s[first:last], self.end_s[first:last], window).sum())

    def touch(self, window: Window) -> npt.NDArray[np.bool_]:
        """Return which pieces are at least partly inside a window; shape (n,)."""
        touching: npt.NDArray[np.bool_] = (self.end_s > window.begin_s) & (self.begin_s < window.end_s)
        return touching

    def timing_error_j(self, chosen: npt.NDArray[np.bool_]) -> float:
        """Return the error of the energy of some pieces (a mask) from the scatter of the times between them."""
        steps_w = np.diff(self.power_w)[chosen[1:]] if len(chosen) else np.empty(0)
        return self.time_scatter_s * math.sqrt(float((steps_w**2).sum()))

    def power_at_w(self, epoch_s: float) -> float:
        """Return the power of the piece at a moment, or of the nearest one; 0 if there are no pieces."""
        if not len(self.power_w):
            return 0.0
        return float(self.power_w[min(int(np.searchsorted(self.end_s, epoch_s)), len(self.power_w) - 1)])

    def energy_j(self, window: Window) -> Estimate:
        """Return the energy of the part of a window that the pieces cover.

        The error is that of the pieces at both ends, of which a part is inside.
        """
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

    @cached_property
    def time_scatter_s(self) -> float:
        """The standard deviation of a reading's time, from how unequal the pieces are."""
        duration_s = self.end_s - self.begin_s
        if len(duration_s) < 3:
            return 0.0
        # One late time makes a piece longer and the next one shorter.
        return float(np.sqrt(np.mean((duration_s - np.median(duration_s)) ** 2) / 2))

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
