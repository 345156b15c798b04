"""A curve as pieces: constant at first, then linear or quadratic, with breaks where another piece begins.

Each piece is fitted by least squares of relative residuals. The number of pieces, their kinds and the breaks minimise
the Bayesian information criterion, n ln(s²) + k ln(n), with s² the mean squared relative residual and k the number of
coefficients and breaks (Schwarz, Annals of Statistics 6 (1978), 461-464; Yao, Statistics & Probability Letters 6
(1988), 181-189, for the number of breaks). Pieces need not meet: a curve may jump.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from opcost.estimates import FloatArray

LEAST_RESIDUAL = 0.01
"""The relative residual (root mean square) that no fit is credited to be below: a smaller one is noise of builds, up to
1.8 % (``docs/log/repeatability.md``), and breaks would follow it."""

MOST_PIECES = 4


class PieceKind(Enum):
    """The form of a piece. The value is the word that people read."""

    CONSTANT = "constant"
    LINEAR = "linear"
    QUADRATIC = "quadratic"

    @property
    def degree(self) -> int:
        """The degree of its polynomial."""
        return (PieceKind.CONSTANT, PieceKind.LINEAR, PieceKind.QUADRATIC).index(self)

    @property
    def fewest(self) -> int:
        """The fewest points: one more than the coefficients, so that a piece says something of its points."""
        return self.degree + 2


@dataclass(frozen=True)
class Piece:
    """A piece of a curve from its first to its last point, both included, by their place.

    ``coefficients`` are those of x^0, x^1, x^2. ``residual_ratio`` is the root mean square of relative residuals.
    """

    kind: PieceKind
    first: int
    last: int
    coefficients: tuple[float, ...]
    residual_ratio: float

    @property
    def points(self) -> int:
        """The number of its points."""
        return self.last - self.first + 1

    def at(self, x: float) -> float:
        """Return its value."""
        return math.fsum(coefficient * x**power for power, coefficient in enumerate(self.coefficients))


def pieces_of(x: Sequence[float], y: Sequence[float]) -> tuple[Piece, ...]:
    """Return the pieces of a curve in order; none for fewer than three points.

    A constant piece can only be the first one: later, costs grow with the input.

    Args:
        x: in ascending order, shape (n,).
        y: above 0, shape (n,).
    """
    xs, ys = np.array(x, dtype=float), np.array(y, dtype=float)
    count = len(xs)
    if count < PieceKind.LINEAR.fewest:
        return ()
    fits = {(first, last): tuple(_fits(xs, ys, first, last)) for first, last in _spans(count)}
    best: tuple[Piece, ...] = ()
    best_criterion = math.inf
    for breaks in range(MOST_PIECES):
        for ends in itertools.combinations(range(1, count), breaks):
            bounds = [*zip((0, *ends), (*(end - 1 for end in ends), count - 1), strict=True)]
            # A piece's kind is chosen by the criterion of the whole curve, so all are tried.
            for pieces in itertools.product(*(fits.get(span, ()) for span in bounds)):
                if any(piece.kind is PieceKind.CONSTANT for piece in pieces[1:]):
                    continue
                criterion = _criterion(pieces, count)
                if criterion < best_criterion:
                    best, best_criterion = pieces, criterion
    return best


def _spans(count: int) -> Iterator[tuple[int, int]]:
    least = PieceKind.CONSTANT.fewest
    return ((first, last) for first in range(count) for last in range(first + least - 1, count))


def _fits(xs: FloatArray, ys: FloatArray, first: int, last: int) -> Iterator[Piece]:
    """Yield the piece of each kind that has enough points, and does not fall."""
    x, y = xs[first : last + 1], ys[first : last + 1]
    for kind in PieceKind:
        if len(x) < kind.fewest:
            continue
        # Scaled, because powers of pixels differ by many orders of magnitude.
        scale = float(x[-1])
        powers = np.vander(x / scale, kind.degree + 1, increasing=True)
        scaled, *_ = np.linalg.lstsq(powers / y[:, None], np.ones(len(y)), rcond=None)
        residuals = powers @ scaled / y - 1
        coefficients = tuple(float(one) / scale**power for power, one in enumerate(scaled))
        if kind is not PieceKind.CONSTANT and coefficients[-1] <= 0:
            continue
        yield Piece(kind, first, last, coefficients, float(np.sqrt(np.mean(residuals**2))))


def _criterion(pieces: Sequence[Piece], count: int) -> float:
    squares = sum(piece.points * piece.residual_ratio**2 for piece in pieces) / count
    parameters = sum(piece.kind.degree + 1 for piece in pieces) + len(pieces) - 1
    return count * math.log(max(squares, LEAST_RESIDUAL**2)) + parameters * math.log(count)
