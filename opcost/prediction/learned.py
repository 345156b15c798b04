"""Learned predictors: for each kind of operator the method that predicts the operators of unseen models best.

Targets are the logarithm of time over the time that the card's rates give, and the logarithm of power. A method
is chosen by cross-validation over families of models, not over rows: models of one family share most sizes, so that a
row's neighbours would give its cost away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np

from opcost.estimates import FloatArray
from opcost.prediction.features import Card, features
from opcost.prediction.fitted import Fitted, IntArray, Learner, Mean
from opcost.prediction.groups import Fold, places_of
from opcost.prediction.samples import Samples

ENOUGH_OF_A_KIND = 8
"""The fewest samples of a kind for a function of its own."""

TIME, POWER = TARGETS = ("time", "power")

Choices: TypeAlias = Mapping[tuple[str, str], tuple[str, ...]]
"""The names of the methods by target and kind; several mean the mean of their functions."""


@dataclass(frozen=True)
class Table:
    """The features and targets of samples."""

    features: FloatArray
    kinds: tuple[str, ...]
    base: FloatArray
    targets: Mapping[str, FloatArray]

    @staticmethod
    def of(samples: Samples, card: Card) -> Table:
        """Return the table of samples; powers are NaN if energies are unknown."""
        found, base = features(samples.raw, card, samples.kinds)
        targets = {
            TIME: np.log(samples.times_s) - base,
            POWER: np.log(samples.energies_j / samples.times_s),
        }
        return Table(found, samples.kinds, base, targets)


@dataclass(frozen=True)
class KindFunctions:
    """The functions of a target: those of kinds, and one of all kinds together.

    ``levels`` has the median target of each kind, which is a feature of the common function.
    """

    of_kind: Mapping[str, Fitted]
    common: Fitted
    levels: Mapping[str, float]

    def predict(self, table_features: FloatArray, kinds: Sequence[str]) -> FloatArray:
        """Return the value for each call."""
        found = np.empty(len(kinds))
        for kind, places in places_of(kinds).items():
            function = self.of_kind.get(kind, self.common)
            found[places] = function.predict(with_level(table_features[places], self.level(kind)))
        return found

    def level(self, kind: str) -> float:
        """Return the median target of a kind, the median of all kinds if it is unknown."""
        return self.levels.get(kind, float(np.median(list(self.levels.values()))))


@dataclass(frozen=True)
class Training:
    """Samples with their features, the methods, and the tuned method of each target and kind.

    Methods that fit one function to all kinds are among ``tuned`` for each kind, too, as they are.
    """

    table: Table
    methods: Sequence[Learner]
    tuned: Mapping[tuple[str, str, str], Learner]

    @staticmethod
    def of(table: Table, methods: Sequence[Learner]) -> Training:
        """Return the training with each method tuned to all samples of a kind."""
        tuned = {}
        for target in TARGETS:
            for kind, places in places_of(table.kinds).items():
                known = places[np.isfinite(table.targets[target][places])]
                for method in methods:
                    if not method.is_common and len(known) >= ENOUGH_OF_A_KIND:
                        own = with_level(table.features[known], 0.0)
                        tuned[target, kind, method.name] = method.tuned(own, table.targets[target][known])
        return Training(table, methods, tuned)

    def predictions(self, target: str, folds: Sequence[Fold], choices: Choices | None = None) -> dict[str, FloatArray]:
        """Return each method's prediction of each sample from the other folds; NaN where it has too few samples.

        Args:
            target: one of ``TARGETS``.
            folds: of all samples.
            choices: the methods that are wanted, as they are for errors; None for all, as they predict.
        """
        found = {method.name: np.full(len(self.table.kinds), np.nan) for method in self.methods}
        for learned, predicted in folds:
            known = learned[np.isfinite(self.table.targets[target][learned])]
            for method in self.methods if choices is None else [method.for_errors() for method in self.methods]:
                wanted = (
                    None
                    if choices is None
                    else {kind for (of, kind), names in choices.items() if of == target and method.name in names}
                )
                predict = self._by_common if method.is_common else self._by_kind
                found[method.name][predicted] = predict(method, target, (known, predicted), wanted)
        return found

    def _by_common(self, method: Learner, target: str, fold: Fold, _: Collection[str] | None) -> FloatArray:
        """Return the predictions by one function of all kinds. It also stands in where others have too few samples."""
        known, predicted = fold
        levels = self._levels(target, known)
        common = KindFunctions({}, self._common(method, target, known, levels), levels)
        return common.predict(self.table.features[predicted], self._kinds(predicted))

    def _by_kind(self, method: Learner, target: str, fold: Fold, wanted: Collection[str] | None) -> FloatArray:
        """Return the predictions of the wanted kinds by a function for each."""
        known, predicted = fold
        found = np.full(len(predicted), np.nan)
        of_known = places_of(self._kinds(known))
        for kind, places in places_of(self._kinds(predicted)).items():
            own = known[of_known.get(kind, [])]
            is_wanted = (target, kind, method.name) in self.tuned and (wanted is None or kind in wanted)
            if is_wanted and len(own) >= ENOUGH_OF_A_KIND:
                function = self._own(method, target, kind, own)
                found[places] = function.predict(with_level(self.table.features[predicted[places]], 0.0))
        return found

    def functions(self, target: str, choices: Choices) -> KindFunctions:
        """Return the chosen methods' functions, fitted to all samples."""
        known = np.flatnonzero(np.isfinite(self.table.targets[target]))
        levels = self._levels(target, known)
        by_name = {method.name: method for method in self.methods}
        common_method = next(method for method in self.methods if method.is_common)
        common = self._common(common_method, target, known, levels)
        of_kind: dict[str, Fitted] = {}
        for kind, places in places_of(self._kinds(known)).items():
            chosen = choices.get((target, kind), (common_method.name,))
            own = [by_name[name] for name in chosen if not by_name[name].is_common]
            parts = [self._own(method, target, kind, known[places]) for method in own]
            if parts:
                parts += [common] * (len(chosen) - len(own))
                of_kind[kind] = parts[0] if len(parts) == 1 else Mean(tuple(parts))
        return KindFunctions(of_kind, common, levels)

    def _own(self, method: Learner, target: str, kind: str, places: IntArray) -> Fitted:
        tuned = self.tuned.get((target, kind, method.name), method)
        return tuned.fit(with_level(self.table.features[places], 0.0), self.table.targets[target][places])

    def _common(self, method: Learner, target: str, known: IntArray, levels: Mapping[str, float]) -> Fitted:
        own_levels = np.array([levels[kind] for kind in self._kinds(known)])
        return method.fit(np.column_stack([self.table.features[known], own_levels]), self.table.targets[target][known])

    def _levels(self, target: str, known: IntArray) -> dict[str, float]:
        targets = self.table.targets[target][known]
        return {kind: float(np.median(targets[places])) for kind, places in places_of(self._kinds(known)).items()}

    def _kinds(self, places: IntArray) -> tuple[str, ...]:
        return tuple(self.table.kinds[place] for place in places)


