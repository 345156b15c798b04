"""The sum of a model's operators: counts times rows, with energies as measured or normalised to 50 °C."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from opcost.columns import grouped
from opcost.estimates import Estimate, estimate_of, sum_of_independent, total_if_known
from opcost.measuring.conditions import STATE, WARM, Conditions, lookup_key
from opcost.measuring.record import (
    COEFFICIENT_ERROR_PER_KELVIN,
    COEFFICIENT_SPREAD_PER_KELVIN,
    REFERENCE_TEMPERATURE_C,
    MeasurementRow,
    is_doubtful,
    ran_as_requested,
    time_of,
)
from opcost.operators.counts import (
    CAPTURED,
    Case,
    OperatorCount,
    OperatorCounts,
    case_key,
    cases_of_count,
    conditions_key,
    memory_bytes_of,
    share,
    tuple_key,
)
from opcost.operators.tuples import OperatorTuple
from opcost.operators.values import has_zeros_in_weights, parse_input_data
from opcost.summing.in_state import Added, far_launches_ratio, in_state, limits_of, shared_error_j


class EnergyBasis(Enum):
    """The energies that are summed or compared: all as measured, or all at the reference temperature."""

    MEASURED = "measured"
    NORMALISED = "normalised"

    @property
    def temperature_c(self) -> float | None:
        return REFERENCE_TEMPERATURE_C if self is EnergyBasis.NORMALISED else None

    def energy_of(self, row: MeasurementRow) -> Estimate | None:
        """Return a row's energy per iteration in J, without the error of normalising, which all rows share."""
        measured = row.measurement
        energy_j = measured.energy_at_reference_j if self is EnergyBasis.NORMALISED else measured.energy_j
        return estimate_of(energy_j, measured.energy_standard_error_j)

    def is_known(self, row: MeasurementRow) -> bool:
        return self.energy_of(row) is not None

    def kelvins_j(self, calls: int, row: MeasurementRow, celsius: float | None) -> float:
        """Return the energy of calls times the kelvins that they were warmer than a temperature; 0 if it is unknown."""
        energy_j, own_c = self.energy_of(row), row.measurement.temperature_c
        if energy_j is None or own_c is None or celsius is None:
            return 0.0
        return calls * energy_j.value * (own_c - celsius)


def temperature_error_j(kelvins_j: Iterable[float]) -> float:
    """Return the error in J of a difference of energies due to power temperature coefficients, from its ``kelvins_j``.

    The board's coefficient is shared by all; operators' coefficients differ from it independently.
    """
    parts = list(kelvins_j)
    board_j, operators_j = math.fsum(parts), math.hypot(*parts)
    return math.hypot(COEFFICIENT_ERROR_PER_KELVIN * board_j, COEFFICIENT_SPREAD_PER_KELVIN * operators_j)


def common_basis(rows: Iterable[MeasurementRow]) -> EnergyBasis:
    """Return the basis on which energies of these rows may be compared: normalised if all can be, else as measured."""
    is_known = list(map(EnergyBasis.NORMALISED.is_known, rows))
    return EnergyBasis.NORMALISED if is_known and all(is_known) else EnergyBasis.MEASURED


# The rows of a database, by operator, input data and conditions


RowsByCase: TypeAlias = Mapping[str, Sequence[MeasurementRow]]
"""Rows of an operator by the key of their case."""


