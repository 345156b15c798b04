"""The rows that one model needs, without reading the others of a database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import of_operators
from opcost.operators.counts import OperatorCounts
from opcost.operators.keys import conditions_key
from opcost.running.request import model_tuple
from opcost.storage.configs import ModelConfig
from opcost.storage.database import Database
from opcost.storage.table import CsvTable
from opcost.summing.index import Measurements, best_of_each_board


@dataclass
class _Tally:
    """Counts rows by the key of their conditions, and wants the first of each."""

    numbers: Counter[str]

    def __call__(self, key: str) -> bool:
        """Count a row by its key; return whether it is the first under its conditions."""
        conditions = conditions_key(key)
        self.numbers[conditions] += 1
        return self.numbers[conditions] == 1


def numbers_of_rows(table: CsvTable[MeasurementRow]) -> Mapping[Conditions, int]:
    """Return the number of rows under each set of conditions: one row of each is parsed.

    Raises:
        UserError: the header or one of these rows is damaged.
    """
    tally = _Tally(Counter())
    firsts = {row.conditions: conditions_key(row.key) for row in table.rows(tally)}
    return {conditions: tally.numbers[key] for conditions, key in firsts.items()}


def measurements_of(database: Database, counts: OperatorCounts) -> Measurements:
    """Return the rows of a model's operators, under any conditions.

    Raises:
        UserError: the header or one of these rows is damaged.
    """
    wanted = of_operators(count.operator for count in counts.counts)
    return Measurements(database.operator_measurements.rows(wanted))


def wholes_of(database: Database, config: ModelConfig, conditions: Conditions) -> Sequence[MeasurementRow]:
    """Return the best row of each board of a whole model under some conditions.

    Raises:
        UserError: the header or one of these rows is damaged.
    """
    rows = database.full_model_measurements.rows(of_operators([model_tuple(config)]))
    return [row for row in best_of_each_board(rows) if row.conditions == conditions]