def chosen_methods(training: Training, predictions: Mapping[str, Mapping[str, FloatArray]]) -> Choices:
    """Return for each target and kind the method, or the pair of methods, with the smallest mean error.

    Args:
        training: with the samples.
        predictions: of each target by each method, from folds.
    """
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for target, by_method in predictions.items():
        names = list(by_method)
        candidates = [*((name,) for name in names), *combinations(names, 2)]
        for kind, places in places_of(training.table.kinds).items():
            errors = {
                names: np.abs(blended(by_method, names)[places] - training.table.targets[target][places])
                for names in candidates
            }
            means = {names: float(np.nanmean(one)) for names, one in errors.items() if np.isfinite(one).any()}
            # A method that could not predict some samples is not compared on the others.
            most = max((np.isfinite(errors[names]).sum() for names in means), default=0)
            means = {names: mean for names, mean in means.items() if np.isfinite(errors[names]).sum() == most}
            if means:
                found[target, kind] = min(means, key=means.__getitem__)
    return found


def blended(by_method: Mapping[str, FloatArray], names: Sequence[str]) -> FloatArray:
    """Return the mean of some methods' predictions."""
    mean: FloatArray = np.mean([by_method[name] for name in names], axis=0)
    return mean


def chosen_predictions(
    training: Training, target: str, by_method: Mapping[str, FloatArray], choices: Choices
) -> FloatArray:
    """Return the prediction of each sample by the method that is chosen for its kind."""
    common = next(method.name for method in training.methods if method.is_common)
    found = np.array(by_method[common])
    for kind, places in places_of(training.table.kinds).items():
        predicted = blended(by_method, choices.get((target, kind), (common,)))[places]
        found[places] = np.where(np.isfinite(predicted), predicted, found[places])
    return found


def with_level(table_features: FloatArray, level: float) -> FloatArray:
    """Return features with the level of a kind as the last one."""
    return np.column_stack([table_features, np.full(len(table_features), level)])
