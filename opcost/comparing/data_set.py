"""The data set: a table of all measurements for each kind of operator, and one of whole models, with what they do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from opcost.columns import (
    COUNT,
    FROM_0,
    LARGEST_INT,
    SHARE,
    Column,
    DataTable,
    Field,
    Kind,
    cell_of,
    columns_of,
    grouped,
    shared_fields,
    values_of,
)
from opcost.estimates import ratio_if_known
from opcost.measuring.conditions import Circumstances, Conditions
from opcost.measuring.record import Measurement, MeasurementRow
from opcost.operators.counts import CaseColumns, OperatorCount, OperatorCounts, tuple_key
from opcost.operators.texts import PLACEHOLDERS, Cell, Cells, cells_of, in_order, parse_operator
from opcost.operators.tuples import value_text
from opcost.operators.values import parse_input_data

DATA_SET_TITLE = "Time and energy of PyTorch operators"
MODELS = "whole_models"

LONGEST_NAME = 200
"""The most characters of a table's name: file systems take 255 bytes."""


@dataclass(frozen=True, kw_only=True)
class DataSetRow(CaseColumns):
    """One measurement of an operator, or of a whole model, with what a call computes.

    ``key`` is that of the row in the database. After ``weight_zeros_ratio`` come the columns of a kind
    of operator: its parameters, arguments, and the sizes of its inputs and outputs. An export's card explains them.
    """

    ORDER: ClassVar = ("key", "operator", "parameters", "inputs", "outputs")

    key: Annotated[str, Column("hashes of operator tuple, input data and conditions")]
    outputs: Annotated[str | None, Column("description of the output; empty if there is none, or no count")]
    weight_zeros_ratio: Annotated[float, Column("share of the weights that are set to zero", SHARE)]
    flop: Annotated[
        int | None, Column("floating-point operations of one call, empty if unknown or not counted", COUNT, "FLOP")
    ]
    memory_bytes: Annotated[int | None, Column("bytes that one call reads and writes, empty if not counted", COUNT)]
    flop_per_byte: Annotated[
        float | None, Column("arithmetic intensity of one call; empty if it moves nothing", FROM_0, "FLOP/B")
    ]
    operations: Annotated[
        str | None,
        Column("ATen operations of one call that compute, each with its number, such as `clone 2`; empty if unknown"),
    ]
    measurement: Measurement
    conditions: Conditions
    circumstances: Circumstances


DECLARED = columns_of(DataSetRow)
PLACE = [field.name for field in DECLARED].index("flop")
"""The place of the columns that only some kinds of operators have."""


def data_columns() -> tuple[Field, ...]:
    """Return the columns of all tables, with placeholders for those that only some kinds of operators have."""
    return (*DECLARED[:PLACE], *PLACEHOLDERS, *DECLARED[PLACE:])


def data_tables(rows: Iterable[MeasurementRow], counts: Mapping[str, OperatorCount]) -> list[DataTable]:
    """Return a table for each kind of operator, by name; a ``ValueError`` for a row that is not understood."""
    of_kind = grouped(sorted(rows, key=_place), lambda row: table_name(row.operator))
    return [_table(name, of_one, counts) for name, of_one in sorted(of_kind.items())]


def models_table(wholes: Sequence[MeasurementRow], counts: Mapping[str, OperatorCounts]) -> DataTable:
    """Return the table of whole models; ``counts`` are those of models by their keys."""
    totals = {
        key: OperatorCount(one.model, 1, None if one.flop_missing_reason else one.total_flop, one.total_memory_bytes)
        for key, one in counts.items()
    }
    return _table(MODELS, sorted(wholes, key=_place), totals)


def table_name(operator: str) -> str:
    """Return the name of a kind's table, as far as any file system takes it, and unlike those beside it."""
    return re.sub(rf"[^\w.-]|^(?={MODELS}$)", "_", operator)[:LONGEST_NAME]


def _place(row: MeasurementRow) -> tuple[str, ...]:
    text = (row.operator, row.parameters, row.inputs, row.training_mode or "", row.input_data, row.phase)
    return (*text, row.key, row.measurement.started_at, row.measurement.ended_at)


def _table(name: str, rows: Sequence[MeasurementRow], counts: Mapping[str, OperatorCount]) -> DataTable:
    described = [_described(row, counts.get(tuple_key(row.key))) for row in rows]
    names = in_order(name for _, cells in described for name in cells)
    columns = [(one.name, one.kind if one.kind in (bool, int, float) else str) for one in DECLARED]
    columns[PLACE:PLACE] = [(one, _kind_of(cells.get(one) for _, cells in described)) for one in names]
    found = []
    for row, cells in described:
        values = list(values_of(row))
        values[PLACE:PLACE] = map(cells.get, names)
        found.append(tuple(values))
    return DataTable(name, dict(columns), tuple(found))


def _described(row: MeasurementRow, count: OperatorCount | None) -> tuple[DataSetRow, Cells]:
    operator = parse_operator(row.operator, row.parameters, row.inputs, row.training_mode)
    data = parse_input_data(row.input_data)
    outputs = None if count is None else count.outputs
    flop, memory_bytes = (None, None) if count is None else (count.flop, count.memory_bytes)
    described = DataSetRow(
        **shared_fields(row, CaseColumns),
        key=row.key,
        outputs=None if outputs is None else value_text(outputs),
        weight_zeros_ratio=data.weight_zeros_ratio,
        flop=flop,
        memory_bytes=memory_bytes,
        flop_per_byte=ratio_if_known(flop, memory_bytes),
        operations=None if count is None else cell_of(count.operations) or None,
        measurement=row.measurement,
        conditions=row.conditions,
        circumstances=row.circumstances,
    )
    return described, cells_of(operator, data, outputs)


def _kind_of(cells: Iterable[Cell]) -> Kind:
    known = [cell for cell in cells if cell is not None]
    kinds = set(map(type, known))
    if kinds == {bool}:
        return bool
    if kinds <= {int, float} and all(abs(cell) <= LARGEST_INT for cell in known if isinstance(cell, int)):
        return float if float in kinds else int
    return str
