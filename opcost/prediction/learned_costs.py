"""Learned costs of operators, with the deviations that are expected of them; also as bytes.

Intervals are conformal. Errors of held-out samples, each over the deviation that is expected of it, have a quantile; an
interval is that many deviations wide (Papadopoulos, Proedrou, Vovk and Gammerman, Inductive Confidence Machines for
Regression, ECML 2002; Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, JASA 113 (2018), 1094-1111). Errors are of
logarithms. The deviation grows with the distance to the nearest sample of the kind, so that sizes far from all samples
have wide intervals.

In sums, errors of one kind of operator have the same sign in a model, since one function predicts all; so have those of
calls outside of all samples, which lie in one direction from these. Others are independent. The interval of a sum is
conformal over held-out models: each model's error over its expected deviation is a score. Models of one family are
alike and no independent scores, so each family has the same weight, however many models it has (pooling: Dunn,
Wasserman and Ramdas, Distribution-Free Prediction Sets for Two-Layer Hierarchical Models, JASA 118 (2023), 2491-2502).
Scores are of sums on a mean board, so the differences between boards are not among them.

Bytes are the arrays of a NumPy archive and a JSON text, behind a hash. Reading them runs no code.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from opcost.columns import grouped
from opcost.estimates import FloatArray
from opcost.operators.counts import OperatorCount
from opcost.operators.values import InputData
from opcost.prediction.samples import RAW, Boards, Card, Samples, features, is_small, kind_of, raw_features

# Functions of features: plain arrays, so that predicting needs no library, and a file of them runs no code

IntArray: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

LENGTH, NOISE = 6.0, 1e-2
"""The length of the kernel in deviations of features, and the variance of the noise over that of the function."""

ROWS_AT_ONCE = 4096
"""The rows that go down the trees together, so that the memory for it stays below 10 MB."""

ROWS_IN_CACHE = 256
"""The rows whose distances to some hundred samples stay in a core's cache."""

PRODUCTS_ON_ONE_THREAD = 2**18
"""The largest matrix product, in multiplications, that OpenBLAS runs on the calling thread (``interface/gemm.c``). On
busy cores its threads wait for each other longer than such products take."""


@dataclass(frozen=True)
class Forest:
    """The mean of regression trees, all in the same arrays.

    A node with ``lower[node] == node`` is a leaf with a value. Others go to ``lower`` if the feature is at most the
    threshold, else to ``upper``. Children come after their parent.
    """

    features: IntArray
    thresholds: FloatArray
    lower: IntArray
    upper: IntArray
    values: FloatArray
    roots: IntArray
    depth: int

    def __post_init__(self) -> None:
        """Raise ValueError: a node is out of range or comes before its parent, so that a way may not end in a leaf."""
        nodes = np.arange(len(self.values))
        is_leaf = self.lower == nodes
        sizes = {len(array) for array in (self.features, self.thresholds, self.lower, self.upper, self.values)}
        for children in (self.lower, self.upper):
            if len(sizes) > 1 or not np.all((is_leaf & (children == nodes)) | (children > nodes)):
                raise ValueError("a node is out of order")
            if np.any(children >= len(nodes)):
                raise ValueError("a node is out of range")
        if np.any((self.roots < 0) | (self.roots >= len(nodes))) or np.any(self.features < 0):
            raise ValueError("a root or a feature is out of range")

    def predict(self, features: FloatArray) -> FloatArray:
        found = np.zeros(len(features))
        for start in range(0, len(features), ROWS_AT_ONCE):
            part = features[start : start + ROWS_AT_ONCE]
            # The trees of a row are together.
            rows = np.repeat(np.arange(len(part)), len(self.roots))
            nodes = np.tile(self.roots, len(part))
            inner = np.arange(len(nodes))
            for _ in range(self.depth):
                # Most leaves are far above the deepest one.
                inner = inner[self.lower[nodes[inner]] != nodes[inner]]
                at = nodes[inner]
                is_lower = part[rows[inner], self.features[at]] <= self.thresholds[at]
                nodes[inner] = np.where(is_lower, self.lower[at], self.upper[at])
            found[start : start + len(part)] = self.values[nodes].reshape(-1, len(self.roots)).mean(axis=1)
        return found


@dataclass(frozen=True)
class Scaling:
    """The features that vary, each less its mean and over its standard deviation."""

    columns: IntArray
    means: FloatArray
    deviations: FloatArray

    @staticmethod
    def of(features: FloatArray) -> Scaling:
        deviations = features.std(axis=0)
        columns = np.flatnonzero(deviations > 1e-9)
        return Scaling(columns, features[:, columns].mean(axis=0), deviations[columns])

    def scaled(self, features: FloatArray) -> FloatArray:
        return (features[:, self.columns] - self.means) / self.deviations


