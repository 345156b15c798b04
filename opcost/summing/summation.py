"""The sum of a model's operators: counts times measurements, and the operators missing from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opcost.estimates import Estimate, sum_of_independent, total_if_known
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow, is_doubtful, time_of
from opcost.operators.cases import CAPTURED, Case, cases_of_count
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.whitelist import share
from opcost.summing.energy import EnergyBasis, common_basis
from opcost.summing.index import Measurements

WITHOUT_ENERGY = " operators have no energy: "
"""Stands between the numbers and the reason of a missing energy, for people."""


@dataclass(frozen=True)
class Part:
    """The calls of one case in a sum, with the row that gives their cost, perhaps a row on other input data.

    ``basis`` is that of the sum's energies.
    """

    case: Case
    occurrences: int
    row: MeasurementRow
    basis: EnergyBasis

    @property
    def time_s(self) -> float:
        return self.occurrences * self.row.measurement.time_s

    @property
    def energy_j(self) -> float | None:
        energy_j = self.basis.energy_of(self.row)
        return None if energy_j is None else self.occurrences * energy_j.value

    @property
    def is_on_other_values(self) -> bool:
        return self.row.input_data != str(self.case.input_data)


def totals(parts: Iterable[Part]) -> tuple[float, float | None]:
    """Return the time in s and the energy in J of some parts; the energy is None if one is unknown."""
    parts = list(parts)
    return math.fsum(part.time_s for part in parts), total_if_known(part.energy_j for part in parts)


@dataclass(frozen=True)
class ModelCost:
    """The cost of one run of a model, summed from its operators.

    ``summed`` and ``missing`` are the counts with and without a row under the conditions. ``parts`` are the terms of
    the sum. Time and energy are None if nothing could be summed; energy also if any summed operator has none. ``basis``
    is that of all energies of the sum and of the whole model. The error of ``energy_j`` does not include power
    temperature coefficients. ``flop_ratio`` and ``memory_bytes_ratio`` are the shares of the model's FLOPs and bytes
    that the summed operators have. ``flop_missing_reason`` is why the model's FLOPs are unknown, if they are.
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
    flop_missing_reason: str | None = None

    def board_ratio(self, board: str | None) -> float:
        """Return the share of the summed time that was measured on a board; 0 if nothing is summed."""
        others_s = [part.time_s for part in self.parts if part.row.circumstances.device_uuid != board]
        return 0.0 if self.time_s is None else 1 - math.fsum(others_s) / self.time_s.value


def best_whole(
    wholes: Sequence[MeasurementRow], sum_of: Callable[[MeasurementRow], ModelCost]
) -> tuple[MeasurementRow, ModelCost]:
    """Return the row of a whole model to compare with a sum, and the sum beside it, which ``sum_of`` returns.

    Of rows under one set of conditions, on several boards, preferred are those with energy, without doubtful flags, and
    of the board with most of the sum; of equals the last.
    """

    def rank(pair: tuple[MeasurementRow, ModelCost]) -> tuple[bool, bool, float]:
        whole, cost = pair
        board_ratio = cost.board_ratio(whole.circumstances.device_uuid)
        return EnergyBasis.MEASURED.is_known(whole), not is_doubtful(whole), board_ratio

    return max(((whole, sum_of(whole)) for whole in reversed(wholes)), key=rank)


def sum_operators(
    counts: OperatorCounts,
    measurements: Measurements,
    conditions: Conditions,
    input_data: str = CAPTURED,
    basis: EnergyBasis = EnergyBasis.MEASURED,
) -> ModelCost:
    """Sum time and energy over all calls of the counts that have a row under these conditions.

    The n calls of one row share one measured mean, so they contribute n times its error. Different rows were measured
    independently, so their errors add in quadrature. If captured ``input_data`` was not measured, the most similar is
    used. ``basis`` is that of the summed energies.
    """
    return _cost(counts, _rows_of(counts, measurements, conditions, input_data), basis)


def sum_beside(
    whole: MeasurementRow | None,
    counts: OperatorCounts,
    measurements: Measurements,
    conditions: Conditions,
    input_data: str = CAPTURED,
) -> ModelCost:
    """Sum a model's operators for the comparison with the whole model, see ``sum_operators``.

    Rows of the whole model's board are preferred. Energies are normalised if all rows and the whole model's can be.
    Without a whole model (None), no board is preferred.
    """
    board = None if whole is None else whole.circumstances.device_uuid
    found = _rows_of(counts, measurements.preferring(board), conditions, input_data)
    rows = [row for _, calls in found for _, _, row in calls]
    wholes = [] if whole is None else [whole]
    return _cost(counts, found, common_basis([*wholes, *rows]) if rows else EnergyBasis.MEASURED)


Rows: TypeAlias = Sequence[tuple[OperatorCount, Sequence[tuple[Case, int, MeasurementRow]]]]
"""Each count with the case, the number of calls and the row of its calls."""


def _rows_of(counts: OperatorCounts, measurements: Measurements, conditions: Conditions, input_data: str) -> Rows:
    found = []
    for count in counts.counts:
        calls = []
        for case, occurrences in cases_of_count(count, input_data):
            row = measurements.find(case, conditions)
            if row is None and input_data == CAPTURED:
                row = measurements.nearest(case, conditions)
            if row is not None:
                calls.append((case, occurrences, row))
        found.append((count, calls))
    return found


def _cost(counts: OperatorCounts, found: Rows, basis: EnergyBasis) -> ModelCost:
    parts = tuple(Part(*calls, basis) for _, rows in found for calls in rows)
    summed = tuple(count for count, rows in found if rows)
    # Each row once, with its number of calls.
    calls: dict[str, int] = {}
    rows_of_keys: dict[str, MeasurementRow] = {}
    for part in parts:
        calls[part.row.key] = calls.get(part.row.key, 0) + part.occurrences
        rows_of_keys[part.row.key] = part.row
    measured = [(calls[key], row, basis.energy_of(row)) for key, row in rows_of_keys.items()]
    without, reason = [row for _, row, energy in measured if energy is None], None
    if not measured:
        reason = "no operator of the model is measured"
    elif without:
        first = without[0].measurement.energy_missing_reason or "it cannot be normalised to 50 °C"
        reason = f"{len(without)} of {len(measured)}{WITHOUT_ENERGY}{first}"
    energies = [energy.times(number) for number, _, energy in measured if energy is not None]
    carried = share(summed, counts)
    return ModelCost(
        time_s=sum_of_independent(time_of(row).times(number) for number, row, _ in measured) if measured else None,
        energy_j=sum_of_independent(energies) if reason is None else None,
        energy_missing_reason=reason,
        basis=basis,
        summed=summed,
        missing=tuple(count for count, rows in found if not rows),
        parts=parts,
        flop_ratio=carried.flop_ratio,
        memory_bytes_ratio=carried.memory_bytes_ratio,
        flop_missing_reason=counts.flop_missing_reason,
    )
