"""The layers of a model on a terminal, as JSON, as CSV and as lines of data frames, and notes on them."""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from opcost.columns import Columns, by_column, columns_of
from opcost.comparing.layers import LayerRow
from opcost.measuring.conditions import DEVICE_PRODUCT
from opcost.operators.cases import MODEL
from opcost.operators.short_forms import short_form
from opcost.operators.texts import parse_operator
from opcost.reporting.layout import Column
from opcost.reporting.tables import print_origin, shared_facts
from opcost.reporting.terminal import Cells, print_commands, print_line, print_records
from opcost.units import UNKNOWN, milli, number_of, percent, scaled

if TYPE_CHECKING:
    # Only for types: these modules import torch, or are not needed.
    from opcost.comparing.layers import Layers
    from opcost.stages.model_layers import LayersReport


@dataclass(frozen=True)
class LayerLine(Columns):
    """A layer of a model with its cost on a device; the device is empty if nothing is measured."""

    model: Annotated[str, MODEL]
    device_product: Annotated[str | None, DEVICE_PRODUCT]
    row: LayerRow


def rows_of(report: LayersReport, depth: int | None) -> tuple[LayerRow, ...]:
    """Return a row for each call, or for each layer to a depth."""
    return report.layers.rows if depth is None else report.layers.rows_to(depth)


def print_csv(report: LayersReport, depth: int | None) -> None:
    """Print a line of CSV for each layer on stdout."""
    product = None if report.conditions is None else report.conditions.device_product
    writer = csv.DictWriter(sys.stdout, [field.name for field in columns_of(LayerLine)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(by_column(LayerLine(report.name, product, row)) for row in rows_of(report, depth))


def layers_object(report: LayersReport, depth: int | None) -> dict[str, Any]:
    """Return the layers, and the sum that they add up to, as one object for JSON; figures are in SI units."""
    return {
        "name": report.name,
        "weights": report.weights,
        "counted_on": report.counted_on,
        "conditions": None if report.conditions is None else asdict(report.conditions),
        **asdict(report.costs),
        "are_means": report.layers.are_means,
        "is_counted_otherwise": report.differs,
        "other_devices": list(report.others),
        "layers": [asdict(row) for row in rows_of(report, depth)],
    }


def layer_notes(report: LayersReport) -> list[str]:
    """Return the notes on a model's layers, each a line without a command."""
    costs = report.costs
    notes = []
    if costs.sum_time_s is not None:
        at = "" if costs.reference_temperature_c is None else f"; energies are at {costs.reference_temperature_c:g} °C"
        notes.append(f"Sum of operators: {_pair(costs.sum_time_s, costs.sum_energy_j)}. The layers add up to it{at}.")
        others = []
        if costs.corrected_time_s is not None:
            others.append(f"Corrected sum: {_pair(costs.corrected_time_s, costs.corrected_energy_j)}.")
        if costs.whole_time_s is not None:
            others.append(f"Whole model: {_pair(costs.whole_time_s, costs.whole_energy_j)}.")
        if costs.corrected_time_s is not None:
            others.append("Layers are not corrected.")
        notes += [" ".join(others)] if others else []
    notes += missing_notes(report.layers)
    if report.layers.are_means:
        notes.append(
            "The model was counted on shapes, and some operators are measured on several kinds of input data: their "
            "calls have the mean."
        )
    if report.differs:
        notes.append(
            "The database has the model with other operators, from another version or device: its sum there is another."
        )
    if report.others:
        notes.append(f"There are rows of {', '.join(report.others)}, too: use --device.")
    return notes


def missing_notes(layers: Layers) -> list[str]:
    """Return the number of calls that compute something and have no row; none if there are none."""
    missing = sum(call.lacks_row for call in layers.calls)
    if not missing:
        return []
    computing = sum(call.count.computes for call in layers.calls)
    if missing == computing:
        return ["Nothing of the model is measured."]
    return [f"{number_of(missing, 'call')} of {computing} without a row: the shares are those of the others."]


def _pair(time_s: float | None, energy_j: float | None) -> str:
    energy = UNKNOWN if energy_j is None else f"{milli(energy_j)} mJ"
    return f"{milli(time_s)} ms, {energy}"


WHOLE = "(model)"
"""The path of the model itself."""


FIGURES: Cells[LayerRow] = (
    (Column("parameters", drop=7), lambda one: "" if one.weights is None else str(one.weights)),
    (Column("ms"), lambda one: milli(one.time_s)),
    (Column("mJ"), lambda one: milli(one.energy_j)),
    (Column("time share", drop=2), lambda one: percent(one.time_ratio)),
    (Column("energy share", drop=1), lambda one: percent(one.energy_ratio)),
    (Column("GFLOP", drop=3), lambda one: scaled(one.flop, 1e9)),
    (Column("MB", drop=3), lambda one: scaled(one.memory_bytes, 1e6)),
)
"""The figures of a layer, here and in the report's trees."""


def print_layers(report: LayersReport, depth: int | None) -> None:
    """Print a model's layers in the order of execution, the sum that they add up to, and what is missing."""
    rows = rows_of(report, depth)
    sizes: Cells[LayerRow] = (
        (Column("input", "left", drop=4, wraps=12), lambda one: one.input_sizes or ""),
        (Column("output", "left", drop=6, wraps=12), lambda one: one.output_sizes or ""),
    )
    calls: Cells[LayerRow] = ((Column("calls", drop=5), lambda one: str(one.calls)),)
    columns: Cells[LayerRow] = (
        (Column("path", "left", wraps=12), lambda one: one.path or WHOLE),
        (Column("layer", "left", wraps=14), layer_in_words),
        *(sizes if any(row.input_sizes is not None for row in rows) else ()),
        *(() if depth is None else calls),
        *FIGURES,
    )
    conditions = report.conditions
    where = "" if conditions is None else f" on {conditions.device_product} ({conditions.execution})"
    what = number_of(len(rows), "call" if depth is None else "layer")
    title = f"{report.name}{where}: {what} in order of execution"
    print_records(title, rows, columns)
    for note in layer_notes(report):
        print_line(note)
    if report.measuring is not None:
        print_commands([(report.measuring, "measure what has no row")])
    print_origin(*([] if conditions is None else shared_facts([conditions])))


def layer_in_words(row: LayerRow) -> str:
    """Return the class or function with the arguments that decide its cost: ``Conv2d 3→64, kernel 7``."""
    if row.operator is None or row.parameters is None:
        return row.layer
    form = short_form(parse_operator(row.operator, row.parameters, "", row.training_mode))
    return f"{row.layer}{form.removeprefix(row.operator.rpartition('.')[2])}"
