"""Rows that complete a case, and the reasons to measure it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from opcost.measuring.conditions import Conditions, measurement_key
from opcost.measuring.lookup import lookup_key
from opcost.measuring.protocol import FULL_LOOP_S, RETRIES, MeasurementProtocol
from opcost.measuring.record import MeasurementRow, is_doubtful
from opcost.operators.cases import Case, case_key
from opcost.summing.summation import best_rows


class Reason(Enum):
    """Why a case is to be measured. The value is the text that people read."""

    MISSING = "missing"
    OTHER_BOARD = "on another board"
    SHORTER = "shorter or less precise than asked"
    NO_ENERGY = "lacks energy"
    FLAGGED = "flagged"


REPEATED = frozenset({Reason.NO_ENERGY, Reason.FLAGGED})
"""The reasons of cases that have a row which meets the demand."""


@dataclass(frozen=True)
class Demand:
    """The requirements on a row. Only rows of ``boards`` (UUIDs) count; None for all boards."""

    protocol: MeasurementProtocol
    has_meter: bool
    boards: tuple[str | None, ...] | None = None

    def shortcoming(self, row: MeasurementRow) -> Reason | None:
        """Return why a row does not count, None if it does."""
        if not row.circumstances.suffices_for(self.protocol.loop_s, self.protocol.relative_error, FULL_LOOP_S):
            return Reason.SHORTER
        if self.boards is not None and row.circumstances.device_uuid not in self.boards:
            return Reason.OTHER_BOARD
        return None


class KnownRows:
    """The rows that meet a demand, and the keys that they complete.

    A key is complete with one row that is not flagged and, if there is a meter, has energy; or with ``RETRIES.runs``
    other rows. A measurement that was disturbed in one run need not be so in the next. Rows under other conditions may
    complete a case, too (``measuring.lookup``).
    """

    def __init__(self, demand: Demand, rows: Iterable[MeasurementRow]) -> None:
        self._demand = demand
        self._shortcomings: dict[str, Reason] = {}
        self.best: dict[str, MeasurementRow] = {}
        self._numbers: Counter[str] = Counter()
        self._conditions: dict[str, dict[str, Conditions]] = {}
        self.add(rows)

    def add(self, rows: Iterable[MeasurementRow]) -> None:
        counting = []
        for row in rows:
            shortcoming = self._demand.shortcoming(row)
            if shortcoming is None:
                counting.append(row)
                self._conditions.setdefault(case_key(row.key), {})[row.key] = row.conditions
            else:
                self._shortcomings[row.key] = shortcoming
        self._numbers.update(row.key for row in counting)
        known = [self.best[key] for key in {row.key for row in counting} & self.best.keys()]
        self.best |= best_rows([*known, *counting])

    def key(self, case: Case, conditions: Conditions) -> str:
        """Return the key of a case: of rows under other conditions if only these complete it."""
        own, wanted = measurement_key(case, conditions), lookup_key(case.operator, conditions)
        of_others = self._conditions.get(case.key, {}).items()
        same = (key for key, other in of_others if lookup_key(case.operator, other) == wanted)
        return next((key for key in (own, *same) if self.reason(key) is None), own)

    def reason(self, key: str) -> Reason | None:
        """Return why a key is to be measured, None if it is complete."""
        row = self.best.get(key)
        if row is None:
            return self._shortcomings.get(key, Reason.MISSING)
        if self._numbers[key] >= RETRIES.runs:
            return None
        if self._demand.has_meter and row.measurement.energy_j is None:
            return Reason.NO_ENERGY
        return Reason.FLAGGED if is_doubtful(row) else None
