"""Pauses between calls, so that a load above the power limit runs at full clocks.

In a model such an operator runs for a millisecond, followed by lighter ones, so it is not throttled. In a loop of
itself it may be throttled within 0.1 s. Pauses keep the mean power below the limit. The cost of the pauses is measured
separately and subtracted.
"""

from __future__ import annotations

from opcost.errors import CannotMeasureError

DUTY_CYCLES = (0.75, 0.5)
"""The largest shares of time at work of a load that is throttled, tried in turn until it is not. With 140 W in the
pauses and 98 % of 700 W they allow for 868 and 1230 W. At 85 %, in cycles of 1.2 ms, the noise of samples was so slow
that loops took 10 to 20 s (H200)."""

LONGEST_LOOP_S = 2.0
"""Longest loop with pauses. Most reach 1 % within 1 s. Of seven that took more than 2 s, one reached it; the others
were known to 1.8 % to 5 % (H200, ``docs/log/speed.md``)."""

SAMPLING_PERIOD_S = 0.8e-3
"""The interval at which the board seems to sample its power for one NVML power sample, or twice that interval. Pauses
with periods from 0.4 to 4 ms make NVML's samples on an H200 scatter by 2 to 19 %, as the mean of 25 instantaneous
values in 20 ms does and an average over 20 ms does not (``docs/log/meters.md``)."""

OUT_OF_STEP = (0.382, 0.618)
"""The fraction of a sampling interval by which a period of work and pause is longer than whole intervals. With the
golden section, successive samples cover all phases of the period evenly. Without a fraction, all would see the same
phase."""

LONGEST_PERIOD = 11
"""The most whole sampling intervals in a period: 9.3 ms, half of an NVML sample."""

SHORT_PERIODS = 4
"""The number of shortest periods that are used for short calls. The calls then run for about 1 ms without a pause, so
that cache effects of a pause and writes to memory during it are negligible."""


def cycles_and_pause(cycle_s: float, duty_cycle: float) -> tuple[int, float]:
    """Return the number of cycles of calls before a pause, and the length of the pause in s.

    Args:
        cycle_s: time of one cycle of calls.
        duty_cycle: largest share of time at work.

    Raises:
        CannotMeasureError: a cycle and its pause are longer than the longest period.
    """
    periods_s = [(whole + part) * SAMPLING_PERIOD_S for whole in range(1, LONGEST_PERIOD + 1) for part in OUT_OF_STEP]
    cycles = {period_s: int(duty_cycle * period_s / cycle_s) for period_s in periods_s}
    best_s = max(periods_s[:SHORT_PERIODS], key=lambda period_s: cycles[period_s] / period_s)
    if not cycles[best_s]:
        best_s = next((period_s for period_s in periods_s if cycles[period_s]), best_s)
    if not cycles[best_s]:
        raise CannotMeasureError(f"a call of {cycle_s:.3g} s is too long for pauses every {periods_s[-1]:.2g} s")
    return cycles[best_s], best_s - cycles[best_s] * cycle_s
