"""How many single iterations are timed after a loop."""

from __future__ import annotations

SINGLE_SHARE = 0.25
"""Length of all single iterations as a share of the loop."""

LEAST, MOST = 20, 2000
"""The fewest and the most iterations: the 5th percentile needs 20."""

LONGEST_S = 10.0
"""Longest time of single iterations: long ones are fewer than ``LEAST``, but at least ``FEWEST_LONG``."""

FEWEST_LONG = 3


def iterations_after(loop_s: float, time_s: float) -> int:
    """Return how many iterations of ``time_s`` are timed after a loop of ``loop_s``."""
    number = max(LEAST, min(MOST, round(SINGLE_SHARE * loop_s / time_s)))
    return number if number * time_s <= max(LONGEST_S, loop_s) else max(FEWEST_LONG, int(LONGEST_S / time_s))
