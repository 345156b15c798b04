"""A predictor of an operator's cost from its FLOPs and bytes.

Time and energy are each the sum of a cost per FLOP, per byte and per call, after Choi, Bedard, Fowler and Vuduc, "A
Roofline Model of Energy" (IPDPS 2013), without overlap of the three. A kind of operator with enough measurements has
its own rates. The predictions are accurate enough to distinguish large parts of a model from small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from types import MappingProxyType

import numpy as np

from opcost.columns import grouped
from opcost.estimates import FloatArray, value_of
from opcost.measuring.conditions import EAGER, GRAPH, Conditions
from opcost.measuring.record import does_other_work
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple
from opcost.summing.summation import EnergyBasis, Measurements

MINIMUM_KNOWN = 3
"""The fewest measured operators for a fit of three rates."""

MOSTLY_KNOWN_RATIO = 0.5
"""The smallest share of a model that must be measured before the rest is predicted.

A predicted cost is off by up to ``PREDICTED_ERROR_RATIOS``: of a sum that is predicted to more than a half, the error
is about as large as the sum.
"""

PREDICTED_ERROR_RATIOS: Mapping[str, float] = MappingProxyType({GRAPH: 1.2, EAGER: 4.2})
"""The error of the predicted cost of some operators of a model in each execution, as a share of it.

With all operators of one kind held out from all models, their cost in a model differs from the predicted cost by less
in 95 % of the cases: in graphs 1.18 in time and 0.99 in energy (98 kinds of the committed models, 2026-11-28),
eagerly 1.95 and 4.19 (12 models). ``benchmarks/claims_of_predictions.py`` recomputes them; a test compares.
"""

ENOUGH_OF_A_KIND = 12
"""The fewest measured operators for rates of a kind: four for each of three rates."""

ITERATIONS = 10
"""Iterations of a fit. After five, rates change by less than 0.1 % (1,366 operators of 16 models on an H200)."""

NEGLIGIBLE_RATIO = 1e-3
"""The smallest expected cost of an operator, as a share of its measured cost. It limits the operator's weight."""


@dataclass(frozen=True)
class KnownCost:
    """The cost of one call of a measured operator, in s and J; the energy is None if unknown."""

    count: OperatorCount
    time_s: float
    energy_j: float | None


@dataclass(frozen=True)
class Rates:
    """A cost per FLOP, per byte and per call, none below 0."""

    per_flop: float
    per_byte: float
    per_call: float

    def cost(self, flop: int, memory_bytes: int) -> float:
        """Return the cost of one call; 0 if it neither computes nor moves anything."""
        if not flop and not memory_bytes:
            return 0.0
        return flop * self.per_flop + memory_bytes * self.per_byte + self.per_call


@dataclass(frozen=True)
class CostModel:
    """Rates of time in s and energy in J, None if too few are known. ``of_kind`` has kinds that have their own."""

    time: Rates
    energy: Rates | None
    of_kind: Mapping[str, CostModel] = field(default_factory=dict)

    def cost(self, count: OperatorCount, calls: int) -> tuple[float | None, float | None]:
        """Return time in s and energy in J of a number of calls of an operator; both None if its FLOPs are unknown."""
        if count.flop is None:
            return None, None
        own = self.of_kind.get(kind_of(count.operator), self)
        time_s = calls * own.time.cost(count.flop, count.memory_bytes)
        return time_s, None if own.energy is None else calls * own.energy.cost(count.flop, count.memory_bytes)


def kind_of(operator: OperatorTuple) -> str:
    """Return the kind of an operator: its short name, with depthwise and grouped convolutions kept apart."""
    parameters = dict(operator.parameters)
    groups = parameters.get("groups", 1)
    if groups == 1:
        return operator.short_name
    return f"{operator.short_name}, {'depthwise' if groups == parameters.get('in_channels') else 'in groups'}"


def predictor_of(
    counts: Iterable[OperatorCount], measurements: Measurements, conditions: Conditions, basis: EnergyBasis
) -> CostModel | None:
    """Return rates fitted to those of these operators that are measured, None if these are too few."""
    known = known_costs(counts, measurements, conditions, basis)
    return fitted(known) if len(known) >= MINIMUM_KNOWN else None


