"""Texts of operator tuples: the parser of their one-line texts, short forms, and columns of tables.

A parsed tuple has the same text and thus the same key. The class of a ``Structure`` keeps only its last name, so a
tuple with one can be summed but not run. Different tuples may have the same short form, such as ``Conv2d 3→96`` on
``32x3x224x224``. A placeholder in capital letters declares columns of one sort: ``input_N_size_M``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TypeAlias

from opcost.columns import COUNT, SHARE, Column, Field
from opcost.errors import shortened
from opcost.operators.input_roles import patterned_inputs
from opcost.operators.tuples import (
    ELLIPSIS,
    FLOAT32,
    Constant,
    OperatorTuple,
    PlainValue,
    Structure,
    TensorSpec,
    channels_last_strides,
    distinct_specs,
    value_text,
)
from opcost.operators.values import USUAL, InputData
from opcost.units import some_of

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
    """Return the tuple of these texts (``parameters_text``, ``inputs_text``); a ``ValueError`` for another form."""
    read = _read(operator, parameters, inputs, mode)
    if (read.parameters_text, read.inputs_text) != (parameters, inputs):
        text = f"{operator}({parameters}) on ({inputs})"
        raise ValueError(f"{text!r} is not the text of an operator tuple")
    return read


def parse_tuple(text: str) -> OperatorTuple:
    """Return the operator tuple that one line describes, as ``str`` writes it; a ``ValueError`` for another form."""
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
    """Parses values from left to right. A tensor without a number gets the next one, in order of appearance."""

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


# Short forms and columns

PAIRS = (("in_channels", "out_channels"), ("in_features", "out_features"))
"""Parameters that are shown as one: ``3→96``."""

SHOWN = {
    "normalized_shape": "",
    "num_features": "",
    "embed_dim": "",
    "output_size": "to ",
    "kernel_size": "kernel ",
    "stride": "stride ",
    "groups": "groups ",
    "dilation": "dilation ",
    "num_heads": "heads ",
}
"""The other parameters that are shown, each with the text before its value."""

MOST_REPEATED = 4
"""The most equal sizes in a row that are shown one by one."""

MOST_ROWS = 16
"""The most sizes of a call that are shown: an optimiser takes the lists of all parameters."""


def short_form(operator: OperatorTuple) -> str:
    """Return the operator's name and the parameters that decide its cost."""
    parameters = dict(operator.parameters)
    pairs = (f"{parameters[one]}→{parameters[two]}" for one, two in PAIRS if {one, two} <= parameters.keys())
    others = (f"{text}{_joined(parameters[name])}" for name, text in SHOWN.items() if name in parameters)
    return f"{operator.short_name} {', '.join([*pairs, *others])}".rstrip()


def short_inputs(operator: OperatorTuple) -> str:
    """Return the sizes of the operator's distinct tensors, with dtypes and memory layouts other than the usual."""
    return some_of(_rows_of(distinct_specs(operator.arguments)), MOST_ROWS)


def short_outputs(outputs: PlainValue) -> str:
    """Return the sizes of the distinct tensors that a call returns, as ``short_inputs``; empty if there are none."""
    return joined_sizes(distinct_specs([outputs]))


def joined_sizes(specs: Sequence[TensorSpec]) -> str:
    """Return the sizes of some tensors, as ``short_inputs``. Many of one size in a row are one: ``64 times 8x1024``."""
    return ", ".join(_rows_of(specs))


def _rows_of(specs: Sequence[TensorSpec]) -> list[str]:
    rows = [(size, len(list(row))) for size, row in groupby(map(_size, specs))]
    short = [[f"{count} times {size}"] if count > MOST_REPEATED else [size] * count for size, count in rows]
    return [text for row in short for text in row]


def _joined(value: PlainValue) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _size(spec: TensorSpec) -> str:
    size = _joined(spec.shape) or "scalar"
    layout = "" if spec.strides is None else "strided"
    if layout and spec.strides == channels_last_strides(spec.shape):
        layout = "channels_last"
    return " ".join(filter(None, ("" if spec.dtype == FLOAT32 else spec.dtype, size, layout)))


