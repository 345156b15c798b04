"""The sizes of a sweep: medians and spread over repetitions, beside the predicted cost, and their curves as pieces.

Each piece of a curve is fitted by least squares of relative residuals. The number of pieces, their kinds and the breaks
minimise the Bayesian information criterion, n ln(s²) + k ln(n), with s² the mean squared relative residual and k the
number of coefficients and breaks (Schwarz, Annals of Statistics 6 (1978), 461-464; Yao, Statistics & Probability
Letters 6 (1988), 181-189, for the number of breaks). Pieces need not meet: a curve may jump.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Any

import numpy as np

from opcost.estimates import FloatArray
from opcost.measuring.record import is_doubtful
from opcost.measuring.sweep_record import SweepFigures, SweepRepetitionRow, SweepSizeRow

MAD_FACTOR = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation (Rousseeuw and Croux, Journal of
the American Statistical Association 88 (1993), 1273-1283)."""

MEDIANS = {
    **{name: f"iteration_times.{name}" for name in ("iteration_p5_s", "iteration_p50_s", "iteration_p95_s")},
    **{
        name: f"measurement.{name}"
        for name in "power_w temperature_c sm_clock_hz busy_ratio power_capped_ratio".split()
    },
    **{name: f"host.{name}" for name in ("cpu_package_power_w", "dram_power_w")},
    **{name: f"memory.{name}" for name in ("memory_used_bytes", "memory_peak_bytes")},
}
"""Figures of a size that are medians, and where a repetition has them."""


def figures_of(rows: Sequence[SweepRepetitionRow]) -> SweepFigures:
    sound = [row for row in rows if not is_doubtful(row)]
    counting = sound or list(rows)
    flagged = len(rows) - len(sound)
    if not counting:
        return SweepFigures(0, flagged)
    measurements = [row.measurement for row in counting]
    normalised = [one.energy_at_reference_j for one in measurements]
    energies = normalised if None not in normalised else [one.energy_j for one in measurements]
    times_s, energies_j = [one.time_s for one in measurements], [one for one in energies if one is not None]
    time_s, energy_j = statistics.median(times_s), _median(energies)
    medians: dict[str, Any] = {name: _median(map(attrgetter(path), counting)) for name, path in MEDIANS.items()}
    for name in ("memory_used_bytes", "memory_peak_bytes"):
        medians[name] = None if medians[name] is None else round(medians[name])
    units = counting[0].place.units_of_a_run
    (time_spread, time_range), (energy_spread, energy_range) = map(_spread_and_range, (times_s, energies_j))
    return SweepFigures(
        repetitions=len(counting),
        flagged_repetitions=flagged,
        time_s=time_s,
        time_spread_ratio=time_spread,
        time_range_ratio=time_range,
        energy_j=energy_j,
        energy_spread_ratio=energy_spread,
        energy_range_ratio=energy_range,
        energy_missing_reason=next((one.energy_missing_reason for one in measurements), None) if not energy_j else None,
        **medians,
        cache_bytes=counting[0].memory.cache_bytes,
        time_per_unit_s=time_s / units if units else None,
        energy_per_unit_j=energy_j / units if units and energy_j is not None else None,
    )


def replaced(known: Iterable[SweepSizeRow], new: Iterable[SweepSizeRow]) -> list[SweepSizeRow]:
    """Return the rows of a table with new ones, which replace those of the same size, board and loop."""
    rows = {row.identity: row for row in known}
    for row in new:
        # A new row is the newest, so it comes last.
        rows.pop(row.identity, None)
        rows[row.identity] = row
    return list(rows.values())


def _median(values: Iterable[float | None]) -> float | None:
    everything = list(values)
    known = [float(value) for value in everything if value is not None]
    return statistics.median(known) if known and 2 * len(known) >= len(everything) else None


