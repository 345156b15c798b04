"""Short code, repeated in longer and longer windows until its energy is known well enough."""

from __future__ import annotations

from collections.abc import Callable

from opcost.estimates import NORMAL_QUANTILE
from opcost.metering.result import WindowResult

FIRST_S = 0.25
"""Length of the first window: a dozen samples of 20 ms."""

GROWTH = 2.0
"""Factor from one window to the next. The relative error is inversely proportional to the length, or falls faster."""


def until_resolved(
    metered_for: Callable[[float], WindowResult], relative_error: float, longest_s: float
) -> WindowResult:
    """Return the first window whose energy is known within a relative error (95 % interval), or the longest one.

    Args:
        metered_for: repeats the code for at least some seconds in a new window and returns that.
        relative_error: half of the 95 % interval over the energy.
        longest_s: no window after one of this length.
    """
    length_s = min(FIRST_S, longest_s)
    while True:
        result = metered_for(length_s)
        if is_resolved(result, relative_error) or not result.has_readings or length_s >= longest_s:
            return result
        length_s = min(GROWTH * max(length_s, result.duration_s), longest_s)


def is_resolved(result: WindowResult, relative_error: float) -> bool:
    """Return whether the energy of a window is known within a relative error (95 % interval)."""
    energy = result.energy
    return energy is not None and NORMAL_QUANTILE * energy.standard_error <= relative_error * energy.value
