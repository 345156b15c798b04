"""Calls of one model under two conditions, matched one to one.

Two calls match if they are the n-th calls, in each run, of the same operator with the same parameters and sizes. Only
floating-point dtypes and memory layouts may differ: those of tensors, of weights, and those that a function is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from opcost.measuring.record import MeasurementRow
from opcost.operators.tuples import Constant, OperatorTuple, PlainValue, Structure, TensorSpec

WEIGHT_FORM = frozenset({"dtype", "memory_format"})
"""The parameters of a module that say how its weights are stored."""

ANY_FLOATING = "floating"
"""Stands for any floating-point dtype."""

TORCH_CONSTANT = "torch."
"""The prefix of constants that are dtypes or memory formats."""


class Standing(str, Enum):
    """The conditions under which a call exists, and whether its cost is known."""

    BOTH = "both"
    THESE_ONLY = "only these"
    OTHERS_ONLY = "only the others"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Calls:
    """Calls of one operator tuple in one run, with the row that gives the cost of each, None if none is measured."""

    operator: OperatorTuple
    number: int
    row: MeasurementRow | None


@dataclass(frozen=True)
class Pair:
    """Calls under these conditions and as many under others, None where they do not exist. One is not None."""

    these: Calls | None
    others: Calls | None

    @property
    def standing(self) -> Standing:
        """Where the calls exist; ``NOT_MEASURED`` if one of both sides has no row."""
        if any(side is not None and side.row is None for side in (self.these, self.others)):
            return Standing.NOT_MEASURED
        if self.these is None or self.others is None:
            return Standing.OTHERS_ONLY if self.these is None else Standing.THESE_ONLY
        return Standing.BOTH

    @property
    def operator(self) -> OperatorTuple:
        """The operator tuple of these conditions, or of the others if there is none."""
        side = self.these or self.others
        assert side is not None
        return side.operator


def matched(these: Iterable[Calls], others: Iterable[Calls]) -> list[Pair]:
    """Return the calls of two runs in pairs, and those that exist in one run only.

    Args:
        these: the calls under these conditions, in the order of their first calls.
        others: those under the others.
    """
    groups: dict[OperatorTuple, tuple[list[Calls], list[Calls]]] = {}
    for side, calls in enumerate((these, others)):
        for one in calls:
            groups.setdefault(without_form(one.operator), ([], []))[side].append(one)
    return [pair for group in groups.values() for pair in _paired(*group)]


def without_form(operator: OperatorTuple) -> OperatorTuple:
    """Return an operator tuple without the dtypes and memory layouts that conditions decide."""
    parameters = tuple(item for item in operator.parameters if operator.is_function or item[0] not in WEIGHT_FORM)
    return replace(
        operator,
        parameters=parameters,
        inputs=tuple(map(_value_without_form, operator.inputs)),
        keyword_inputs=tuple((name, _value_without_form(value)) for name, value in operator.keyword_inputs),
    )


def _value_without_form(value: PlainValue) -> PlainValue:
    if isinstance(value, TensorSpec):
        return replace(value, dtype=ANY_FLOATING if value.is_floating else value.dtype, strides=None)
    if isinstance(value, tuple):
        return tuple(map(_value_without_form, value))
    if isinstance(value, Structure):
        return replace(value, parts=tuple((name, _value_without_form(part)) for name, part in value.parts))
    if isinstance(value, Constant) and value.name.startswith(TORCH_CONSTANT):
        return Constant(TORCH_CONSTANT)
    return value


def _paired(these: Sequence[Calls], others: Sequence[Calls]) -> Iterator[Pair]:
    """Yield the pairs of one group, the first calls with the first ones."""
    ours, theirs = deque(these), deque(others)
    while ours and theirs:
        number = min(ours[0].number, theirs[0].number)
        yield Pair(_taken(ours, number), _taken(theirs, number))
    yield from (Pair(one, None) for one in ours)
    yield from (Pair(None, one) for one in theirs)


def _taken(calls: deque[Calls], number: int) -> Calls:
    first = calls.popleft()
    if first.number > number:
        calls.appendleft(replace(first, number=first.number - number))
    return replace(first, number=number)
