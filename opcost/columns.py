"""Columns of tables: meaning, unit and possible values of each field of a row; rows as plain data and in groups.

A frozen dataclass declares them: ``time_s: Annotated[float, Column("per iteration", ABOVE_0)]``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import cache
from inspect import get_annotations
from operator import attrgetter
from reprlib import repr as shown
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

SMALLEST, LARGEST = 1e-15, 1e15
"""Limits of measured quantities in SI units. Products of several such quantities do not overflow."""

LARGEST_FLOAT, LARGEST_INT = 1e100, 2**63 - 1
LARGEST_OF: Mapping[Any, float] = MappingProxyType({float: LARGEST_FLOAT, int: LARGEST_INT})
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

    ``title`` is its heading on screen, if it is shown. ``unit`` and ``name`` are given where the field's name says
    others, ``read`` and ``write`` where the type does not. ``absent`` is the cell of rows from before the column
    existed.
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
    """A field of a dataclass, whose name there is ``attribute``: a column, or a dataclass with columns of its own."""

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
        if value is None:
            return ""
        largest = LARGEST_OF.get(self.kind)
        if largest is not None and not -largest <= value <= largest:
            return f"{self.name}: {shown(value)} is not possible (to ±{largest:g})"
        values = self.column.values
        if values.allow(value):
            return ""
        text = shown(cell_of(value) if isinstance(value, tuple) else value)
        return f"{self.name}: {text} is not possible ({values.words})"


class Columns:
    """Base of dataclasses whose fields are columns. It refuses values that the columns may not have."""

    def __post_init__(self) -> None:
        """Check all values. Raises ValueError: a value is not allowed; the message names the first such column."""
        kind: Any = type(self)
        values = vars(self)
        # Tables have many rows: bounds are compared here, and words are made only for values that are not allowed.
        for name, lowest, highest, field in _restricted_fields(kind):
            value = values[name]
            if value is None or (lowest is not None and lowest <= value <= highest):
                continue
            if problem := field.problem(value):
                raise ValueError(problem)


@cache
def _restricted_fields(kind: Any) -> tuple[tuple[str, Any, Any, Field], ...]:
    """Return the attributes with restricted values, each with the bounds of its numbers; None without bounds."""
    found = []
    for field in fields_of(kind):
        of_any = LARGEST_OF.get(field.kind) if field.column.values == ANY else None
        bounds = field.column.values.bounds or (None if of_any is None else (-of_any, of_any))
        if bounds or field.column.values != ANY:
            found.append((field.attribute, *(bounds or (None, None)), field))
    return tuple(found)


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


def shared_fields(one: Any, base: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that an object has, too, with its values."""
    return {field.name: getattr(one, field.name) for field in fields(base)}


def by_column(row: Any) -> dict[str, object]:
    """Return the values of a dataclass by the name of the column."""
    return {field.name: value for field, value in zip(columns_of(type(row)), values_of(row), strict=True)}


Kind: TypeAlias = type[bool] | type[int] | type[float] | type[str]


@dataclass(frozen=True)
class DataTable:
    """The measurements of one kind of operator; ``name`` is its file's without the ending, columns have their types."""

    name: str
    columns: Mapping[str, Kind]
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


# Dataclasses as plain data and as cells of tables, and back; both follow from the declarations of their fields.

# Plain data are tuples, texts, numbers, truth values and None. An object is the tuple of its fields' values. Where
# values of several kinds may stand, an object or a tuple begins with the name of its kind: ``("tuple", 1, 2)``. A
# header names the fields of each class once. A field with a default can so be added: data without it are read with the
# default.
#
# Reading checks each value: its type, what its declaration allows (``Values``, or a ``Column`` with them), and whether
# values fit each other, where a class has a property ``mistake`` that is None if they do.


Header: TypeAlias = tuple[tuple[str, ...], ...]
"""The name of each class that data hold, followed by the names of its fields."""

LONGEST_NAME = 1000
INTEGER_LIMIT = 2**63
"""torch has no larger sizes, and Python refuses to print or divide very large integers."""

ANYTHING = Values("value", lambda _: True)
"""Also texts that are not printable, and numbers that are not finite."""

USUAL: Mapping[Any, Values] = {
    bool: ANYTHING,
    int: between("integer of 64 bits", -INTEGER_LIMIT, INTEGER_LIMIT - 1),
    float: between("finite number", -sys.float_info.max, sys.float_info.max),
    # Names are printed unchanged, so they must not contain line breaks or lone surrogates.
    str: Values("printable name", lambda text: len(text) <= LONGEST_NAME and text.isprintable()),
}
"""The values of the types of plain data that are allowed unless their declaration says which."""