class Measurements:
    """The best row of each case under each set of conditions, or conditions that stand for them (``lookup_key``).

    Among equally good ones of a board, those under the very conditions are preferred. Rows with zeros in weights are
    left out: they are of grids, and would make a model's sum too small.
    """

    def __init__(self, rows: Iterable[MeasurementRow]) -> None:
        self._board: str | None = None
        self._by_board: dict[str | None, Measurements] = {None: self}
        self._rows: dict[str, dict[str, dict[str, list[MeasurementRow]]]] = {}
        self._conditions: dict[str, Conditions] = {}
        self._found: dict[tuple[str, str], RowsByCase] = {}
        for row in rows:
            if has_zeros_in_weights(row.input_data):
                continue
            conditions, case = conditions_key(row.key), case_key(row.key)
            by_case = self._rows.setdefault(tuple_key(row.key), {}).setdefault(conditions, {})
            by_case.setdefault(case, []).append(row)
            self._conditions.setdefault(conditions, row.conditions)
        # Sums look up each case once for each board of their whole models.
        for by_conditions in self._rows.values():
            for by_case in by_conditions.values():
                by_case.update({case: _of_best_quality(found) for case, found in by_case.items()})

    def preferring(self, board: str | None) -> Measurements:
        """Return the same rows with a preference for those of a board (a device's UUID) among equally good ones."""
        if board not in self._by_board:
            # Both share the rows; the best one is chosen at lookup.
            self._by_board[board] = copy(self)
            self._by_board[board]._board = board
        return self._by_board[board]

    def of_operator(self, count: OperatorCount) -> Iterator[MeasurementRow]:
        """Yield the best rows of an operator in its phase, on any input data and under any conditions."""
        for by_case in self._rows.get(count.operator.key, {}).values():
            found = (_preferred(rows, self._board) for rows in by_case.values())
            yield from (row for row in found if row.phase is count.phase)

    def under(self, count: OperatorCount | Case, conditions: Conditions) -> list[MeasurementRow]:
        """Return the best row of an operator in its phase on each input data, under these conditions."""
        found = (_preferred(rows, self._board) for rows in self._under(count.operator, conditions).values())
        return [row for row in found if row.phase is count.phase]

    def all_under(self, count: OperatorCount, conditions: Conditions) -> list[MeasurementRow]:
        """Return the rows of the best quality of each case, of all boards; those of the preferred board last."""
        cases = self._under(count.operator, conditions).values()
        rows = [row for of_case in cases for row in of_case if row.phase is count.phase]
        return sorted(rows, key=lambda row: self._board is not None and row.circumstances.device_uuid == self._board)

    def measured_ratio(self, counts: OperatorCounts, conditions: Conditions) -> float:
        measured = [count for count in counts.counts if self.under(count, conditions)]
        return memory_bytes_of(measured) / max(1, memory_bytes_of(counts.counts))

    def has_any(self, counts: OperatorCounts, conditions: Conditions) -> bool:
        return any(conditions.key in self._rows.get(count.operator.key, {}) for count in counts.counts)

    @property
    def has_states(self) -> bool:
        """Whether there is any row in a state."""
        return any(one.cache == STATE for one in self._conditions.values())

    def find(self, case: Case, conditions: Conditions) -> MeasurementRow | None:
        rows = self._under(case.operator, conditions).get(case.key)
        return None if rows is None else _preferred(rows, self._board)

    def found(self, case: Case, conditions: Conditions, input_data: str) -> MeasurementRow | None:
        """Return the row of a case, of other captured data if there is none of its own."""
        row = self.find(case, conditions)
        return self.nearest(case, conditions) if row is None and input_data == CAPTURED else row

    def in_state(
        self, case: Case, conditions: Conditions, warm_conditions: Conditions, input_data: str
    ) -> tuple[MeasurementRow | None, Added | None]:
        """Return the row of a case in its state, and what the state adds; the warm row if one of both is missing.

        The energy is from the warm row, of the row's board if there is one.
        """
        row = self.find(case, conditions)
        rows = self if row is None else self.preferring(row.circumstances.device_uuid)
        warm = rows.found(replace(case, state=""), warm_conditions, input_data)
        return (warm, None) if row is None or warm is None else in_state(row, warm, case)

    def nearest(self, case: Case, conditions: Conditions) -> MeasurementRow | None:
        inputs, found = len(case.operator.floating_inputs), {}
        for row in self.under(case, conditions):
            try:
                data = parse_input_data(row.input_data)
            except ValueError:
                # This version cannot parse it.
                continue
            found[data] = case.input_data.distance(data, inputs), row
        return min(found.values(), key=lambda one: one[0])[1] if found else None

    def _under(self, operator: OperatorTuple, conditions: Conditions) -> RowsByCase:
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
            for case, rows in (item for part in parts for item in part.items()):
                joined.setdefault(case, []).extend(rows)
            if len(parts) > 1:
                joined = {case: _of_highest_quality(rows) for case, rows in joined.items()}
            self._found[place] = joined
        return self._found[place]


def best_rows(rows: Iterable[MeasurementRow], board: str | None = None) -> dict[str, MeasurementRow]:
    """Return the best row for each key.

    Rows are preferred in this order: with energy, not flagged, run as requested, of the given board, most builds, the
    longest loop, the last.
    """
    of_key = grouped(rows, lambda row: row.key)
    return {key: _preferred(_of_best_quality(found), board) for key, found in of_key.items()}


def _of_best_quality(rows: Sequence[MeasurementRow]) -> list[MeasurementRow]:
    """Return the best rows with one key, of any board; the one of most builds, and then the longest loop, is last."""
    return sorted(_of_highest_quality(rows), key=lambda row: (row.measurement.builds or 1, row.measurement.loop_time_s))


def _of_highest_quality(rows: Sequence[MeasurementRow]) -> list[MeasurementRow]:
    if len(rows) == 1:
        return list(rows)
    of_quality = grouped(
        rows, lambda row: (EnergyBasis.MEASURED.is_known(row), not is_doubtful(row), ran_as_requested(row))
    )
    return of_quality[max(of_quality)]


def _preferred(rows: Sequence[MeasurementRow], board: str | None) -> MeasurementRow:
    of_board = (row for row in reversed(rows) if board is not None and row.circumstances.device_uuid == board)
    return next(of_board, rows[-1])


def best_of_each_board(rows: Iterable[MeasurementRow], with_parts: bool = False) -> list[MeasurementRow]:
    """Return the best row for each key and board, see ``best_rows``; of the parts of training steps only if asked."""
    chosen = (row for row in rows if with_parts or not row.phase.is_part)
    boards = grouped(chosen, lambda row: row.circumstances.device_uuid)
    return [row for of_board in boards.values() for row in best_rows(of_board).values()]


# Sums


WITHOUT_ENERGY = " operators have no energy: "
"""Stands between the numbers and the reason of a missing energy, for people."""


