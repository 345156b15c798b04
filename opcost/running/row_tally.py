"""The number of rows under each set of conditions, by their keys: few rows are parsed, and none is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import conditions_key
from opcost.storage.table import CsvTable


@dataclass
class RowTally:
    """Counts rows by the key of their conditions, and wants the first ``parsed`` of each."""

    parsed: int = 1
    numbers: Counter[str] = field(default_factory=Counter)

    def __call__(self, key: str) -> bool:
        """Count a row by its key; return whether it is among the first under its conditions."""
        conditions = conditions_key(key)
        self.numbers[conditions] += 1
        return self.numbers[conditions] <= self.parsed


def numbers_of_rows(table: CsvTable[MeasurementRow]) -> Mapping[Conditions, int]:
    """Return the number of rows under each set of conditions: one row of each is parsed.

    Raises UserError: the header or one of these rows is damaged.
    """
    tally = RowTally()
    firsts = {row.conditions: conditions_key(row.key) for row in table.rows(tally)}
    return {conditions: tally.numbers[key] for conditions, key in firsts.items()}
