"""Learned costs of operators, with the deviations that are expected of them, and their training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from opcost.estimates import FloatArray
from opcost.operators.counts import OperatorCount
from opcost.operators.values import NORMAL_DATA, InputData
from opcost.prediction.features import RAW, Card, features, is_small, kind_of, raw_features
from opcost.prediction.fitted import Learner, Scaling
from opcost.prediction.groups import Fold, family_folds, kind_folds, places_of, shape_folds
from opcost.prediction.intervals import TOO_FEW, Deviations, HeldOut, Surroundings, class_of
from opcost.prediction.learned import (
    ENOUGH_OF_A_KIND,
    POWER,
    TARGETS,
    TIME,
    Choices,
    KindFunctions,
    Table,
    Training,
    chosen_methods,
    chosen_predictions,
)
from opcost.prediction.samples import Boards, Samples, card_of
from opcost.prediction.sum_errors import SMALL_CALLS_ERROR, HeldOutSums, ModelCalls, groups_of, sum_deviation

FAMILY_FOLDS, SHAPE_FOLDS, KIND_FOLDS = 6, 4, 4
"""Folds over families of models choose the methods. Folds over shapes are added for the deviations, since some
predictions are of sizes between those of samples, and folds over kinds, since some are of kinds without samples."""

ENERGY = "energy"

Flags: TypeAlias = npt.NDArray[np.bool_]


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
    """Learned costs of operators under one set of conditions. They implement the port ``Predictor``.

    ``few`` are the surroundings of kinds with too few samples for a function of their own. ``deviations`` are those of
    time and of energy. ``sum_factors`` are the numbers of deviations within which nine tenths of the sums of held-out
    models are, none for a cost with too few families. ``methods`` names what was chosen for each target and
    kind.
    """

    card: Card
    functions: Mapping[str, KindFunctions]
    surroundings: Mapping[str, Surroundings]
    few: Mapping[str, Surroundings]
    deviations: Mapping[str, Deviations]
    sum_factors: Mapping[str, float]
    boards: Boards
    methods: Choices
    samples: int

    def costs(self, calls: Sequence[tuple[OperatorCount, InputData]]) -> CallCosts:
        kinds = tuple(kind_of(count) for count, _ in calls)
        raw = np.array([raw_features(count, data) for count, data in calls], dtype=float)
        return self._costs(raw, kinds)

    def try_all(self) -> None:
        """Predict a call of each kind, which uses each array.

        Raises:
            ArithmeticError, AttributeError, LookupError, TypeError, ValueError: an array or value is not of its form.
        """
        kinds = (*self.surroundings, *self.few, *(kind for one in self.functions.values() for kind in one.of_kind), "")
        with np.errstate(all="ignore"):
            self._costs(np.ones((len(kinds), len(RAW))), kinds)

    def _costs(self, raw: FloatArray, kinds: tuple[str, ...]) -> CallCosts:
        found, base = features(raw, self.card, kinds)
        distances, is_outside = distances_to(self.surroundings, self.few, found, kinds)
        times_s = np.exp(base + self.functions[TIME].predict(found, kinds))
        powers = self.functions.get(POWER)
        energies_j = times_s * (np.full(len(kinds), np.nan) if powers is None else np.exp(powers.predict(found, kinds)))
        small = is_small(raw, self.card)
        classes = list(map(class_of, kinds, small))
        time, energy = (
            self.deviations[target].deviations(classes, distances, is_outside)
            if target in self.deviations
            else np.full(len(kinds), np.nan)
            for target in (TIME, ENERGY)
        )
        is_new = np.isnan(distances)
        groups = groups_of(kinds, is_outside & ~is_new)
        return CallCosts(groups, times_s, energies_j, time, energy, is_outside, is_new, small)

    def half_width(
        self, cost: str, groups: Sequence[str], costs: FloatArray, deviations: FloatArray, is_small: Flags
    ) -> float:
        """Return half the width of the interval of a sum of predicted calls in their unit, NaN if it is unknown.

        The factor is at least that of calls: few families show that of sums, and errors of one kind do not cancel.
        """
        factor = max(self.sum_factors.get(cost, 0.0), self.deviations[cost].factor)
        own = factor * sum_deviation(groups, costs, deviations)
        return math.hypot(own, SMALL_CALLS_ERROR * float(np.sum(costs[is_small])))

    def cost(self, count: OperatorCount, calls: int) -> tuple[float | None, float | None]:
        """Return time in s and energy in J of a number of calls; both None if the operator's FLOPs are unknown."""
        if count.flop is None:
            return None, None
        found = self.costs([(count, NORMAL_DATA)])
        energy_j = float(found.energies_j[0])
        return calls * float(found.times_s[0]), None if math.isnan(energy_j) else calls * energy_j


