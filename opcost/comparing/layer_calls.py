"""The calls of a model's run in order, each with its part of the sum of operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opcost.estimates import total_if_known
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.modules import CalledModule, levels_of
from opcost.summing.summation import ModelCost, Part


@dataclass(frozen=True)
class CallCost:
    """The time of one call, and its energy, None if unknown with the reason."""

    time_s: float
    energy_j: float | None
    energy_missing_reason: str | None = None


@dataclass(frozen=True)
class LayerCall:
    """One call of an operator, in the module that is the operator or, for a function, calls it.

    ``position`` is its place in the run. ``cost`` is None if the sum has no row for it.
    """

    module: CalledModule
    count: OperatorCount
    position: int
    cost: CallCost | None

    @property
    def function(self) -> str | None:
        """The name of a function, None for a module."""
        return self.count.operator.short_name if self.count.operator.is_function else None

    @property
    def level(self) -> int:
        """The number of names in its path; a function is one below the module that calls it."""
        return levels_of(self.module.path) + self.count.operator.is_function

    @property
    def lacks_row(self) -> bool:
        """Whether it computes something and is not in the sum."""
        return self.cost is None and self.count.computes


Parts: TypeAlias = Sequence[Part]
"""The parts of a sum that are of one operator tuple."""


def layer_calls(counts: OperatorCounts, cost: ModelCost | None) -> tuple[LayerCall, ...]:
    """Return all calls in the order of execution.

    The costs of all calls add up to the sum if the sum is of operators with these calls.

    Args:
        counts: of a run whose modules are known.
        cost: the sum, None if nothing is measured.
    """
    of_operator = parts_by_operator(cost)
    found = [
        LayerCall(counts.modules[caller], count, position, of_call)
        for count in counts.counts
        for caller, position, of_call in zip(
            count.callers, count.positions, _costs(count, of_operator.get(count.operator.key, ())), strict=True
        )
    ]
    return tuple(sorted(found, key=lambda call: call.position))


def parts_by_operator(cost: ModelCost | None) -> Mapping[str, Parts]:
    """Return the parts of a sum by the operator's key."""
    found: dict[str, list[Part]] = {}
    for part in () if cost is None else cost.parts:
        found.setdefault(part.case.operator.key, []).append(part)
    return found


def are_means(counts: OperatorCounts, cost: ModelCost | None) -> bool:
    """Return whether calls of one operator with different rows share their mean, because it is unknown which is which.

    This is so if the model was counted on shapes only, or on other values than those of the sum.
    """
    of_operator = parts_by_operator(cost)
    several = [count for count in counts.counts if len(of_operator.get(count.operator.key, ())) > 1]
    return not all(_has_the_data_of(count, of_operator[count.operator.key]) for count in several)


def _costs(count: OperatorCount, parts: Parts) -> Iterator[CallCost | None]:
    """Yield the cost of each call of an operator."""
    if not parts:
        yield from [None] * count.occurrences
    elif _has_the_data_of(count, parts):
        of_data = {part.case.input_data: _mean([part]) for part in parts}
        yield from (of_data[data] for data in count.data_of_calls)
    else:
        yield from [_mean(parts)] * count.occurrences


def _has_the_data_of(count: OperatorCount, parts: Parts) -> bool:
    return bool(count.statistics) and count.captured_data == Counter(
        {part.case.input_data: part.occurrences for part in parts}
    )


def _mean(parts: Parts) -> CallCost:
    """Return the mean cost of the calls in some parts of a sum."""
    calls = sum(part.occurrences for part in parts)
    energy_j = total_if_known(part.energy_j for part in parts)
    reasons = (part.row.measurement.energy_missing_reason for part in parts if part.energy_j is None)
    reason = next(reasons, None) or "it cannot be normalised to 50 °C"
    return CallCost(
        time_s=sum(part.time_s for part in parts) / calls,
        energy_j=None if energy_j is None else energy_j / calls,
        energy_missing_reason=None if energy_j is not None else reason,
    )
