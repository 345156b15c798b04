"""Training of learned costs, with the trees of scikit-learn.

Targets are the logarithm of time over the time that the card's rates give, and the logarithm of power. Errors are those
of samples that were held out by families of models, since models of one family share most sizes, so that a row's
neighbours would give its cost away; by shapes, since some predictions are of sizes between those of samples; by
kinds, since some are of kinds without samples; and by kinds under one set of conditions, since some have samples under
others only.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

import numpy as np
from sklearn import config_context
from sklearn.ensemble import ExtraTreesRegressor
from threadpoolctl import threadpool_limits

from opcost.columns import grouped
from opcost.estimates import FloatArray
from opcost.prediction.learned_costs import (
    ENERGY,
    ENOUGH_OF_A_KIND,
    OUTSIDE_FROM,
    POWER,
    TARGETS,
    TIME,
    UNDER,
    Deviations,
    Flags,
    Forest,
    Function,
    HeldOut,
    IntArray,
    LearnedCosts,
    Lesson,
    ModelCalls,
    Scaling,
    Smooth,
    Surroundings,
    class_of,
    distances_to,
    groups_of,
    places_of,
    sum_factor,
    sum_scores,
)
from opcost.prediction.samples import features, is_small

TREES, TREES_FOR_ERRORS = 40, 12
"""Trees of a forest, and of those of which only the errors are wanted, which take the largest part of the time
(``docs/log/prediction.md``)."""

FEATURE_RATIO = 0.5

THREADS = 1
"""Threads of linear algebra. The matrices are small: threads wait for each other longer than they calculate."""

FAMILY_FOLDS, SHAPE_FOLDS, KIND_FOLDS = 5, 3, 3

Fold: TypeAlias = tuple[IntArray, IntArray]
"""The places of samples to learn from, and of those to predict."""


def learned_from(lessons: Mapping[str, Lesson], trees: int = TREES) -> LearnedCosts:
    """Return the costs that samples teach, on the card with most of them; the same for the same arguments.

    Lessons are by the keys of their conditions. Forests for errors have at most ``TREES_FOR_ERRORS`` trees.
    """
    # Features and targets are checked where samples are made, so scikit-learn need not check them in each fit.
    with threadpool_limits(THREADS), config_context(assume_finite=True, skip_parameter_validation=True):
        table, everything = Table.of(lessons.values()), np.arange(sum(len(one.samples) for one in lessons.values()))
        tried = Trials.of(lessons, table, min(trees, TREES_FOR_ERRORS))
        deviations, sum_factors = tried.expected(everything, tried.models)
        surroundings, few = surroundings_of(table.features, table.kinds)
        key = max(lessons, key=lambda key: len(lessons[key].samples))
        return LearnedCosts(
            card=lessons[key].card,
            conditions=key,
            cards={key: one.card for key, one in lessons.items()},
            functions=table.functions(everything, trees),
            surroundings=surroundings,
            few=few,
            deviations=deviations,
            sum_factors=sum_factors,
            boards=lessons[key].samples.boards,
            samples=len(everything),
        )


@dataclass(frozen=True)
class Trial:
    """Predictions of held-out samples: distances to the others, whether they are outside, and errors by cost."""

    distances: FloatArray
    is_outside: Flags
    errors: Mapping[str, FloatArray]


@dataclass(frozen=True)
class Trials:
    """Trials with samples held out by families, by shapes, by kinds, and by kinds under one set of conditions.

    The last two are the same, and there once, under one set of conditions. ``costs`` are the measured ones of all
    samples. ``models`` have places among all samples.
    """

    classes: Sequence[str]
    costs: Mapping[str, FloatArray]
    models: Sequence[ModelCalls]
    kinds: Sequence[str]
    trials: Sequence[Trial]

    @staticmethod
    def of(lessons: Mapping[str, Lesson], table: Table, trees: int) -> Trials:
        parts = [one.samples for one in lessons.values()]
        small = np.concatenate([is_small(one.samples.raw, one.card) for one in lessons.values()])
        shapes = [[shape] for part in parts for shape in part.shapes]
        # Samples of no model are in the fold of their shape.
        families = [sorted(own) for part in parts for own in part.families]
        families = [own or shape for own, shape in zip(families, shapes, strict=True)]
        kinds = [[kind] for kind in table.kinds]
        keys = [key for key, one in lessons.items() for _ in one.samples.kinds]
        here = [[f"{kind} {key}"] for kind, key in zip(table.kinds, keys, strict=True)]
        groupings = [(families, FAMILY_FOLDS), (shapes, SHAPE_FOLDS), (kinds, KIND_FOLDS), (here, KIND_FOLDS)]
        all_folds = [folds_of(*one) for one in groupings[: None if len(lessons) > 1 else -1]]
        starts = np.cumsum([0, *map(len, parts)])
        return Trials(
            classes=list(map(class_of, table.kinds, small, keys)),
            costs={
                TIME: np.concatenate([part.times_s for part in parts]),
                ENERGY: np.concatenate([part.energies_j for part in parts]),
            },
            models=[
                replace(model, places=tuple(int(start) + place for place in model.places))
                for start, one in zip(starts, lessons.values(), strict=False)
                for model in one.models
            ],
            kinds=table.kinds,
            trials=[Trial(*nearness_in(table, folds), table.errors(folds, trees)) for folds in all_folds],
        )

    def expected(
        self, places: IntArray, models: Sequence[ModelCalls]
    ) -> tuple[dict[str, Deviations], dict[str, dict[str, float]]]:
        """Return the deviations that errors of some samples show, and the factors of sums that models of them show.

        Under conditions with too few families the factor is that of all, or the largest score if that is larger: all
        kinds may be off to one side there.
        """
        deviations, factors = {}, {}
        classes = [self.classes[place] for place in places]
        of_families = self.trials[0]
        for cost, errors in of_families.errors.items():
            parts = [
                HeldOut(classes, one.distances[places], one.is_outside[places], one.errors[cost][places])
                for one in self.trials
            ]
            deviations[cost] = Deviations.of(HeldOut.joined(parts))
            expected = deviations[cost].deviations(self.classes, of_families.distances, of_families.is_outside)
            scores = sum_scores(self.groups, self.costs[cost], errors, expected, models)
            factor = sum_factor([one.family for one in models], scores)
            if factor is None:
                continue
            factors[cost] = {"": factor}
            for key, own in places_of([self.classes[one.places[0]].rpartition(UNDER)[2] for one in models]).items():
                of_own = sum_factor([models[place].family for place in own], scores[own])
                factors[cost][key] = max(factor, np.nanmax(scores[own], initial=0.0)) if of_own is None else of_own
        return deviations, factors

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of samples whose errors had the same sign when families were held out."""
        one = self.trials[0]
        return groups_of(self.kinds, one.is_outside & ~np.isnan(one.distances))


