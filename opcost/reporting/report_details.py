"""The report's sections on what is behind comparisons: meters, drift, sweeps and layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from statistics import median
from typing import Any

from opcost.comparing.layers import LayerNode, layers_of
from opcost.comparing.sweep_sizes import SweepSizeRow, curves_of, replaced
from opcost.estimates import value_of
from opcost.invocation import command
from opcost.measuring.known_device import REFERENCE, QualificationRow
from opcost.measuring.record import MeasurementRow
from opcost.operators.sweep_axes import AxisKind
from opcost.reporting.charts import Chart, courses
from opcost.reporting.compared_models import QUANTITIES
from opcost.reporting.html import code, figure, folded, paragraph, table
from opcost.reporting.layer_tables import FIGURES, layer_in_words, missing_notes
from opcost.reporting.report_sections import Compared, board_of, counted_once
from opcost.reporting.svg import MARKS, Entry, Series, log_axis
from opcost.reporting.sweep_files import size_curves
from opcost.reporting.tables import titled
from opcost.stages.wanted_model import NO_PROPOSALS, Proposals
from opcost.summing.energy import common_basis
from opcost.units import UNKNOWN, milli, number_of, percent, some_of, whole_watts

SWEEPS_HEAD = "<h3>Sweeps over the size of the input</h3>"

SIZES: tuple[tuple[str, Callable[[SweepSizeRow], str]], ...] = (
    ("", lambda row: str(row.place.size)),
    ("repetitions", lambda row: str(row.figures.repetitions)),
    ("ms", lambda row: milli(row.figures.time_s)),
    ("± time", lambda row: percent(row.figures.time_spread_ratio, 2)),
    ("mJ", lambda row: milli(row.figures.energy_j)),
    ("± energy", lambda row: percent(row.figures.energy_spread_ratio, 2)),
    ("W", lambda row: whole_watts(row.figures.power_w)),
    ("predicted ms", lambda row: milli(row.prediction.predicted_time_s)),
    ("predicted mJ", lambda row: milli(row.prediction.predicted_energy_j)),
)
"""The columns of a sweep; the first has the name of its axis."""

PIECES = ("curve", "piece", "sizes", "jump")

MOST_TREES = 20
"""The most models with a tree: a tree has some hundred layers."""

LAYER_COLUMNS = {
    "ms": "",
    "time share": "",
    "mJ": "",
    "energy share": "medium",
    "GFLOP": "wide",
    "MB": "wide",
    "parameters": "wide",
}
"""Titles of the figures, each with the class that hides it on narrow screens."""


def meters(rows: Sequence[QualificationRow], boards: set[str | None]) -> str:
    """Return the qualities of the boards' meters, by their newest qualification."""
    newest = {
        (row.device_uuid, row.driver_version, row.quality.meter): row for row in rows if row.device_uuid in boards
    }
    if not newest:
        return paragraph(f"The database has no qualification of these boards' meters. Qualify: {command('qualify')}.")
    cells = [{"board": board_of(row.device_uuid)} | titled(row) for row in newest.values()]
    columns, lines = list(cells[0]), [list(each.values()) for each in cells]
    caption = (
        "The meters of each board (first digits of its UUID): their deviation from the reference meter under a steady "
        "load, and the worst deviation under pulses. A meter within 2 % is right for steady loads, such as loops; if "
        "it is also within 5 % under pulses, it is good."
    )
    deviations = {
        row: abs(row.quality.steady_deviation_ratio)
        for row in newest.values()
        if row.quality.steady_deviation_ratio is not None and row.quality.verdict != REFERENCE
    }
    if not deviations:
        return table(columns, lines, caption)
    worst, number = max(deviations.values()), len({row.device_uuid for row in deviations})
    verdict = (
        f"The meters of {number} boards agree within {percent(worst, digits=2)} under a steady load, such as a loop. "
        "An error that all meters share is not visible here, since there is no external meter."
    )
    return paragraph(verdict) + folded("Each meter", table(columns, lines, caption))


def drift(rows: Sequence[MeasurementRow], boards: set[str | None]) -> str:
    """Return the drift of the boards, by their drift checks."""
    groups: dict[tuple[str | None, str], list[MeasurementRow]] = {}
    for row in rows:
        if row.circumstances.device_uuid in boards:
            groups.setdefault((row.circumstances.device_uuid, row.key), []).append(row)
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return paragraph("These boards have no repeated drift checks.")
    drawings, scatters, legend = [], [], list[Entry]()
    for quantity, _ in QUANTITIES:
        lines = [_course(group, quantity, number % len(MARKS)) for number, group in enumerate(several)]
        known = [line for line in lines if line.points]
        drawings.append(courses(known, f"{quantity} minus the board's median (%)"))
        # Of the time, which every row has.
        legend = legend or [line.entry for line in lines]
        spreads = [
            math.sqrt(math.fsum(y * y for _, y in one.points) / (len(one.points) - 1)) / 100
            for one in known
            if len(one.points) > 1
        ]
        scatters.append(f"{quantity} {', '.join(percent(spread, digits=2) for spread in spreads) or 'unknown'}")
    caption = (
        "The drift checks: one addition that each campaign repeats. A flat course shows no drift. A board's energies "
        f"are normalised to 50 °C if all of them can be. Standard deviations: {'; '.join(scatters)}."
    )
    return figure(Chart(drawings, legend), caption)