MEMBERS, ITEMS, PARTS = "|", " | ", " "
"""Separators in cells: of the members of an enum, of other items, and of the parts of an item."""


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Form:
    """How values of one declared type are read from plain data and written; ``read`` raises ``ValueError``."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = _same


def header_of(kind: type[Any]) -> Header:
    """Return the header of a dataclass and of all that its fields may hold."""
    found: dict[str, tuple[str, ...]] = {}
    hints: list[Any] = [kind]
    for hint in hints:
        if not (isinstance(hint, type) and is_dataclass(hint)):
            hints += get_args(hint)
        elif hint.__name__ not in found:
            found[hint.__name__] = tuple(field.name for field in fields(hint))
            hints += hints_of(hint).values()
    return tuple((name, *names) for name, names in found.items())


def form_of(kind: Any, header: Header | None = None) -> Form:
    """Return the form of a declared type in data of a header, None for the present one; ``LookupError`` for others."""
    return _Forms(None if header is None else {name: names for name, *names in header}).of(kind)


class _Forms:
    def __init__(self, header: Mapping[str, list[str]] | None) -> None:
        self._header = header
        self._unions: dict[Any, Form] = {}

    def of(self, hint: Any, allowed: Values = ANY) -> Form:
        origin, parts = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self.of(parts[0], declared_column(parts[1]).values)
        if hint in USUAL:
            values = USUAL[hint] if allowed == ANY else allowed
            return Form(lambda data: _checked(data, type(data) is hint and values.allow(data), values.words))
        if isinstance(hint, type) and issubclass(hint, Enum):
            return Form(lambda data: hint(_checked(data, type(data) is str, hint.__name__)), attrgetter("value"))
        if origin in (Union, UnionType):
            one, *others = (part for part in parts if part is not NoneType)
            return self._union_form(hint) if others else _optional_form(self.of(one, allowed))
        if origin is tuple:
            form = _items_form(self.of(parts[0])) if parts[1] is ... else _parts_form([self.of(one) for one in parts])
            if allowed != ANY:
                read = form.read
                form = Form(lambda data: _checked(one := read(data), allowed.allow(one), allowed.words), form.write)
            return form
        is_mapping = origin in (Mapping, dict)
        return _mapping_form(_parts_form(list(map(self.of, parts)))) if is_mapping else self._object_form(hint)

    def _object_form(self, kind: type[Any]) -> Form:
        known = {field.name: field.default is MISSING for field in fields(kind)}
        names = list(known) if self._header is None else self._header[kind.__name__]
        required = {name for name, is_required in known.items() if is_required}
        if len(set(names)) < len(names) or not required <= set(names) <= known.keys():
            raise LookupError(f"{kind.__name__} has other fields")
        hints, may_be_wrong = hints_of(kind), hasattr(kind, "mistake")
        parts = _parts_form([self.of(hints[name]) for name in names])

        def read(data: Any) -> Any:
            found = kind(**dict(zip(names, parts.read(data), strict=True)))
            if may_be_wrong and found.mistake is not None:
                raise ValueError(found.mistake)
            return found

        return Form(read, lambda one: parts.write([getattr(one, name) for name in names]))

    def _union_form(self, union: Any) -> Form:
        """Return the form of values of several kinds; a tuple among them has any number of them."""
        if union in self._unions:
            return self._unions[union]
        values: dict[type[Any], Form] = {}
        named: dict[str, Form] = {}

        def read(data: Any) -> Any:
            is_named = type(data) is tuple and bool(data) and type(data[0]) is str
            form = named.get(data[0]) if is_named else values.get(type(data))
            if form is None:
                raise ValueError(f"it has a {type(data).__name__} of another kind")
            return form.read(data[1:] if is_named else data)

        def write(value: Any) -> Any:
            name = type(value).__name__
            return (name, *named[name].write(value)) if name in named else value

        form = self._unions[union] = Form(read, write)
        for one in get_args(union):
            kind: Any = get_args(one)[0] if get_origin(one) is Annotated else get_origin(one) or one
            if kind is NoneType or kind in USUAL:
                values[kind] = Form(_same) if kind is NoneType else self.of(one)
            else:
                named[kind.__name__] = _items_form(form) if kind is tuple else self.of(one)
        return form


def _checked(value: Any, is_right: bool, words: str) -> Any:
    if not is_right:
        raise ValueError(f"it has a {type(value).__name__} that is no {words}")
    return value


def _optional_form(form: Form) -> Form:
    return Form(
        lambda data: None if data is None else form.read(data),
        _same if form.write is _same else lambda value: None if value is None else form.write(value),
    )


def _items_form(item: Form) -> Form:
    return Form(
        lambda data: tuple(map(item.read, _checked(data, type(data) is tuple, "tuple"))),
        _same if item.write is _same else lambda values: tuple(map(item.write, values)),
    )


def _mapping_form(item: Form) -> Form:
    items = _items_form(item)
    return Form(lambda data: dict(items.read(data)), lambda values: items.write(tuple(values.items())))


def _parts_form(forms: Sequence[Form]) -> Form:
    def read(data: Any) -> Any:
        _checked(data, type(data) is tuple and len(data) == len(forms), f"tuple of {len(forms)}")
        return tuple(form.read(part) for form, part in zip(forms, data, strict=True))

    return Form(read, lambda values: tuple(form.write(part) for form, part in zip(forms, values, strict=True)))


# Cells of tables


def cell_of(items: tuple[Any, ...]) -> str:
    """Return the text of members of an enum, of texts, or of pairs or objects: ``add 1 | clone 2``."""
    if items and isinstance(items[0], Enum):
        return MEMBERS.join(one.value for one in items)
    parts = (vars(one).values() if is_dataclass(one) else one for one in items)
    return ITEMS.join(one if isinstance(one, str) else PARTS.join(map(str, one)) for one in parts)


def cell_reader(kind: Any) -> Callable[[str], tuple[Any, ...]]:
    """Return the parser of such texts for a declared type, ``tuple[Item, ...]``; it raises ``ValueError``."""
    item = get_args(kind)[0]
    if isinstance(item, type) and issubclass(item, Enum):
        return lambda cell: tuple(map(item, cell.split(MEMBERS)))
    form = form_of(kind)
    hints = hints_of(item).values() if is_dataclass(item) else get_args(item) if get_origin(item) is tuple else ()
    kinds = [get_args(hint)[0] if get_origin(hint) is Annotated else hint for hint in hints]

    def read(text: str) -> Any:
        words = text.split(PARTS)
        parts = tuple(kind(word) for kind, word in zip(kinds, words, strict=True))
        # Python reads numbers in other forms, too, such as 1_0.
        if list(map(str, parts)) != words:
            raise ValueError(f"{text!r} is in another form")
        return parts

    return lambda cell: form.read(tuple(map(read if kinds else str, cell.split(ITEMS))))
