"""Columns of tables: meaning, unit and possible values of each field of a row.

A frozen dataclass declares its columns with its fields::

    @dataclass(frozen=True)
    class Timing(Columns):
        time_s: Annotated[float, Column("per iteration", ABOVE_0)]

The headers of CSV files, the checks of their cells and the page of ``opcost columns`` follow from the declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timezone
from functools import cache
from inspect import get_annotations
from operator import attrgetter
from reprlib import repr as shown
from types import NoneType
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin

SMALLEST, LARGEST = 1e-15, 1e15
"""Limits of measured quantities in SI units. Products of several such quantities do not overflow."""

LARGEST_FLOAT, LARGEST_INT = 1e100, 2**63 - 1
"""Limits of all numbers. Their squares do not overflow."""

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
"""The unit of a column by the ending of its name; the first that matches is used."""


@dataclass(frozen=True)
class Values:
    """Allowed values in words and as a test of one that is not None; ``bounds``: all numbers between are allowed."""

    words: str
    allow: Callable[[Any], bool]
    bounds: tuple[float, float] | None = None


def between(words: str, lowest: float, highest: float) -> Values:
    """Return the values of a column that holds numbers from the lowest to the highest."""
    return Values(words, lambda value: lowest <= value <= highest, (lowest, highest))


def one_of(*texts: str) -> Values:
    """Return the values of a column that holds one of these texts."""
    return Values(" or ".join(texts), texts.__contains__)


def _is_moment(text: str) -> bool:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return False
    return moment.tzinfo is not None and YEARS[0] <= moment.year <= YEARS[1]


ANY = Values("any", lambda _: True)
SIGNED = between(f"to ±{LARGEST:g}", -LARGEST, LARGEST)
FROM_0 = between(f"0 to {LARGEST:g}", 0, LARGEST)
ABOVE_0 = between(f"{SMALLEST:g} to {LARGEST:g}", SMALLEST, LARGEST)
SHARE = between("0 to 1", 0, 1)
COUNT = between("0, 1, 2, ...", 0, LARGEST_INT)
COUNT_FROM_1 = between("1, 2, 3, ...", 1, LARGEST_INT)
MOMENT = Values("date, time and zone, as 2026-11-22T08:00:00+00:00", _is_moment)


def present_moment() -> str:
    """Return the present ``MOMENT`` in UTC, in whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


COLUMN_HEAD = ("column", "unit", "may be empty", "values", "meaning")
"""The head of a list of columns."""


@dataclass(frozen=True)
class Column:
    """The meaning of a column and the values that it may have.

    ``unit`` is needed if the name does not end with it. ``title`` is the column's heading on screen and in reports;
    it is empty if no such table shows the column. ``name`` is the column's if it is not that of the field. ``read`` and
    ``write`` convert a cell's text, if its type does not say how. ``absent`` is the cell of rows from before the column
    existed, if it is not empty.
    """

    meaning: str = ""
    values: Values = ANY
    unit: str = ""
    title: str = ""
    name: str = ""
    read: Callable[[str], Any] | None = None
    write: Callable[[Any], str] | None = None
    absent: str = ""


@dataclass(frozen=True)
class Field:
    """A field of a dataclass: a column, or a dataclass with columns of its own. ``kind`` is its type without None.

    ``attribute`` is the field's name in the dataclass.
    """

    name: str
    kind: Any
    may_be_empty: bool
    column: Column
    attribute: str = ""

    @property
    def is_group(self) -> bool:
        return isinstance(self.kind, type) and is_dataclass(self.kind)

    @property
    def unit(self) -> str:
        by_name = (unit for ending, unit in UNITS.items() if self.name.endswith(ending))
        return self.column.unit or next(by_name, "1" if self.kind is float else "")

    def problem(self, value: Any) -> str:
        """Return the error message for a value; empty if the value is allowed."""
        if value is None:
            return ""
        largest = LARGEST_FLOAT if self.kind is float else LARGEST_INT if self.kind is int else None
        if largest is not None and not -largest <= value <= largest:
            return f"{self.name}: {shown(value)} is not possible (to ±{largest:g})"
        values = self.column.values
        return "" if values.allow(value) else f"{self.name}: {shown(value)} is not possible ({values.words})"


class Columns:
    """Base of dataclasses whose fields are columns. It refuses values that the columns may not have."""

    def __post_init__(self) -> None:
        """Check all values. Raises ValueError: a value is not allowed; the message names the first such column."""
        kind: Any = type(self)
        values = vars(self)
        # Tables have many rows: bounds are compared here, and words are made only for values that are not allowed.
        for field, lowest, highest in _restricted_fields(kind):
            value = values[field.attribute]
            if value is None or (lowest is not None and lowest <= value <= highest):
                continue
            if problem := field.problem(value):
                raise ValueError(problem)


