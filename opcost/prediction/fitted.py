"""Functions of features: plain arrays, so that predicting needs no library, and a file of them runs no code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from opcost.estimates import FloatArray

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
        scaled: FloatArray = (features[:, self.columns] - self.means) / self.deviations
        return scaled


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
    def of(features: FloatArray, targets: FloatArray) -> Smooth:
        scaling, middle = Scaling.of(features), float(np.median(targets))
        points = scaling.scaled(features) / LENGTH
        covariances = _covariances(squared_distances(points, points))
        covariances[np.diag_indices_from(covariances)] += NOISE
        weights: FloatArray = np.linalg.solve(covariances, targets - middle).astype(np.float64)
        return Smooth(scaling, points, weights, middle)

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
    found: FloatArray = (1.0 + distances) * np.exp(-distances)
    return found


def squared_distances(points: FloatArray, others: FloatArray) -> FloatArray:
    """Return the squared distance between each of some points and each of others, 0 or above but for rounding."""
    squares: FloatArray = np.sum(points**2, axis=1)[:, np.newaxis] + np.sum(others**2, axis=1)
    rows = max(1, PRODUCTS_ON_ONE_THREAD // max(1, others.size))
    for start in range(0, len(points), rows):
        squares[start : start + rows] -= 2 * points[start : start + rows] @ others.T
    return np.maximum(0.0, squares, out=squares)


def places_of(kinds: Sequence[str]) -> dict[str, IntArray]:
    """Return the places of each kind."""
    found: dict[str, list[int]] = {}
    for place, kind in enumerate(kinds):
        found.setdefault(kind, []).append(place)
    return {kind: np.array(places) for kind, places in found.items()}