def _course(rows: Sequence[MeasurementRow], quantity: str, look: int) -> Series:
    """Return the deviations of a board's checks from their median in %, over the time since the first in min."""
    basis, first = common_basis(rows), rows[0]
    moments_s = [datetime.fromisoformat(row.measurement.started_at).timestamp() for row in rows]
    values = [row.measurement.time_s if quantity == "time" else value_of(basis.energy_of(row)) for row in rows]
    middle = median([value for value in values if value is not None] or [1.0])
    points = [
        ((moment_s - min(moments_s)) / 60, 100 * (value / middle - 1))
        for moment_s, value in zip(moments_s, values, strict=True)
        if value is not None
    ]
    name = f"board {board_of(first.circumstances.device_uuid)}, {first.conditions.execution}, {len(rows)} times"
    titles = [f"{name}: {y:.2f} % after {x:.0f} min" for x, y in points]
    return Series(name, points, look, titles=titles)


def sweeps(rows: Sequence[SweepSizeRow]) -> str:
    """Return the sweeps, each folded, empty without any; of two rows of one size, board and loop the last counts."""
    groups: dict[tuple[Any, ...], list[SweepSizeRow]] = {}
    for row in replaced((), rows):
        sweep = row.place.model, row.place.axis, row.conditions, row.device_uuid, row.loop_s
        groups.setdefault(sweep, []).append(row)
    return SWEEPS_HEAD + "".join(_sweep(group) for group in groups.values()) if groups else ""


def _sweep(rows: Sequence[SweepSizeRow]) -> str:
    rows = sorted(rows, key=lambda row: row.place.size)
    first = rows[0]
    unit = AxisKind(first.place.axis).unit
    panels, _ = size_curves(rows, (first.place.axis, unit), log_axis)
    pieces = []
    for line in (line for curve in curves_of(rows) for line in curve.lines):
        jump = UNKNOWN if line.jump_ratio is None else percent(line.jump_ratio - 1)
        pieces.append((line.quantity, line.kind, f"{line.first_size} to {line.last_size}", jump))
    caption = "Marks are medians over repetitions; the line is the predicted curve. Both axes are logarithmic."
    parts = [
        figure(Chart(panels), caption) if panels else "",
        table([title or first.place.axis for title, _ in SIZES], [[write(row) for _, write in SIZES] for row in rows]),
        table(PIECES, pieces, "Fit by pieces") if pieces else "",
        *(paragraph(f"{row.place.axis} {row.place.size}: {row.failure}") for row in rows if row.failure),
    ]
    place = f"{first.conditions.device_product}, {first.conditions.execution}"
    return folded(f"{first.place.model} ({place})", "".join(parts))


def layers(found: Sequence[Compared], proposals: Proposals = NO_PROPOSALS) -> str:
    """Return a tree for each model, in its usual execution, whose counts have paths."""
    usual = [found[index] for index in sorted(counted_once(found))]
    known = [one for one in usual if one.comparison.counts.modules]
    trees = "".join(map(_tree, known[:MOST_TREES]))
    caption = paragraph(
        "Layers are in the order of execution; a layer that unfolds has the totals of what is inside it. The layers of "
        "a model add up to its sum of operators, which is not corrected. Shares are those of this sum."
    )
    return (caption if known else "") + trees + _left_out(usual, known, proposals)


def _tree(one: Compared) -> str:
    comparison = one.comparison
    own = layers_of(comparison.counts, comparison.cost)
    notes = "".join(map(paragraph, missing_notes(own)))
    heads = "".join(f'<span class="{name}">{escape(title)}</span>' for title, name in LAYER_COLUMNS.items())
    head = f'<div class="layer head"><span>layer</span>{heads}</div>'
    return folded(one.model.name, f'{notes}<div class="layers">{head}{_node(own.tree, is_open=True)}</div>')


def _node(node: LayerNode, is_open: bool = False) -> str:
    row = node.row
    name = "" if node.name == row.layer else f"<b>{escape(node.name or 'model')}</b> "
    size = f' <small class="wide">{escape(row.input_sizes)}</small>' if row.input_sizes else ""
    times = f" ({number_of(row.calls, 'call')})" if row.calls > 1 and not node.children else ""
    reason = f' title="{escape(row.missing_reason)}"' if row.missing_reason else ""
    figures = {column.title: write(row) for column, write in FIGURES}
    cells = [
        f"<span{reason}>{name}{escape(layer_in_words(row))}{times}{size}</span>",
        *(f'<span class="{hides}">{figures[title]}</span>' for title, hides in LAYER_COLUMNS.items()),
    ]
    line = f'<span class="layer">{"".join(cells)}</span>'
    if not node.children:
        return f'<div class="leaf">{line}</div>'
    inside = "".join(map(_node, node.children))
    return f"<details{' open' if is_open else ''}><summary>{line}</summary>{inside}</details>"


def _left_out(usual: Sequence[Compared], known: Sequence[Compared], proposals: Proposals) -> str:
    """Return what to do for the trees of the other models; empty if all have one."""
    texts = []
    more = list(dict.fromkeys(one.row.name for one in known[MOST_TREES:]))
    if more:
        named = code(proposals.command("report", more[:1])).html
        texts.append(f"The first {MOST_TREES} models have a tree. Name others: {named}.")
    without = list(dict.fromkeys(one.row.name for one in usual if not one.comparison.counts.modules))
    if without:
        names = f"{number_of(len(without), 'model')} ({escape(some_of(without))})"
        shown, counted = (code(proposals.command(step, without[:1])).html for step in ("layers", "count"))
        texts.append(
            f"No tree of {names}: the counts have no paths. {shown} shows the layers; after {counted} this report has "
            "them, too."
        )
    return "".join(f"<p>{text}</p>" for text in texts)
