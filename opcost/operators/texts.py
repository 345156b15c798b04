"""A parser for the one-line texts of operator tuples in the database.

``OperatorTuple`` renders its parameters and inputs on one line each (``parameters_text``, ``inputs_text``). A parsed
tuple has the same text and thus the same key. The class of a ``Structure`` keeps only its last name, so a tuple with a
``Structure`` can be summed but not run.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from opcost.errors import shortened
from opcost.operators.tuples import (
    ELLIPSIS,
    Constant,
    OperatorTuple,
    PlainValue,
    Structure,
    TensorSpec,
    channels_last_strides,
    value_text,
)

DEEPEST = 40
"""The deepest nesting of values that is read; models of torchvision need 10."""

TEXTS_KEPT = 4096
"""The parsed operators and values that are kept: models repeat their layers and the sizes of their tensors."""

_TUPLE = re.compile(r"([\w.]+)(?:\((.*?)\))? on \((.*)\)(?: (eval|train))?")
_TENSOR = re.compile(r"(\w+)\[([\d, ]*)\](?::(channels_last)|:strides\(([\d, ]*)\))?(?:#(\d+))?")
_NAMED = re.compile(r"(\w+)=(?!=)")
_STRUCTURE = re.compile(r"([A-Za-z_]\w*)\(")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_BARE = re.compile(r"[^\s,()=]+")

_LITERALS: dict[str, PlainValue] = {
    "None": None,
    "True": True,
    "False": False,
    "inf": float("inf"),
    "-inf": float("-inf"),
    "nan": float("nan"),
}
_INTEGER = re.compile(r"-?\d+")
_CONSTANT = re.compile(rf"[A-Za-z_][\w.]*|{re.escape(ELLIPSIS)}")
_NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]?\d+)?")


@lru_cache(TEXTS_KEPT)
def parse_operator(operator: str, parameters: str, inputs: str, mode: str | None) -> OperatorTuple:
    """Return the operator tuple whose ``parameters_text`` and ``inputs_text`` these are; ``mode`` is None for a
    function.

    Raises ``ValueError`` if a text is not of the form that ``OperatorTuple`` renders.
    """
    read = _read(operator, parameters, inputs, mode)
    if (read.parameters_text, read.inputs_text) != (parameters, inputs):
        text = f"{operator}({parameters}) on ({inputs})"
        raise ValueError(f"{text!r} is not the text of an operator tuple")
    return read


def parse_tuple(text: str) -> OperatorTuple:
    """Return the operator tuple that one line describes, as ``str`` returns it; a ``ValueError`` if the line is of no
    such form.
    """
    found = _TUPLE.fullmatch(text)
    if found is None:
        raise ValueError(f"{shortened(text)!r} is not the text of an operator tuple")
    operator, parameters, inputs, mode = found.groups()
    read = _read(operator, parameters or "", inputs, mode)
    if str(read) != text:
        raise ValueError(f"{shortened(text)!r} is in other words {shortened(str(read))}")
    return read


def _read(operator: str, parameters: str, inputs: str, mode: str | None) -> OperatorTuple:
    _, named_parameters = _Reader(parameters).arguments()
    positional, named_inputs = _Reader(inputs).arguments()
    return OperatorTuple(operator, named_parameters, positional, named_inputs, mode)


@lru_cache(TEXTS_KEPT)
def parse_value(text: str) -> PlainValue:
    """Return the value that a text describes; a ``ValueError`` if it is not the text of one value."""
    positional, named = _Reader(text).arguments()
    if len(positional) != 1 or named or value_text(positional[0]) != text:
        raise ValueError(f"{text!r} is not the text of a value")
    return positional[0]


class _Reader:
    """Parses values from left to right.

    Tensors are numbered in order of first appearance; a tensor without a number gets the next one.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._tensors: set[int] = set()

    def arguments(self) -> tuple[tuple[PlainValue, ...], tuple[tuple[str, PlainValue], ...]]:
        arguments = self._arguments()
        if self._position < len(self._text):
            raise self._unexpected()
        return arguments

    def _arguments(self) -> tuple[tuple[PlainValue, ...], tuple[tuple[str, PlainValue], ...]]:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ValueError(f"{shortened(self._text)!r} is nested deeper than {DEEPEST} levels")
        positional: list[PlainValue] = []
        named: list[tuple[str, PlainValue]] = []
        while self._text[self._position : self._position + 1] not in ("", ")"):
            name = self._match(_NAMED)
            if name:
                named.append((name[1], self._value()))
            elif named:
                raise self._unexpected()
            else:
                positional.append(self._value())
            self._skip(",")
            self._skip(" ")
        self._depth -= 1
        return tuple(positional), tuple(named)

    def _value(self) -> PlainValue:
        if tensor := self._match(_TENSOR):
            dtype, sizes, is_channels_last, strides, number = tensor.groups()
            shape, given = (tuple(map(int, text.split(", "))) if text else () for text in (sizes, strides or ""))
            layout = channels_last_strides(shape) if is_channels_last else None
            layout = layout if strides is None else given
            identity = len(self._tensors) if number is None else int(number)
            self._tensors.add(identity)
            return TensorSpec(shape, dtype, layout, identity)
        if string := self._match(_STRING):
            try:
                text: str = ast.literal_eval(string[0])
            except SyntaxError:
                # Such as an escape that is cut off.
                raise self._unexpected() from None
            return text
        structure = self._match(_STRUCTURE)
        if structure or self._skip("("):
            items, parts = self._arguments()
            # A structure has named parts alone, a tuple has items alone.
            if not self._skip(")") or (items if structure else parts):
                raise self._unexpected()
            return Structure(structure[1], parts) if structure else items
        if bare := self._match(_BARE):
            return _bare_value(bare[0])
        raise self._unexpected()

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._position)
        if found:
            self._position = found.end()
        return found

    def _skip(self, sign: str) -> bool:
        is_there = self._text.startswith(sign, self._position)
        self._position += is_there
        return is_there

    def _unexpected(self) -> ValueError:
        return ValueError(f"{shortened(self._text)!r} is not understood at character {self._position + 1}")


def _bare_value(text: str) -> PlainValue:
    if text in _LITERALS:
        return _LITERALS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    if _CONSTANT.fullmatch(text):
        return Constant(text)
    raise ValueError(f"{shortened(text)!r} is not understood")