@dataclass(frozen=True)
class Smooth:
    """A smooth function: kernel ridge regression with a Matérn kernel of order 3/2, the same as the mean of a Gaussian
    process (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 2.3 and 4.2).

    ``points`` are the scaled samples over ``LENGTH``, and ``weights`` their weights. Far from all it is ``middle``.
    """

    scaling: Scaling
    points: FloatArray
    weights: FloatArray
    middle: float

    @staticmethod
    def of_each(features: FloatArray, targets: FloatArray) -> list[Smooth]:
        """Return the function of each target; features and targets have a row for each sample."""
        scaling, middles = Scaling.of(features), np.median(targets, axis=0)
        points = scaling.scaled(features) / LENGTH
        covariances = _covariances(squared_distances(points, points))
        covariances[np.diag_indices_from(covariances)] += NOISE
        weights = np.linalg.solve(covariances, targets - middles).astype(np.float64)
        return [Smooth(scaling, points, *one) for one in zip(weights.T, map(float, middles), strict=True)]

    def predict(self, features: FloatArray) -> FloatArray:
        """Return the value for each row of features, shape (rows,)."""
        found = np.full(len(features), self.middle)
        for start in range(0, len(features), ROWS_IN_CACHE):
            part = slice(start, start + ROWS_IN_CACHE)
            distances = squared_distances(self.scaling.scaled(features[part]) / LENGTH, self.points)
            found[part] += np.einsum("rs,s->r", _covariances(distances), self.weights)
        return found


def _covariances(squares: FloatArray) -> FloatArray:
    distances = np.sqrt(3.0 * squares)
    return (1.0 + distances) * np.exp(-distances)


def squared_distances(points: FloatArray, others: FloatArray) -> FloatArray:
    """Return the squared distance between each of some points and each of others, 0 or above but for rounding."""
    squares: FloatArray = np.sum(points**2, axis=1)[:, np.newaxis] + np.sum(others**2, axis=1)
    rows = max(1, PRODUCTS_ON_ONE_THREAD // max(1, others.size))
    for start in range(0, len(points), rows):
        squares[start : start + rows] -= 2 * points[start : start + rows] @ others.T
    return np.maximum(0.0, squares, out=squares)


def places_of(kinds: Sequence[str]) -> dict[str, IntArray]:
    return {kind: np.array(places) for kind, places in grouped(range(len(kinds)), kinds.__getitem__).items()}


# Learned costs

COVERAGE = 0.9

SMALLEST_ERROR = 1e-3
"""Errors below it are those of measurements."""

DISTANCE_OFFSET = 0.05
"""Distances that are small against it make no difference."""

LARGEST_EXPONENT = 2.0

TOO_FEW = math.inf
"""The distance of a call whose kind has samples, but too few of them for a distance."""

PRIOR_SAMPLES = 10
"""The weight of all kinds in the deviation of one, in samples."""

FEWEST_SCORES = math.ceil(COVERAGE / (1 - COVERAGE) - 1e-9)
"""The fewest independent scores that have a quantile of ``COVERAGE``: a further one is the largest of n + 1 with
probability 1 / (n + 1)."""

UNKNOWN_HALF_WIDTH = 1.6
"""Half the width of the interval of a kind without samples where fewer than ``FEWEST_SCORES`` kinds were held out: that
of energy with the 43 kinds of an H200 (2026-11-28, ``docs/log/prediction.md``)."""

SMALL, UNDER = ", small", " under "

OUTSIDE_FACTOR, OUTSIDE_FROM = 3.0, 0.5
"""A call is outside of what was measured if it is further from the nearest sample of its kind than this factor times
the distance that nine tenths of these samples have from each other, and than this distance."""

FAR = "far from all samples"

SMALL_CALLS_ERROR = 0.37
"""Half the width of the interval of 90 % of the logarithm that the small predicted calls of a run share: libraries
choose their kernels by the size of the run, and each call reads its weights from memory. It is the smallest with which
the intervals of all six models that were measured at small sizes contain these; six are too few for a quantile of 90 %
(ResNet-50, MobileNetV3, Swin-T, ViT-B/16, AlexNet and BERT, 2026-11-28, ``docs/log/prediction.md``)."""

ENOUGH_OF_A_KIND = 8
"""The fewest samples of a kind for a function of its own."""

TIME, POWER, ENERGY = "time", "power", "energy"
TARGETS = (TIME, POWER)


@dataclass(frozen=True)
class Surroundings:
    """The samples of a kind: their scaled features, and the distance from which a call is outside."""

    scaling: Scaling
    points: FloatArray
    outside_from: float

    @staticmethod
    def of(features: FloatArray) -> Surroundings:
        scaling = Scaling.of(features)
        points = np.unique(scaling.scaled(features), axis=0)
        squares = squared_distances(points, points)
        np.fill_diagonal(squares, np.inf)
        nearest = np.sqrt(squares.min(axis=1) / max(1, points.shape[1])) if len(points) > 1 else np.zeros(1)
        return Surroundings(scaling, points, max(OUTSIDE_FROM, OUTSIDE_FACTOR * float(np.quantile(nearest, COVERAGE))))

    def distances(self, features: FloatArray) -> FloatArray:
        """Return the distance of each row of features to the nearest sample: the root mean square over features.

        A feature that is the same in all samples, but not here, makes a call as distant as its difference.
        """
        scaled = self.scaling.scaled(features)
        squares = squared_distances(scaled, self.points).min(axis=1)
        distances: FloatArray = np.sqrt(squares / max(1, self.points.shape[1]))
        return distances


@dataclass(frozen=True)
class HeldOut:
    """Samples that were held out: their classes, their distances to what was learned from, and their errors.

    Distances are to the nearest sample of the kind, ``TOO_FEW``, or NaN if there is none. ``is_outside`` is for each
    sample that has a distance. Errors are of the logarithms; unknown ones are NaN.
    """

    classes: Sequence[str]
    distances: FloatArray
    is_outside: Flags
    errors: FloatArray

    @staticmethod
    def joined(parts: Sequence[HeldOut]) -> HeldOut:
        classes = [name for part in parts for name in part.classes]
        distances, is_outside, errors = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("distances", "is_outside", "errors")
        )
        chosen = np.flatnonzero(np.isfinite(errors))
        return HeldOut([classes[int(place)] for place in chosen], distances[chosen], is_outside[chosen], errors[chosen])


