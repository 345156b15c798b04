"""The layers of a model that is an object of a Python program, for notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opcost.columns import by_column, columns_of
from opcost.comparing.layers import LayerNode, LayerRow
from opcost.comparing.run_costs import RunCosts
from opcost.reporting.layer_lines import rows_of
from opcost.reporting.layer_notes import layer_notes
from opcost.reporting.layer_tables import MODEL, layer_in_words
from opcost.reporting.notebook import short_table
from opcost.running.request import Request
from opcost.storage.database import Database
from opcost.storage.user_folders import user_folders
from opcost.units import milli, percent, significant

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import nn

    # Only for types: the function is found without torch, which the stage imports.
    from opcost.stages.model_layers import LayersReport


@dataclass(frozen=True)
class LayersResult:
    """The layers of a model with what they cost; figures are those of one run, in SI units.

    ``report`` has all that is known, ``depth`` is that of the rows, None for a row for each call. In a notebook it is
    shown as a table.
    """

    report: LayersReport
    depth: int | None = None

    @property
    def rows(self) -> DataFrame:
        """The layers in the order of execution; the columns are those of ``opcost columns``. Unknown is NaN or None.

        The times and energies add up to those of the sum of operators.
        """
        import pandas

        columns = columns_of(LayerRow)
        frame = pandas.DataFrame([by_column(row) for row in rows_of(self.report, self.depth)])
        # A column of None alone has the dtype object, and its sum is 0.
        unknown = [column.name for column in columns if column.kind is int and frame[column.name].isna().any()]
        numbers = [column.name for column in columns if column.kind is float]
        typed: DataFrame = frame.astype(dict.fromkeys([*unknown, *numbers], float))
        return typed

    @property
    def tree(self) -> LayerNode:
        """The model with all layers inside it; each has the totals of what is inside it."""
        return self.report.layers.tree

    @property
    def costs(self) -> RunCosts:
        """The sum of operators that the layers add up to, the corrected sum, and the measured whole."""
        return self.report.costs

    def __str__(self) -> str:
        """Return a table of the layers, and notes."""
        return "\n".join([self._table().to_string(index=False), *self._notes()])

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        from html import escape

        notes = "<br>".join(map(escape, self._notes()))
        return f"{self._table().to_html(index=False)}<p>{notes}</p>"

    def _notes(self) -> list[str]:
        more = ["opcost.profile(model, inputs) measures what has no row."] if self.report.lacks_rows else []
        return [*layer_notes(self.report), *more]

    def _table(self) -> DataFrame:
        return short_table(map(_short, rows_of(self.report, self.depth)))


def layers(  # noqa: PLR0913 (a call in a notebook names its options)
    model: nn.Module,
    inputs: Any,
    *,
    depth: int | None = None,
    name: str | None = None,
    device: str | None = None,
    precision: str | None = None,
    execution: str | None = None,
    database: str | Path | None = None,
) -> LayersResult:
    """Run a model once, and return its layers in the order of execution with what each costs, from rows.

    Nothing is measured: ``opcost.profile`` measures the operators of the same model. The model is as before afterwards.

    Args:
        model: the model, with weights of one floating-point type.
        inputs: an example, as for ``opcost.profile``.
        depth: one row for each module with this many names in its path; None for a row for each call.
        name: the model's name in tables; None for that of its class.
        device: whose rows: ``cpu``, ``cuda``, or a part of a product's name such as ``H200``; None for the device with
            the most.
        precision: as for ``opcost.profile``.
        execution: ``graph`` or ``eager``; None for graph on a GPU and eager on a CPU.
        database: the folder of tables; None for that of the user's home, with the shipped rows beside it.

    Raises:
        UserError: the model cannot be counted, no row is of the device, or a table is damaged.
        Exception: any that the model raises on these inputs, as it is.
    """
    # They import torch.
    from opcost.stages.model_layers import RowsChoice, layers_of_object
    from opcost.stages.profile_object import ObjectModel

    folders = user_folders(database=None if database is None else Path(database))
    request = Request((), folders.measurements, Database.of(folders), shipped_measurements=folders.shipped_measurements)
    own = ObjectModel(model, inputs, name, precision)
    return LayersResult(layers_of_object(request, own, RowsChoice(device, execution)), depth)


def _short(row: LayerRow) -> dict[str, object]:
    return {
        "path": row.path or MODEL,
        "layer": layer_in_words(row),
        "on": row.input_sizes,
        "calls": row.calls,
        "ms": None if row.time_s is None else milli(row.time_s),
        "mJ": None if row.energy_j is None else milli(row.energy_j),
        "share": None if row.time_ratio is None else percent(row.time_ratio),
        "GFLOP": None if row.flop is None else significant(row.flop / 1e9),
        "MB": significant(row.memory_bytes / 1e6),
    }