Cell: TypeAlias = bool | int | float | str | None
Cells: TypeAlias = Mapping[str, Cell]

PARAMETER, ARGUMENT, INPUT, OUTPUT = SORTS = ("parameter", "argument", "input", "output")
"""The beginnings of the columns' names, in the order of the columns."""

PLACEHOLDERS = (
    Field("parameter_NAME", str, True, Column("a parameter of the constructor; empty at its default")),
    Field(
        "argument_NAME",
        str,
        True,
        Column("an argument of a function that is more than tensors, by its place from 0 up or by its name"),
    ),
    Field("input_N_dtype", str, True, Column("dtype of a distinct tensor among the inputs, numbered from 0 up")),
    Field("input_N_strides", str, True, Column("its strides, in elements; empty if it is contiguous")),
    Field("input_N_zeros_ratio", float, True, Column("share of zeros in its floating-point values", SHARE)),
    Field("input_N_role", str, True, Column("meaning of its integers or booleans: `index`, `mask` or `loads`")),
    Field("input_N_pattern", str, True, Column("the pattern of its integers or booleans, such as `random` or `zipf`")),
    Field("input_N_size_M", int, True, Column("its size in a dimension, numbered from 0 up", COUNT)),
    Field("output_N_dtype", str, True, Column("dtype of a distinct tensor among the outputs, numbered from 0 up")),
    Field("output_N_strides", str, True, Column("its strides, in elements; empty if it is contiguous")),
    Field("output_N_size_M", int, True, Column("its size in a dimension, numbered from 0 up", COUNT)),
)


def cells_of(operator: OperatorTuple, data: InputData, outputs: PlainValue) -> Cells:
    """Return the cells of a tuple on input data by their columns; ``outputs`` are a call's, None if unknown."""
    arguments = (*enumerate(operator.inputs), *operator.keyword_inputs)
    specs = distinct_specs(operator.arguments)
    numbers = {spec.identity: number for number, spec in enumerate(specs)}
    shown = [(f"{PARAMETER}_{name}", value) for name, value in operator.parameters]
    shown += [(f"{ARGUMENT}_{name}", value) for name, value in arguments if not _is_tensors(value)]
    plain = {name: value if isinstance(value, (bool, int, float, str)) else value_text(value) for name, value in shown}
    return {
        **plain,
        **dict(_tensor_cells(INPUT, specs)),
        **dict(_value_cells(operator, data, numbers)),
        **dict(_tensor_cells(OUTPUT, distinct_specs([outputs]))),
    }


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of columns without repetitions: sort by sort, inputs and outputs by their numbers."""

    def place(name: str) -> tuple[int, list[int]]:
        sort = name.partition("_")[0]
        is_tensor = sort in (INPUT, OUTPUT)
        return SORTS.index(sort), [int(number) for number in re.findall(r"_(\d+)", name)] if is_tensor else []

    return sorted(dict.fromkeys(names), key=place)


def _is_tensors(value: PlainValue) -> bool:
    return isinstance(value, TensorSpec) or (isinstance(value, tuple) and bool(value) and all(map(_is_tensors, value)))


def _tensor_cells(sort: str, specs: Iterable[TensorSpec]) -> Iterator[tuple[str, Cell]]:
    for number, spec in enumerate(specs):
        yield f"{sort}_{number}_dtype", spec.dtype
        if spec.strides is not None:
            yield f"{sort}_{number}_strides", value_text(spec.strides)
        yield from ((f"{sort}_{number}_size_{place}", size) for place, size in enumerate(spec.shape))


def _value_cells(operator: OperatorTuple, data: InputData, numbers: Mapping[int, int]) -> Iterator[tuple[str, Cell]]:
    for place, spec in enumerate(operator.floating_inputs):
        yield f"{INPUT}_{numbers[spec.identity]}_zeros_ratio", data.kind(place).zeros_ratio
    for place, one in enumerate(patterned_inputs(operator)):
        pattern = data.patterns[place] if place < len(data.patterns) else USUAL[one.role]
        yield f"{INPUT}_{numbers[one.spec.identity]}_role", one.role.value
        yield f"{INPUT}_{numbers[one.spec.identity]}_pattern", pattern.value
