"""Operator tuples in tables: short forms, and columns for each parameter, argument, and size of an input or output.

A short form is ``Conv2d 3→96, kernel 4, stride 4`` on ``32x3x224x224``. Different tuples may have the same short form,
for example with other inputs that are no tensors. Each kind of operator has columns of its own. A placeholder in
capital letters declares those of one sort: ``input_N_size_M`` stands for ``input_0_size_1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from opcost.columns import COUNT, SHARE, Column, Field
from opcost.operators.input_roles import patterned_inputs
from opcost.operators.tuples import (
    OperatorTuple,
    PlainValue,
    TensorSpec,
    channels_last_strides,
    tensor_specs,
    value_text,
)
from opcost.operators.values import USUAL, InputData

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

USUAL_DTYPE = "float32"

MOST_REPEATED = 4
"""The most equal sizes in a row that are shown one by one."""


def short_form(operator: OperatorTuple) -> str:
    """Return the operator's name and the parameters that decide its cost."""
    parameters = dict(operator.parameters)
    pairs = (f"{parameters[one]}→{parameters[two]}" for one, two in PAIRS if {one, two} <= parameters.keys())
    others = (f"{text}{_joined(parameters[name])}" for name, text in SHOWN.items() if name in parameters)
    return f"{operator.short_name} {', '.join([*pairs, *others])}".rstrip()


def short_inputs(operator: OperatorTuple) -> str:
    """Return the sizes of the operator's distinct tensors, with dtypes and memory layouts other than the usual."""
    return joined_sizes(_distinct([*operator.inputs, *(value for _, value in operator.keyword_inputs)]))


def short_outputs(outputs: PlainValue) -> str:
    """Return the sizes of the distinct tensors that a call returns, as ``short_inputs``; empty if there are none."""
    return joined_sizes(_distinct([outputs]))


def joined_sizes(specs: Sequence[TensorSpec]) -> str:
    """Return the sizes of some tensors, as ``short_inputs``. Many of one size in a row are one: ``64 times 8x1024``."""
    rows = ((size, len(list(row))) for size, row in groupby(map(_size, specs)))
    return ", ".join(
        f"{count} times {size}" if count > MOST_REPEATED else ", ".join([size] * count) for size, count in rows
    )


def _joined(value: PlainValue) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _size(spec: TensorSpec) -> str:
    size = _joined(spec.shape) or "scalar"
    layout = "" if spec.strides is None else "strided"
    if layout and spec.strides == channels_last_strides(spec.shape):
        layout = "channels_last"
    return " ".join(filter(None, ("" if spec.dtype == USUAL_DTYPE else spec.dtype, size, layout)))


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
    """Return the cells of an operator tuple on input data by the names of their columns.

    ``outputs`` describes what a call returns; it is None if that is unknown.
    """
    arguments = (*enumerate(operator.inputs), *operator.keyword_inputs)
    specs = _distinct([value for _, value in arguments])
    numbers = {spec.identity: number for number, spec in enumerate(specs)}
    shown = [(f"{PARAMETER}_{name}", value) for name, value in operator.parameters]
    shown += [(f"{ARGUMENT}_{name}", value) for name, value in arguments if not _is_tensors(value)]
    plain = {name: value if isinstance(value, (bool, int, float, str)) else value_text(value) for name, value in shown}
    return {
        **plain,
        **dict(_tensor_cells(INPUT, specs)),
        **dict(_value_cells(operator, data, numbers)),
        **dict(_tensor_cells(OUTPUT, _distinct([outputs]))),
    }


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of columns without repetitions: sort by sort, inputs and outputs by their numbers."""

    def place(name: str) -> tuple[int, list[int]]:
        sort = name.partition("_")[0]
        is_tensor = sort in (INPUT, OUTPUT)
        return SORTS.index(sort), [int(number) for number in re.findall(r"_(\d+)", name)] if is_tensor else []

    return sorted(dict.fromkeys(names), key=place)


def _distinct(values: Iterable[PlainValue]) -> Sequence[TensorSpec]:
    return tuple({spec.identity: spec for spec in tensor_specs(values)}.values())


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
