"""The time of each layer in the marked iterations of a loop, forward and backward apart.

An iteration is a sequence of spans, each of one slot: a layer's forward, its backward, or none. The spans of an
iteration add up to its length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opcost.estimates import FloatArray

PERIODS_KEPT = 1000
LEAST_PERIODS = 3
"""The fewest marked and unmarked iterations whose medians are compared."""


def forward_slot(layer: int) -> int:
    """Return the slot of a layer's forward."""
    return 2 * layer


def backward_slot(layer: int) -> int:
    """Return the slot of a layer's backward."""
    return 2 * layer + 1


NO_LAYER = -1
"""The slot of the time between layers."""

UNKNOWN_LAYER = -2
"""The slot of the backward of operations whose layer is unknown."""


def slots_of(layers: int) -> int:
    """Return the number of slots, with those that count from the end."""
    return 2 * layers + 2


@dataclass(frozen=True, eq=False)
class MarkedSpans:
    """The spans of one iteration.

    Args:
        slots: of each span.
        times_s: the length of each span.
        own_s: by slot, the host's time for marking in the spans of that slot.
        calls: by layer, the number of forward calls.
    """

    slots: Sequence[int]
    times_s: Sequence[float]
    own_s: FloatArray
    calls: FloatArray


class LayerTimes:
    """Means over marked iterations. Iteration 0, which warms up, counts only if there is no other.

    Args:
        layers: the number of layers.
    """

    def __init__(self, layers: int) -> None:
        self._slots = slots_of(layers)
        self.marked = 0
        self.calls = np.zeros(layers)
        self._mean_s = np.zeros(self._slots)
        self._squares = np.zeros(self._slots)
        self._own_s = np.zeros(self._slots)
        self._is_seen = np.zeros(self._slots, dtype=bool)
        self._is_warm = False
        self._periods_s: dict[bool, deque[float]] = {
            is_marked: deque(maxlen=PERIODS_KEPT) for is_marked in (False, True)
        }

    def add_period(self, period_s: float, is_marked: bool) -> None:
        self._periods_s[is_marked].append(period_s)

    def add(self, spans: MarkedSpans, is_first: bool) -> None:
        """Add a marked iteration."""
        if is_first and self.marked:
            return
        if self.marked and not self._is_warm:
            self.marked = 0
            for sums in (self.calls, self._mean_s, self._squares, self._own_s):
                sums[:] = 0
            self._is_seen[:] = False
        self._is_warm = not is_first
        self.marked += 1
        slots = np.asarray(spans.slots, dtype=np.int64) % self._slots
        times_s = np.bincount(slots, spans.times_s, self._slots)
        self._is_seen[slots] = True
        step_s = times_s - self._mean_s
        self._mean_s += step_s / self.marked
        self._squares += step_s * (times_s - self._mean_s)
        self._own_s += (spans.own_s - self._own_s) / self.marked
        self.calls += (spans.calls - self.calls) / self.marked

    @property
    def excess_s(self) -> float | None:
        """By how much marked iterations take longer than others, by their medians; None of too few, never below 0."""
        marked, unmarked = self._periods_s[True], self._periods_s[False]
        if min(len(marked), len(unmarked)) < LEAST_PERIODS:
            return None
        return max(0.0, float(np.median(marked) - np.median(unmarked)))

    def time_s(self, slot: int) -> float | None:
        """Return a slot's time per iteration, without that of marking; None if it has no span.

        Marking takes time of the host. As much of it is subtracted as made the marked iterations longer: all where the
        host is what the loop waits for, nothing where the device works on meanwhile.
        """
        if not self._is_seen[slot]:
            return None
        own_s = float(self._own_s.sum())
        excess_ratio = min(1.0, (self.excess_s or 0.0) / own_s) if own_s > 0 else 0.0
        return max(0.0, float(self._mean_s[slot] - excess_ratio * self._own_s[slot]))

    def standard_error_s(self, slot: int) -> float | None:
        """Return the standard error of a slot's time over the marked iterations; None of fewer than two."""
        if self.marked < 2 or not self._is_seen[slot]:
            return None
        return float(np.sqrt(self._squares[slot] / (self.marked - 1) / self.marked))
