"""The report's section on sweeps: each sweep's curves, sizes and pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opcost.comparing.sweep_changes import curves_of, lines_of
from opcost.comparing.sweep_sizes import SweepSizeRow, replaced
from opcost.measuring.sweep_record import SweepKernelRow
from opcost.operators.sweep_axes import AxisKind
from opcost.reporting.axes import log_axis
from opcost.reporting.html import figure, folded, paragraph, table
from opcost.reporting.svg import WIDTH, Panel, drawing
from opcost.reporting.sweep_curves import Drawn, drawn_points
from opcost.units import UNKNOWN, milli, percent

HEAD = "<h3>Sweeps over the size of the input</h3>"

SIZES = ("repetitions", "ms", "± time", "mJ", "± energy", "W", "predicted ms", "predicted mJ")

PIECES = ("curve", "piece", "sizes", "jump", "what changes where it begins")


def sweeps(rows: Sequence[SweepSizeRow], kernels: Sequence[SweepKernelRow]) -> str:
    """Return the sweeps, each folded; empty without any.

    Args:
        rows: sizes of any sweeps; of two rows of one size, board and loop the last one counts.
        kernels: of any sizes.
    """
    groups: dict[tuple[Any, ...], list[SweepSizeRow]] = {}
    for row in replaced((), rows):
        sweep = row.place.model, row.place.axis, row.conditions, row.device_uuid, row.loop_s
        groups.setdefault(sweep, []).append(row)
    return HEAD + "".join(_sweep(group, kernels) for group in groups.values()) if groups else ""


def _sweep(rows: Sequence[SweepSizeRow], kernels: Sequence[SweepKernelRow]) -> str:
    rows = sorted(rows, key=lambda row: row.place.size)
    first = rows[0]
    unit = AxisKind(first.place.axis).unit
    keys = {row.place.key for row in rows}
    own = [kernel for kernel in kernels if kernel.place.key in keys]
    panels = [_panel(one, first.place.axis) for one in drawn_points(rows, unit) if one.points or one.predicted]
    caption = "Marks are medians over repetitions; the line is the predicted curve. Both axes are logarithmic."
    parts = [
        figure(panels, caption) if panels else "",
        table((first.place.axis, *SIZES), [_size_cells(row) for row in rows]),
        _pieces(rows, own),
        *(paragraph(f"{row.place.axis} {row.place.size}: {row.failure}") for row in rows if row.failure),
    ]
    place = f"{first.conditions.device_product}, {first.conditions.execution}"
    return folded(f"{first.place.model} ({place})", "".join(parts))


def _pieces(rows: Sequence[SweepSizeRow], kernels: Sequence[SweepKernelRow]) -> str:
    lines = lines_of(curves_of(rows, kernels))
    cells = [
        (
            line.quantity,
            line.kind,
            f"{line.first_size} to {line.last_size}",
            UNKNOWN if line.jump_ratio is None else percent(line.jump_ratio - 1),
            line.changes,
        )
        for line in lines
    ]
    return table(PIECES, cells, "Fit by pieces") if cells else ""


def _panel(one: Drawn, axis: str) -> str:
    everything = [*one.points, *one.predicted]
    panel = Panel(
        log_axis([x for x, _ in everything], axis),
        log_axis([y for _, y in everything], one.label),
        *(52.0, 30.0, WIDTH - 10, 220.0),
    )
    lines = [panel.line(one.predicted, "line1")] if len(one.predicted) > 1 else []
    marks = [panel.mark(point, 0, f"{axis} {point[0]:g}: {point[1]:.4g}") for point in one.points]
    return drawing(f"{one.quantity} over {axis}", 260.0, panel.axes(), *lines, *marks)


def _size_cells(row: SweepSizeRow) -> tuple[str, ...]:
    figures, prediction = row.figures, row.prediction
    return (
        str(row.place.size),
        str(figures.repetitions),
        *(milli(figures.time_s), percent(figures.time_spread_ratio, 2)),
        *(milli(figures.energy_j), percent(figures.energy_spread_ratio, 2)),
        UNKNOWN if figures.power_w is None else f"{figures.power_w:.0f}",
        *(milli(prediction.predicted_time_s), milli(prediction.predicted_energy_j)),
    )