@cache
def _restricted_fields(kind: Any) -> tuple[tuple[Field, Any, Any], ...]:
    """Return the fields with restricted values, each with the bounds of its numbers; None without bounds."""
    restricted = (one for one in fields_of(kind) if one.kind in (float, int) or one.column.values != ANY)
    return tuple((field, *(field.column.values.bounds or (None, None))) for field in restricted)


@cache
def _columns_by_path(kind: Any) -> tuple[tuple[str, Field], ...]:
    """Return the columns in order, each with its attribute, such as ``measurement.time_s``."""
    found: list[tuple[str, Field]] = []
    for field in fields_of(kind):
        if field.is_group:
            found += ((f"{field.attribute}.{path}", column) for path, column in _columns_by_path(field.kind))
        else:
            found.append((field.attribute, field))
    return tuple(found)


def hints_of(kind: Any) -> dict[str, Any]:
    """Return the declared types of a dataclass's fields. A type that contains itself has its name there, as a text."""
    bases = reversed(kind.__mro__)
    found = {name: hint for base in bases for name, hint in get_annotations(base, eval_str=True).items()}
    return {field.name: found[field.name] for field in fields(kind)}


def declared_column(declaration: Column | Values) -> Column:
    """Return the column that a type is annotated with; values alone are those of one without a meaning."""
    return Column(values=declaration) if isinstance(declaration, Values) else declaration


@cache
def fields_of(kind: Any) -> tuple[Field, ...]:
    """Return the fields of a dataclass in order, those first that its ``ORDER`` names, if it has one."""
    hints, order = hints_of(kind), getattr(kind, "ORDER", ())
    names = [one.name for one in fields(kind)]
    found = []
    for name in sorted(names, key=lambda name: order.index(name) if name in order else len(order)):
        hint, column = hints[name], Column()
        if get_origin(hint) is Annotated:
            hint, column = get_args(hint)[0], declared_column(get_args(hint)[1])
        is_tuple = get_origin(hint) is tuple
        kinds = [one for one in get_args(hint) if one is not NoneType] or [hint]
        field_kind = hint if is_tuple or len(kinds) > 1 else kinds[0]
        may_be_empty = is_tuple or NoneType in get_args(hint)
        found.append(Field(column.name or name, field_kind, may_be_empty, column, name))
    return tuple(found)


def described(field: Field) -> tuple[str, str, str, str, str]:
    """Return a column's line in a list of columns, see ``COLUMN_HEAD``."""
    values = "True or False" if field.kind is bool else "" if field.column.values == ANY else field.column.values.words
    return field.name, field.unit, "yes" if field.may_be_empty else "", values, field.column.meaning


def columns_of(kind: Any) -> tuple[Field, ...]:
    """Return the columns of a dataclass in order, nested dataclasses flattened."""
    return tuple(column for _, column in _columns_by_path(kind))


def values_of(row: Any) -> tuple[object, ...]:
    """Return the values of a dataclass in the order of ``columns_of``."""
    kind: Any = type(row)
    return _getter_of(kind)(row)


@cache
def _getter_of(kind: Any) -> Callable[[Any], tuple[object, ...]]:
    # Tables have many rows.
    paths = [path for path, _ in _columns_by_path(kind)]
    get = attrgetter(*paths)
    return get if len(paths) > 1 else lambda row: (get(row),)


def cell_values(row: Any) -> list[object]:
    """Return the values of a dataclass in the order of ``columns_of``, as text where a column says how."""
    kind: Any = type(row)
    values = list(values_of(row))
    for place, write in _writers_of(kind):
        values[place] = None if values[place] is None else write(values[place])
    return values


@cache
def _writers_of(kind: Any) -> tuple[tuple[int, Callable[[Any], str]], ...]:
    writers = ((place, field.column.write) for place, field in enumerate(columns_of(kind)))
    return tuple((place, write) for place, write in writers if write is not None)


def by_column(row: Any) -> dict[str, object]:
    """Return the values of a dataclass by the name of the column."""
    return {field.name: value for field, value in zip(columns_of(type(row)), values_of(row), strict=True)}


Kind: TypeAlias = type[bool] | type[int] | type[float] | type[str]


@dataclass(frozen=True)
class DataColumn:
    """A column of a table, with the type of its values."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class DataTable:
    """The measurements of one kind of operator. ``name`` is that of its file without the ending."""

    name: str
    columns: tuple[DataColumn, ...]
    rows: tuple[tuple[object, ...], ...]


# Groups of rows, or of other items


Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by their key, in the order of the first of each group."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
