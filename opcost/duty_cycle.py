"""Pauses between calls, so that a load that would draw more than its device may stays at full clocks.

A model runs such an operator for a millisecond and then lighter ones: its clocks stay up. Alone it is slowed down
within a tenth of a second. With pauses the mean power stays below the limit; what they cost is measured by itself.
"""

from __future__ import annotations

from opcost.errors import CannotMeasureError

DUTY_CYCLES = (0.75, 0.5)
"""For what share of the time, at most, a load runs that has reached the power limit: with 700 W, and 140 W in the
pauses, they allow for 887 W and 1260 W."""

BUSY_S = 3.5e-3
"""How long calls follow each other between two pauses: so long that what they find in the cache, and what of theirs is
still written to memory in a pause, hardly counts."""

READING_S = 0.02
"""What a reading of NVML's samples covers: a whole number of pauses fits into it, or else readings would scatter."""


def stretch(cycle_s: float, duty_cycle: float) -> tuple[int, float]:
    """Return how many cycles of calls to make before a pause, and how long that is to last in s.

    Args:
        cycle_s: what one cycle of calls takes.
        duty_cycle: for what share of the time calls run, at most.

    Raises:
        CannotMeasureError: a cycle and its pause are longer than a reading.
    """
    cycles = max(round(BUSY_S / cycle_s), 1)
    busy_s = cycles * cycle_s
    stretches = int(READING_S * duty_cycle / busy_s)
    if not stretches:
        raise CannotMeasureError(f"{busy_s:.3g} s are too long for pauses within {READING_S} s")
    return cycles, READING_S / stretches - busy_s