@dataclass(frozen=True)
class Table:
    """The features and targets of samples. Powers are NaN if energies are unknown, and no target if all are."""

    features: FloatArray
    kinds: tuple[str, ...]
    targets: Mapping[str, FloatArray]

    @staticmethod
    def of(lessons: Iterable[Lesson]) -> Table:
        parts = []
        for one in lessons:
            samples = one.samples
            found, base = features(samples.raw, one.card, samples.kinds)
            power_ratios = samples.energies_j / samples.times_s / one.card.power_limit_w
            parts.append((found, samples.kinds, np.log(samples.times_s) - base, np.log(power_ratios)))
        all_features, kinds, *values = zip(*parts, strict=True)
        of_targets = zip(TARGETS, map(np.concatenate, values), strict=True)
        targets = {target: one for target, one in of_targets if np.isfinite(one).any()}
        return Table(np.vstack(all_features), tuple(chain.from_iterable(kinds)), targets)

    def functions(self, places: IntArray, trees: int) -> dict[str, Function]:
        """Return the function of each target that any of these samples has."""
        known = {target: places[np.isfinite(values[places])] for target, values in self.targets.items()}
        found = {}
        # Distances take the longest, so that targets with the same samples have theirs together.
        for targets in grouped(known, lambda target: known[target].tobytes()).values():
            samples = known[targets[0]]
            if not len(samples):
                continue
            own, kinds = self.features[samples], [self.kinds[place] for place in samples]
            values = np.column_stack([self.targets[target][samples] for target in targets])
            by_kind = places_of(kinds)
            enough = {kind: at for kind, at in by_kind.items() if len(at) >= ENOUGH_OF_A_KIND}
            smooth = {kind: Smooth.of_each(own[at], values[at]) for kind, at in enough.items()}
            for place, target in enumerate(targets):
                levels = {kind: float(np.median(values[at, place])) for kind, at in by_kind.items()}
                forest = grown(np.column_stack([own, [levels[kind] for kind in kinds]]), values[:, place], trees)
                found[target] = Function(forest, {kind: one[place] for kind, one in smooth.items()}, levels)
        return found

    def errors(self, folds: Sequence[Fold], trees: int) -> dict[str, FloatArray]:
        """Return predicted less measured logarithms of time and, if any is known, of energy; NaN if unknown."""
        found = {target: np.full(len(self.kinds), np.nan) for target in self.targets}
        for learned, predicted in folds:
            kinds = [self.kinds[place] for place in predicted]
            for target, function in self.functions(learned, trees).items():
                values = self.targets[target][predicted]
                found[target][predicted] = function.predict(self.features[predicted], kinds) - values
        return {TIME: found[TIME]} | ({ENERGY: found[TIME] + found[POWER]} if POWER in found else {})


