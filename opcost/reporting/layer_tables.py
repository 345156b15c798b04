"""The layers of a model on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opcost.comparing.layers import LayerRow
from opcost.operators.short_forms import short_form
from opcost.operators.texts import parse_operator
from opcost.reporting.layer_lines import rows_of
from opcost.reporting.layer_notes import layer_notes
from opcost.reporting.layout import Column
from opcost.reporting.tables import print_origin, shared_facts
from opcost.reporting.terminal import print_commands, print_line, print_table
from opcost.units import UNKNOWN, milli, number_of, percent, significant

if TYPE_CHECKING:
    # Only for types: the stage imports torch.
    from opcost.stages.model_layers import LayersReport

NAMES = (Column("path", "left", wraps=12), Column("layer", "left", wraps=14))
SIZES = (Column("input", "left", drop=4, wraps=12), Column("output", "left", drop=6, wraps=12))
CALLS = Column("calls", drop=5)
FIGURES = (
    *(Column("parameters", drop=7), Column("ms"), Column("mJ")),
    *(Column("time share", drop=2), Column("energy share", drop=1)),
    *(Column("GFLOP", drop=3), Column("MB", drop=3)),
)
MODEL = "(model)"
"""The path of the model itself."""


def print_layers(report: LayersReport, depth: int | None) -> None:
    """Print a model's layers in the order of execution, the sum that they add up to, and what is missing.

    Args:
        report: of the model.
        depth: that of the rows, None for a row for each call.
    """
    rows = rows_of(report, depth)
    has_sizes, has_calls = any(row.input_sizes is not None for row in rows), depth is not None
    columns = (*NAMES, *(SIZES if has_sizes else ()), *((CALLS,) if has_calls else ()), *FIGURES)
    print_table(_title(report, rows, depth), columns, [_cells(row, has_sizes, has_calls) for row in rows])
    for note in layer_notes(report):
        print_line(note)
    if report.measuring is not None:
        print_commands([(report.measuring, "measure what has no row")])
    conditions = report.conditions
    print_origin(*([] if conditions is None else shared_facts([conditions])))


def _title(report: LayersReport, rows: Sequence[LayerRow], depth: int | None) -> str:
    conditions = report.conditions
    where = "" if conditions is None else f" on {conditions.device_product} ({conditions.execution})"
    what = number_of(len(rows), "call" if depth is None else "layer")
    return f"{report.name}{where}: {what} in order of execution"


def _cells(row: LayerRow, has_sizes: bool, has_calls: bool) -> tuple[str, ...]:
    return (
        *(row.path or MODEL, layer_in_words(row)),
        *((row.input_sizes or "", row.output_sizes or "") if has_sizes else ()),
        *((str(row.calls),) if has_calls else ()),
        "" if row.weights is None else str(row.weights),
        *(milli(row.time_s), milli(row.energy_j), percent(row.time_ratio), percent(row.energy_ratio)),
        UNKNOWN if row.flop is None else significant(row.flop / 1e9),
        significant(row.memory_bytes / 1e6),
    )


def layer_in_words(row: LayerRow) -> str:
    """Return the class or function with the arguments that decide its cost: ``Conv2d 3→64, kernel 7``."""
    if row.operator is None or row.parameters is None:
        return row.layer
    form = short_form(parse_operator(row.operator, row.parameters, "", row.training_mode))
    return f"{row.layer}{form.removeprefix(row.operator.rpartition('.')[2])}"
