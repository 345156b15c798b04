"""Learned costs of operators, with the deviations that are expected of them, and their training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opcost.estimates import FloatArray
from opcost.operators.counts import OperatorCount
from opcost.operators.values import NORMAL_DATA, InputData
from opcost.prediction.features import Card, features, kind_of, raw_features
from opcost.prediction.fitted import Learner, Scaling
from opcost.prediction.groups import Fold, family_folds, places_of, shape_folds
from opcost.prediction.intervals import TOO_FEW, Deviations, Surroundings
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
from opcost.prediction.sum_errors import HeldOutSums, ModelCalls

FAMILY_FOLDS, SHAPE_FOLDS = 6, 4
"""Folds over families of models choose the methods. Folds over shapes are added for the deviations, since some
predictions are of sizes between those of samples."""

ENERGY = "energy"


@dataclass(frozen=True)
class CallCosts:
    """Predicted costs of one call each: time in s, energy in J (NaN if unknown) on a mean board, and deviations.

    Deviations are of the logarithm, NaN if unknown. ``is_outside`` says whether a call is further from all samples than
    they are from each other, or of a kind without samples.
    """

    kinds: tuple[str, ...]
    times_s: FloatArray
    energies_j: FloatArray
    time_deviations: FloatArray
    energy_deviations: FloatArray
    is_outside: FloatArray


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
        """Return the predicted costs of calls of operators that compute something."""
        kinds = tuple(kind_of(count) for count, _ in calls)
        raw = np.array([raw_features(count, data) for count, data in calls], dtype=float)
        found, base = features(raw, self.card, kinds)
        distances, is_outside = self._distances(found, kinds)
        times_s = np.exp(base + self.functions[TIME].predict(found, kinds))
        powers = self.functions.get(POWER)
        energies_j = times_s * (np.full(len(kinds), np.nan) if powers is None else np.exp(powers.predict(found, kinds)))
        time, energy = (
            self.deviations[target].deviations(kinds, distances)
            if target in self.deviations
            else np.full(len(kinds), np.nan)
            for target in (TIME, ENERGY)
        )
        return CallCosts(kinds, times_s, energies_j, time, energy, is_outside)

    def cost(self, count: OperatorCount, calls: int) -> tuple[float | None, float | None]:
        """Return time in s and energy in J of a number of calls; both None if the operator's FLOPs are unknown."""
        if count.flop is None:
            return None, None
        found = self.costs([(count, NORMAL_DATA)])
        energy_j = float(found.energies_j[0])
        return calls * float(found.times_s[0]), None if math.isnan(energy_j) else calls * energy_j

    def _distances(self, found: FloatArray, kinds: Sequence[str]) -> tuple[FloatArray, FloatArray]:
        distances, is_outside = np.full(len(kinds), np.nan), np.ones(len(kinds))
        for kind, places in places_of(kinds).items():
            around = self.surroundings.get(kind)
            if around is not None:
                distances[places] = around.distances(found[places])
                is_outside[places] = distances[places] > around.outside_from
            elif kind in self.few:
                distances[places] = TOO_FEW
                is_outside[places] = self.few[kind].distances(found[places]) > self.few[kind].outside_from
        return distances, is_outside


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
    held_out = [
        (errors.of(by_family), distances_in(table, families)),
        (
            errors.of({target: training.predictions(target, shapes, choices) for target in targets}),
            distances_in(table, shapes),
        ),
    ]
    deviations = {
        cost: Deviations.of(
            [*table.kinds, *table.kinds],
            np.concatenate([distances for _, distances in held_out]),
            np.concatenate([found[cost] for found, _ in held_out]),
        )
        for cost in held_out[0][0]
    }
    of_families, distances = held_out[0]
    factors = {
        cost: HeldOutSums(
            table.kinds,
            samples.times_s if cost == TIME else samples.energies_j,
            of_families[cost],
            one.deviations(table.kinds, distances),
        ).factor(models)
        for cost, one in deviations.items()
    }
    return LearnedCosts(
        card=card,
        functions={target: training.functions(target, choices) for target in targets},
        surroundings={
            kind: Surroundings.of(table.features[places])
            for kind, places in places_of(table.kinds).items()
            if len(places) >= ENOUGH_OF_A_KIND
        },
        few={
            kind: Surroundings.of_few(table.features[places], Scaling.of(table.features))
            for kind, places in places_of(table.kinds).items()
            if len(places) < ENOUGH_OF_A_KIND
        },
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


def distances_in(table: Table, folds: Iterable[Fold]) -> FloatArray:
    """Return the distance of each sample to the nearest one of its kind in the other folds.

    It is ``TOO_FEW`` if these have too few of the kind, NaN if they have none.
    """
    found = np.full(len(table.kinds), np.nan)
    for learned, predicted in folds:
        of_learned = places_of([table.kinds[place] for place in learned])
        for kind, places in places_of([table.kinds[place] for place in predicted]).items():
            own = learned[of_learned.get(kind, [])]
            if len(own) >= ENOUGH_OF_A_KIND:
                around = Surroundings.of(table.features[own])
                found[predicted[places]] = around.distances(table.features[predicted[places]])
            elif len(own):
                found[predicted[places]] = TOO_FEW
    return found
