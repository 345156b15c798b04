"""Throttling by the power limit within a loop."""

from __future__ import annotations

import math

import numpy as np

from opcost.estimates import FloatArray
from opcost.power.trace import DeviceState, PowerTrace, Window

HARDLY_THROTTLED_RATIO = 0.02
"""Throttling for this share of a loop changes its time by 0.7 % at most, because clocks fall by a quarter at most
(H200). In a short loop a single row of the log is a larger share."""

STATE_PERIOD_S = 0.1
"""The longest time until a log shows a change of the clocks: nvidia-smi repeats their state for 0.1 s (H100, H200)."""

RECOVERY_S = 0.4
"""The longest extension of a warm-up. H100s report throttling until 0.24 s to 0.45 s after a throttled load, whether
they then rest or run a load with pauses (12 of 14, ``docs/log/power_limit.md``)."""


def is_throttled(state: DeviceState) -> bool:
    """Return whether the power limit throttled the device for a relevant share of the time; False if unknown."""
    return (state.power_capped_ratio or 0.0) > HARDLY_THROTTLED_RATIO


def is_recovering(trace: PowerTrace) -> bool:
    """Return whether a log begins with throttling, by the load before, and still reports it."""
    capped = [logged.power_capped[~np.isnan(logged.power_capped)] for logged in (trace, *trace.checks)]
    return any(len(known) > 0 and known[0] > 0 and known[-1] > 0 for known in capped)


def full_clocks_until_s(trace: PowerTrace, window: Window) -> float:
    """Return the moment (epoch) until which the device was certainly not throttled in a window.

    It lies ``STATE_PERIOD_S`` before the first row with throttling or with a clock below the window's highest.
    """
    ends_s = [_first_slow_s(logged, window) for logged in (trace, *trace.checks)]
    return min(ends_s) - STATE_PERIOD_S


def _first_slow_s(trace: PowerTrace, window: Window) -> float:
    inside = window.holds(trace.epoch_s)
    epoch_s: FloatArray = trace.epoch_s[inside]
    clock_hz: FloatArray = trace.sm_clock_hz[inside]
    # The highest of the known clocks; comparisons with an unknown value are False.
    slow = (trace.power_capped[inside] > 0) | (clock_hz < np.fmax.reduce(clock_hz, initial=-math.inf))
    return float(epoch_s[slow][0]) if slow.any() else window.end_s + STATE_PERIOD_S
