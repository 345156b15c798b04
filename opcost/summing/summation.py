"""Counts x measurements = what a model costs by its parts, and what is missing from the sum."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opcost.estimates import Estimate, sum_of_independent
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow, is_doubtful, time_of
from opcost.operators.cases import CAPTURED, Case, cases_of
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.whitelist import share
from opcost.summing.energy import EnergyBasis, common_basis
from opcost.summing.index import Measurements


@dataclass(frozen=True)
class Part:
    """Calls in a sum: how many, of what, and the measurement that stands for them, perhaps one on other values.

    ``basis`` is that of the sum's energies.
    """

    case: Case
    occurrences: int
    row: MeasurementRow
    basis: EnergyBasis

    @property
    def time_s(self) -> float:
        """The time of all these calls."""
        return self.occurrences * self.row.measurement.time_s

    @property
    def energy_j(self) -> float | None:
        """The energy of all these calls, None where it is not known."""
        energy_j = self.basis.energy_of(self.row)
        return None if energy_j is None else self.occurrences * energy_j.value

    @property
    def is_on_other_values(self) -> bool:
        """Whether the measurement was made on another kind of values."""
        return self.row.input_data != str(self.case.input_data)


@dataclass(frozen=True)
class ModelCost:
    """The cost of one run of a model, summed from its operators.

    ``summed`` and ``missing`` are the counts with and without a measurement under the conditions asked for, ``parts``
    what is summed. Time and energy are None where nothing could be summed; energy also where any summed operator lacks
    it, since a sum of some energies is the energy of nothing. ``basis`` says which energies all of these are, and those
    that the sum is held against; how operators differ in how they follow the temperature is no part of ``energy_j``'s
    error. ``flop_ratio`` and ``memory_bytes_ratio`` are the shares of the model's FLOPs and bytes that the sum carries.
    """

    time_s: Estimate | None
    energy_j: Estimate | None
    energy_missing_reason: str | None
    basis: EnergyBasis
    summed: tuple[OperatorCount, ...]
    missing: tuple[OperatorCount, ...]
    parts: tuple[Part, ...]
    flop_ratio: float | None
    memory_bytes_ratio: float | None

    def board_ratio(self, board: str | None) -> float:
        """Return what share of the summed time was measured on a board; 0 where nothing is summed."""
        others_s = [part.time_s for part in self.parts if part.row.circumstances.device_uuid != board]
        return 0.0 if self.time_s is None else 1 - math.fsum(others_s) / self.time_s.value


def whole_rank(whole: MeasurementRow, cost: ModelCost) -> tuple[bool, bool, float]:
    """Return by what one of several wholes is chosen to stand beside a sum of its board: the largest comes first."""
    board_ratio = cost.board_ratio(whole.circumstances.device_uuid)
    has_energy = EnergyBasis.MEASURED.energy_of(whole) is not None
    return has_energy, not is_doubtful(whole.measurement), board_ratio


def sum_operators(
    counts: OperatorCounts,
    measurements: Measurements,
    conditions: Conditions,
    input_data: str = CAPTURED,
    basis: EnergyBasis = EnergyBasis.MEASURED,
) -> ModelCost:
    """Sum time and energy by occurrence over the counts that have a row under these conditions.

    The n calls on one row share one measured mean, so they contribute n times its error; different rows were measured
    independently, so their errors add in quadrature.

    Args:
        counts: a model's (filtered) operator counts.
        measurements: where to look for rows.
        conditions: what all summed rows must hold under.
        input_data: one of ``INPUT_DATA``. Where captured values were not measured, those most like them stand in.
        basis: which energies are summed.
    """
    return _cost(counts, _rows_of(counts, measurements, conditions, input_data), basis)


def sum_beside(
    whole: MeasurementRow,
    counts: OperatorCounts,
    measurements: Measurements,
    conditions: Conditions,
    input_data: str = CAPTURED,
) -> ModelCost:
    """Sum a model's operators as ``sum_operators`` does, to be set beside its whole.

    Rows of the whole's board come first; energies are normalised if the whole's and those of all rows can be.
    """
    found = _rows_of(counts, measurements.preferring(whole.circumstances.device_uuid), conditions, input_data)
    rows = [row for rows in found.values() for _, _, row in rows]
    return _cost(counts, found, common_basis([whole, *rows]) if rows else EnergyBasis.MEASURED)


Rows: TypeAlias = Mapping[OperatorCount, Sequence[tuple[Case, int, MeasurementRow]]]
"""What stands for the calls of each count: what is called, how often, and its row."""


def _rows_of(counts: OperatorCounts, measurements: Measurements, conditions: Conditions, input_data: str) -> Rows:
    return {count: tuple(_rows_of_count(count, measurements, conditions, input_data)) for count in counts.counts}


def _rows_of_count(
    count: OperatorCount, measurements: Measurements, conditions: Conditions, input_data: str
) -> Iterator[tuple[Case, int, MeasurementRow]]:
    for case, occurrences in cases_of([count], input_data).items():
        row = measurements.find(case, conditions)
        if row is None and input_data == CAPTURED:
            row = measurements.nearest(case, conditions)
        if row is not None:
            yield case, occurrences, row


def _cost(counts: OperatorCounts, found: Rows, basis: EnergyBasis) -> ModelCost:
    parts = tuple(Part(*calls, basis) for rows in found.values() for calls in rows)
    summed = tuple(count for count, rows in found.items() if rows)
    measured = _by_row(parts)
    reason = _energy_missing_reason([row for _, row in measured], basis)
    carried = share(summed, counts)
    return ModelCost(
        time_s=sum_of_independent(time_of(row).times(n) for n, row in measured) if measured else None,
        energy_j=sum_of_independent(_energies(measured, basis)) if reason is None else None,
        energy_missing_reason=reason,
        basis=basis,
        summed=summed,
        missing=tuple(count for count, rows in found.items() if not rows),
        parts=parts,
        flop_ratio=carried.flop_ratio,
        memory_bytes_ratio=carried.memory_bytes_ratio,
    )


def _by_row(parts: Iterable[Part]) -> list[tuple[int, MeasurementRow]]:
    """Return each row once, with the number of calls that it stands for."""
    calls: dict[str, int] = {}
    rows: dict[str, MeasurementRow] = {}
    for part in parts:
        calls[part.row.key] = calls.get(part.row.key, 0) + part.occurrences
        rows[part.row.key] = part.row
    return [(calls[key], row) for key, row in rows.items()]


def _energies(measured: Iterable[tuple[int, MeasurementRow]], basis: EnergyBasis) -> Iterable[Estimate]:
    return (energy.times(n) for n, row in measured if (energy := basis.energy_of(row)) is not None)


def _energy_missing_reason(rows: Sequence[MeasurementRow], basis: EnergyBasis) -> str | None:
    if not rows:
        return "no operator of the model is measured"
    without = [row for row in rows if basis.energy_of(row) is None]
    if not without:
        return None
    reason = without[0].measurement.energy_missing_reason or "it cannot be normalised to one temperature"
    return f"{len(without)} of {len(rows)} operators have no energy: {reason}"