def learned_costs(
    samples: Samples, models: Sequence[ModelCalls], methods: Sequence[Learner], multiprocessors: int
) -> LearnedCosts:
    """Return the costs that samples teach.

    Args:
        samples: of one set of conditions.
        models: whole models of these samples, for the errors of sums.
        methods: to choose from; one fits all kinds together.
        multiprocessors: of the card.
    """
    card = card_of(samples, multiprocessors)
    table = Table.of(samples, card)
    targets = [target for target in TARGETS if np.isfinite(table.targets[target]).any()]
    training = Training.of(table, methods)
    families, shapes = family_folds(samples, FAMILY_FOLDS), shape_folds(samples, SHAPE_FOLDS)
    by_family = {target: training.predictions(target, families) for target in targets}
    choices = chosen_methods(training, by_family)
    errors = _Errors(training, choices, targets)
    classes = list(map(class_of, table.kinds, is_small(samples.raw, card)))
    nearness, of_families = nearness_in(table, families), errors.of(by_family)
    held_out = [(nearness, of_families)]
    for folds in (shapes, kind_folds(samples, KIND_FOLDS)):
        found = errors.of({target: training.predictions(target, folds, choices) for target in targets})
        held_out.append((nearness_in(table, folds), found))
    deviations = {
        cost: Deviations.of(HeldOut.joined([HeldOut(classes, *near, found[cost]) for near, found in held_out]))
        for cost in of_families
    }
    distances, is_outside = nearness
    groups = groups_of(table.kinds, is_outside & ~np.isnan(distances))
    factors = {
        cost: HeldOutSums(
            groups,
            samples.times_s if cost == TIME else samples.energies_j,
            of_families[cost],
            one.deviations(classes, *nearness),
        ).factor(models)
        for cost, one in deviations.items()
    }
    surroundings, few = surroundings_of(table.features, table.kinds)
    return LearnedCosts(
        card=card,
        functions={target: training.functions(target, choices) for target in targets},
        surroundings=surroundings,
        few=few,
        deviations=deviations,
        sum_factors={cost: factor for cost, factor in factors.items() if factor is not None},
        boards=samples.boards,
        methods=choices,
        samples=len(samples),
    )


@dataclass(frozen=True)
class _Errors:
    """The errors of held-out samples by the chosen methods."""

    training: Training
    choices: Choices
    targets: Sequence[str]

    def of(self, predictions: Mapping[str, Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
        """Return predicted less measured logarithms of time and, if they are known, of energy."""
        of_target = {
            target: chosen_predictions(self.training, target, predictions[target], self.choices)
            - self.training.table.targets[target]
            for target in self.targets
        }
        time = of_target[TIME]
        return {TIME: time, ENERGY: time + of_target[POWER]} if POWER in of_target else {TIME: time}


def surroundings_of(
    table_features: FloatArray, kinds: Sequence[str]
) -> tuple[dict[str, Surroundings], dict[str, Surroundings]]:
    """Return the surroundings of kinds with enough samples for a function of their own, and of the others."""
    places_by_kind = places_of(kinds)
    is_enough = {kind: len(places) >= ENOUGH_OF_A_KIND for kind, places in places_by_kind.items()}
    scaling = Scaling.of(table_features)
    return (
        {kind: Surroundings.of(table_features[own]) for kind, own in places_by_kind.items() if is_enough[kind]},
        {
            kind: Surroundings.of_few(table_features[own], scaling)
            for kind, own in places_by_kind.items()
            if not is_enough[kind]
        },
    )


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


def nearness_in(table: Table, folds: Iterable[Fold]) -> tuple[FloatArray, Flags]:
    """Return what ``distances_to`` returns for each sample, to those of the other folds."""
    distances, is_outside = np.full(len(table.kinds), np.nan), np.ones(len(table.kinds), dtype=bool)
    for learned, predicted in folds:
        known = surroundings_of(table.features[learned], [table.kinds[place] for place in learned])
        kinds = [table.kinds[place] for place in predicted]
        distances[predicted], is_outside[predicted] = distances_to(*known, table.features[predicted], kinds)
    return distances, is_outside
