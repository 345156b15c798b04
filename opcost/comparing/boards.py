"""How far boards of one product differ in the time and energy of whole models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from opcost.measuring.record import MeasurementRow, is_doubtful
from opcost.summing.energy import common_basis


@dataclass(frozen=True)
class Differences:
    """The differences between boards, as ratios: the largest cost of a model over its smallest, minus 1."""

    models: int
    median_ratio: float
    largest_ratio: float


@dataclass(frozen=True)
class BoardDifferences:
    """The number of boards, and their differences in time and energy; None if no model is measured on two boards."""

    boards: int
    time: Differences | None
    energy: Differences | None


def board_differences(wholes: Iterable[Sequence[MeasurementRow]]) -> BoardDifferences:
    """Return how far boards differ in models that are measured on several of them. Flagged rows are left out.

    Args:
        wholes: for each model and set of conditions its rows, one of each board.
    """
    groups = [[row for row in rows if not is_doubtful(row)] for rows in wholes]
    boards = {row.circumstances.device_uuid for rows in groups for row in rows}
    time = _differences([row.measurement.time_s for row in rows] for rows in groups)
    return BoardDifferences(len(boards), time, _differences(map(_energies_j, groups)))


def _energies_j(rows: Sequence[MeasurementRow]) -> list[float]:
    basis = common_basis(rows)
    return [energy_j.value for row in rows if (energy_j := basis.energy_of(row)) is not None]


def _differences(costs: Iterable[Sequence[float]]) -> Differences | None:
    ratios = [max(of_model) / min(of_model) - 1 for of_model in costs if len(of_model) > 1]
    return Differences(len(ratios), median(ratios), max(ratios)) if ratios else None