@dataclass(frozen=True)
class Deviations:
    """The deviations of the logarithm of predicted costs that are expected.

    A deviation is ``of_class`` times a power of the distance to the nearest sample, times ``outside_factor`` outside of
    all samples. ``few`` are those of calls of kinds that have samples, but too few for a distance. ``unknown`` is that
    of kinds without samples, and the largest outside of the samples of a kind. Nine tenths of errors are within
    ``factor`` deviations: among calls inside, outside, and of kinds that were held out as a whole, a category each
    (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005, 4.5).
    """

    of_class: Mapping[str, float]
    few: Mapping[str, float]
    unknown: float
    outside_factor: float
    exponent: float
    factor: float

    @staticmethod
    def of(held_out: HeldOut) -> Deviations:
        """Return the deviations that errors of held-out samples show. Each kind without samples has the same weight."""
        classes, distances, errors = held_out.classes, held_out.distances, np.abs(held_out.errors)
        sizes = np.log(np.maximum(errors, SMALLEST_ERROR))
        is_known, is_few, is_new = np.isfinite(distances), distances == TOO_FEW, np.isnan(distances)
        is_outside = held_out.is_outside & is_known
        positions = np.log(DISTANCE_OFFSET + np.where(is_known, distances, 0.0))
        places = places_of(classes)
        exponent = _slope(positions, sizes, [own[is_known[own]] for own in places.values()])
        levels = sizes - exponent * positions

        def of_classes(values: FloatArray, is_meant: Flags, usual: float) -> dict[str, float]:
            """Return the mean of these values in each class, where few samples count less than the broader class."""
            means: dict[str, float] = {}
            for own_places in (places_of(list(map(under_any, classes))), places):
                for name, own in own_places.items():
                    chosen = values[own[is_meant[own]]]
                    if len(chosen) and name not in means:
                        prior = PRIOR_SAMPLES * means.get(under_any(name), usual)
                        means[name] = (float(np.sum(chosen)) + prior) / (len(chosen) + PRIOR_SAMPLES)
            return {name: math.exp(mean) for name, mean in means.items()}

        usual = float(np.mean(levels[is_known])) if is_known.any() else math.log(UNKNOWN_HALF_WIDTH)
        first = Deviations(of_classes(levels, is_known, usual), {}, math.inf, 1.0, exponent, 1.0)
        scores = errors / first.deviations(classes, distances, is_outside)
        inside = scores[is_known & ~is_outside]
        factor = conformal_quantile(inside) if len(inside) else 1.0
        outside = conformal_quantile(scores[is_outside]) if is_outside.any() else factor
        kinds = [under_any(classes[int(place)]).removesuffix(SMALL) for place in np.flatnonzero(is_new)]
        sizes_of_kinds = Counter(kinds)
        weights = np.array([1.0 / sizes_of_kinds[kind] for kind in kinds])
        unknown = (weighted_quantile(errors[is_new], weights) or UNKNOWN_HALF_WIDTH) / factor
        few = of_classes(sizes, is_few, math.log(unknown))
        return replace(first, few=few, unknown=unknown, outside_factor=max(1.0, outside / factor), factor=factor)

    def deviations(self, classes: Sequence[str], distances: FloatArray, is_outside: Flags) -> FloatArray:
        """Return the expected deviation of each call; the arguments are as those of ``HeldOut``.

        A class without samples has the value under any conditions, else that of larger calls, else the usual one.
        """

        def of_classes(values: Mapping[str, float], usual: float) -> FloatArray:
            wider = ((name, under_any(name), under_any(name).removesuffix(SMALL)) for name in classes)
            return np.array([next((values[name] for name in names if name in values), usual) for names in wider])

        usual = float(np.median(list(self.of_class.values()))) if self.of_class else self.unknown
        is_known = np.isfinite(distances)
        grown = of_classes(self.of_class, usual)
        grown = grown * (DISTANCE_OFFSET + np.where(is_known, distances, 0.0)) ** self.exponent
        grown = np.where(is_outside, np.minimum(self.outside_factor * grown, self.unknown), grown)
        few = np.minimum(of_classes(self.few, self.unknown), self.unknown)
        return np.where(is_known, grown, np.where(distances == TOO_FEW, few, self.unknown))


