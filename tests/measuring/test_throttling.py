"""Throttling within a loop."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from opcost.measuring.throttling import STATE_PERIOD_S, full_clocks_until_s
from opcost.power.trace import NO_POWER_SOURCE, Window, trace_of_power

WINDOW = Window(0.0, 3.0)


@pytest.mark.parametrize(
    ("clocks_hz", "until_s"),
    [
        ([2e9, 2e9, 2e9, 2e9], 3.0),
        ([2e9, 2e9, 1e9, 2e9], 2.0 - STATE_PERIOD_S),
        ([math.nan, 2e9, 1e9, 2e9], 2.0 - STATE_PERIOD_S),
        ([math.nan] * 4, 3.0),
    ],
)
def test_full_clocks_end_before_the_first_row_with_a_lower_clock(clocks_hz: list[float], until_s: float) -> None:
    """A row without a clock says nothing about the others."""
    trace = replace(trace_of_power(NO_POWER_SOURCE, np.arange(4.0), np.ones(4)), sm_clock_hz=np.array(clocks_hz))
    assert full_clocks_until_s(trace, WINDOW) == pytest.approx(until_s)
