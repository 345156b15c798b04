"""Throttling within a loop."""

import math
from dataclasses import replace

import numpy as np
import pytest

from opcost.measuring.loop import STATE_PERIOD_S, full_clocks_until_s, is_far_above_limit, is_recovering
from opcost.power.trace import NO_POWER_SOURCE, Window, joined, trace_of_power

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


@pytest.mark.parametrize(
    ("capped", "load_begin_s", "is_late"),
    [
        ([1, 1, 1, 1], 1.5, True),
        ([0, 1, 1, 1], 1.5, True),
        ([1, 0, 0, 0], 1.5, False),
        ([1, 1, 1, 0], 1.5, False),
        ([0, 0, 1, 1], 1.5, False),
        ([0, math.nan, 1, 1], 1.5, False),
        ([1, 1, 1, 1], -1.0, True),
        ([0, 1, 1, 1], -1.0, False),
        ([math.nan] * 4, 1.5, False),
        ([], 1.5, False),
    ],
)
def test_a_device_recovers_if_it_was_throttled_at_the_begin_and_still_is(
    capped: list[float], load_begin_s: float, is_late: bool
) -> None:
    """A log may have rows of the second before the load."""
    moments_s = np.arange(float(len(capped)))
    plain = trace_of_power(NO_POWER_SOURCE, moments_s, np.ones(len(capped)))
    log = replace(plain, power_capped=np.array(capped, dtype=float))
    assert is_recovering(log, load_begin_s) == is_late
    assert is_recovering(joined([plain, log]), load_begin_s) == is_late


@pytest.mark.parametrize(
    ("readings_w", "limit_w", "is_far"),
    [
        ([500.0, 800.0, 801.0, 700.0], 700.0, True),
        ([500.0, 900.0, 780.0, 780.0], 700.0, False),
        ([900.0], 700.0, False),
        ([900.0, 900.0], None, False),
        ([], 700.0, False),
    ],
)
def test_two_readings_show_that_a_load_is_far_above_the_limit(
    readings_w: list[float], limit_w: float | None, is_far: bool
) -> None:
    """One reading may be disturbed."""
    source = replace(NO_POWER_SOURCE, repeats_values=False)
    trace = trace_of_power(source, np.arange(float(len(readings_w))), np.array(readings_w))
    assert is_far_above_limit(trace, Window(0.0, 9.0), limit_w) == is_far