def fitted(known: Sequence[KnownCost]) -> CostModel:
    """Return the rates that fit measured costs best if their scatter is proportional to the expected cost.

    The sum of predictions is then close to the sum of measured costs. Rates from differences relative to the measured
    costs are too low: half of all operators by more than 35 % in time and 68 % in energy.
    There must be at least ``MINIMUM_KNOWN`` operators of known FLOPs.
    """

    def alike(those: Sequence[KnownCost]) -> CostModel:
        sizes = [(one.count.flop or 0, one.count.memory_bytes) for one in those]
        times = rates_of([(size, one.time_s) for size, one in zip(sizes, those, strict=True)])
        energies = [(size, one.energy_j) for size, one in zip(sizes, those, strict=True) if one.energy_j is not None]
        return CostModel(times, rates_of(energies) if len(energies) >= MINIMUM_KNOWN else None)

    known = [one for one in known if one.count.flop is not None]
    kinds = grouped(known, lambda one: kind_of(one.count.operator))
    of_kind = {kind: alike(those) for kind, those in kinds.items() if len(those) >= ENOUGH_OF_A_KIND}
    return replace(alike(known), of_kind=of_kind)


def rates_of(known: Sequence[tuple[tuple[int, int], float]]) -> Rates:
    """Return the rates that fit costs of calls best, given FLOPs and bytes of each, by reweighted least squares.

    This fits a generalized linear model with a constant coefficient of variation and the identity as its link
    (McCullagh and Nelder, Generalized Linear Models, chapter 8).
    """
    factors = np.array([(flop, memory_bytes, 1.0) for (flop, memory_bytes), _ in known])
    costs = expected = np.array([cost for _, cost in known])
    for _ in range(ITERATIONS):
        rates = _not_negative_least_squares(factors / expected[:, np.newaxis], costs / expected)
        expected = np.maximum(factors @ rates, NEGLIGIBLE_RATIO * costs)
    return Rates(*map(float, rates))


def _not_negative_least_squares(factors: FloatArray, wanted: FloatArray) -> FloatArray:
    """Return non-negative least-squares coefficients: some are 0, the others plain ones. All choices are tried."""
    best, least = np.zeros(factors.shape[1]), float("inf")
    places = range(factors.shape[1])
    choices = [list(chosen) for number in places for chosen in combinations(places, number + 1)]
    for columns in reversed(choices):
        scale = np.linalg.norm(factors[:, columns], axis=0)
        # Columns are scaled because FLOPs and calls differ by many powers of ten.
        chosen = np.linalg.lstsq(factors[:, columns] / np.where(scale, scale, 1.0), wanted, rcond=None)[0]
        found = np.zeros(factors.shape[1])
        found[columns] = chosen / np.where(scale, scale, 1.0)
        squares = float(np.sum((factors @ found - wanted) ** 2))
        if (found > 0).all():
            return found
        if (found >= 0).all() and squares <= least:
            best, least = found, squares
    return best


def known_costs(
    counts: Iterable[OperatorCount],
    measurements: Measurements,
    conditions: Conditions,
    basis: EnergyBasis = EnergyBasis.MEASURED,
) -> list[KnownCost]:
    """Return the costs of operators of known FLOPs that compute something and were measured under these conditions.

    Every input data that an operator was measured on gives one cost. Rows of other work than was counted give none.
    """
    return [
        KnownCost(count, row.measurement.time_s, value_of(basis.energy_of(row)))
        for count in {(count.operator, count.phase): count for count in counts}.values()
        for row in measurements.under(count, conditions)
        if count.computes and count.flop is not None and not does_other_work(row.measurement)
    ]


def quartiles(predictor: CostModel, known: Sequence[KnownCost]) -> tuple[float, float, float]:
    predicted = [(predictor.cost(one.count, 1)[0], one.time_s) for one in known]
    ratios = [predicted_s / time_s for predicted_s, time_s in predicted if predicted_s is not None]
    lower, middle, upper = map(float, np.quantile(ratios, (0.25, 0.5, 0.75)))
    return lower, middle, upper
