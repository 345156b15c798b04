"""The port of predictors, their training data, and their accuracy on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from opcost.estimates import value_of
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import does_other_work
from opcost.operators.counts import OperatorCount
from opcost.summing.energy import EnergyBasis
from opcost.summing.index import Measurements


@dataclass(frozen=True)
class KnownCost:
    """The cost of one call of a measured operator, in s and J; the energy is None if unknown."""

    count: OperatorCount
    time_s: float
    energy_j: float | None


class Predictor(Protocol):
    """Predicts the cost of operators that were not measured."""

    def cost(self, count: OperatorCount, calls: int) -> tuple[float | None, float | None]:
        """Return time in s and energy in J of a number of calls of an operator; each is None if unknown."""


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
        for count in {count.operator: count for count in counts}.values()
        for row in measurements.under(count.operator, conditions)
        if count.computes and count.flop is not None and not does_other_work(row.measurement)
    ]


def quartiles(predictor: Predictor, known: Sequence[KnownCost]) -> tuple[float, float, float]:
    """Return the quartiles of predicted over measured time."""
    predicted = [(predictor.cost(one.count, 1)[0], one.time_s) for one in known]
    ratios = [predicted_s / time_s for predicted_s, time_s in predicted if predicted_s is not None]
    lower, middle, upper = map(float, np.quantile(ratios, (0.25, 0.5, 0.75)))
    return lower, middle, upper
