"""An index of measurements by operator, input data and conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TypeAlias

from opcost.measuring.conditions import Conditions
from opcost.measuring.lookup import lookup_key
from opcost.measuring.record import MeasurementRow, is_doubtful, ran_as_requested
from opcost.operators.cases import Case, conditions_key, tuple_key
from opcost.operators.counts import OperatorCounts, memory_bytes_of
from opcost.operators.tuples import OperatorTuple
from opcost.operators.values import has_zeros_in_weights, parse_input_data
from opcost.summing.energy import EnergyBasis

RowsByData: TypeAlias = Mapping[str, Sequence[MeasurementRow]]
"""Rows of an operator by their input data."""


class Measurements:
    """The best row of each case under each set of conditions.

    Rows under other conditions are found, too, if they stand for each other (``measuring.lookup``). Among equally good
    ones of a board, those under the very conditions are preferred. Rows with zeros in weights are left out: they are of
    grids, and would make a model's sum too small.
    """

    def __init__(self, rows: Iterable[MeasurementRow]) -> None:
        self._board: str | None = None
        self._by_board: dict[str | None, Measurements] = {None: self}
        self._rows: dict[str, dict[str, dict[str, list[MeasurementRow]]]] = {}
        self._conditions: dict[str, Conditions] = {}
        self._found: dict[tuple[str, str], RowsByData] = {}
        for row in rows:
            if has_zeros_in_weights(row.input_data):
                continue
            conditions = conditions_key(row.key)
            by_data = self._rows.setdefault(tuple_key(row.key), {}).setdefault(conditions, {})
            by_data.setdefault(row.input_data, []).append(row)
            self._conditions.setdefault(conditions, row.conditions)
        # Sums look up each case once for each board of their whole models.
        for by_conditions in self._rows.values():
            for by_data in by_conditions.values():
                by_data.update({data: _of_best_quality(found) for data, found in by_data.items()})

    def preferring(self, board: str | None) -> Measurements:
        """Return the same rows with a preference for those of a board (a device's UUID) among equally good ones."""
        if board not in self._by_board:
            # Both share the rows; the best one is chosen at lookup.
            self._by_board[board] = copy(self)
            self._by_board[board]._board = board
        return self._by_board[board]

    def of_operator(self, operator_key: str) -> Iterator[MeasurementRow]:
        """Yield the best rows of an operator, on any input data and under any conditions."""
        for by_data in self._rows.get(operator_key, {}).values():
            yield from (_preferred(rows, self._board) for rows in by_data.values())

    def under(self, operator: OperatorTuple, conditions: Conditions) -> list[MeasurementRow]:
        return [_preferred(rows, self._board) for rows in self._under(operator, conditions).values()]

    def all_under(self, operator: OperatorTuple, conditions: Conditions) -> list[MeasurementRow]:
        """Return the rows of the best quality on each input data, of all boards; those of the preferred board last."""
        rows = [row for of_data in self._under(operator, conditions).values() for row in of_data]
        return sorted(rows, key=lambda row: self._board is not None and row.circumstances.device_uuid == self._board)

    def measured_ratio(self, counts: OperatorCounts, conditions: Conditions) -> float:
        """Return the share of the bytes of counted operators that have a row under these conditions; 0 of none."""
        measured = [count for count in counts.counts if self._under(count.operator, conditions)]
        return memory_bytes_of(measured) / max(1, memory_bytes_of(counts.counts))

    def has_any(self, counts: OperatorCounts, conditions: Conditions) -> bool:
        return any(conditions.key in self._rows.get(count.operator.key, {}) for count in counts.counts)

    def find(self, case: Case, conditions: Conditions) -> MeasurementRow | None:
        rows = self._under(case.operator, conditions).get(str(case.input_data))
        return None if rows is None else _preferred(rows, self._board)

    def nearest(self, case: Case, conditions: Conditions) -> MeasurementRow | None:
        """Return the best row of a case's operator on the most similar input data, under these conditions."""
        inputs, found = len(case.operator.floating_inputs), {}
        for row in self.under(case.operator, conditions):
            try:
                data = parse_input_data(row.input_data)
            except ValueError:
                # This version cannot parse it.
                continue
            found[data] = case.input_data.distance(data, inputs), row
        return min(found.values(), key=lambda one: one[0])[1] if found else None

    def _under(self, operator: OperatorTuple, conditions: Conditions) -> RowsByData:
        """Return the rows of an operator that count under these conditions."""
        by_conditions = self._rows.get(operator.key)
        if by_conditions is None:
            return {}
        place = operator.key, conditions.key
        if place not in self._found:
            wanted = lookup_key(operator, conditions)
            same = [key for key in by_conditions if lookup_key(operator, self._conditions[key]) == wanted]
            # Of equals, rows of the very conditions come last.
            parts = [by_conditions[key] for key in sorted(same, key=lambda key: key == conditions.key)]
            joined: dict[str, list[MeasurementRow]] = {}
            for data, rows in (item for part in parts for item in part.items()):
                joined.setdefault(data, []).extend(rows)
            if len(parts) > 1:
                joined = {data: _of_highest_quality(rows) for data, rows in joined.items()}
            self._found[place] = joined
        return self._found[place]


def best_rows(rows: Iterable[MeasurementRow], board: str | None = None) -> dict[str, MeasurementRow]:
    """Return the best row for each key.

    Rows are preferred in this order: with energy, not flagged, run as requested, of the given board, most builds, the
    longest loop, the last.
    """
    of_key: dict[str, list[MeasurementRow]] = {}
    for row in rows:
        of_key.setdefault(row.key, []).append(row)
    return {key: _preferred(_of_best_quality(found), board) for key, found in of_key.items()}


def _of_best_quality(rows: Sequence[MeasurementRow]) -> list[MeasurementRow]:
    """Return the best of some rows with one key, as far as possible: with energy, not flagged, run as requested.

    The one of most builds, and of these the longest loop, is last. Boards are not considered.
    """
    return sorted(_of_highest_quality(rows), key=lambda row: (row.measurement.builds or 1, row.measurement.loop_time_s))


def _of_highest_quality(rows: Sequence[MeasurementRow]) -> list[MeasurementRow]:
    if len(rows) == 1:
        return list(rows)
    of_quality: dict[tuple[bool, bool, bool], list[MeasurementRow]] = {}
    for row in rows:
        quality = (EnergyBasis.MEASURED.is_known(row), not is_doubtful(row), ran_as_requested(row))
        of_quality.setdefault(quality, []).append(row)
    return of_quality[max(of_quality)]


def _preferred(rows: Sequence[MeasurementRow], board: str | None) -> MeasurementRow:
    """Return the best of rows of the best quality, that of a board if there is one."""
    of_board = (row for row in reversed(rows) if board is not None and row.circumstances.device_uuid == board)
    return next(of_board, rows[-1])


def best_of_each_board(rows: Sequence[MeasurementRow]) -> list[MeasurementRow]:
    """Return the best row for each key and board, see ``best_rows``."""
    boards: dict[str | None, list[MeasurementRow]] = {}
    for row in rows:
        boards.setdefault(row.circumstances.device_uuid, []).append(row)
    return [row for of_board in boards.values() for row in best_rows(of_board).values()]
