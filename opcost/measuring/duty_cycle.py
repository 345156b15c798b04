"""Pauses between calls, so that a load that would draw more than its device may stays at full clocks.

A model runs such an operator for a millisecond and then lighter ones: its clocks stay up. Alone it may be slowed down
within a tenth of a second. With pauses the mean power stays below the limit; what they cost is measured by itself.
"""

from __future__ import annotations

from opcost.errors import CannotMeasureError

DUTY_CYCLES = (0.75, 0.5)
"""For what share of the time, at most, a load runs under which the power limit holds clocks down, one after the other
until it does not: with 140 W in the pauses and 98 % of 700 W they allow for 868 and 1230 W. In a cycle of 85 %, 1.2 ms
long, samples scattered so slowly that loops took 10 to 20 s (H200)."""

LOOK_S = 0.8e-3
"""NVML's power samples seem to be means of looks that are so far apart, or half as far: pauses with periods from 0.4 to
4 ms make samples of an H200 scatter by 2 to 19 %, as 25 looks in 20 ms would and a mean over all of that time would
not (``docs/log/meters.md``)."""

OUT_OF_STEP = (0.382, 0.618)
"""Pauses come one of these parts of a look out of step with looks, those of the golden section: so looks, one after the
other, see all of a period alike. In step, all would see the same part of it."""

LONGEST_PERIOD = 11
"""How many whole looks a period holds besides, at most: 9.3 ms, half of a sample."""

SHORT_PERIODS = 4
"""How many of the shortest periods are for short calls: these follow each other for about 1 ms, so long that what they
find in the cache, and what of theirs is still written to memory in a pause, hardly counts."""


def stretch(cycle_s: float, duty_cycle: float) -> tuple[int, float]:
    """Return how many cycles of calls to make before a pause, and how long that is to last in s.

    Args:
        cycle_s: what one cycle of calls takes.
        duty_cycle: for what share of the time calls run, at most.

    Raises:
        CannotMeasureError: a cycle and its pause are longer than what a sample can smooth.
    """
    periods_s = [(looks + part) * LOOK_S for looks in range(1, LONGEST_PERIOD + 1) for part in OUT_OF_STEP]
    cycles = {period_s: int(duty_cycle * period_s / cycle_s) for period_s in periods_s}
    best_s = max(periods_s[:SHORT_PERIODS], key=lambda period_s: cycles[period_s] / period_s)
    if not cycles[best_s]:
        best_s = next((period_s for period_s in periods_s if cycles[period_s]), best_s)
    if not cycles[best_s]:
        raise CannotMeasureError(f"{cycle_s:.3g} s are too long for pauses within {periods_s[-1]:.2g} s")
    return cycles[best_s], best_s - cycles[best_s] * cycle_s
