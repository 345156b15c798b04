"""Learned costs of operators, with the deviations that are expected of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opcost.estimates import FloatArray
from opcost.operators.counts import OperatorCount
from opcost.operators.values import InputData
from opcost.prediction.features import RAW, Card, features, is_small, kind_of, raw_features
from opcost.prediction.fitted import Flags, Forest, Smooth, places_of
from opcost.prediction.intervals import (
    SMALL_CALLS_ERROR,
    TOO_FEW,
    Deviations,
    Surroundings,
    class_of,
    groups_of,
    sum_deviation,
)
from opcost.prediction.samples import Boards

ENOUGH_OF_A_KIND = 8
"""The fewest samples of a kind for a function of its own."""

TIME, POWER, ENERGY = "time", "power", "energy"
TARGETS = (TIME, POWER)


@dataclass(frozen=True)
class Function:
    """A function of calls: the mean of a forest of all kinds and, where a kind has enough samples, a smooth function.

    ``levels`` has the median target of each kind, which is the forest's last feature.
    """

    forest: Forest
    smooth: Mapping[str, Smooth]
    levels: Mapping[str, float]

    def predict(self, table_features: FloatArray, kinds: Sequence[str]) -> FloatArray:
        """Return the value for each call, shape (calls,)."""
        usual = float(np.median(list(self.levels.values())))
        found = self.forest.predict(np.column_stack([table_features, [self.levels.get(kind, usual) for kind in kinds]]))
        for kind, places in places_of(kinds).items():
            if kind in self.smooth:
                found[places] = (found[places] + self.smooth[kind].predict(table_features[places])) / 2
        return found


@dataclass(frozen=True)
class CallCosts:
    """Predicted costs of one call each: time in s, energy in J (NaN if unknown) on a mean board, and deviations.

    Deviations are of the logarithm; those of energy are NaN if it is unknown. ``is_outside`` says whether a call is
    further from all samples than they are from each other, or of a kind without samples (``is_new``). ``is_small`` says
    whether it leaves multiprocessors without work. ``groups`` are those whose errors have the same sign.
    """

    groups: tuple[str, ...]
    times_s: FloatArray
    energies_j: FloatArray
    time_deviations: FloatArray
    energy_deviations: FloatArray
    is_outside: Flags
    is_new: Flags
    is_small: Flags


@dataclass(frozen=True)
class LearnedCosts:
    """Learned costs of operators under one set of conditions.

    ``functions`` predict the logarithm of time over the time that the card's rates give, and the logarithm of power.

    ``few`` are the surroundings of kinds with too few samples for a function of their own. ``deviations`` are those of
    time and of energy. ``sum_factors`` are the numbers of deviations within which nine tenths of the sums of held-out
    models are, none for a cost with too few families.
    """

    card: Card
    functions: Mapping[str, Function]
    surroundings: Mapping[str, Surroundings]
    few: Mapping[str, Surroundings]
    deviations: Mapping[str, Deviations]
    sum_factors: Mapping[str, float]
    boards: Boards
    samples: int

    def costs(self, calls: Sequence[tuple[OperatorCount, InputData]]) -> CallCosts:
        """Return the costs of one call each."""
        raw = np.array([raw_features(count, data) for count, data in calls], dtype=float)
        return self._costs(raw, tuple(kind_of(count) for count, _ in calls))

    def try_all(self) -> None:
        """Predict a call of each kind, which uses each array.

        Raises:
            ArithmeticError, AttributeError, LookupError, TypeError, ValueError: an array or value is not of its form.
        """
        kinds = (*self.surroundings, *self.few, *(kind for one in self.functions.values() for kind in one.smooth), "")
        with np.errstate(all="ignore"):
            self._costs(np.ones((len(kinds), len(RAW))), kinds)

    def _costs(self, raw: FloatArray, kinds: tuple[str, ...]) -> CallCosts:
        found, base = features(raw, self.card, kinds)
        distances, is_outside = distances_to(self.surroundings, self.few, found, kinds)
        is_new, small = np.isnan(distances), is_small(raw, self.card)
        classes, unknown = list(map(class_of, kinds, small)), np.full(len(kinds), np.nan)
        times_s = np.exp(base + self.functions[TIME].predict(found, kinds))
        powers = self.functions.get(POWER)
        deviations = {cost: one.deviations(classes, distances, is_outside) for cost, one in self.deviations.items()}
        return CallCosts(
            groups=groups_of(kinds, is_outside & ~is_new),
            times_s=times_s,
            energies_j=unknown if powers is None else times_s * np.exp(powers.predict(found, kinds)),
            time_deviations=deviations.get(TIME, unknown),
            energy_deviations=deviations.get(ENERGY, unknown),
            is_outside=is_outside,
            is_new=is_new,
            is_small=small,
        )

    def half_width(
        self, cost: str, groups: Sequence[str], costs: FloatArray, deviations: FloatArray, is_small: Flags
    ) -> float:
        """Return half the width of the interval of a sum of predicted calls in their unit, NaN if it is unknown.

        The factor is at least that of calls: few families show that of sums, and errors of one kind do not cancel.
        """
        factor = max(self.sum_factors.get(cost, 0.0), self.deviations[cost].factor)
        own = factor * sum_deviation(groups, costs, deviations)
        return math.hypot(own, SMALL_CALLS_ERROR * float(np.sum(costs[is_small])))


def distances_to(
    surroundings: Mapping[str, Surroundings],
    few: Mapping[str, Surroundings],
    table_features: FloatArray,
    kinds: Sequence[str],
) -> tuple[FloatArray, Flags]:
    """Return the distance of each call to the nearest sample of its kind, and whether it is outside of these.

    The distance is ``TOO_FEW`` if there are too few of the kind, NaN if there are none.
    """
    distances, is_outside = np.full(len(kinds), np.nan), np.ones(len(kinds), dtype=bool)
    for kind, places in places_of(kinds).items():
        around = surroundings.get(kind) or few.get(kind)
        if around is not None:
            own = around.distances(table_features[places])
            distances[places] = own if kind in surroundings else TOO_FEW
            is_outside[places] = own > around.outside_from
    return distances, is_outside
