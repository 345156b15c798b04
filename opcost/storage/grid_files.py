"""The file ``grid.yml``: one operator with lists of sizes, parameters, dtypes and shares of zeros, or tuples.

Tuples are written out, each as the line that tables show, and of any operators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, get_args

import yaml
from pydantic import AfterValidator, Discriminator, Field, Tag

from opcost.errors import shortened
from opcost.measuring.precisions import TORCH_DEFAULT
from opcost.operators.grids import MAXIMUM_POINTS, Grid, GridTensor, TupleList
from opcost.operators.texts import parse_tuple
from opcost.operators.tuples import OperatorTuple, Structure, nested
from opcost.storage.config_trees import Dtype, FloatingDtype, Side, plain
from opcost.storage.yaml_files import Document, Mistake, OneOrSeveral, Place, Schema, read_document, read_schema, shown

GRID_NAME = "grid.yml"

LONGEST_NAME = 200
"""The most characters of a name, because messages quote names and are one line."""

LONGEST_TEXT = 4000
"""The most characters of a tuple."""

UNSUPPORTED_KEYS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys("training train mode backward loss optimizer".split(), "opcost measures inference only"),
        **dict.fromkeys("dtype amp autocast half".split(), "write precision: bf16, or another of docs/usage.md"),
        "quantized": "opcost does not measure quantized models",
        "batch_size": "the batch is the first number of input_size; several are written as batch: [1, 8, 32]",
        **dict.fromkeys("device execution cache seconds".split(), "this is an option of the command line"),
    }
)
"""Keys that users expect and opcost does not have, with the reason."""

SIZES_EXAMPLE = "sizes: {batch: [1, 32], side: 56} (whole numbers above 0)"
PARAMETERS_EXAMPLE = "parameters: {in_channels: 64, out_channels: 128, kernel_size: [1, 3]} (a list gives a tuple each)"
OPERATOR_EXAMPLE = "operator: torch.nn.Conv2d (a module or a function of torch or torchvision, with its package)"
TUPLE_EXAMPLE = "torch.nn.ReLU() on (float32[8, 64]) eval"

OPERATOR_PATTERN = r"^torch(vision)?(\.[A-Za-z_]\w*)+$"

SHARES = (0.0, *(tenths / 10 for tenths in range(1, 10)), 1.0)
"""The shares of zeros: those by which rows are distinguished."""

KNOWN_STRUCTURES = ("dict", "slice")
"""The structures that a text names completely. It has only the last part of the name of any other class."""

GridPrecision = Literal["torch-default", "fp32", "tf32"]


class MeasuredGrid(Schema):
    """The keys that both forms of a ``grid.yml`` have."""

    precision: GridPrecision = Field(
        default=TORCH_DEFAULT, description=f"precision: {' or '.join(get_args(GridPrecision))} (of products in float32)"
    )
    done: bool = Field(default=False, description="done: false (true or false, no quotes)")


def _share(value: float) -> float:
    if value not in SHARES:
        raise ValueError
    return value


def _refuse_mappings(parameters: dict[str, Any]) -> dict[str, Any]:
    for name, value in parameters.items():
        if value == [] or any(isinstance(one, dict) for one in (value if isinstance(value, list) else [value])):
            raise ValueError(f"{shown(name)} is a mapping or an empty list; write {PARAMETERS_EXAMPLE}")
    return parameters


class GridInput(Schema):
    """A tensor with a dtype of its own."""

    shape: list[Side | str]
    dtype: Dtype | None = None


_Input = Annotated[
    Annotated[list[Side | str], Tag("<sides>")] | Annotated[GridInput, Tag("<tensor>")],
    Discriminator(lambda value: "<tensor>" if isinstance(value, dict) else "<sides>"),
]
_Share = Annotated[float, AfterValidator(_share)]


class Zeros(Schema):
    """Shares of zeros."""

    inputs: OneOrSeveral[_Share] = 0.0
    weights: OneOrSeveral[_Share] = 0.0


class GridFile(MeasuredGrid):
    """A ``grid.yml`` of one operator."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **UNSUPPORTED_KEYS,
            "dtype": "write dtypes: [float32, bfloat16]",
            "model_name": "a grid has an operator; a model has a summary.yml",
            "batch": "write it under sizes",
            "batch_size": "write sizes: {batch: [1, 32]}",
            "tuple": "did you mean tuples?",
        }
    )

    operator: Annotated[str, Field(pattern=OPERATOR_PATTERN, max_length=LONGEST_NAME)] = Field(
        description=OPERATOR_EXAMPLE
    )
    inputs: Annotated[list[_Input], Field(min_length=1)] = Field(
        description="inputs: [[batch, in_channels, side, side]] (one shape for each tensor, or its shape and dtype)"
    )
    parameters: Annotated[dict[str, Any], AfterValidator(_refuse_mappings)] | None = Field(
        default=None, description=PARAMETERS_EXAMPLE
    )
    sizes: dict[str, OneOrSeveral[Side]] | None = Field(default=None, description=SIZES_EXAMPLE)
    dtypes: OneOrSeveral[FloatingDtype] = Field(default="float32", description="dtypes: [float32, bfloat16]")
    zeros: Zeros | None = Field(
        default=None, description="zeros: {inputs: [0, 0.5], weights: 0.9} (shares in tenths, from 0 to 1)"
    )

    @property
    def grid(self) -> Grid:
        tensors = [(one.shape, one.dtype) if isinstance(one, GridInput) else (one, None) for one in self.inputs]
        zeros = self.zeros or Zeros()
        return Grid(
            operator=self.operator,
            inputs=tuple(GridTensor(tuple(shape), dtype) for shape, dtype in tensors),
            parameters=tuple((name, _several(value)) for name, value in (self.parameters or {}).items()),
            sizes=tuple((name, _several(value)) for name, value in (self.sizes or {}).items()),
            dtypes=_several(self.dtypes),
            input_zeros=_several(zeros.inputs),
            weight_zeros=_several(zeros.weights),
        )

    def mistakes(self, given: set[str]) -> Iterator[tuple[Place, str]]:
        if not self.model_fields_set.issuperset(given):
            return
        grid = self.grid
        sizes, parameters = dict(grid.sizes), dict(grid.parameters)
        known, remedy = {**sizes, **parameters}, f"write a number, or the name of one under sizes: {SIZES_EXAMPLE}"
        for name in sizes.keys() & parameters.keys():
            yield ("sizes", name), "given under sizes and parameters; rename one"
        sides = dict.fromkeys(side for tensor in grid.inputs for side in tensor.shape if isinstance(side, str))
        for side in sides:
            wrong = [one for one in known.get(side, ()) if type(one) is not int and one not in sizes]
            if side not in known:
                names = ", ".join(known) or "none"
                yield ("inputs",), f"{shown(side)} is the name of no size and no parameter, which are {names}; {remedy}"
            elif wrong:
                yield ("inputs",), f"{side} is a side, but the parameter may be {wrong[0]!r}; {remedy}"
        used = {*sides, *(text for text in nested(parameters.values()) if isinstance(text, str))}
        for name in sizes.keys() - used - parameters.keys():
            yield ("sizes", name), "in no shape and no parameter; remove it, or write it there"
        if grid.number > MAXIMUM_POINTS:
            remedy = f"a grid may have {MAXIMUM_POINTS}; shorten its lists, or write several grids"
            yield (), f"the lists give {grid.number} tuples; {remedy}"


