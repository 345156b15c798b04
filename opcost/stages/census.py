"""How many operator calls and tuples some models have, and how many tuples they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from opcost.operators.counts import OperatorCounts
from opcost.operators.tuples import OperatorTuple


@dataclass(frozen=True)
class CensusRow:
    """The calls and tuples of one model, or of all together (``name`` is then None).

    Only operators that compute something are counted. ``shared_tuples`` are those that more than one of the models
    have; ``unshared_tuples`` those that only one has.
    """

    name: str | None
    calls: int
    tuples: int
    shared_tuples: int
    unshared_tuples: int


def take_census(models: Mapping[str, OperatorCounts]) -> list[CensusRow]:
    """Return a row for each model, by its name, and one for all together, in which each tuple counts once."""
    occurrences = {name: _computing(counts) for name, counts in models.items()}
    users = Counter(operator for operators in occurrences.values() for operator in operators)
    rows = [_row(name, operators, users) for name, operators in occurrences.items()]
    together: Counter[OperatorTuple] = Counter()
    for operators in occurrences.values():
        together.update(operators)
    return [*rows, _row(None, together, users)]


def _computing(counts: OperatorCounts) -> dict[OperatorTuple, int]:
    return {count.operator: count.occurrences for count in counts.counts if count.computes}


def _row(name: str | None, operators: Mapping[OperatorTuple, int], users: Mapping[OperatorTuple, int]) -> CensusRow:
    shared = sum(users[operator] > 1 for operator in operators)
    return CensusRow(name, sum(operators.values()), len(operators), shared, len(operators) - shared)
