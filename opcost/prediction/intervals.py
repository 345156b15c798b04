"""Intervals of predicted costs, by conformal prediction.

Errors of held-out samples, each over the deviation that is expected of it, have a quantile; an interval is that many
deviations wide (Papadopoulos, Proedrou, Vovk and Gammerman, Inductive Confidence Machines for Regression, ECML 2002;
Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, JASA 113 (2018), 1094-1111). Errors are of logarithms. The deviation
grows with the distance to the nearest sample of the kind, so that sizes far from all samples have wide intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opcost.estimates import FloatArray
from opcost.prediction.fitted import IntArray, Scaling, squared_distances
from opcost.prediction.groups import places_of

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

OUTSIDE_FACTOR, OUTSIDE_FROM = 3.0, 0.5
"""A call is outside of what was measured if it is further from the nearest sample of its kind than this factor times
the distance that nine tenths of these samples have from each other, and than this distance."""


@dataclass(frozen=True)
class Surroundings:
    """The samples of a kind: their scaled features, and the distance from which a call is outside."""

    scaling: Scaling
    points: FloatArray
    outside_from: float

    @staticmethod
    def of(features: FloatArray) -> Surroundings:
        """Return the surroundings of samples."""
        scaling = Scaling.of(features)
        points = np.unique(scaling.scaled(features), axis=0)
        squares = squared_distances(points, points)
        np.fill_diagonal(squares, np.inf)
        nearest = np.sqrt(squares.min(axis=1) / max(1, points.shape[1])) if len(points) > 1 else np.zeros(1)
        return Surroundings(scaling, points, max(OUTSIDE_FROM, OUTSIDE_FACTOR * float(np.quantile(nearest, COVERAGE))))

    @staticmethod
    def of_few(features: FloatArray, scaling: Scaling) -> Surroundings:
        """Return the surroundings of samples that are too few for a scaling of their own."""
        return Surroundings(scaling, np.unique(scaling.scaled(features), axis=0), OUTSIDE_FROM)

    def distances(self, features: FloatArray) -> FloatArray:
        """Return the distance of each row of features to the nearest sample: the root mean square over features.

        A feature that is the same in all samples, but not here, makes a call as distant as its difference.
        """
        scaled = self.scaling.scaled(features)
        squares = squared_distances(scaled, self.points).min(axis=1)
        distances: FloatArray = np.sqrt(squares / max(1, self.points.shape[1]))
        return distances


@dataclass(frozen=True)
class Deviations:
    """The deviations of the logarithm of predicted costs that are expected.

    A deviation is ``of_kind`` times a power of the distance to the nearest sample. ``few`` are those of calls of kinds
    that have samples, but too few for a distance. ``unknown`` is that of all others, NaN if fewer than
    ``FEWEST_SCORES`` kinds without enough samples showed it. Nine tenths of errors are within ``factor`` deviations.
    """

    of_kind: Mapping[str, float]
    few: Mapping[str, float]
    unknown: float
    exponent: float
    factor: float

    @staticmethod
    def of(kinds: Sequence[str], distances: FloatArray, errors: FloatArray) -> Deviations:
        """Return the deviations that errors of held-out samples show.

        Args:
            kinds: of the samples.
            distances: to the nearest sample of the kind that was learned from, ``TOO_FEW``, or NaN if there was none.
            errors: of the logarithms; unknown ones are NaN.
        """
        chosen = np.flatnonzero(np.isfinite(errors))
        kinds, distances, errors = [kinds[int(place)] for place in chosen], distances[chosen], errors[chosen]
        sizes = np.log(np.maximum(np.abs(errors), SMALLEST_ERROR))
        is_known = np.isfinite(distances)
        positions = np.log(DISTANCE_OFFSET + np.where(is_known, distances, 0.0))
        places = {kind: own[is_known[own]] for kind, own in places_of(kinds).items()}
        exponent = _slope(positions, sizes, places.values())
        levels = sizes - exponent * positions
        usual = float(np.mean(levels[is_known])) if is_known.any() else float(np.mean(sizes))
        of_kind = {kind: _level(levels[own], usual) for kind, own in places.items()}
        of_unknown = {kinds[int(place)] for place in np.flatnonzero(~is_known)}
        size = float(np.mean(sizes[~is_known])) if len(of_unknown) >= FEWEST_SCORES else math.nan
        unknown, is_few = math.exp(size), distances == TOO_FEW
        few = {kind: _level(sizes[own[is_few[own]]], size) for kind, own in places_of(kinds).items()}
        first = Deviations(of_kind, few, unknown, exponent, 1.0)
        scores = np.abs(errors) / first.deviations(kinds, distances)
        return replace(first, factor=conformal_quantile(scores[np.isfinite(scores)]))

    def deviations(self, kinds: Sequence[str], distances: FloatArray) -> FloatArray:
        """Return the expected deviation of each call; distances are as those of ``of``."""
        usual = float(np.median(list(self.of_kind.values()))) if self.of_kind else self.unknown
        levels = np.array([self.of_kind.get(kind, usual) for kind in kinds])
        is_known = np.isfinite(distances)
        grown = levels * (DISTANCE_OFFSET + np.where(is_known, distances, 0.0)) ** self.exponent
        few = np.array([self.few.get(kind, self.unknown) for kind in kinds])
        return np.where(is_known, grown, np.where(distances == TOO_FEW, few, self.unknown))


def _level(sizes: FloatArray, usual: float) -> float:
    """Return the deviation of a kind from the logarithms of its errors and those that are usual."""
    return math.exp((float(np.sum(sizes)) + PRIOR_SAMPLES * usual) / (len(sizes) + PRIOR_SAMPLES))


def conformal_quantile(scores: FloatArray, coverage: float = COVERAGE) -> float:
    """Return the score that a further one is below with this probability, if it is like these.

    With too few scores for this coverage it is the largest one.
    """
    rank = min(len(scores), math.ceil((len(scores) + 1) * coverage))
    return float(np.sort(scores)[rank - 1])


def weighted_quantile(scores: FloatArray, weights: FloatArray, coverage: float = COVERAGE) -> float | None:
    """Return the score that a further one of weight 1 is below with this probability; None if the scores are too few.

    Args:
        scores: of any number.
        weights: of the scores, those of one independent group together 1.
        coverage: the probability.
    """
    order = np.argsort(scores)
    reached = np.cumsum(weights[order])
    wanted = coverage * (float(weights.sum()) + 1.0) - 1e-9
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
