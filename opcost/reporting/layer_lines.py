"""The layers of a model as JSON, CSV and lines of data frames."""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from opcost.columns import Columns, by_column, columns_of
from opcost.comparing.layers import LayerRow
from opcost.measuring.conditions import DEVICE_PRODUCT
from opcost.operators.columns import MODEL

if TYPE_CHECKING:
    # Only for types: the stage imports torch.
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


def csv_columns() -> list[str]:
    """Return the columns of ``csv_lines``."""
    return [field.name for field in columns_of(LayerLine)]


def csv_lines(report: LayersReport, depth: int | None) -> list[dict[str, object]]:
    """Return a line for each layer, by column."""
    product = None if report.conditions is None else report.conditions.device_product
    return [by_column(LayerLine(report.name, product, row)) for row in rows_of(report, depth)]


def print_csv(report: LayersReport, depth: int | None) -> None:
    """Print ``csv_lines`` on stdout."""
    writer = csv.DictWriter(sys.stdout, csv_columns(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(csv_lines(report, depth))


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
