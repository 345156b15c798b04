"""Training of learned costs, with the trees of scikit-learn.

Targets are the logarithm of time over the time that the card's rates give, and the logarithm of power. Errors are those
of samples that were held out by families of models, since models of one family share most sizes, so that a row's
neighbours would give its cost away; by shapes, since some predictions are of sizes between those of samples; and by
kinds, since some are of kinds without samples.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from sklearn import config_context
from sklearn.ensemble import ExtraTreesRegressor
from threadpoolctl import threadpool_limits

from opcost.estimates import FloatArray
from opcost.prediction.learned_costs import (
    ENERGY,
    ENOUGH_OF_A_KIND,
    OUTSIDE_FROM,
    POWER,
    TARGETS,
    TIME,
    Deviations,
    Flags,
    Forest,
    Function,
    HeldOut,
    IntArray,
    LearnedCosts,
    ModelCalls,
    Scaling,
    Smooth,
    Surroundings,
    class_of,
    distances_to,
    groups_of,
    places_of,
    sum_factor,
)
from opcost.prediction.samples import Card, Samples, card_of, features, is_small

TREES, TREES_FOR_ERRORS = 60, 30
"""Trees of a forest, and of those of which only the errors are wanted: half of the trees take half of the time, and
predict held-out samples with mean errors that are at most 2.5 % larger (``docs/log/prediction.md``)."""

FEATURE_RATIO = 0.5

THREADS = 1
"""Threads of linear algebra. The matrices are small: threads wait for each other longer than they calculate."""

FAMILY_FOLDS, SHAPE_FOLDS, KIND_FOLDS = 6, 4, 4

Fold: TypeAlias = tuple[IntArray, IntArray]
"""The places of samples to learn from, and of those to predict."""


def learned_from(
    samples: Samples, models: Sequence[ModelCalls], multiprocessors: int, trees: int = TREES
) -> LearnedCosts:
    """Return the costs that samples teach, the same in each call with the same arguments.

    Args:
        samples: of one set of conditions.
        models: whole models of these samples, for the errors of sums.
        multiprocessors: of the card.
        trees: of each forest; those for errors have at most ``TREES_FOR_ERRORS``.
    """
    # Features and targets are checked where samples are made, so scikit-learn need not check them in each fit.
    with threadpool_limits(THREADS), config_context(assume_finite=True, skip_parameter_validation=True):
        card = card_of(samples, multiprocessors)
        table = Table.of(samples, card)
        classes = list(map(class_of, table.kinds, is_small(samples.raw, card)))
        # Samples of no model are in the fold of their shape.
        families = [sorted(own) or [shape] for own, shape in zip(samples.families, samples.shapes, strict=True)]
        held_out = [
            (nearness_in(table, folds), table.errors(folds, min(trees, TREES_FOR_ERRORS)))
            for folds in (
                folds_of(families, FAMILY_FOLDS),
                folds_of([[shape] for shape in samples.shapes], SHAPE_FOLDS),
                folds_of([[kind] for kind in samples.kinds], KIND_FOLDS),
            )
        ]
        (distances, is_outside), of_families = held_out[0]
        groups = groups_of(table.kinds, is_outside & ~np.isnan(distances))
        costs = {TIME: samples.times_s, ENERGY: samples.energies_j}
        deviations, factors = {}, {}
        for cost, errors in of_families.items():
            parts = [HeldOut(classes, *near, found[cost]) for near, found in held_out]
            deviations[cost] = Deviations.of(HeldOut.joined(parts))
            expected = deviations[cost].deviations(classes, distances, is_outside)
            factors[cost] = sum_factor(groups, costs[cost], errors, expected, models)
        surroundings, few = surroundings_of(table.features, table.kinds)
        everything = np.arange(len(samples))
        return LearnedCosts(
            card=card,
            functions={target: table.function(target, everything, trees) for target in table.targets},
            surroundings=surroundings,
            few=few,
            deviations=deviations,
            sum_factors={cost: factor for cost, factor in factors.items() if factor is not None},
            boards=samples.boards,
            samples=len(samples),
        )


@dataclass(frozen=True)
class Table:
    """The features and targets of samples. Powers are NaN if energies are unknown, and no target if all are."""

    features: FloatArray
    kinds: tuple[str, ...]
    targets: Mapping[str, FloatArray]

    @staticmethod
    def of(samples: Samples, card: Card) -> Table:
        found, base = features(samples.raw, card, samples.kinds)
        values = np.log(samples.times_s) - base, np.log(samples.energies_j / samples.times_s)
        targets = {target: one for target, one in zip(TARGETS, values, strict=True) if np.isfinite(one).any()}
        return Table(found, samples.kinds, targets)

    def function(self, target: str, places: IntArray, trees: int) -> Function:
        """Return the function that samples teach, of which at least one has the target."""
        known = places[np.isfinite(self.targets[target][places])]
        own, values = self.features[known], self.targets[target][known]
        kinds = [self.kinds[place] for place in known]
        by_kind = places_of(kinds)
        levels = {kind: float(np.median(values[at])) for kind, at in by_kind.items()}
        smooth = {kind: Smooth.of(own[at], values[at]) for kind, at in by_kind.items() if len(at) >= ENOUGH_OF_A_KIND}
        return Function(grown(np.column_stack([own, [levels[kind] for kind in kinds]]), values, trees), smooth, levels)

    def errors(self, folds: Sequence[Fold], trees: int) -> dict[str, FloatArray]:
        """Return predicted less measured logarithms of time and, if any is known, of energy; NaN if unknown."""
        found = {target: np.full(len(self.kinds), np.nan) for target in self.targets}
        for learned, predicted in folds:
            for target, values in self.targets.items():
                if np.isfinite(values[learned]).any():
                    function = self.function(target, learned, trees)
                    kinds = [self.kinds[place] for place in predicted]
                    found[target][predicted] = function.predict(self.features[predicted], kinds) - values[predicted]
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
