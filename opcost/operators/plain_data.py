"""Dataclasses as plain data and as cells of tables, and back; both follow from the declarations of their fields.

Plain data are tuples, texts, numbers, truth values and None. An object is the tuple of its fields' values. Where values
of several kinds may stand, an object or a tuple begins with the name of its kind: ``("TensorSpec", (2, 3), …)``,
``("tuple", 1, 2)``. A header names the fields of each class once. A field with a default can so be added: data
without it are read with the default.

Reading checks each value: its type, what its declaration allows (``Values``, or a ``Column`` with them), and whether
values fit each other, where a class has a property ``mistake`` that is None if they do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from opcost.columns import ANY, Values, between, declared_column, hints_of

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
    """Return the form of a declared type in data of a header, None for the present one.

    Raises LookupError: the header is that of other classes.
    """
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
            return _value_form(hint, USUAL[hint] if allowed == ANY else allowed)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return _enum_form(hint)
        if origin in (Union, UnionType):
            one, *others = (part for part in parts if part is not NoneType)
            return self._union_form(hint) if others else _optional_form(self.of(one, allowed))
        if origin is tuple:
            form = _items_form(self.of(parts[0])) if parts[1] is ... else _parts_form([self.of(one) for one in parts])
            return form if allowed == ANY else Form(lambda data: _allowed(form.read(data), allowed), form.write)
        return self._object_form(hint)

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


def _value_form(kind: type[Any], allowed: Values) -> Form:
    def read(data: Any) -> Any:
        if type(data) is not kind:
            raise ValueError(f"it has a {type(data).__name__} that is no {allowed.words}")
        return _allowed(data, allowed)

    return Form(read)


def _enum_form(kind: type[Enum]) -> Form:
    def read(data: Any) -> Any:
        if type(data) is not str:
            raise ValueError(f"it has a {type(data).__name__} that is no {kind.__name__}")
        return kind(data)

    return Form(read, lambda member: member.value)


def _allowed(value: Any, allowed: Values) -> Any:
    if not allowed.allow(value):
        raise ValueError(f"it has a {type(value).__name__} that is no {allowed.words}")
    return value


def _optional_form(form: Form) -> Form:
    return Form(
        lambda data: None if data is None else form.read(data),
        _same if form.write is _same else lambda value: None if value is None else form.write(value),
    )


def _items_form(item: Form) -> Form:
    def read(data: Any) -> Any:
        if type(data) is not tuple:
            raise ValueError(f"it has a {type(data).__name__} that is no tuple")
        return tuple(map(item.read, data))

    return Form(read, _same if item.write is _same else lambda values: tuple(map(item.write, values)))


def _parts_form(forms: Sequence[Form]) -> Form:
    def read(data: Any) -> Any:
        if type(data) is not tuple or len(data) != len(forms):
            raise ValueError(f"it has a {type(data).__name__} that is no tuple of {len(forms)}")
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
