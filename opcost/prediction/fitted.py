"""Fitted functions of features: plain arrays, so that predicting needs no library, and a file of them runs no code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from opcost.estimates import FloatArray

IntArray: TypeAlias = npt.NDArray[np.int64]

ROWS_AT_ONCE = 4096
"""The rows that go down the trees together, so that the memory for it stays below 10 MB."""

ROWS_IN_CACHE = 256
"""The rows whose distances to some hundred samples stay in a core's cache."""

PRODUCTS_ON_ONE_THREAD = 2**18
"""The largest matrix product, in multiplications, that OpenBLAS runs on the calling thread (``interface/gemm.c``). On
busy cores its threads wait for each other longer than such products take."""


class Fitted(Protocol):
    """A function of features that was fitted to samples."""

    def predict(self, features: FloatArray) -> FloatArray:
        """Return the value for each row of features."""


class Learner(Protocol):
    """A method that fits functions of features."""

    @property
    def name(self) -> str:
        """The name that is shown to users."""

    @property
    def is_common(self) -> bool:
        """Whether one function is fitted to all kinds of operators together, with the level of each as a feature."""

    def tuned(self, features: FloatArray, targets: FloatArray) -> Learner:
        """Return the method with the parameters that suit these samples; it is used for any part of them."""

    def for_errors(self) -> Learner:
        """Return the method to learn how far off it is, not to predict: it may be faster and less exact, never more."""

    def fit(self, features: FloatArray, targets: FloatArray) -> Fitted:
        """Return the function that fits the targets, one for each row of features."""


@dataclass(frozen=True)
class Constant:
    """The same value everywhere."""

    value: float

    def predict(self, features: FloatArray) -> FloatArray:
        return np.full(len(features), self.value)


@dataclass(frozen=True)
class Mean:
    """The mean of some functions."""

    parts: tuple[Fitted, ...]

    def predict(self, features: FloatArray) -> FloatArray:
        mean: FloatArray = np.mean([part.predict(features) for part in self.parts], axis=0)
        return mean


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
        """Check that each way from a root ends in a leaf.

        Raises:
            ValueError: a node is out of range, or comes before its parent.
        """
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
        """Return the mean of the trees for each row of features."""
        trees = len(self.roots)
        parts = range(0, len(features), ROWS_AT_ONCE)
        means = [
            self._leaves(features[start : start + ROWS_AT_ONCE]).reshape(-1, trees).mean(axis=1) for start in parts
        ]
        return np.concatenate(means) if means else np.zeros(0)

    def _leaves(self, features: FloatArray) -> FloatArray:
        """Return the value of each tree for each row, the trees of a row together."""
        rows = np.repeat(np.arange(len(features)), len(self.roots))
        nodes = np.tile(self.roots, len(features))
        inner = np.arange(len(nodes))
        for _ in range(self.depth):
            # Most leaves are far above the deepest one.
            inner = inner[self.lower[nodes[inner]] != nodes[inner]]
            at = nodes[inner]
            is_lower = features[rows[inner], self.features[at]] <= self.thresholds[at]
            nodes[inner] = np.where(is_lower, self.lower[at], self.upper[at])
        return self.values[nodes]


@dataclass(frozen=True)
class Scaling:
    """The features that vary, each less its mean and over its standard deviation."""

    columns: IntArray
    means: FloatArray
    deviations: FloatArray

    @staticmethod
    def of(features: FloatArray) -> Scaling:
        """Return the scaling that gives these features a mean of 0 and a deviation of 1."""
        deviations = features.std(axis=0)
        columns = np.flatnonzero(deviations > 1e-9)
        return Scaling(columns, features[:, columns].mean(axis=0), deviations[columns])

    def scaled(self, features: FloatArray) -> FloatArray:
        scaled: FloatArray = (features[:, self.columns] - self.means) / self.deviations
        return scaled


@dataclass(frozen=True)
class GaussianProcess:
    """The mean of a Gaussian process with a Matérn kernel of order 3/2 (Rasmussen and Williams, 2006, 4.2).

    ``lengths`` has the length of each scaled feature, ``points`` the samples over these lengths, and ``weights`` the
    samples' weights in the mean.
    """

    scaling: Scaling
    lengths: FloatArray
    points: FloatArray
    weights: FloatArray
    mean: float

    def predict(self, features: FloatArray) -> FloatArray:
        scaled = self.scaling.scaled(features) / self.lengths
        parts = [self._sums(scaled[start : start + ROWS_IN_CACHE]) for start in range(0, len(scaled), ROWS_IN_CACHE)]
        return self.mean + np.concatenate(parts) if parts else np.zeros(0)

    def _sums(self, scaled: FloatArray) -> FloatArray:
        """Return the weighted sum of each row's covariances with the samples."""
        distances = squared_distances(scaled, self.points)
        np.sqrt(distances, out=distances)
        distances *= math.sqrt(3.0)
        covariances = np.exp(-distances)
        distances += 1.0
        covariances *= distances
        sums: FloatArray = np.einsum("rs,s->r", covariances, self.weights)
        return sums


@dataclass(frozen=True)
class Neighbours:
    """The mean of the nearest samples, weighted by the inverse of their squared distance (Shepard, 1968)."""

    scaling: Scaling
    points: FloatArray
    values: FloatArray
    number: int

    def predict(self, features: FloatArray) -> FloatArray:
        """Return the weighted mean for each row of features."""
        squares = squared_distances(self.scaling.scaled(features), self.points)
        number = min(self.number, len(self.values))
        nearest = np.argpartition(squares, number - 1, axis=1)[:, :number]
        weights = 1.0 / (np.take_along_axis(squares, nearest, axis=1) + 1e-6)
        return np.asarray(np.sum(weights * self.values[nearest], axis=1) / np.sum(weights, axis=1))


@dataclass(frozen=True)
class Polynomial:
    """A sum of products of scaled features; ``factors`` has the features of each term, -1 for none."""

    scaling: Scaling
    factors: IntArray
    coefficients: FloatArray
    constant: float
    lowest: float
    highest: float

    def predict(self, features: FloatArray) -> FloatArray:
        """Return the sum for each row of features, within the range of the samples."""
        total = self.constant + terms(self.scaling.scaled(features), self.factors) @ self.coefficients
        return np.clip(total, self.lowest, self.highest)


def terms(scaled: FloatArray, factors: IntArray) -> FloatArray:
    """Return the products of features, one column for each row of factors."""
    padded = np.column_stack([scaled, np.ones(len(scaled))])
    products: FloatArray = np.prod(padded[:, factors], axis=2)
    return products


def squared_distances(points: FloatArray, others: FloatArray) -> FloatArray:
    """Return the squared distance between each of some points and each of others, 0 or above but for rounding."""
    squares: FloatArray = np.sum(points**2, axis=1)[:, np.newaxis] + np.sum(others**2, axis=1)
    rows = max(1, PRODUCTS_ON_ONE_THREAD // max(1, others.size))
    for start in range(0, len(points), rows):
        squares[start : start + rows] -= 2 * points[start : start + rows] @ others.T
    return np.maximum(0.0, squares, out=squares)
