"""The expected times of a campaign, from the rows of the database, else from FLOPs and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from opcost.measuring.conditions import Conditions, measurement_key
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import MeasurementRow, is_flagged
from opcost.operators.cases import Case
from opcost.operators.keys import tuple_key
from opcost.operators.model_rows import ModelOperatorRow
from opcost.prediction.durations import UNKNOWN_SIZE, Durations, Item, Size, default_rates
from opcost.prediction.rates import MINIMUM_KNOWN, Rates, rates_of
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

SHORTEST_S = 1e-8
"""The shortest expected time of an iteration."""


def starting_s(is_gpu: bool) -> float:
    """Return the time to start the process that measures in s."""
    return GPU_STARTING_S if is_gpu else CPU_STARTING_S


class ExpectedTimes:
    """The expected times of measurements of operators, or of whole models, on a device.

    Args:
        conditions: any of the device.
        rows: the rows of the table that the measurements are added to, of any device.
        sizes: the sizes of operators and models, by the keys of their tuples.
        are_models: whether the measurements are of whole models.
        operator_rows: rows of operators, for whole models if too few have rows.
    """

    def __init__(
        self,
        conditions: Conditions,
        rows: Sequence[MeasurementRow],
        sizes: Mapping[str, Size],
        are_models: bool = False,
        operator_rows: Sequence[MeasurementRow] = (),
    ) -> None:
        self._default = default_rates(conditions.device_type, conditions.cpu_threads)
        self._sizes = sizes
        self._are_models = are_models
        # A disturbed measurement can be off by any factor.
        rows = [row for row in rows if not is_flagged(row.measurement)]
        rows, is_other = _similar(rows, conditions)
        self._durations = Durations(conditions.device_type, rows, sizes, are_models, is_other)
        self._rates = self._fitted(rows) or self._fitted(_similar(operator_rows, conditions)[0])
        self._times_s: dict[str, list[float]] = {}
        for row in rows:
            # By case under the same conditions, and by operator in the same execution.
            for key in (row.key, _of_operator(row.key, row.conditions.execution)):
                self._times_s.setdefault(key, []).append(row.measurement.time_s)

    def item_s(self, case: Case, conditions: Conditions, protocol: MeasurementProtocol) -> float:
        """Return the expected time of a measurement in s."""
        key, execution = measurement_key(case, conditions), conditions.execution
        size = self._sizes.get(case.operator.key, UNKNOWN_SIZE)
        known_s = self._times_s.get(key) or self._times_s.get(_of_operator(key, execution))
        if not known_s:
            return self.unmeasured_s(size, execution, protocol)
        return self._durations.item_s(Item(fmean(known_s), execution, size, self._are_models), protocol)

    def unmeasured_s(self, size: Size, execution: str, protocol: MeasurementProtocol) -> float:
        """Return the expected time of a measurement of an operator or model without rows in s."""
        rates = self._rates.get(execution) or next(iter(self._rates.values()), self._default)
        # Unknown FLOPs are left out: the time of a measurement hardly depends on that of a call.
        time_s = max(rates.cost(size.flop or 0, size.memory_bytes), SHORTEST_S)
        return self._durations.item_s(Item(time_s, execution, size, self._are_models), protocol)

    def _fitted(self, rows: Iterable[MeasurementRow]) -> Mapping[str, Rates]:
        """Return the rates that fit rows of known size, for each execution with enough of them."""
        known: dict[str, list[tuple[tuple[int, int], float]]] = {}
        for row in rows:
            size = self._sizes.get(tuple_key(row.key), UNKNOWN_SIZE)
            if size != UNKNOWN_SIZE and size.flop is not None:
                cost = (size.flop, size.memory_bytes), row.measurement.time_s
                known.setdefault(row.conditions.execution, []).append(cost)
        return {execution: rates_of(costs) for execution, costs in known.items() if len(costs) >= MINIMUM_KNOWN}


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


def _of_operator(key: str, execution: str) -> str:
    return f"{tuple_key(key)} {execution}"


def _similar(rows: Sequence[MeasurementRow], conditions: Conditions) -> tuple[list[MeasurementRow], bool]:
    """Return the rows of the same product, else those of its type of device, and whether they are of another product.

    Rows of other CPUs are left out: their rates differ too much.
    """
    same = [row for row in rows if row.conditions.device_product == conditions.device_product]
    if same or conditions.device_type == "cpu":
        return same, False
    return [row for row in rows if row.conditions.device_type == conditions.device_type], True


def rows_if_few(table: CsvTable[MeasurementRow]) -> list[MeasurementRow]:
    """Return the rows of a table, none if it is large."""
    return table.rows() if table.size_bytes <= WHOLLY_READ_BYTES else []


def sizes_in(table: CsvTable[ModelOperatorRow]) -> dict[str, Size]:
    """Return the sizes of measured operators and models by the keys of their tuples."""
    return {tuple_key(row.key): Size(row.flop, row.memory_bytes, row.weights or 0) for row in table.rows()}
