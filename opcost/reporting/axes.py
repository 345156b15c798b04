"""Axes of figures: the position of a value between two ends, and the round values that are marked.

SVGs, terminals and the page's script all draw these positions, from 0 to 1, and texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

STEPS = (1.0, 2.0, 5.0, 10.0)
"""Round steps between marks, in powers of ten."""

LOG_MARKS = (1.0, 2.0, 5.0)
MOST_LOG_MARKS = 6
ROUNDING = 1e-9
"""Share of a step by which equal values may differ, because of rounding."""

SMALLEST = 1e-200
"""Smaller values count as 0: a tenth of a step would underflow."""


@dataclass(frozen=True)
class Tick:
    """A marked value, and its text."""

    value: float
    text: str


@dataclass(frozen=True)
class Axis:
    """An axis from ``low`` to ``high``, linear or logarithmic; ``label`` names the quantity with its unit."""

    low: float
    high: float
    label: str
    ticks: tuple[Tick, ...] = ()
    is_log: bool = False

    def position(self, value: float) -> float:
        """Return the position of a value: 0 at the low end, 1 at the high end, outside of these beyond."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear_axis(values: Iterable[float], label: str, marks: int = 5, has_zero: bool = False, text: str = "g") -> Axis:
    """Return an axis over values that ends at round ones.

    Args:
        values: the values that are drawn; without any, the axis goes from 0 to 1.
        label: of the axis.
        marks: the approximate number of marks.
        has_zero: whether the axis includes 0.
        text: the format of the marks' values.
    """
    known = [*values, *([0.0] if has_zero else [])]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if max(abs(low), abs(high)) < SMALLEST:
        low, high = 0.0, 1.0
    elif high - low <= ROUNDING * max(abs(low), abs(high)):
        low, high = (min(0.0, 2 * low), max(0.0, 2 * low))
    step = _step((high - low) / marks)
    first, last = math.floor(low / step + ROUNDING), math.ceil(high / step - ROUNDING)
    ticks = tuple(Tick(number * step, format(_rounded(number * step, step), text)) for number in range(first, last + 1))
    return Axis(first * step, last * step, label, ticks)


def log_axis(values: Iterable[float], label: str) -> Axis:
    """Return a logarithmic axis over values above 0, with some room at both ends; from 1 to 10 without any."""
    known = [value for value in values if value > 0]
    low, high = (min(known) / 1.25, max(known) * 1.25) if known else (1.0, 10.0)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [mark for e in exponents for m in LOG_MARKS if low <= (mark := m * 10.0**e) <= high]
    if len(inside) > MOST_LOG_MARKS:
        tens = [10.0**exponent for exponent in exponents if low <= 10.0**exponent <= high]
        inside = tens[:: math.ceil(len(tens) / MOST_LOG_MARKS)]
    return Axis(low, high, label, tuple(Tick(mark, f"{mark:g}") for mark in inside), is_log=True)


def _step(width: float) -> float:
    """Return the smallest round step that is at least a width."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(step * power for step in STEPS if step * power >= width * (1 - ROUNDING))


def _rounded(value: float, step: float) -> float:
    """Return a value without rounding errors in its last digits, and 0 instead of -0."""
    digits = max(0, 1 - math.floor(math.log10(step)))
    return round(value, digits) + 0.0
