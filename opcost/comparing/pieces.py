"""A curve as pieces: constant at first, then linear or quadratic, with breaks where another piece begins.

Each piece is fitted by least squares of relative residuals. The number of pieces, their kinds and the breaks minimise
the Bayesian information criterion, n ln(s²) + k ln(n), with s² the mean squared relative residual and k the number of
coefficients and breaks (Schwarz, Annals of Statistics 6 (1978), 461-464; Yao, Statistics & Probability Letters 6
(1988), 181-189, for the number of breaks). Pieces need not meet: a curve may jump.
"""

from __future__ import annotations

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
        return self.last - self.first + 1

    def at(self, x: float) -> float:
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
    # The best chain of pieces up to each point, for each number of pieces and of coefficients: squares add up.
    chains: list[dict[tuple[int, int], _Chain]] = [{(0, 0): _Chain(0.0, ())}, *({} for _ in range(count))]
    for first, last in _spans(count):
        for piece in _fits(xs, ys, first, last):
            for chain in list(chains[first].values()):
                _extend(chains[last + 1], chain, piece)
    found = chains[count].values()
    return min(found, key=lambda chain: _criterion(chain, count)).pieces if found else ()


@dataclass(frozen=True)
class _Chain:
    """Pieces one after the other, and the sum of their squared relative residuals."""

    squares: float
    pieces: tuple[Piece, ...]

    @property
    def coefficients(self) -> int:
        return sum(piece.kind.degree + 1 for piece in self.pieces)


def _extend(chains: dict[tuple[int, int], _Chain], chain: _Chain, piece: Piece) -> None:
    """Add the chain with a further piece, unless one of as many pieces and coefficients is better."""
    if len(chain.pieces) == MOST_PIECES or (chain.pieces and piece.kind is PieceKind.CONSTANT):
        return
    longer = _Chain(chain.squares + piece.points * piece.residual_ratio**2, (*chain.pieces, piece))
    key = len(longer.pieces), longer.coefficients
    if key not in chains or longer.squares < chains[key].squares:
        chains[key] = longer


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


def _criterion(chain: _Chain, count: int) -> float:
    parameters = chain.coefficients + len(chain.pieces) - 1
    return count * math.log(max(chain.squares / count, LEAST_RESIDUAL**2)) + parameters * math.log(count)
