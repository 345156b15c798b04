"""Pauses between calls, so that a load that would draw more than its device may stays at full clocks.

A model runs such an operator for a millisecond and then lighter ones: its clocks stay up. Alone it is slowed down
within a tenth of a second. With pauses the mean power stays below the limit; what they cost is measured by itself.
"""

from __future__ import annotations

from opcost.errors import CannotMeasureError

DUTY_CYCLES = (0.85, 0.65, 0.5)
"""For what share of the time, at most, a load runs that has reached the power limit, one after the other until it stays
below: with 98 % of 700 W, and 140 W in the pauses, they allow for 782, 980 and 1230 W. The shorter the pauses, the less
do samples scatter for them."""

BUSY_S = 1e-3
"""How long calls follow each other between two pauses, at most, where one call does not take longer: so long that what
they find in the cache, and what of theirs is still written to memory in a pause, hardly counts; so short that NVML's
samples smooth pauses (on an H200 a mean over 1 s was good to 0.3 % where pauses came every 2.5 ms, 0.65 % at 6 ms)."""

READING_S = 0.02
"""How often NVML has a new sample, which sees a part of that time."""

OUT_OF_STEP = (0.382, 0.618)
"""Pauses come one of these parts of their period out of step with samples, those of the golden section: so samples, one
after the other, see all of a period alike. In step, all would see the same part of it."""


def cycles_between_pauses(cycle_s: float) -> int:
    """Return how many cycles of calls follow each other, given what one takes in s."""
    return max(int(BUSY_S / cycle_s), 1)


def stretch(cycle_s: float, duty_cycle: float) -> tuple[int, float]:
    """Return how many cycles of calls to make before a pause, and how long that is to last in s.

    Args:
        cycle_s: what one cycle of calls takes.
        duty_cycle: for what share of the time calls run, at most.

    Raises:
        CannotMeasureError: a cycle and its pause are longer than what a reading can smooth.
    """
    cycles = cycles_between_pauses(cycle_s)
    busy_s = cycles * cycle_s
    most = READING_S * duty_cycle / busy_s
    pauses_per_reading = max(int(most - part) + part for part in OUT_OF_STEP)
    if pauses_per_reading < 2:
        raise CannotMeasureError(f"{busy_s:.3g} s are too long for pauses within {READING_S} s")
    return cycles, READING_S / pauses_per_reading - busy_s
