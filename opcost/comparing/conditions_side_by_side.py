"""One model under two conditions side by side: the whole, the sum of its operators, their kinds, and each operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from opcost.columns import Column, Columns, one_of
from opcost.comparing.matched_calls import Calls, Pair, Standing, matched
from opcost.comparing.sides import Sides, sides_of
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.columns import INPUTS, OPERATOR, PARAMETERS, TRAINING_MODE
from opcost.operators.counts import OperatorCounts
from opcost.operators.tuples import OperatorTuple
from opcost.summing.energy import EnergyBasis, common_basis
from opcost.summing.summation import ModelCost, Part

Key = TypeVar("Key")

STANDING = Column("conditions under which the calls exist", one_of(*(one.value for one in Standing)))


@dataclass(frozen=True)
class KindSides(Columns):
    """A kind of operator under both conditions. Calls that exist under one of both only are a kind of their own."""

    operator: Annotated[str, Column("name of the operators, such as `Conv2d`")]
    standing: Annotated[str, STANDING]
    costs: Sides


@dataclass(frozen=True)
class OperatorSides(Columns):
    """An operator tuple, and the one that takes its place under the other conditions, with the costs of their calls."""

    standing: Annotated[str, STANDING]
    key: Annotated[str | None, Column("hash of the operator tuple; empty: only under the other conditions")]
    other_key: Annotated[str | None, Column("hash of the tuple of the other conditions; empty: only under these")]
    operator: Annotated[str, OPERATOR]
    parameters: Annotated[str, PARAMETERS]
    inputs: Annotated[str, INPUTS]
    other_inputs: Annotated[str | None, Column("the inputs under the other conditions")]
    training_mode: Annotated[str | None, TRAINING_MODE]
    costs: Sides


@dataclass(frozen=True)
class Side:
    """A model under one set of conditions: the whole's row, None if it is not measured, and the sum of operators.

    ``label`` names the conditions: ``bf16``.
    """

    label: str
    conditions: Conditions
    counts: OperatorCounts
    whole: MeasurementRow | None
    cost: ModelCost

    @property
    def board(self) -> str | None:
        """The board of the whole model (a device's UUID), None if it is unknown."""
        return None if self.whole is None else self.whole.circumstances.device_uuid

    @property
    def calls(self) -> Iterator[Calls]:
        """The calls of operators that compute something, in the order of their first calls."""
        parts: dict[OperatorTuple, list[Part]] = {}
        for part in self.cost.parts:
            parts.setdefault(part.case.operator, []).append(part)
        for count in self.counts.counts:
            for part in parts.get(count.operator, ()):
                yield Calls(count.operator, part.occurrences, part.row)
            if count.computes and count.operator not in parts:
                yield Calls(count.operator, count.occurrences, None)

    @property
    def rows(self) -> list[MeasurementRow]:
        return [*([] if self.whole is None else [self.whole]), *(part.row for part in self.cost.parts)]


@dataclass(frozen=True)
class SideBySide:
    """A model under two conditions.

    ``whole`` is None if it is not measured under one of both. ``total`` is the sum, without cache correction, of all
    operators that are measured wherever they exist, None if there is none; the others are in ``pairs``, ``kinds`` and
    ``operators`` as not measured. ``kinds`` and ``operators`` that cost more under these conditions come first, then
    those that save most.
    """

    these: Side
    others: Side
    basis: EnergyBasis
    pairs: tuple[Pair, ...]
    whole: Sides | None
    total: Sides | None
    kinds: tuple[KindSides, ...]
    operators: tuple[OperatorSides, ...]


def side_by_side(these: Side, others: Side, samples: int) -> SideBySide:
    """Return a model under two conditions. All energies are normalised if all rows can be.

    Args:
        these: the side whose costs are saved or not.
        others: the side that it is compared with.
        samples: the batch size.
    """
    basis = common_basis([*these.rows, *others.rows])
    pairs = tuple(matched(these.calls, others.calls))
    known = [pair for pair in pairs if pair.standing is not Standing.NOT_MEASURED]

    def sides(of: Sequence[Pair]) -> Sides:
        return sides_of(of, basis, samples)

    kinds = [KindSides(name, standing.value, sides(own)) for (name, standing), own in _grouped(pairs, _kind_of)]
    operators = [_operator_sides(own[0], sides(own)) for _, own in _grouped(pairs, _tuples_of)]
    return SideBySide(
        these=these,
        others=others,
        basis=basis,
        pairs=pairs,
        whole=None if these.whole is None or others.whole is None else sides([_whole_pair(these, others)]),
        total=sides(known) if known else None,
        kinds=tuple(sorted(kinds, key=lambda kind: (*kind.costs.rank, kind.operator))),
        operators=tuple(sorted(operators, key=lambda one: (*one.costs.rank, one.operator))),
    )


def _whole_pair(these: Side, others: Side) -> Pair:
    return Pair(Calls(these.counts.model, 1, these.whole), Calls(others.counts.model, 1, others.whole))


def _kind_of(pair: Pair) -> tuple[str, Standing]:
    return pair.operator.short_name, pair.standing


def _tuples_of(pair: Pair) -> tuple[OperatorTuple | None, OperatorTuple | None]:
    these, others = (None if side is None else side.operator for side in (pair.these, pair.others))
    return these, others


def _grouped(pairs: Iterable[Pair], key: Callable[[Pair], Key]) -> Iterable[tuple[Key, list[Pair]]]:
    groups: dict[Key, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(key(pair), []).append(pair)
    return groups.items()


def _operator_sides(pair: Pair, costs: Sides) -> OperatorSides:
    operator = pair.operator
    return OperatorSides(
        standing=pair.standing.value,
        key=None if pair.these is None else pair.these.operator.key,
        other_key=None if pair.others is None else pair.others.operator.key,
        operator=operator.operator,
        parameters=operator.parameters_text,
        inputs=operator.inputs_text,
        other_inputs=None if pair.others is None else pair.others.operator.inputs_text,
        training_mode=operator.mode,
        costs=costs,
    )