def class_of(kind: str, is_small: bool, conditions: str) -> str:
    """Return the class of calls of a kind whose errors are alike: libraries choose other kernels for small calls.

    Kernels of some precisions are less regular than others. ``conditions`` are a key.
    """
    return f"{kind}{SMALL if is_small else ''}{UNDER}{conditions}"


def under_any(name: str) -> str:
    """Return the class under any conditions."""
    return name.rpartition(UNDER)[0] or name


def conformal_quantile(scores: FloatArray) -> float:
    """Return the score that a further one like these is below in ``COVERAGE``; of too few scores the largest."""
    found = weighted_quantile(scores, np.ones(len(scores)))
    return float(scores.max()) if found is None else found


def weighted_quantile(scores: FloatArray, weights: FloatArray) -> float | None:
    """Return the score that one more of weight 1 is below in ``COVERAGE``; None: too few. A group weighs 1."""
    order = np.argsort(scores)
    reached = np.cumsum(weights[order])
    wanted = COVERAGE * (float(weights.sum()) + 1.0) - 1e-9
    enough = np.flatnonzero(reached >= wanted)
    return float(scores[order][enough[0]]) if len(enough) else None


def _slope(positions: FloatArray, sizes: FloatArray, groups: Iterable[IntArray]) -> float:
    """Return the slope of sizes over positions that all groups have in common, within its limits."""
    products = squares = 0.0
    for own in groups:
        if len(own) > 1:
            centred = positions[own] - positions[own].mean()
            products += float(centred @ (sizes[own] - sizes[own].mean()))
            squares += float(centred @ centred)
    return min(LARGEST_EXPONENT, max(0.0, products / squares)) if squares else 0.0


# Sums


@dataclass(frozen=True)
class ModelCalls:
    """The calls of a whole model among samples: its family, and the place and number of each."""

    family: str
    places: tuple[int, ...]
    calls: tuple[int, ...]


@dataclass(frozen=True)
class Lesson:
    """The samples of one set of conditions, the whole models of them, and the card in the precision."""

    samples: Samples
    models: Sequence[ModelCalls]
    card: Card


def sum_scores(
    groups: Sequence[str], costs: FloatArray, errors: FloatArray, deviations: FloatArray, models: Sequence[ModelCalls]
) -> FloatArray:
    """Return the score of each model: the error of its sum over the deviation that is expected, NaN if unknown.

    Costs of samples, errors of their logarithms when they were held out, and expected deviations are arrays of the
    shape (samples,); for groups see ``groups_of``.
    """
    scores = np.full(len(models), np.nan)
    for number, model in enumerate(models):
        places = list(model.places)
        actual = np.array(model.calls, dtype=float) * costs[places]
        predicted = actual * np.exp(errors[places])
        deviation = sum_deviation([groups[place] for place in places], predicted, deviations[places])
        scores[number] = abs(math.log(predicted.sum() / actual.sum())) * float(predicted.sum()) / deviation
    return scores