def _several(values: Any) -> tuple[Any, ...]:
    # 1, 1.0 and True are equal in Python.
    items = map(plain, values if isinstance(values, list) else [values])
    return tuple({repr(one): one for one in items}.values())


def _tuple_in(text: str) -> OperatorTuple:
    """Return the tuple that a text describes.

    Raises ValueError: it describes none that can be run; the message ends with the remedy.
    """
    try:
        operator = parse_tuple(text)
    except ValueError as error:
        raise ValueError(f"{error}; write it as tables show it, such as {TUPLE_EXAMPLE}") from None
    if not re.match(OPERATOR_PATTERN, operator.operator):
        name = shortened(operator.operator)
        raise ValueError(f"{name} is no operator of torch or torchvision; remove the tuple")
    values = [*operator.inputs, *(value for _, value in (*operator.parameters, *operator.keyword_inputs))]
    structures = (one.kind for one in nested(values) if isinstance(one, Structure))
    unknown = next((kind for kind in structures if kind not in KNOWN_STRUCTURES), None)
    if unknown is not None:
        reason = f"its text has only the last part of the name of the class {shortened(unknown)}"
        raise ValueError(f"it cannot be run again, because {reason}; remove the tuple")
    return operator


class TuplesFile(MeasuredGrid):
    """A ``grid.yml`` with tuples."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **UNSUPPORTED_KEYS,
            **dict.fromkeys(
                "operator inputs parameters sizes dtypes zeros".split(),
                "it is a key of a grid of one operator; move it, or tuples, to another folder",
            ),
        }
    )

    tuples: Annotated[
        list[Annotated[str, Field(max_length=LONGEST_TEXT), AfterValidator(_tuple_in)]],
        Field(min_length=1, max_length=MAXIMUM_POINTS),
    ] = Field(description=f"tuples: and, each on its own line, - {TUPLE_EXAMPLE} (at most {MAXIMUM_POINTS} in a file)")

    @property
    def grid(self) -> TupleList:
        tuples: Any = self.tuples
        return TupleList(tuple(tuples))

    def mistakes(self, given: set[str]) -> Iterator[tuple[Place, str]]:
        return repeated("tuples", self.tuples)


def repeated(key: str, items: Iterable[object]) -> Iterator[tuple[Place, str]]:
    """Yield a mistake for each repeated item of a list."""
    first: dict[object, int] = {}
    for index, item in enumerate(items):
        if first.setdefault(item, index) < index:
            yield (key, index), f"{shortened(str(item))}: given twice, also as item {first[item] + 1}; keep one"


def read_grid(path: Path) -> tuple[Document, GridFile | TuplesFile | None, list[Mistake]]:
    """Return the values of a ``grid.yml``, None without the keys that it needs, and all mistakes in it."""
    document = read_document(path, OPERATOR_EXAMPLE)
    if TupleList.key in document.values:
        return document, *read_schema(document, TuplesFile)
    return document, *read_schema(document, GridFile)


def tuples_text(tuples: Iterable[OperatorTuple], comments: Iterable[str]) -> str:
    """Return the text of a ``grid.yml`` with tuples that are to be measured, behind lines of comments."""
    keys = {TupleList.key: [*map(str, tuples)], "done": False}
    lines = "".join(f"# {comment}\n" for comment in comments)
    return lines + yaml.safe_dump(keys, sort_keys=False, allow_unicode=True, width=LONGEST_TEXT + 100)


def is_listable(operator: OperatorTuple) -> bool:
    """Return whether a list can have a tuple: its text describes it completely."""
    text = str(operator)
    try:
        return len(text) <= LONGEST_TEXT and _tuple_in(text) == operator
    except ValueError:
        return False