def grown(table_features: FloatArray, targets: FloatArray, trees: int) -> Forest:
    """Return extremely randomised trees (Geurts, Ernst and Wehenkel, Machine Learning 63 (2006), 3-42)."""
    forest = ExtraTreesRegressor(trees, max_features=FEATURE_RATIO, random_state=0)
    grown_trees = [one.tree_ for one in forest.fit(table_features, targets).estimators_]
    starts = np.cumsum([0, *(tree.node_count for tree in grown_trees)])
    lower, upper = (
        np.concatenate(
            [
                # In scikit-learn, a leaf has the child -1. Here it is its own.
                np.where(child < 0, np.arange(len(child)), child) + start
                for child, start in zip(children, starts, strict=False)
            ]
        ).astype(np.int64)
        for children in ([one.children_left for one in grown_trees], [one.children_right for one in grown_trees])
    )
    return Forest(
        features=np.concatenate([np.maximum(tree.feature, 0) for tree in grown_trees]).astype(np.int64),
        thresholds=np.concatenate([tree.threshold for tree in grown_trees]),
        lower=lower,
        upper=upper,
        values=np.concatenate([tree.value[:, 0, 0] for tree in grown_trees]),
        roots=starts[:-1].astype(np.int64),
        depth=max(tree.max_depth for tree in grown_trees),
    )


def folds_of(groups: Sequence[Sequence[str]], number: int) -> list[Fold]:
    """Return folds of samples: no group is in both parts. Of a sample in several folds the last prediction counts."""
    sizes = Counter(group for own in groups for group in own)
    # The largest group first, each into the smallest fold; a hash orders groups of one size.
    totals, fold_of = [0] * number, {}
    for group in sorted(sizes, key=lambda group: (-sizes[group], zlib.crc32(group.encode()))):
        fold_of[group] = min(range(number), key=totals.__getitem__)
        totals[fold_of[group]] += sizes[group]
    found = []
    for fold in range(number):
        is_predicted = np.array([any(fold_of[group] == fold for group in own) for own in groups])
        if is_predicted.any() and not is_predicted.all():
            found.append((np.flatnonzero(~is_predicted), np.flatnonzero(is_predicted)))
    return found


def surroundings_of(
    table_features: FloatArray, kinds: Sequence[str]
) -> tuple[dict[str, Surroundings], dict[str, Surroundings]]:
    """Return the surroundings of kinds with enough samples for a function of their own, and of the others."""
    scaling = Scaling.of(table_features)
    enough: dict[str, Surroundings] = {}
    few: dict[str, Surroundings] = {}
    for kind, places in places_of(kinds).items():
        if len(places) >= ENOUGH_OF_A_KIND:
            enough[kind] = Surroundings.of(table_features[places])
        else:
            points = np.unique(scaling.scaled(table_features[places]), axis=0)
            few[kind] = Surroundings(scaling, points, OUTSIDE_FROM)
    return enough, few


def nearness_in(table: Table, folds: Iterable[Fold]) -> tuple[FloatArray, Flags]:
    """Return what ``distances_to`` returns for each sample, to those of the other folds."""
    distances, is_outside = np.full(len(table.kinds), np.nan), np.ones(len(table.kinds), dtype=bool)
    for learned, predicted in folds:
        known = surroundings_of(table.features[learned], [table.kinds[place] for place in learned])
        kinds = [table.kinds[place] for place in predicted]
        distances[predicted], is_outside[predicted] = distances_to(*known, table.features[predicted], kinds)
    return distances, is_outside