def sum_factor(families: Sequence[str], scores: FloatArray) -> float | None:
    """Return the deviations within which nine tenths of sums are; None with too few families of models."""
    known = [(family, score) for family, score in zip(families, scores, strict=True) if math.isfinite(score)]
    sizes = Counter(family for family, _ in known)
    weights = [1.0 / sizes[family] for family, _ in known]
    return weighted_quantile(np.array([score for _, score in known]), np.array(weights))


def groups_of(kinds: Sequence[str], is_far: Flags) -> tuple[str, ...]:
    """Return the group of each call whose errors have the same sign: its kind, or one of all calls far from samples."""
    return tuple(FAR if far else kind for kind, far in zip(kinds, is_far, strict=True))


def sum_deviation(groups: Sequence[str], costs: FloatArray, deviations: FloatArray) -> float:
    """Return the deviation of a sum of predicted costs, in their unit; NaN if that of a call is."""
    of_group: dict[str, float] = {}
    for group, cost, deviation in zip(groups, costs, deviations, strict=True):
        of_group[group] = of_group.get(group, 0.0) + float(cost * deviation)
    return math.hypot(*of_group.values())


# Costs


@dataclass(frozen=True)
class Function:
    """The mean of a forest of all kinds and, where a kind has enough samples, a smooth one. ``levels``: medians."""

    forest: Forest
    smooth: Mapping[str, Smooth]
    levels: Mapping[str, float]

    def predict(self, table_features: FloatArray, kinds: Sequence[str]) -> FloatArray:
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
    """Learned costs of operators on a card, with errors as under the ``conditions`` of a key; ``cards`` are by keys.

    ``functions`` predict the logarithms of time over the time that the card's rates give, and of power over its limit.
    They are learned from the samples of all conditions, so that kinds without samples under some have those of others.

    ``few`` are the surroundings of kinds with too few samples for a function of their own. ``deviations`` are those of
    time and of energy. ``sum_factors`` are the numbers of deviations within which nine tenths of the sums of held-out
    models are, by the keys of conditions and for all (``""``), none for a cost with too few families.
    """

    card: Card
    conditions: str
    cards: Mapping[str, Card]
    functions: Mapping[str, Function]
    surroundings: Mapping[str, Surroundings]
    few: Mapping[str, Surroundings]
    deviations: Mapping[str, Deviations]
    sum_factors: Mapping[str, Mapping[str, float]]
    boards: Boards
    samples: int

    def under(self, conditions: str, card: Card | None = None) -> LearnedCosts:
        """Return the costs under conditions with samples, or of another card as far off as under these."""
        return replace(self, conditions=conditions, card=card or self.cards[conditions])

    def costs(self, calls: Sequence[tuple[OperatorCount, InputData]]) -> CallCosts:
        raw = np.array([raw_features(count, data) for count, data in calls], dtype=float)
        return self._costs(raw, tuple(kind_of(count) for count, _ in calls))

    def try_all(self) -> None:
        """Predict a call of each kind, which uses each array. Errors of many types say that one is not of its form."""
        kinds = (*self.surroundings, *self.few, *(kind for one in self.functions.values() for kind in one.smooth), "")
        with np.errstate(all="ignore"):
            self._costs(np.ones((len(kinds), len(RAW))), kinds)

    def _costs(self, raw: FloatArray, kinds: tuple[str, ...]) -> CallCosts:
        found, base = features(raw, self.card, kinds)
        distances, is_outside = distances_to(self.surroundings, self.few, found, kinds)
        is_new, small = np.isnan(distances), is_small(raw, self.card)
        classes = [class_of(*one, self.conditions) for one in zip(kinds, small, strict=True)]
        unknown = np.full(len(kinds), np.nan)
        times_s = np.exp(base + self.functions[TIME].predict(found, kinds))
        powers = self.functions.get(POWER)
        deviations = {cost: one.deviations(classes, distances, is_outside) for cost, one in self.deviations.items()}
        return CallCosts(
            groups=groups_of(kinds, is_outside & ~is_new),
            times_s=times_s,
            energies_j=unknown
            if powers is None
            else times_s * self.card.power_limit_w * np.exp(powers.predict(found, kinds)),
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
        of_sums = self.sum_factors.get(cost, {"": 0.0})
        factor = max(of_sums.get(self.conditions, of_sums[""]), self.deviations[cost].factor)
        own = factor * sum_deviation(groups, costs, deviations)
        return math.hypot(own, SMALL_CALLS_ERROR * float(np.sum(costs[is_small])))


def distances_to(
    surroundings: Mapping[str, Surroundings],
    few: Mapping[str, Surroundings],
    table_features: FloatArray,
    kinds: Sequence[str],
) -> tuple[FloatArray, Flags]:
    """Return each call's distance to its kind's nearest sample (``TOO_FEW``, NaN: none), and whether it is outside."""
    distances, is_outside = np.full(len(kinds), np.nan), np.ones(len(kinds), dtype=bool)
    for kind, places in places_of(kinds).items():
        around = surroundings.get(kind) or few.get(kind)
        if around is not None:
            own = around.distances(table_features[places])
            distances[places] = own if kind in surroundings else TOO_FEW
            is_outside[places] = own > around.outside_from
    return distances, is_outside


# Learned costs as bytes

STRUCTURE = "structure"
"""The name of the JSON text in an archive; arrays are named by their number."""

CLASSES: Mapping[str, type[Any]] = MappingProxyType(
    {
        one.__name__: one
        for one in (LearnedCosts, Function, Forest, Smooth, Scaling, Card, Boards, Surroundings, Deviations)
    }
)
"""The classes that an archive may have."""


REFUSALS = (LookupError, TypeError, AttributeError, OSError, EOFError, MemoryError, RecursionError, zipfile.BadZipFile)
"""Errors, besides ValueError, that NumPy and the constructors raise for an archive of another form."""


def to_bytes(value: object) -> bytes:
    """Return an archive of a value: numbers, texts, arrays, tuples, mappings and the dataclasses of ``CLASSES``."""
    arrays: list[np.ndarray[Any, Any]] = []
    text = json.dumps(_packed(value, arrays))
    file = io.BytesIO()
    named = {}
    for number, array in enumerate(arrays):
        is_whole = array.dtype == np.int64 and array.size
        is_narrow = is_whole and max(abs(array.min()), array.max()) <= np.iinfo(np.int32).max
        # Whole numbers take 32 bits if these hold them.
        named[str(number)] = array.astype(np.int32) if is_narrow else array
    np.savez(file, allow_pickle=False, **{STRUCTURE: np.frombuffer(text.encode(), np.uint8)}, **named)
    return signed(file.getvalue())


def signed(archive: bytes) -> bytes:
    """Return an archive behind its hash: other arrays or texts of the right form would fail in the midst of use."""
    return hashlib.sha256(archive).digest() + archive


def from_bytes(content: bytes) -> Any:
    """Return the value of an archive. Raises ValueError: it is damaged, or of another version."""
    own = content[hashlib.sha256().digest_size :]
    if signed(own) != content:
        raise ValueError("no archive of learned costs: its hash is another")
    try:
        with np.load(io.BytesIO(own), allow_pickle=False) as archive:
            if any(file.compress_type != zipfile.ZIP_STORED for file in archive.zip.infolist()):
                raise ValueError("no archive of learned costs: it is compressed, so that it may have any size")
            arrays = {name: archive[name] for name in archive.files if name != STRUCTURE}
            wide = {name: one.astype(np.int64) if one.dtype == np.int32 else one for name, one in arrays.items()}
            return _unpacked(json.loads(archive[STRUCTURE].tobytes()), wide)
    except REFUSALS as error:
        raise ValueError(f"no archive of learned costs: {error}") from error


def _packed(value: object, arrays: list[np.ndarray[Any, Any]]) -> object:
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, Mapping):
        return {"items": [[_packed(key, arrays), _packed(one, arrays)] for key, one in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_packed(one, arrays) for one in value]}
    if is_dataclass(value) and type(value).__name__ in CLASSES:
        own = {field.name: _packed(getattr(value, field.name), arrays) for field in fields(value)}
        return {"class": type(value).__name__, "fields": own}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _unpacked(value: Any, arrays: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[str(value["array"])]
    if "items" in value:
        return {_unpacked(key, arrays): _unpacked(one, arrays) for key, one in value["items"]}
    if "tuple" in value:
        return tuple(_unpacked(one, arrays) for one in value["tuple"])
    own = {name: _unpacked(one, arrays) for name, one in value["fields"].items()}
    return CLASSES[value["class"]](**own)
