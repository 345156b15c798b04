"""Coverage of a model's cost by a whitelist, and the operators to add to reach a target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from opcost.columns import grouped
from opcost.estimates import FloatArray, ratio_if_known, total_if_known
from opcost.measuring.record import is_doubtful
from opcost.prediction.rates import CostModel
from opcost.summing.summation import ModelCost

Cover: TypeAlias = Callable[[FloatArray, float], Sequence[int]]
"""Returns the fewest columns of a matrix whose sum reaches a value in each row."""

ROUNDING = 2e-6
"""Tolerance of a target, because the solver's tolerance is a millionth."""


@dataclass(frozen=True)
class CoveredCost:
    """The cost of operators of one name, None if unknown, its measured time, and the part of that from flagged rows."""

    time_s: float = 0.0
    energy_j: float | None = 0.0
    measured_time_s: float = 0.0
    doubtful_time_s: float = 0.0

    @property
    def measured_ratio(self) -> float:
        return self.measured_time_s / self.time_s if self.time_s else 0.0

    @property
    def doubtful_ratio(self) -> float:
        return self.doubtful_time_s / self.time_s if self.time_s else 0.0


def total(costs: Iterable[CoveredCost]) -> CoveredCost:
    costs = list(costs)
    return CoveredCost(
        time_s=sum(cost.time_s for cost in costs),
        energy_j=total_if_known(cost.energy_j for cost in costs),
        measured_time_s=sum(cost.measured_time_s for cost in costs),
        doubtful_time_s=sum(cost.doubtful_time_s for cost in costs),
    )


Costs: TypeAlias = Mapping[str, CoveredCost]
"""A model's costs by the operator's short name, as in whitelists."""


@dataclass(frozen=True)
class CoveredShare:
    """Shares of a model's time and energy; the share of energy is None if an energy is unknown."""

    time_ratio: float
    energy_ratio: float | None

    def reaches(self, target_ratio: float) -> bool:
        least = min(self.time_ratio, self.time_ratio if self.energy_ratio is None else self.energy_ratio)
        return least >= target_ratio - ROUNDING

    @property
    def larger(self) -> float:
        return max(self.time_ratio, self.energy_ratio or 0.0)


@dataclass(frozen=True)
class Addition:
    """An operator that is missing from a whitelist, with its shares of a model."""

    operator: str
    share: CoveredShare


def costs_of(cost: ModelCost, predictor: CostModel) -> Costs | None:
    """Return the cost of each operator in a model, measured or else predicted; None if the time of one is unknown."""
    found: list[tuple[str, CoveredCost]] = []
    for part in cost.parts:
        _, predicted_j = predictor.cost(part.count, part.occurrences)
        energy_j = predicted_j if part.energy_j is None else part.energy_j
        doubtful_s = part.time_s if is_doubtful(part.row) else 0.0
        found.append((part.case.operator.short_name, CoveredCost(part.time_s, energy_j, part.time_s, doubtful_s)))
    for count in cost.missing:
        time_s, energy_j = predictor.cost(count, count.occurrences)
        if time_s is None:
            return None
        found.append((count.operator.short_name, CoveredCost(time_s, energy_j)))
    return {name: total(cost for _, cost in own) for name, own in grouped(found, lambda one: one[0]).items()}


def share_of(costs: Costs, names: Collection[str]) -> CoveredShare:
    chosen, whole = total(cost for name, cost in costs.items() if name in names), total(costs.values())
    return CoveredShare(
        time_ratio=chosen.time_s / whole.time_s if whole.time_s else 1.0,
        energy_ratio=ratio_if_known(chosen.energy_j, whole.energy_j),
    )


def missing_operators(costs: Costs, whitelist: Collection[str]) -> list[Addition]:
    """Return the operators that are missing from a whitelist, in descending order of their shares."""
    others = [Addition(name, share_of(costs, [name])) for name in costs if name not in whitelist]
    return sorted(others, key=lambda addition: (-addition.share.larger, addition.operator))


def to_add(costs: Costs, whitelist: Collection[str], target_ratio: float) -> list[Addition]:
    """Return the operators to add to a whitelist to reach a target, in descending order of their shares."""
    missing = missing_operators(costs, whitelist)
    for number in range(len(missing)):
        if share_of(costs, {*whitelist, *(one.operator for one in missing[:number])}).reaches(target_ratio):
            return missing[:number]
    return missing


def over_all(models: Sequence[Costs], whitelist: Collection[str]) -> list[Addition]:
    """Return the operators that are missing from a whitelist, in descending order of mean shares over models.

    Models without the operator count as 0. Shares of energy are means over the models with energies.
    """
    missing = (addition for costs in models for addition in missing_operators(costs, whitelist))
    additions = grouped(missing, lambda addition: addition.operator)
    with_energy = sum(share_of(costs, costs).energy_ratio is not None for costs in models)
    means = []
    for name, own in additions.items():
        shares = [addition.share for addition in own]
        energies = [share.energy_ratio for share in shares if share.energy_ratio is not None]
        time_ratio = sum(share.time_ratio for share in shares) / len(models)
        means.append(Addition(name, CoveredShare(time_ratio, sum(energies) / with_energy if with_energy else None)))
    return sorted(means, key=lambda addition: (-addition.share.larger, addition.operator))


def smallest_whitelist(models: Sequence[Costs], target_ratio: float, cover: Cover) -> tuple[str, ...]:
    """Return the fewest names that reach a target in time and energy in each model, the most expensive first."""
    names = sorted({name for costs in models for name in costs})
    shares = [[share_of(costs, [name]) for name in names] for costs in models]
    times = [[share.time_ratio for share in row] for row in shares]
    energies = [[share.energy_ratio or 0.0 for share in row] for row in shares if row[0].energy_ratio is not None]
    chosen = cover(np.array([*times, *energies]), target_ratio)
    mean_ratios = np.mean(times, axis=0)
    return tuple(names[index] for index in sorted(chosen, key=lambda index: (-mean_ratios[index], names[index])))
