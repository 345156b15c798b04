"""Grids: the operator tuples of one operator with each combination of some sizes, parameters, dtypes and zeros.

A list of tuples takes the place of a grid: its tuples are written out, of any operators.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from opcost.operators.model_names import GRID
from opcost.operators.tuples import FLOAT32, OperatorTuple, PlainValue, TensorSpec, mapped, short_hash
from opcost.operators.values import InputValues
from opcost.units import number_of

Lists: TypeAlias = tuple[tuple[str, tuple[PlainValue, ...]], ...]
MAXIMUM_POINTS = 1000
"""The most points of a grid. Each is run once when it is counted, and measured for seconds."""

NOT_ZERO = (0.0,)


@dataclass(frozen=True)
class GridTensor:
    """A tensor among the inputs: its sides are numbers or names of such; ``dtype`` None is that of the weights."""

    shape: tuple[int | str, ...]
    dtype: str | None = None


@dataclass(frozen=True)
class GridPoint:
    """A combination of the values of a grid, or a tuple of a list; ``input_zeros`` and ``weight_zeros`` are shares.

    A function of a grid has arguments by keyword as ``parameters`` and a mode: only torch knows it from a module.
    """

    operator: OperatorTuple
    dtype: str = FLOAT32
    input_zeros: float = 0.0
    weight_zeros: float = 0.0

    def __str__(self) -> str:
        zeros = {"inputs": self.input_zeros, "weights": self.weight_zeros}
        shares = [f"{name} {InputValues(ratio)}" for name, ratio in zeros.items() if ratio]
        return ", ".join([str(self.operator).removesuffix(" eval"), *shares])


@dataclass(frozen=True)
class Grid:
    """An operator by its qualified name, with lists of values.

    ``sizes`` are numbers that shapes and parameters may name. ``parameters`` are the constructor's arguments of a
    module, or a function's arguments by keyword; a text that is the name of a size stands for it. ``inputs`` are the
    positional arguments. ``input_zeros`` and ``weight_zeros`` are shares of zeros, in tenths.
    """

    key: ClassVar[str] = "operator"
    """The key of the file that says what is counted."""
    noun: ClassVar[str] = "combination"
    """The word for a point."""

    operator: str
    inputs: tuple[GridTensor, ...]
    parameters: Lists = ()
    sizes: Lists = ()
    dtypes: tuple[str, ...] = ("float32",)
    input_zeros: tuple[float, ...] = NOT_ZERO
    weight_zeros: tuple[float, ...] = NOT_ZERO

    def __str__(self) -> str:
        return f"{number_of(self.number, self.noun)} of {self.operator}"

    @property
    def name(self) -> str:
        return self.operator

    @property
    def operators(self) -> Mapping[str, str]:
        """The name of the operator, by its place in the file; empty if it is unknown."""
        return {self.key: self.operator} if self.operator else {}

    @property
    def number(self) -> int:
        lists = [values for _, values in (*self.sizes, *self.parameters)]
        return math.prod(map(len, (*lists, self.dtypes, self.input_zeros, self.weight_zeros)))

    @property
    def model(self) -> OperatorTuple:
        """The tuple that stands for a whole model in the counts of a grid. Another grid has another one."""
        return _model(self.operator.rpartition(".")[2], repr(self))

    def points(self) -> Iterator[GridPoint]:
        def combinations(lists: Lists) -> Iterator[dict[str, PlainValue]]:
            names = [name for name, _ in lists]
            return (dict(zip(names, one, strict=True)) for one in itertools.product(*(values for _, values in lists)))

        for sizes, given in itertools.product(combinations(self.sizes), combinations(self.parameters)):
            parameters = {name: _substituted(value, sizes) for name, value in given.items()}
            for dtype, *zeros in itertools.product(self.dtypes, self.input_zeros, self.weight_zeros):
                inputs = _inputs(self.inputs, {**parameters, **sizes}, str(dtype))
                operator = OperatorTuple(self.operator, tuple(parameters.items()), inputs)
                yield GridPoint(operator, str(dtype), *map(float, zeros))


@dataclass(frozen=True)
class TupleList:
    """Operator tuples that are written out. All are counted on normal values."""

    key: ClassVar[str] = "tuples"
    noun: ClassVar[str] = "operator tuple"
    name: ClassVar[str] = "tuples"

    tuples: tuple[OperatorTuple, ...]

    def __str__(self) -> str:
        return number_of(self.number, self.noun)

    @property
    def operators(self) -> Mapping[str, str]:
        places: dict[str, str] = {}
        for index, one in enumerate(self.tuples):
            places.setdefault(one.operator, place_of(index))
        return {place: name for name, place in places.items()}

    @property
    def number(self) -> int:
        return len(self.tuples)

    @property
    def model(self) -> OperatorTuple:
        return _model(self.name, "\n".join(map(str, self.tuples)))

    def points(self) -> Iterator[GridPoint]:
        return map(GridPoint, self.tuples)


AnyGrid: TypeAlias = Grid | TupleList
"""The contents of a ``grid.yml``."""


def place_of(index: int) -> str:
    """Return the place of a tuple in its file, for a message."""
    return f"{TupleList.key}: item {index + 1}"


def _model(name: str, contents: str) -> OperatorTuple:
    return OperatorTuple(f"{GRID}.{name}", (("contents", short_hash(contents)),), mode=None)


def _substituted(value: PlainValue, sizes: Mapping[str, PlainValue]) -> PlainValue:
    return mapped(value, lambda part: sizes.get(part, part) if isinstance(part, str) else part)


def _inputs(tensors: tuple[GridTensor, ...], known: Mapping[str, PlainValue], dtype: str) -> tuple[TensorSpec, ...]:
    specs = []
    for identity, tensor in enumerate(tensors):
        sides = [known.get(side) if isinstance(side, str) else side for side in tensor.shape]
        shape = tuple(side for side in sides if type(side) is int and side > 0)
        if len(shape) < len(sides):
            raise ValueError(f"a side of {tensor.shape} is no whole number above 0")
        specs.append(TensorSpec(shape, tensor.dtype or dtype, identity=identity))
    return tuple(specs)
