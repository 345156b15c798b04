"""Counts x measurements = what a model costs by its parts, and what is missing from the sum."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

from opcost.estimates import Estimate, sum_of_independent
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow, energy_of, is_doubtful, time_of
from opcost.operators.cases import CAPTURED, Subject, subjects_of
from opcost.operators.tuples import OperatorCount, OperatorCounts
from opcost.operators.values import InputData, parse_input_data
from opcost.operators.whitelist import share


@dataclass(frozen=True)
class Part:
    """Calls in a sum: how many, of what, and the measurement that stands for them, perhaps one on other values."""

    subject: Subject
    occurrences: int
    row: MeasurementRow

    @property
    def time_s(self) -> float:
        """The time of all these calls."""
        return self.occurrences * self.row.measurement.time_s

    def energy_j(self, at_reference: bool = False) -> float | None:
        """Return the energy of all these calls, as measured or at the reference temperature, None where it has none."""
        energy_j = energy_of(self.row, at_reference)
        return None if energy_j is None else self.occurrences * energy_j.value

    @property
    def is_on_other_values(self) -> bool:
        """Whether the measurement was made on another kind of values."""
        return self.row.input_data != str(self.subject.input_data)


@dataclass(frozen=True)
class ModelCost:
    """The cost of one run of a model, summed from its operators.

    ``summed`` and ``missing`` are the counts with and without a measurement under the conditions asked for, ``parts``
    what is summed. Time and energy are None where nothing could be summed; energy also where any summed operator lacks
    it, since a sum of some energies is the energy of nothing. ``is_at_reference`` says whether energies are those at
    the reference temperature; how operators differ in how they follow it is no part of ``energy_j``'s error.
    ``flop_ratio`` and ``memory_bytes_ratio`` are the shares of the model's FLOPs and bytes that the sum carries.
    """

    time_s: Estimate | None
    energy_j: Estimate | None
    energy_missing_reason: str | None
    is_at_reference: bool
    summed: tuple[OperatorCount, ...]
    missing: tuple[OperatorCount, ...]
    parts: tuple[Part, ...]
    flop_ratio: float | None
    memory_bytes_ratio: float | None

    def board_ratio(self, board: str | None) -> float:
        """Return what share of the summed time was measured on a board; 0 where nothing is summed."""
        others_s = [part.time_s for part in self.parts if part.row.circumstances.device_uuid != board]
        return 0.0 if self.time_s is None else 1 - math.fsum(others_s) / self.time_s.value


class Measurements:
    """The best row for each thing measured under each set of conditions."""

    def __init__(self, rows: Iterable[MeasurementRow]) -> None:
        self._board: str | None = None
        self._by_board: dict[str | None, Measurements] = {None: self}
        self._rows: dict[str, dict[str, dict[str, list[MeasurementRow]]]] = {}
        for row in rows:
            operator_key, conditions_key = row.key.partition("-")[0], row.key.rpartition("-")[2]
            by_data = self._rows.setdefault(operator_key, {}).setdefault(conditions_key, {})
            by_data.setdefault(row.input_data, []).append(row)

    def preferring(self, board: str | None) -> Measurements:
        """Return the same rows, those of a board (a device's UUID) before others that are as good."""
        if board not in self._by_board:
            # The rows are shared: which of them is the best is asked when they are looked up.
            self._by_board[board] = copy(self)
            self._by_board[board]._board = board
        return self._by_board[board]

    def of_operator(self, operator_key: str) -> Iterator[MeasurementRow]:
        """Yield the rows of an operator, on any values and under any conditions."""
        for by_data in self._rows.get(operator_key, {}).values():
            yield from self._best(by_data).values()

    def find(self, subject: Subject, conditions: Conditions) -> MeasurementRow | None:
        """Return the row of an operator on these values, under these conditions."""
        return self._under(subject, conditions).get(str(subject.input_data))

    def nearest(self, subject: Subject, conditions: Conditions) -> MeasurementRow | None:
        """Return the row of an operator on the values most like these, under these conditions."""
        rows = {_data_of(row): row for row in self._under(subject, conditions).values()}
        inputs = len(subject.operator.floating_inputs)
        distances = {data: subject.input_data.distance(data, inputs) for data in rows if data is not None}
        return rows[min(distances, key=distances.__getitem__)] if distances else None

    def _under(self, subject: Subject, conditions: Conditions) -> dict[str, MeasurementRow]:
        return self._best(self._rows.get(subject.operator.key, {}).get(conditions.key, {}))

    def _best(self, by_data: Mapping[str, list[MeasurementRow]]) -> dict[str, MeasurementRow]:
        """Return the best row for each kind of values."""
        return {data: row for data, rows in by_data.items() for row in best_rows(rows, self._board).values()}


def best_rows(rows: Iterable[MeasurementRow], board: str | None = None) -> dict[str, MeasurementRow]:
    """Return one row for each key: one with energy if there is any, of these one that nothing disturbed, of these one
    of the board that is asked for, of these the longest loop, of these the last.
    """
    best: dict[str, MeasurementRow] = {}
    for row in rows:
        known = best.get(row.key)
        if known is None or _rank(row, board) >= _rank(known, board):
            best[row.key] = row
    return best


def best_of_each_board(rows: Sequence[MeasurementRow]) -> list[MeasurementRow]:
    """Return one row for each key and board; see ``best_rows``."""
    boards: dict[str | None, list[MeasurementRow]] = {}
    for row in rows:
        boards.setdefault(row.circumstances.device_uuid, []).append(row)
    return [row for of_board in boards.values() for row in best_rows(of_board).values()]


def whole_rank(whole: MeasurementRow, cost: ModelCost) -> tuple[bool, bool, float]:
    """Return by what one of several wholes is chosen to stand beside a sum of its board: the largest comes first."""
    board_ratio = cost.board_ratio(whole.circumstances.device_uuid)
    return energy_of(whole) is not None, not is_doubtful(whole.measurement), board_ratio


def sum_operators(
    counts: OperatorCounts,
    measurements: Measurements,
    conditions: Conditions,
    input_data: str = CAPTURED,
    at_reference: bool = False,
) -> ModelCost:
    """Sum time and energy by occurrence over the counts that have a row under these conditions.

    The n calls on one row share one measured mean, so they contribute n times its error; different rows were measured
    independently, so their errors add in quadrature.

    Args:
        counts: a model's (filtered) operator counts.
        measurements: where to look for rows.
        conditions: what all summed rows must hold under.
        input_data: one of ``INPUT_DATA``. Where captured values were not measured, those most like them stand in.
        at_reference: sum energies at the reference temperature, if all rows have them.
    """
    found = {count: tuple(_parts(count, measurements, conditions, input_data)) for count in counts.counts}
    summed = tuple(count for count, parts in found.items() if parts)
    parts = tuple(part for parts in found.values() for part in parts)
    measured = _by_row(parts)
    reason = _energy_missing_reason([row for _, row in measured])
    at_reference = at_reference and all(energy_of(row, at_reference=True) for _, row in measured)
    carried = share(summed, counts)
    return ModelCost(
        time_s=sum_of_independent(time_of(row).times(n) for n, row in measured) if measured else None,
        energy_j=sum_of_independent(_energies(measured, at_reference)) if reason is None else None,
        energy_missing_reason=reason,
        is_at_reference=at_reference and reason is None,
        summed=summed,
        missing=tuple(count for count, parts in found.items() if not parts),
        parts=parts,
        flop_ratio=carried.flop_ratio,
        memory_bytes_ratio=carried.memory_bytes_ratio,
    )


def sum_beside(
    whole: MeasurementRow,
    counts: OperatorCounts,
    measurements: Measurements,
    conditions: Conditions,
    input_data: str = CAPTURED,
) -> ModelCost:
    """Sum a model's operators as ``sum_operators`` does, to be set beside its whole.

    Rows of the whole's board come first; energies are those at the reference temperature if the whole has one there.
    """
    of_board = measurements.preferring(whole.circumstances.device_uuid)
    has_reference = energy_of(whole, at_reference=True) is not None
    return sum_operators(counts, of_board, conditions, input_data, has_reference)


def _parts(count: OperatorCount, measurements: Measurements, conditions: Conditions, input_data: str) -> Iterator[Part]:
    for subject, occurrences in subjects_of([count], input_data).items():
        row = measurements.find(subject, conditions)
        if row is None and input_data == CAPTURED:
            row = measurements.nearest(subject, conditions)
        if row is not None:
            yield Part(subject, occurrences, row)


def _by_row(parts: Iterable[Part]) -> list[tuple[int, MeasurementRow]]:
    """Return each row once, with the number of calls that it stands for."""
    calls: dict[str, int] = {}
    rows: dict[str, MeasurementRow] = {}
    for part in parts:
        calls[part.row.key] = calls.get(part.row.key, 0) + part.occurrences
        rows[part.row.key] = part.row
    return [(calls[key], row) for key, row in rows.items()]


def _data_of(row: MeasurementRow) -> InputData | None:
    """Return the kind of values of a row, None for one that this version does not know."""
    try:
        return parse_input_data(row.input_data)
    except ValueError:
        return None


def _rank(row: MeasurementRow, board: str | None) -> tuple[bool, bool, bool, float]:
    is_of_board = board is not None and row.circumstances.device_uuid == board
    return energy_of(row) is not None, not is_doubtful(row.measurement), is_of_board, row.measurement.loop_time_s


def _energies(measured: Iterable[tuple[int, MeasurementRow]], at_reference: bool) -> Iterable[Estimate]:
    return (energy.times(n) for n, row in measured if (energy := energy_of(row, at_reference)) is not None)


def _energy_missing_reason(rows: list[MeasurementRow]) -> str | None:
    if not rows:
        return "no operator of the model is measured"
    without = [row for row in rows if energy_of(row) is None]
    if not without:
        return None
    return f"{len(without)} of {len(rows)} operators have no energy: {without[0].measurement.energy_missing_reason}"
