"""The keys of a config that are trees: the arguments of a model, and its described inputs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

import yaml
from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator
from typing_extensions import Self, TypeAliasType

from opcost.errors import UserError
from opcost.operators.model_inputs import CAUSAL, INTEGERS, NORMAL, UNIFORM, DescribedInputs
from opcost.operators.tuples import Constant, PlainValue, Structure, TensorSpec
from opcost.storage.yaml_files import Schema, document_of

FloatingDtype = Literal["float32", "float64", "float16", "bfloat16"]
Dtype = Literal[FloatingDtype, "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"]

LIMITS = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32)},
    "uint8": (0, 255),
    "bool": (0, 1),
}
"""The least and the largest value of dtypes that cannot have each number of 18 digits."""

Side = Annotated[int, Field(gt=0, le=2**40)]

TENSOR_EXAMPLE = "{shape: [8, 128], dtype: int64, range: [0, 30522]}"
INPUTS_EXAMPLE = f"inputs: {{input_ids: {TENSOR_EXAMPLE}}}"
ARGUMENTS_EXAMPLE = "arguments: {num_hidden_layers: 2}"

Parts: TypeAlias = tuple[tuple[str, PlainValue], ...]


class Tensor(Schema):
    """A tensor. A mapping with any of the first three keys is one; any other is a dict."""

    shape: list[Side]
    dtype: Dtype = "float32"
    range: list[int | float] | None = None
    values: Literal["normal", "zeros", "ones", "causal"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.values == CAUSAL and len(self.shape) < 2:
            raise ValueError("values: causal is a mask of two dimensions; give the shape two dimensions or more")
        if self.range is None:
            return self
        if self.values is not None:
            raise ValueError("values: given beside range; keep one")
        is_real = self.dtype in get_args(FloatingDtype)
        is_range = len(self.range) == 2 and (is_real or all(type(end) is int for end in self.range))
        if not is_range or not self.range[0] < self.range[1]:
            example = "[0.0, 1.0]" if is_real else "[0, 30522]"
            raise ValueError(f"range: not two numbers; write range: {example} (the second is excluded, and larger)")
        least, most = LIMITS.get(self.dtype, (-math.inf, math.inf))
        if not least <= self.range[0] < self.range[1] <= most + 1:
            text = f"range: {self.dtype} has values from {least} to {most}"
            raise ValueError(f"{text}; choose a range in these, or another dtype")
        return self

    @property
    def drawn(self) -> PlainValue:
        if self.range is None:
            return self.values or NORMAL
        return UNIFORM if self.dtype in get_args(FloatingDtype) else INTEGERS, *self.range


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "<mapping>" if value.keys().isdisjoint(("shape", "dtype", "range")) else "<tensor>"
    return "<list>" if isinstance(value, list) else "<value>"


def _refuse_none(tree: Any) -> Any:
    """Refuse no inputs: a config without the key has the inputs that a user's function returns."""
    if tree is not None and (not tree or not isinstance(tree, (Tensor, dict, list))):
        raise ValueError
    return tree


if TYPE_CHECKING:
    Inputs: TypeAlias = Any
else:
    Tree = TypeAliasType(
        "Tree",
        Annotated[
            Annotated[Tensor, Tag("<tensor>")]
            | Annotated[dict[str, "Tree"], Tag("<mapping>")]
            | Annotated[list["Tree"], Tag("<list>")]
            | Annotated[Any, Tag("<value>")],
            Discriminator(_kind),
        ],
    )
    Inputs = Annotated[Tree, AfterValidator(_refuse_none)]


def plain(tree: Any, values: list[PlainValue] | None = None) -> PlainValue:
    """Return a tree as a value of a tuple, with the next identities for its tensors.

    The tree is of dicts, lists, tensors, numbers, texts and None. The values of its tensors are added to ``values``.
    """
    values = [] if values is None else values
    if isinstance(tree, Tensor):
        values.append(tree.drawn)
        return TensorSpec(tuple(tree.shape), tree.dtype, identity=len(values) - 1)
    if isinstance(tree, dict):
        return Structure("dict", tuple((name, plain(part, values)) for name, part in tree.items()))
    return tuple(plain(item, values) for item in tree) if isinstance(tree, list) else tree


def described_inputs(tree: Any) -> DescribedInputs | None:
    """Return described inputs: a list has the positional arguments, a mapping those by keyword, a tensor is one."""
    if tree is None:
        return None
    values: list[PlainValue] = []
    found = plain(tree, values)
    drawn = tuple(values) if any(one != NORMAL for one in values) else ()
    if isinstance(found, Structure):
        return DescribedInputs((), found.parts, drawn)
    return DescribedInputs(found if isinstance(found, tuple) else (found,), (), drawn)


def sorted_arguments(arguments: dict[str, Any] | None) -> Parts:
    """Return the arguments of a model in the order of their names."""
    return tuple((name, plain(value)) for name, value in sorted((arguments or {}).items()))


def argument_in(text: str) -> tuple[str, PlainValue] | None:
    """Return the one argument in ``arguments: {NAME: VALUE}``; None if the text has a mistake or anything else."""
    try:
        document = document_of(Path(), text.encode(errors="surrogateescape"), ARGUMENTS_EXAMPLE)
    except UserError:
        return None
    arguments = document.values.get("arguments")
    is_one = not document.mistakes and len(document.values) == 1 and isinstance(arguments, dict) and len(arguments) == 1
    return sorted_arguments(arguments)[0] if is_one else None


def tree_text(value: PlainValue) -> str:
    """Return a tree in YAML on one line, which a config reads back.

    Texts are quoted: some that look like numbers are texts for YAML and numbers here. Of a tensor, it has the shape and
    the dtype.
    """
    text: str = yaml.dump(_written(value), Dumper=_Writer, default_flow_style=True, width=2**31, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


class _Text(str):
    """A text that is quoted."""


class _Writer(yaml.SafeDumper):
    """Writes each list and text where it is, also if it is there twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


_Writer.add_representer(_Text, lambda writer, text: writer.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def _written(value: PlainValue) -> object:
    if isinstance(value, TensorSpec):
        return {"shape": list(value.shape), "dtype": value.dtype}
    if isinstance(value, Structure):
        return {name: _written(part) for name, part in value.parts}
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return _Text(value) if isinstance(value, (str, Constant)) else value
