"""The expected times of a campaign, from the rows of the database, else from FLOPs and bytes."""

from __future__ import annotations

from collections.abc import Sequence

from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import tuple_key
from opcost.operators.model_rows import ModelOperatorRow
from opcost.prediction.durations import ExpectedTimes, Size
from opcost.running.plan import Work
from opcost.storage.database import Database
from opcost.storage.table import CsvTable

WHOLLY_READ_BYTES = 2**25
"""The size up to which a table is read as a whole, in a few seconds. Of a larger one only rows of wanted operators are
known."""

GPU_STARTING_S = 15.0
CPU_STARTING_S = 5.0
"""Time to start the process that measures, with torch and the libraries that the first operator loads: on an H200 9 s
lay between two campaigns (median of 20), and the first whole model took 6 s longer (14 campaigns, 2026-11-22); on two
cores of a server 2026-11-23."""

QUALIFICATION_S = 30.0
"""Time to qualify the meters of a board, once under each driver (H200, 2026-11-21)."""


def starting_s(is_gpu: bool) -> float:
    """Return the time to start the process that measures in s."""
    return GPU_STARTING_S if is_gpu else CPU_STARTING_S


def expected_times(
    database: Database,
    table: CsvTable[MeasurementRow],
    rows: Sequence[MeasurementRow],
    works: Sequence[Work],
    conditions: Conditions,
) -> ExpectedTimes:
    """Return the expected times of a campaign.

    Args:
        database: has sizes and rows of operators.
        table: the table that the campaign adds to, of which ``rows`` are those of the wanted operators.
        works: the cases of each model.
        conditions: any of the campaign.
    """
    sizes = sizes_in(database.model_operators) | {key: size for work in works for key, size in work.sizes.items()}
    are_models = all(case.operator.is_model for work in works for case in work.cases)
    all_rows = rows_if_few(table) or rows
    is_known = any(row.conditions.device_product == conditions.device_product for row in all_rows)
    operator_rows = rows_if_few(database.operator_measurements) if are_models and not is_known else ()
    return ExpectedTimes(conditions, all_rows, sizes, are_models, operator_rows)


def rows_if_few(table: CsvTable[MeasurementRow]) -> list[MeasurementRow]:
    """Return the rows of a table, none if it is large."""
    return table.rows() if table.size_bytes <= WHOLLY_READ_BYTES else []


def sizes_in(table: CsvTable[ModelOperatorRow]) -> dict[str, Size]:
    """Return the sizes of measured operators and models by the keys of their tuples."""
    return {tuple_key(row.key): Size(row.flop, row.memory_bytes, row.weights or 0) for row in table.rows()}
