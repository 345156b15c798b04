"""Throttling by the power limit within a loop."""

from __future__ import annotations

import math

import numpy as np

from opcost.estimates import FloatArray
from opcost.measuring.protocol import DUTY_CYCLES
from opcost.power.trace import DeviceState, PowerTrace, Window, fresh_readings

HARDLY_THROTTLED_RATIO = 0.02
"""Throttling for this share of a loop changes its time by 0.7 % at most, because clocks fall by a quarter at most
(H200). In a short loop a single row of the log is a larger share."""

STATE_PERIOD_S = 0.1
"""The longest time until a log shows a change of the clocks: nvidia-smi repeats their state for 0.1 s (H100, H200)."""

RECOVERY_S = 0.4
"""The longest extension of a warm-up. H100s report throttling until 0.24 s to 0.45 s after a throttled load, whether
they then rest or run a load with pauses (12 of 14, ``docs/log/power_limit.md``)."""

FAR_ABOVE_LIMIT_RATIO = 1.14
"""Share of the power limit above which a load is throttled at once. Some loads of up to 1.12 run at full clocks for
0.3 s (H100, H200; ``docs/log/power_limit.md``)."""


LASTING_LIMIT_RATIO = 1.02
"""Share of the power limit above which no lasting load draws: the limiter keeps loops of a second and more at up to
0.9993 (806 rows, H100, H200), and meters that agree within 2 % count as equal."""

LEAST_SETTLED_LOOP_S = 2.3
"""The shortest loop of a whole in which its clocks have settled, or settle soon: two and a half swings of 0.9 s. In
shorter loops throttled wholes still have 98 % to 99 % of full clocks (``docs/log/power_limit.md``)."""


def most_power_ratio(loop_s: float, is_far_above: bool) -> float:
    """Return the largest mean power of a loop that a board can draw, as a share of its power limit.

    ``is_far_above``: the load was measured with pauses, or ended before it was throttled. Pauses keep the mean below
    the limit, at work it may draw more (up to 1.49, H200).
    """
    if is_far_above:
        return 1 / min(DUTY_CYCLES)
    return LASTING_LIMIT_RATIO if loop_s >= LEAST_SETTLED_LOOP_S else FAR_ABOVE_LIMIT_RATIO


def is_above_limit(power_w: float | None, power_limit_w: float | None) -> bool:
    """Return whether a mean power is above what a lasting load can draw; False if one of both is unknown."""
    return power_w is not None and power_limit_w is not None and power_w > LASTING_LIMIT_RATIO * power_limit_w


def is_far_above_limit(trace: PowerTrace, load: Window, power_limit_w: float | None) -> bool:
    """Return whether two readings of a load or more are far above the power limit; False if that is unknown."""
    if power_limit_w is None:
        return False
    return int(np.count_nonzero(fresh_readings(trace, load) >= FAR_ABOVE_LIMIT_RATIO * power_limit_w)) > 1


def is_throttled(state: DeviceState) -> bool:
    """Return whether the power limit throttled the device for a relevant share of the time; False if unknown."""
    return (state.power_capped_ratio or 0.0) > HARDLY_THROTTLED_RATIO


def is_recovering(trace: PowerTrace, load_begin_s: float) -> bool:
    """Return whether a device was throttled when a load began (epoch), and the log still reports that."""
    for logged in (trace, *trace.checks):
        is_known = ~np.isnan(logged.power_capped)
        capped = logged.power_capped[is_known] > 0
        # The log may begin before the load, or one row after its begin.
        at_begin = max(0, int(np.searchsorted(logged.epoch_s[is_known], load_begin_s, side="right")) - 1)
        if len(capped) and capped[at_begin] and capped[-1]:
            return True
    return False


def full_clocks_until_s(trace: PowerTrace, window: Window) -> float:
    """Return the moment (epoch) until which the device was certainly not throttled in a window.

    It lies ``STATE_PERIOD_S`` before the first row with throttling or with a clock below the window's highest.
    """
    ends_s = [window.end_s + STATE_PERIOD_S]
    for logged in (trace, *trace.checks):
        inside = window.holds(logged.epoch_s)
        clock_hz: FloatArray = logged.sm_clock_hz[inside]
        # The highest of the known clocks; comparisons with an unknown value are False.
        slow = (logged.power_capped[inside] > 0) | (clock_hz < np.fmax.reduce(clock_hz, initial=-math.inf))
        ends_s += map(float, logged.epoch_s[inside][slow][:1])
    return min(ends_s) - STATE_PERIOD_S
