"""Columns: what each field of a row says, in which unit, and which values it may have.

A frozen dataclass declares its columns with its fields, each once::

    @dataclass(frozen=True)
    class Timing(Columns):
        time_s: Annotated[float, Column("per iteration", ABOVE_0)]

The headers of CSV files, the checks of their cells and ``docs/columns.md`` follow from the declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from functools import cache
from reprlib import repr as shown
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

SMALLEST, LARGEST = 1e-15, 1e15
"""Of what is measured, in SI units: beyond any quantity here, and what follows from several of them is still a number.
"""

LARGEST_FLOAT, LARGEST_INT = 1e100, 2**63 - 1
"""Of all numbers: their squares are still numbers."""

YEARS = (1970, 2999)

UNITS = {
    "_per_kelvin_ratio": "1/K",
    "_per_kelvin_standard_error_ratio": "1/K",
    "_bytes": "B",
    "_s": "s",
    "_j": "J",
    "_w": "W",
    "_c": "°C",
    "_hz": "Hz",
}
"""What names of columns end with, and the unit that says; the first one counts."""


@dataclass(frozen=True)
class Values:
    """Which values a column may have: what they are, in words, and a test of one that is not None."""

    words: str
    allow: Callable[[Any], bool]


def one_of(*texts: str) -> Values:
    """Return the values of a column that has one of some texts."""
    return Values(" or ".join(texts), texts.__contains__)


def _is_moment(text: str) -> bool:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return False
    return moment.tzinfo is not None and YEARS[0] <= moment.year <= YEARS[1]


ANY = Values("any", lambda _: True)
SIGNED = Values(f"to ±{LARGEST:g}", lambda value: -LARGEST <= value <= LARGEST)
FROM_0 = Values(f"0 to {LARGEST:g}", lambda value: 0 <= value <= LARGEST)
ABOVE_0 = Values(f"{SMALLEST:g} to {LARGEST:g}", lambda value: SMALLEST <= value <= LARGEST)
SHARE = Values("0 to 1", lambda value: 0 <= value <= 1)
COUNT = Values("0, 1, 2, ...", lambda value: value >= 0)
COUNT_FROM_1 = Values("1, 2, 3, ...", lambda value: value >= 1)
MOMENT = Values("date, time and zone, as 2026-11-22T08:00:00+00:00", _is_moment)


@dataclass(frozen=True)
class Column:
    """A column: what it means, and which values it may have.

    ``unit`` is needed where the name does not say it. ``title`` heads the column in tables for people; where it is
    empty, none shows the column as such.
    """

    meaning: str = ""
    values: Values = ANY
    unit: str = ""
    title: str = ""


@dataclass(frozen=True)
class Field:
    """A field of a dataclass: a column, or a dataclass with columns of its own. ``kind`` is its type without None."""

    name: str
    kind: Any
    may_be_empty: bool
    column: Column

    @property
    def is_group(self) -> bool:
        """Whether it is a dataclass with columns of its own."""
        return isinstance(self.kind, type) and is_dataclass(self.kind)

    @property
    def is_restricted(self) -> bool:
        """Whether there are values of its type that it cannot have."""
        return self.kind in (float, int) or self.column.values != ANY

    @property
    def unit(self) -> str:
        """The unit of its numbers; empty for texts, counts and the like."""
        by_name = (unit for ending, unit in UNITS.items() if self.name.endswith(ending))
        return self.column.unit or next(by_name, "1" if self.kind is float else "")

    def problem(self, value: Any) -> str:
        """Return what is wrong with a value; empty where nothing is."""
        if value is None:
            return ""
        largest = LARGEST_FLOAT if self.kind is float else LARGEST_INT if self.kind is int else None
        if largest is not None and not -largest <= value <= largest:
            return f"{self.name}: {shown(value)} is not possible (to ±{largest:g})"
        values = self.column.values
        return "" if values.allow(value) else f"{self.name}: {shown(value)} is not possible ({values.words})"


class Columns:
    """The base of dataclasses whose fields are columns: they refuse values that their columns cannot have."""

    def __post_init__(self) -> None:
        """Check all values.

        Raises:
            ValueError: with the name of the first column whose value cannot be.
        """
        kind: Any = type(self)
        for field in _restricted_fields(kind):
            if problem := field.problem(getattr(self, field.name)):
                raise ValueError(problem)


@cache
def _restricted_fields(kind: Any) -> tuple[Field, ...]:
    return tuple(field for field in fields_of(kind) if field.is_restricted)


@cache
def fields_of(kind: Any) -> tuple[Field, ...]:
    """Return the fields of a dataclass in order."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_field(field.name, hints[field.name]) for field in fields(kind))


def columns_of(kind: Any) -> Iterator[Field]:
    """Yield the columns of a dataclass in order, those of nested dataclasses in their places."""
    for field in fields_of(kind):
        if field.is_group:
            yield from columns_of(field.kind)
        else:
            yield field


def values_of(row: Any) -> Iterator[object]:
    """Yield the values of a dataclass, one for each of ``columns_of`` its type."""
    kind: Any = type(row)
    for field in fields_of(kind):
        value = getattr(row, field.name)
        if field.is_group:
            yield from values_of(value)
        else:
            yield value


def _field(name: str, hint: Any) -> Field:
    kind, column = get_args(hint)[:2] if get_origin(hint) is Annotated else (hint, Column())
    if get_origin(kind) is tuple:
        return Field(name, kind, True, column)
    kinds = get_args(kind) or (kind,)
    return Field(name, next(one for one in kinds if one is not NoneType), NoneType in kinds, column)
