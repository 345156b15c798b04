"""Short forms of operator tuples for tables: ``Conv2d 3→96, kernel 4, stride 4`` on ``32x3x224x224``.

Different tuples may have the same short form, for example with other inputs that are no tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from opcost.operators.layouts import channels_last_strides
from opcost.operators.tuples import OperatorTuple, PlainValue, TensorSpec, tensor_specs

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
    texts = ", ".join(_parameters(parameters))
    return f"{operator.short_name} {texts}".rstrip()


def short_inputs(operator: OperatorTuple) -> str:
    """Return the sizes of the operator's distinct tensors, with dtypes and memory layouts other than the usual."""
    return _sizes([*operator.inputs, *(value for _, value in operator.keyword_inputs)])


def short_outputs(outputs: PlainValue) -> str:
    """Return the sizes of the distinct tensors that a call returns, as ``short_inputs``; empty if there are none."""
    return _sizes([outputs])


def _sizes(values: Sequence[PlainValue]) -> str:
    return joined_sizes(list({spec.identity: spec for spec in tensor_specs(values)}.values()))


def joined_sizes(specs: Sequence[TensorSpec]) -> str:
    """Return the sizes of some tensors, as ``short_inputs``. Many of one size in a row are one: ``64 times 8x1024``."""
    rows = ((size, len(list(row))) for size, row in groupby(map(_size, specs)))
    return ", ".join(
        f"{count} times {size}" if count > MOST_REPEATED else ", ".join([size] * count) for size, count in rows
    )


def _parameters(parameters: Mapping[str, PlainValue]) -> Iterator[str]:
    for first, second in PAIRS:
        if first in parameters and second in parameters:
            yield f"{parameters[first]}→{parameters[second]}"
    for name, text in SHOWN.items():
        if name in parameters:
            yield f"{text}{_joined(parameters[name])}"


def _joined(value: PlainValue) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _size(spec: TensorSpec) -> str:
    size = _joined(spec.shape) or "scalar"
    layout = "" if spec.strides is None else "strided"
    if layout and spec.strides == channels_last_strides(spec.shape):
        layout = "channels_last"
    return " ".join(filter(None, ("" if spec.dtype == USUAL_DTYPE else spec.dtype, size, layout)))