@dataclass(frozen=True)
class Part:
    """The calls of one case in a sum on a basis, with the row that gives their cost, perhaps of other input data.

    A row in state has its energy from a warm row; ``added`` is then what the state adds.
    """

    count: OperatorCount
    case: Case
    occurrences: int
    row: MeasurementRow
    basis: EnergyBasis
    added: Added | None = None

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
    """The cost of one run of a model, summed from its operators, with and without a row under the conditions.

    Time and energy are None if nothing could be summed; energy also if any summed operator has none. Its error does not
    include power temperature coefficients. The ratios are shares of the model's FLOPs and bytes.
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

    def time_ratio(self, parts: Iterable[Part]) -> float:
        return 0.0 if self.time_s is None else math.fsum(part.time_s for part in parts) / self.time_s.value

    @property
    def warm_ratio(self) -> float:
        """The share of the summed time of calls that compute and have no row in their state."""
        return self.time_ratio(part for part in self.parts if part.count.computes and part.added is None)

    def board_ratio(self, board: str | None) -> float:
        others = (part for part in self.parts if part.row.circumstances.device_uuid != board)
        return 0.0 if self.time_s is None else 1 - self.time_ratio(others)


NOTHING_SUMMED = ModelCost(None, None, None, EnergyBasis.MEASURED, (), (), (), None, None)
"""The sum of a model that is not counted."""


def best_whole(
    wholes: Sequence[MeasurementRow], sum_of: Callable[[MeasurementRow], ModelCost]
) -> tuple[MeasurementRow, ModelCost]:
    """Return the whole model's row to compare with a sum, and the sum beside it, which ``sum_of`` returns.

    Preferred are those with energy, not doubtful, of the board with most of the sum; of equals the last.
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
    used. Under conditions in state each call has the row of its state. ``basis`` is that of the summed energies.
    """
    return _cost(counts, _rows_of(counts, measurements, conditions, input_data), basis)


def sum_beside(
    whole: MeasurementRow | None,
    counts: OperatorCounts,
    measurements: Measurements,
    conditions: Conditions,
    input_data: str = CAPTURED,
) -> ModelCost:
    """Sum a model's operators beside the whole model, whose board is preferred; None without one.

    Energies are normalised if all rows and the whole model's can be.
    """
    board = None if whole is None else whole.circumstances.device_uuid
    found = _rows_of(counts, measurements.preferring(board), conditions, input_data)
    rows = [row for _, calls in found for _, _, row, _ in calls]
    wholes = [] if whole is None else [whole]
    return _cost(counts, found, common_basis([*wholes, *rows]) if rows else EnergyBasis.MEASURED)


Rows: TypeAlias = Sequence[tuple[OperatorCount, Sequence[tuple[Case, int, MeasurementRow, Added | None]]]]
"""Each count with the case, the number of calls and the row of its calls, and what their state adds."""


def _rows_of(counts: OperatorCounts, measurements: Measurements, conditions: Conditions, input_data: str) -> Rows:
    found, limits = [], limits_of(conditions)
    # Once, since conditions keep their key.
    warm = conditions if limits is None else replace(conditions, cache=WARM)
    far_launches = 1.0 if limits is None else far_launches_ratio(counts, limits)
    for count in counts.counts:
        calls = []
        for case, occurrences in cases_of_count(count, input_data, limits):
            if case.state:
                counted = replace(case, counted=count, far_launches_ratio=far_launches)
                row, added = measurements.in_state(counted, conditions, warm, input_data)
            else:
                row, added = measurements.found(case, warm, input_data), None
            if row is not None:
                calls.append((case, occurrences, row, added))
        found.append((count, calls))
    return found


def _cost(counts: OperatorCounts, found: Rows, basis: EnergyBasis) -> ModelCost:
    parts = tuple(
        Part(count, case, number, row, basis, added) for count, rows in found for case, number, row, added in rows
    )
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
    # Rows in several states of a tuple share the error of their warm row.
    warm_keys = {part.row.key: part.added.warm_key for part in parts if part.added is not None}
    energies: dict[str, Estimate] = {}
    for number, row, energy in measured:
        if energy is not None:
            key, own = warm_keys.get(row.key, row.key), energy.times(number)
            if key in energies:
                before = energies[key]
                own = Estimate(before.value + own.value, before.standard_error + own.standard_error)
            energies[key] = own
    in_states = [(part.occurrences, part.added) for part in parts if part.added is not None]
    summed_j = sum_of_independent(energies.values())
    if in_states:
        summed_j = summed_j.with_error(shared_error_j(in_states, parts[0].row.conditions))
    carried = share(summed, counts)
    return ModelCost(
        time_s=sum_of_independent(time_of(row).times(number) for number, row, _ in measured) if measured else None,
        energy_j=summed_j if reason is None else None,
        energy_missing_reason=reason,
        basis=basis,
        summed=summed,
        missing=tuple(count for count, rows in found if not rows),
        parts=parts,
        flop_ratio=carried.flop_ratio,
        memory_bytes_ratio=carried.memory_bytes_ratio,
        flop_missing_reason=counts.flop_missing_reason,
    )