def _spread_and_range(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return 1.4826 median absolute deviations, and the range, both over the median; None for a single value."""
    if len(values) < 2:
        return None, None
    middle = statistics.median(values)
    spread = MAD_FACTOR * statistics.median([abs(value - middle) for value in values])
    return spread / middle, (max(values) - min(values)) / middle


LEAST_RESIDUAL = 0.01
"""The relative residual (root mean square) that no fit is credited to be below: a smaller one is noise of builds, up to
1.8 % (``docs/log/repeatability.md``), and breaks would follow it."""

MOST_PIECES = 4


class PieceKind(IntEnum):
    """The form of a piece. The value is its degree, and the name the word that people read."""

    CONSTANT = 0
    LINEAR = 1
    QUADRATIC = 2

    @property
    def fewest(self) -> int:
        """The fewest points: one more than the coefficients, so that a piece says something of its points."""
        return self + 2


@dataclass(frozen=True)
class Piece:
    """A piece of a curve between two points, by their place, with the coefficients of x^0, x^1, x^2."""

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
    """Return the pieces of a curve in order; none for fewer than three points. ``x`` ascends and ``y`` is above 0.

    A constant piece can only be the first one: later, costs grow with the input.
    """
    xs, ys = np.array(x, dtype=float), np.array(y, dtype=float)
    count = len(xs)
    if count < PieceKind.LINEAR.fewest:
        return ()
    # The best pieces up to each point with the sum of their squared residuals, which add up, for each number of pieces
    # and of coefficients.
    chains: list[dict[tuple[int, int], tuple[float, tuple[Piece, ...]]]] = [{} for _ in range(count + 1)]
    chains[0][0, 0] = 0.0, ()
    for first in range(count):
        for last in range(first + PieceKind.CONSTANT.fewest - 1, count):
            for piece in _fits(xs, ys, first, last):
                for (number, coefficients), (squares, pieces) in chains[first].items():
                    if number == MOST_PIECES or (number and piece.kind is PieceKind.CONSTANT):
                        continue
                    key = number + 1, coefficients + piece.kind + 1
                    longer = squares + piece.points * piece.residual_ratio**2
                    if key not in chains[last + 1] or longer < chains[last + 1][key][0]:
                        chains[last + 1][key] = longer, (*pieces, piece)

    def criterion(key: tuple[int, int]) -> float:
        number, coefficients = key
        squares = max(chains[count][key][0] / count, LEAST_RESIDUAL**2)
        return count * math.log(squares) + (coefficients + number - 1) * math.log(count)

    return chains[count][min(chains[count], key=criterion)][1] if chains[count] else ()


def _fits(xs: FloatArray, ys: FloatArray, first: int, last: int) -> Iterator[Piece]:
    x, y = xs[first : last + 1], ys[first : last + 1]
    for kind in PieceKind:
        if len(x) < kind.fewest:
            continue
        # Scaled, because powers of pixels differ by many orders of magnitude.
        scale = float(x[-1])
        powers = np.vander(x / scale, kind + 1, increasing=True)
        scaled, *_ = np.linalg.lstsq(powers / y[:, None], np.ones(len(y)), rcond=None)
        residuals = powers @ scaled / y - 1
        coefficients = tuple(float(one) / scale**power for power, one in enumerate(scaled))
        if kind is not PieceKind.CONSTANT and coefficients[-1] <= 0:
            continue
        yield Piece(kind, first, last, coefficients, float(np.sqrt(np.mean(residuals**2))))


@dataclass(frozen=True)
class BreakLine:
    """A piece of a curve; ``jump_ratio`` is its begin over what the former piece would have there, None below 0."""

    quantity: str
    kind: str
    first_size: int
    last_size: int
    residual_ratio: float
    jump_ratio: float | None


@dataclass(frozen=True)
class Curve:
    """A cost over the sizes, by its pieces, and the two neighbouring sizes of each break between them."""

    quantity: str
    lines: tuple[BreakLine, ...]
    breaks: tuple[tuple[int, int], ...]


def curves_of(rows: Sequence[SweepSizeRow]) -> tuple[Curve, ...]:
    """Return the measured curves of time and energy over the sizes, which ascend; too few sizes have no curve."""
    found = []
    for quantity, costs in (
        ("time", [row.figures.time_s for row in rows]),
        ("energy", [row.figures.energy_j for row in rows]),
    ):
        known = [(row.place.size, cost) for row, cost in zip(rows, costs, strict=True) if cost is not None]
        sizes, values = [size for size, _ in known], [value for _, value in known]
        pieces = pieces_of(sizes, values)
        breaks, jumps_ratio = [], list[float | None]([None])
        for former, later in itertools.pairwise(pieces):
            # The former piece may fit some points of the later one as well.
            own = enumerate(known[later.first : later.last], start=later.first)
            differing = (at for at, (size, value) in own if abs(former.at(size) / value - 1) > LEAST_RESIDUAL)
            first = next(differing, later.last)
            expected = former.at(sizes[first])
            breaks.append((sizes[first - 1], sizes[first]))
            jumps_ratio.append(values[first] / expected if expected > 0 else None)
        lines = [
            BreakLine(
                quantity, one.kind.name.lower(), sizes[one.first], sizes[one.last], one.residual_ratio, jump_ratio
            )
            for one, jump_ratio in zip(pieces, jumps_ratio, strict=False)
        ]
        if pieces:
            found.append(Curve(quantity, tuple(lines), tuple(breaks)))
    return tuple(found)
