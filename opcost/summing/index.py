"""Rows of measurements, found by operator, values and conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy

from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow, is_doubtful
from opcost.operators.cases import Case
from opcost.operators.values import InputData, parse_input_data
from opcost.summing.energy import EnergyBasis


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

    def find(self, case: Case, conditions: Conditions) -> MeasurementRow | None:
        """Return the row of an operator on these values, under these conditions."""
        return self._under(case, conditions).get(str(case.input_data))

    def nearest(self, case: Case, conditions: Conditions) -> MeasurementRow | None:
        """Return the row of an operator on the values most like these, under these conditions."""
        rows = {_data_of(row): row for row in self._under(case, conditions).values()}
        inputs = len(case.operator.floating_inputs)
        distances = {data: case.input_data.distance(data, inputs) for data in rows if data is not None}
        return rows[min(distances, key=distances.__getitem__)] if distances else None

    def _under(self, case: Case, conditions: Conditions) -> dict[str, MeasurementRow]:
        return self._best(self._rows.get(case.operator.key, {}).get(conditions.key, {}))

    def _best(self, by_data: Mapping[str, list[MeasurementRow]]) -> dict[str, MeasurementRow]:
        """Return the best row for each kind of values."""
        return {data: row for data, rows in by_data.items() for row in best_rows(rows, self._board).values()}


def best_rows(rows: Iterable[MeasurementRow], board: str | None = None) -> dict[str, MeasurementRow]:
    """Return one row for each key: one with energy if there is any, of these one without a flag that casts doubt, of
    these one of the board that is asked for, of these the longest loop, of these the last.
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


def _data_of(row: MeasurementRow) -> InputData | None:
    """Return the kind of values of a row, None for one that this version does not know."""
    try:
        return parse_input_data(row.input_data)
    except ValueError:
        return None


def _rank(row: MeasurementRow, board: str | None) -> tuple[bool, bool, bool, float]:
    is_of_board = board is not None and row.circumstances.device_uuid == board
    has_energy = EnergyBasis.MEASURED.energy_of(row) is not None
    return has_energy, not is_doubtful(row.measurement), is_of_board, row.measurement.loop_time_s
