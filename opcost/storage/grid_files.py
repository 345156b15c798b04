"""The file ``grid.yml``: one operator with lists of sizes, parameters, dtypes and shares of zeros, or tuples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, get_args

import yaml
from pydantic import Discriminator, Field, Tag

from opcost.operators.grids import MAXIMUM_POINTS, NOT_ZERO, AnyGrid, Grid, GridTensor, Lists, TupleList
from opcost.operators.tuples import PlainValue, Structure
from opcost.storage.config_nodes import Document, Mistake, described, line_of, read_document, shown
from opcost.storage.config_schema import (
    LONGEST_NAME,
    ONE,
    SEVERAL,
    UNSUPPORTED_KEYS,
    one_or_several,
    read_values,
)
from opcost.storage.config_trees import DTYPES, MAXIMUM_SIDE, parts_in, tree_in
from opcost.storage.tuple_files import OPERATOR_PATTERN, MeasuredGrid, read_tuples

GRID_NAME = "grid.yml"

SIZES, PARAMETERS, INPUTS, ZEROS = "sizes", "parameters", "inputs", "zeros"

OPERATOR_EXAMPLE = "operator: torch.nn.Conv2d (a module or a function of torch or torchvision, with its package)"
SIZES_EXAMPLE = "sizes: {batch: [1, 32], side: 56} (whole numbers above 0)"
PARAMETERS_EXAMPLE = "parameters: {in_channels: 64, out_channels: 128, kernel_size: [1, 3]} (a list gives a tuple each)"
GRID_INPUTS_EXAMPLE = "inputs: [[batch, in_channels, side, side]] (one shape for each tensor)"
ZEROS_EXAMPLE = "zeros: {inputs: [0, 0.5], weights: 0.9} (shares in tenths, from 0 to 1)"

SHARES = (0.0, *(tenths / 10 for tenths in range(1, 10)), 1.0)
"""The shares of zeros: those by which rows are distinguished."""

ZEROS_OF = ("inputs", "weights")

TENSOR_KEYS = ("shape", "dtype")

FloatingDtype = Literal["float32", "float64", "float16", "bfloat16"]

_UNSUPPORTED = {
    **UNSUPPORTED_KEYS,
    "dtype": "write dtypes: [float32, bfloat16]",
    "model_name": "a grid has an operator; a model has a summary.yml",
    "batch": "write it under sizes",
    "batch_size": "write sizes: {batch: [1, 32]}",
    "tuple": "did you mean tuples?",
}


class GridFile(MeasuredGrid):
    """A ``grid.yml`` of one operator."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(_UNSUPPORTED)

    operator: Annotated[str, Field(pattern=OPERATOR_PATTERN, max_length=LONGEST_NAME)] = Field(
        description=OPERATOR_EXAMPLE
    )
    inputs: Any = Field(description=GRID_INPUTS_EXAMPLE)
    parameters: Any = Field(default=None, description=PARAMETERS_EXAMPLE)
    sizes: Any = Field(default=None, description=SIZES_EXAMPLE)
    dtypes: Annotated[
        Annotated[FloatingDtype, Tag(ONE)] | Annotated[list[FloatingDtype], Field(min_length=1), Tag(SEVERAL)],
        Discriminator(one_or_several),
    ] = Field(default="float32", description=f"dtypes: [float32, bfloat16] (of {', '.join(get_args(FloatingDtype))})")
    zeros: Any = Field(default=None, description=ZEROS_EXAMPLE)


@dataclass(frozen=True)
class GridValues:
    """The grid that a file describes, the values of its keys, and its mistakes; with mistakes the grid is partial."""

    document: Document
    values: Mapping[str, Any]
    grid: AnyGrid
    mistakes: list[Mistake]


def read_grid(path: Path) -> GridValues:
    """Return the grid or the list of tuples of a ``grid.yml``, with all mistakes in it.

    Raises:
        UserError: the file is no mapping in YAML.
    """
    document = read_document(path, OPERATOR_EXAMPLE)
    if TupleList.key in document.entries:
        return GridValues(document, *read_tuples(document))
    values, mistakes = read_values(document, GridFile)
    reader = _Reader({key: node for key, (_, node) in document.entries.items()}, mistakes)
    dtypes = values["dtypes"]
    zeros = reader.zeros()
    grid = Grid(
        operator=values.get("operator", ""),
        inputs=reader.inputs(),
        parameters=reader.lists(PARAMETERS, PARAMETERS_EXAMPLE),
        sizes=reader.sizes(),
        dtypes=tuple(dict.fromkeys(dtypes)) if isinstance(dtypes, list) else (dtypes,),
        input_zeros=zeros.get("inputs", NOT_ZERO),
        weight_zeros=zeros.get("weights", NOT_ZERO),
    )
    if not mistakes:
        mistakes += reader.mistakes_between(grid)
    return GridValues(document, values, grid, mistakes)


