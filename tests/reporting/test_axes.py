"""Axes: values lie between their ends, marks are round, and nothing breaks on odd values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.reporting.axes import Axis, linear_axis, log_axis

FINITE = st.floats(-1e9, 1e9, allow_subnormal=False)
POSITIVE = st.floats(1e-9, 1e12)


def texts(axis: Axis) -> list[str]:
    return [tick.text for tick in axis.ticks]


def test_a_linear_axis_ends_at_round_values() -> None:
    axis = linear_axis([3.0, 97.0], "power (W)")
    assert (axis.low, axis.high) == (0.0, 100.0)
    assert texts(axis) == ["0", "20", "40", "60", "80", "100"]


def test_marks_have_no_digits_left_by_adding() -> None:
    assert texts(linear_axis([0.0, 0.3], "share", marks=3)) == ["0", "0.1", "0.2", "0.3"]
    assert "-0" not in texts(linear_axis([-0.3, 0.2], "share"))


def test_zero_is_on_an_axis_that_is_to_have_it() -> None:
    axis = linear_axis([340.0, 350.0], "power (W)", has_zero=True)
    assert axis.low == 0
    assert axis.position(axis.high) == 1


@pytest.mark.parametrize("values", [[], [5.0], [0.0], [-2.0, -2.0], [5e-324]])
def test_few_values_make_an_axis_all_the_same(values: list[float]) -> None:
    axis = linear_axis(values, "x")
    assert axis.low < axis.high
    assert all(0 <= axis.position(value) <= 1 for value in values)


@given(st.lists(FINITE, min_size=1))
def test_values_lie_on_their_linear_axis(values: list[float]) -> None:
    axis = linear_axis(values, "x")
    assert all(-1e-6 <= axis.position(value) <= 1 + 1e-6 for value in values)
    assert all(-1e-6 <= axis.position(tick.value) <= 1 + 1e-6 for tick in axis.ticks)
    assert 2 <= len(axis.ticks) <= 12


@given(st.lists(POSITIVE, min_size=1))
def test_values_lie_on_their_logarithmic_axis(values: list[float]) -> None:
    axis = log_axis(values, "x")
    assert all(0 < axis.position(value) < 1 for value in values)
    assert all(axis.low <= tick.value <= axis.high for tick in axis.ticks)


def test_a_logarithmic_axis_marks_decades_where_it_is_long() -> None:
    assert texts(log_axis([1.0, 100.0], "x")) == ["1", "10", "100"]
    assert texts(log_axis([1.0, 8.0], "x")) == ["1", "2", "5", "10"]


def test_equal_ratios_are_equal_distances() -> None:
    axis = log_axis([1.0, 1000.0], "x")
    assert axis.position(10.0) - axis.position(1.0) == pytest.approx(axis.position(1000.0) - axis.position(100.0))
    assert math.isclose(log_axis([], "x").position(1.0), 0.0)
