"""The rows that one model needs, without reading the others of a database."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import of_operators
from opcost.operators.counts import OperatorCounts
from opcost.running.request import model_tuple
from opcost.storage.configs import ModelConfig
from opcost.storage.database import Database
from opcost.summing.index import Measurements, best_of_each_board


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