@dataclass
class _Reader:
    """Reads the keys of a grid that are trees, and adds their mistakes."""

    nodes: Mapping[str, yaml.Node]
    mistakes: list[Mistake] = field(default_factory=list)

    def lists(self, key: str, example: str) -> Lists:
        """Return the values of each name under a key; one that is no list is the only value."""
        parts, found = parts_in(self.nodes.get(key), key, f"write {example}")
        self.mistakes += found
        return tuple((name, self._values(key, name, value, example)) for name, value in parts)

    def sizes(self) -> Lists:
        """Return the values of each size: whole numbers above 0."""
        lists = self.lists(SIZES, SIZES_EXAMPLE)
        for name, values in lists:
            wrong = next((one for one in values if not _is_size(one)), None)
            if wrong is not None:
                self._add(SIZES, name, f"{name}: {wrong!r} is no size; write {SIZES_EXAMPLE}")
        return lists

    def zeros(self) -> dict[str, tuple[float, ...]]:
        """Return the shares of zeros in inputs and in weights."""
        found: dict[str, tuple[float, ...]] = {}
        for name, values in self.lists(ZEROS, ZEROS_EXAMPLE):
            shares = tuple(float(one) for one in values if type(one) in (int, float) and one in SHARES)
            if name not in ZEROS_OF:
                self._add(ZEROS, name, f"{name}: unknown key; the keys are {', '.join(ZEROS_OF)}")
            elif len(shares) < len(values):
                wrong = next(one for one in values if type(one) not in (int, float) or one not in SHARES)
                self._add(ZEROS, name, f"{name}: {wrong!r} is no share of zeros; write {ZEROS_EXAMPLE}")
            found[name] = shares
        return found

    def inputs(self) -> tuple[GridTensor, ...]:
        """Return the tensors: lists of sides, or mappings with a shape and a dtype."""
        node = self.nodes.get(INPUTS)
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            self._mistake(node, f"the value is {described(node)}")
            return ()
        return tuple(map(self._tensor, node.value))

    def mistakes_between(self, grid: Grid) -> Iterator[Mistake]:
        """Yield the mistakes of keys that refer to each other, and of too many points."""
        sizes, parameters = dict(grid.sizes), dict(grid.parameters)
        for name in sizes.keys() & parameters.keys():
            text = f"{name}: given under {SIZES} and {PARAMETERS}; rename one"
            yield self._line(SIZES, name), f"{SIZES}: {text}"
        sides = [side for tensor in grid.inputs for side in tensor.shape if isinstance(side, str)]
        for side in dict.fromkeys(sides):
            yield from self._mistakes_of_side(side, sizes, parameters)
        used = {*sides, *(text for values in parameters.values() for text in _texts(values))}
        for name in sizes.keys() - used - parameters.keys():
            text = f"{name}: in no shape and no parameter; remove it, or write it there"
            yield self._line(SIZES, name), f"{SIZES}: {text}"
        if grid.number > MAXIMUM_POINTS:
            remedy = f"a grid may have {MAXIMUM_POINTS}; shorten its lists, or write several grids"
            yield 1, f"the lists give {grid.number} tuples; {remedy}"

    def _mistakes_of_side(
        self, side: str, sizes: Mapping[str, object], parameters: Mapping[str, tuple[PlainValue, ...]]
    ) -> Iterator[Mistake]:
        line = line_of(self.nodes[INPUTS])
        if side not in sizes and side not in parameters:
            known = ", ".join([*sizes, *parameters]) or "none"
            remedy = f"the names are {known}; add it under {SIZES}"
            yield line, f"{INPUTS}: {shown(side)} is the name of no size and no parameter; {remedy}"
        elif side in parameters:
            wrong = [one for one in parameters[side] if not _is_size(one) and one not in sizes]
            if wrong:
                remedy = f"write a number, or a name under {SIZES}"
                yield line, f"{INPUTS}: {side} is a side, but the parameter may be {wrong[0]!r}; {remedy}"

    def _values(self, key: str, name: str, value: PlainValue, example: str) -> tuple[PlainValue, ...]:
        values = value if isinstance(value, tuple) else (value,)
        if not values:
            self._add(key, name, f"{name}: the list is empty; write {example}")
        if any(isinstance(one, Structure) for one in values):
            self._add(key, name, f"{name}: a value is a mapping; write {example}")
        # 1, 1.0 and True are equal in Python.
        return tuple({repr(one): one for one in values}.values())

    def _tensor(self, node: yaml.Node) -> GridTensor:
        value, found = tree_in(node, INPUTS, f"write {GRID_INPUTS_EXAMPLE}")
        self.mistakes += found
        parts = dict(value.parts) if isinstance(value, Structure) else {"shape": value}
        unknown = [name for name in parts if name not in TENSOR_KEYS]
        if unknown:
            self._mistake(node, f"{unknown[0]}: unknown key of a tensor", f"a tensor has {' and '.join(TENSOR_KEYS)}")
            return GridTensor(())
        dtype, shape = parts.get("dtype"), parts.get("shape")
        if dtype is not None and dtype not in DTYPES:
            self._mistake(node, f"dtype: {dtype!r} is no dtype", f"write one of {', '.join(DTYPES)}")
        sides = shape if isinstance(shape, tuple) else ()
        wrong = [side for side in sides if not isinstance(side, str) and not _is_size(side)]
        if not isinstance(shape, tuple):
            self._mistake(node, f"{described(node)} has no shape")
        elif wrong:
            self._mistake(node, f"{wrong[0]!r} is no side of a shape")
        known = tuple(side for side in sides if isinstance(side, (int, str)))
        return GridTensor(known, str(dtype) if dtype is not None else None)

    def _mistake(self, node: yaml.Node, text: str, remedy: str = f"write {GRID_INPUTS_EXAMPLE}") -> None:
        self.mistakes.append((line_of(node), f"{INPUTS}: {text}; {remedy}"))

    def _add(self, key: str, name: str, text: str) -> None:
        self.mistakes.append((self._line(key, name), f"{key}: {text}"))

    def _line(self, key: str, name: str) -> int:
        """Return the line of a name under a key."""
        node = self.nodes[key]
        named = [one for one, _ in node.value if one.value == name] if isinstance(node, yaml.MappingNode) else []
        return line_of(named[0] if named else node)


def _is_size(value: PlainValue) -> bool:
    return type(value) is int and 0 < value <= MAXIMUM_SIDE


def _texts(values: tuple[PlainValue, ...]) -> Iterator[str]:
    for value in values:
        if isinstance(value, tuple):
            yield from _texts(value)
        elif isinstance(value, str):
            yield value
