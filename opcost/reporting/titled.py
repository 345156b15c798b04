"""Rows as tables for people: the columns with a title, and their values in readable units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from opcost.columns import columns_of, values_of
from opcost.units import UNKNOWN, millijoules, milliseconds, percent, watts

READ_AS: Mapping[str, Callable[[Any], str]] = {
    "s": milliseconds,
    "J": millijoules,
    "W": watts,
    "1": partial(percent, digits=2),
}
"""The format of each unit; texts and counts are shown unchanged."""


def titled(row: Any) -> dict[str, str]:
    """Return the text of each column of a row that has a title, by that title."""
    return {
        field.column.title: UNKNOWN if value is None else READ_AS.get(field.unit, str)(value)
        for field, value in zip(columns_of(type(row)), values_of(row), strict=True)
        if field.column.title
    }
