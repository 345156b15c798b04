"""The report as one HTML file: its page, the data of its script, and its sections on what is behind comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timezone
from functools import cache
from html import escape
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from opcost.columns import columns_of, grouped
from opcost.comparing.layers import LayerNode, layers_of, with_paths
from opcost.comparing.operator_costs import TupleCost, TupleFlag, tuple_costs
from opcost.comparing.roofline import Roofline
from opcost.comparing.sweep_sizes import curves_of, replaced
from opcost.errors import UserError
from opcost.estimates import value_of
from opcost.html_text import paragraph
from opcost.invocation import command
from opcost.measuring.conditions import Circumstances, Conditions
from opcost.measuring.flags import meanings
from opcost.measuring.known_device import REFERENCE, QualificationRow
from opcost.measuring.record import Measurement, MeasurementRow
from opcost.measuring.setting import is_meant
from opcost.measuring.sweep_record import SweepSizeRow
from opcost.operators.counts import OperatorCounts
from opcost.operators.sweep_axes import AxisKind
from opcost.operators.tuples import SIZE_IN_NAME
from opcost.reporting import markup, report_sections
from opcost.reporting.charts import QUANTITIES, Compared, RooflinePlot, compared, courses, without_sizes
from opcost.reporting.charts import roofline as drawn_roofline
from opcost.reporting.model_tables import FIGURES, layer_in_words, missing_notes
from opcost.reporting.power_traces import readings_of_log, trace_of
from opcost.reporting.report_sections import board_of, roof_place, roofs_of, without_identities
from opcost.reporting.sweeps import PIECES, size_columns, size_curves
from opcost.reporting.tables import Column, titled
from opcost.running.request import Request
from opcost.stages.compare import ComparingReport
from opcost.stages.show import DeviceRanking
from opcost.stages.wanted_model import NO_PROPOSALS, Proposals, pickled
from opcost.storage.files import replace_file
from opcost.summing.summation import common_basis
from opcost.units import number_of, percent, some_of
from opcost.version import __version__

TRACE_POINTS = 60
"""Points of one line of a trace: a report has thousands of traces."""

TRACE_GRID = 1000
"""Coordinates of traces are integers from 0 to this."""

SHOWN_APART = (
    *("time_s", "time_standard_error_s", "energy_j", "energy_standard_error_j", "energy_at_reference_j", "power_w"),
    *("energy_missing_reason", "power_log", "flags"),
    *("builds", "builds_time_range_ratio", "builds_energy_range_ratio"),
)
"""Columns of a measurement that the report shows separately, and those of whole models."""

FACTS = tuple(field.name for field in columns_of(Measurement) if field.name not in SHOWN_APART)


def write_report(
    path: Path, request: Request, reports: Sequence[ComparingReport], rankings: Sequence[DeviceRanking] = ()
) -> None:
    """Write the report of comparisons to a file, which is replaced.

    The request's database has sweeps, which its names and device choose, qualifications, drift checks and power logs.
    """
    database = request.database
    found = without_sizes(compared(reports))
    comparisons = [one.comparison for one in found]
    tuples = tuple_costs(comparisons)
    roofs = roofs_of(rankings)
    plots = {place: _plots(tuples, place, roofline) for place, roofline in roofs.items()}
    every_plot = [plot for own in plots.values() for plot in own]
    measured = (row for one in comparisons for row in (one.full, *(part.row for part in one.cost.parts)))
    boards = {row.circumstances.device_uuid for row in measured}
    proposals = Proposals.of(filter(None, (one.config for one in reports)))
    parts = {
        "about": f"opcost {__version__}, {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "summary": report_sections.summary(found, tuples, reports),
        "ranking": report_sections.ranking(rankings),
        "sweeps": sweeps(_sweeps(request, reports)),
        "verdicts": report_sections.verdicts(found),
        "parity": report_sections.parity(found),
        "errors": report_sections.errors(found),
        "meters": meters(database.meter_qualifications.rows(), boards),
        "drift": drift(database.drift_checks.rows(), boards),
        "flags": report_sections.flags(found, tuples),
        "kinds": report_sections.kinds(found),
        "layers": layers(found, proposals, _counted(reports)),
        "rooflines": report_sections.rooflines(roofs, plots, tuples),
        "gaps": report_sections.gaps(found),
        "kernels": report_sections.kernel_kinds(found),
        "remarks": report_sections.remarks(found, reports),
        "steps": report_sections.steps(found, tuples, reports, proposals),
        "patterns": markup.patterns_figure(),
    }
    replace_file(path, markup.page(parts, _data(found, tuples, roofs, every_plot, database.power_logs)).encode())


def _counted(reports: Sequence[ComparingReport]) -> dict[str, OperatorCounts]:
    """Return the counts with paths that block 0 has made here, by the model's name; shipped ones have none."""
    known = ((one.name, pickled(one.config, one.results[0].counts)) for one in reports if one.config and one.results)
    return {name: counts for name, counts in known if counts is not None}


def _sweeps(request: Request, reports: Sequence[ComparingReport]) -> list[SweepSizeRow]:
    """Return the sizes of sweeps on the chosen device; the name of a sweep begins with its model's or config's."""
    sizes = [row for row in request.database.sweep_sizes.rows() if is_meant(request.device, row.conditions)]
    if not request.names:
        return sizes
    configs = [one.config for one in reports if one.config is not None]
    names = {name for one in configs for name in (one.model_name, SIZE_IN_NAME.sub("", one.config_name))}
    return [row for row in sizes if row.place.model.partition(" ")[0] in names]


def _plots(tuples: Sequence[TupleCost], place: Conditions | None, roofline: Roofline) -> list[RooflinePlot]:
    """Return the rooflines in time and energy, with the tuples that have this roof."""
    sides = ((roofline.time, "speed (TFLOP/s)", 1e12), (roofline.energy, "efficiency (GFLOP/J)", 1e9))
    return [
        drawn_roofline([_point(one, place, roofline, roof is roofline.energy) for one in tuples], roof, label, scale)
        for roof, label, scale in sides
        if roof is not None
    ]


def _point(
    one: TupleCost, place: Conditions | None, roofline: Roofline, in_energy: bool
) -> tuple[float, float, str] | None:
    if roof_place(one) != place:
        return None
    work = one.work
    cost = None if work is None else work.energy_j if in_energy else work.time_s
    if work is None or not work.flop or work.flop_per_byte is None or cost is None:
        return None
    return work.flop_per_byte, work.flop / cost, roofline.time.side(work) or ""


def _index(values: list[Any], value: Any) -> int:
    """Return the index of a value that is stored once, which is added if it is new."""
    if value not in values:
        values.append(value)
    return values.index(value)


def _data(
    found: Sequence[Compared],
    tuples: Sequence[TupleCost],
    roofs: Mapping[Conditions | None, Roofline],
    plots: Sequence[RooflinePlot],
    logs: Path,
) -> dict[str, Any]:
    """Return the data of the page's script: tuples, and the shared values that they refer to by index."""
    conditions, circumstances, axes, lines = list[Any](), list[Any](), list[Any](), list[Any]()

    @cache
    def named(value: Conditions | Circumstances) -> list[list[Any]]:
        pairs = [(field.name, getattr(value, field.name)) for field in fields(value)]
        return [[name, board_of(known) if name == "device_uuid" else _plain(known)] for name, known in pairs]

    counted = report_sections.counted_once(found)
    entries = []
    for index, one in enumerate(tuples):
        places = [plot.positions[index] for plot in plots]
        positions = [at and [round(value, 1) for value in at] for at in places]
        entry = {**_entry(one, roofs.get(roof_place(one))), "positions": positions}
        if one.row is not None:
            entry["conditions"] = _index(conditions, named(one.row.conditions))
            entry["circumstances"] = _index(circumstances, named(one.row.circumstances))
            entry["trace"] = _trace(one.row, logs, axes, lines)
        entries.append(entry)
    names = list(dict.fromkeys(name for entry in entries for name in entry))
    return {
        "models": [
            {"label": one.name, "full_time_s": one.row.full_time_s, "is_usual": index in counted}
            for index, one in enumerate(found)
        ],
        "flags": {flag.value: flag.meaning for flag in TupleFlag},
        "fields": names,
        "facts": FACTS,
        "tuples": [[entry.get(name) for name in names] for entry in entries],
        "conditions": conditions,
        "circumstances": circumstances,
        "axes": axes,
        "lines": lines,
    }


def _entry(one: TupleCost, roofline: Roofline | None) -> dict[str, Any]:
    operator, work = one.case.operator, one.work
    roof = None if roofline is None else roofline.time
    figures: dict[str, Any] = {}
    if one.row is not None and one.time_s is not None:
        measured, energy_j = one.row.measurement, one.energy_j
        reason, log = measured.energy_missing_reason, measured.power_log
        figures = {
            "time_s": one.time_s.value,
            "time_standard_error_s": one.time_s.standard_error,
            "energy_j": None if energy_j is None else energy_j.value,
            "energy_standard_error_j": None if energy_j is None else energy_j.standard_error,
            "energy_at_reference_j": measured.energy_at_reference_j,
            "energy_missing_reason": None if reason is None else without_identities(reason),
            "power_w": measured.power_w,
            "measured_on": one.row.input_data,
            "facts": [_plain(getattr(measured, name)) for name in FACTS],
            "measured_flags": meanings(measured.flags),
            "power_log": None if log is None else Path(log).name,
        }
    return {
        "key": one.case.key if one.row is None else one.row.key,
        "operator": operator.operator,
        "parameters": operator.parameters_text,
        "inputs": operator.inputs_text,
        "input_data": str(one.case.input_data),
        **figures,
        "flop": one.count.flop,
        "memory_bytes": one.count.memory_bytes,
        "side": roof.side(work) if roof and work else None,
        "roof_ratio": _plain(roof.reached(work, work.time_s)) if roof and work else None,
        "flags": [flag.value for flag in TupleFlag if flag in one.flags],
        "uses": [[use.comparison, use.calls, int(use.is_summed)] for use in one.uses],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return without_identities(value) if isinstance(value, str) else value


def _trace(row: MeasurementRow, logs: Path, axes: list[Any], lines: list[Any]) -> dict[str, Any] | None:
    """Return a trace in few characters, if any: integer coordinates, and shared axes and names by index."""
    measured = row.measurement
    # opcost writes no names with folders.
    if measured.power_log is None or Path(measured.power_log).name != measured.power_log:
        return None
    path = logs / measured.power_log
    if not path.is_file():
        return None
    try:
        readings = readings_of_log(path)
    except UserError:
        return None
    begin_s, end_s = (datetime.fromisoformat(one).timestamp() for one in (measured.started_at, measured.ended_at))
    trace = trace_of(readings[:2], (begin_s, end_s), TRACE_POINTS)
    if trace is None:
        return None
    time, power = trace.time, trace.power

    def on_grid(axis: markup.Axis, value: float) -> int:
        return round(TRACE_GRID * axis.position(value))

    return {
        "axes": [
            _index(axes, [axis.label, [[on_grid(axis, value), text] for value, text in axis.ticks]])
            for axis in (time, power)
        ],
        "lines": [
            [_index(lines, line.name), " ".join(f"{on_grid(time, x)} {on_grid(power, y)}" for x, y in line.points)]
            for line in trace.lines
        ],
        "window": None if trace.window is None else [on_grid(time, end) for end in trace.window],
    }


# The sections on meters, drift, sweeps and layers, which are behind comparisons

SIZES = ("ms/run", "time spread", "mJ/run", "energy spread", "W", "predicted ms", "predicted mJ")
"""The columns of a sweep, as on a terminal, behind its axis and the repetitions."""

NO_COUNTS: Mapping[str, OperatorCounts] = MappingProxyType({})

MOST_TREES = 20
"""The most models with a tree: a tree has some hundred layers."""

LAYER_COLUMNS = {
    "ms": "",
    "time share": "",
    "mJ": "",
    "energy share": "medium",
    **dict.fromkeys(("GFLOP", "MB", "parameters"), "wide"),
}
"""Titles of the figures, each with the class that hides it on narrow screens."""


def meters(rows: Sequence[QualificationRow], boards: set[str | None]) -> str:
    own = (row for row in rows if row.device_uuid in boards)
    newest = {(row.device_uuid, row.driver_version, row.quality.meter): row for row in own}
    if not newest:
        return paragraph(f"The database has no qualification of these boards' meters. Qualify: {command('qualify')}.")
    board = Column[QualificationRow]("board", lambda row: board_of(row.device_uuid))
    columns = [board, *titled(QualificationRow)]
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
        return markup.table(columns, newest.values(), caption)
    worst, number = max(deviations.values()), len({row.device_uuid for row in deviations})
    verdict = (
        f"The meters of {number} boards agree within {percent(worst, digits=2)} under a steady load, such as a loop. "
        "An error that all meters share is not visible here, since there is no external meter."
    )
    return paragraph(verdict) + markup.folded("Each meter", markup.table(columns, newest.values(), caption))


def drift(rows: Sequence[MeasurementRow], boards: set[str | None]) -> str:
    of_boards = (row for row in rows if row.circumstances.device_uuid in boards)
    groups = grouped(of_boards, lambda row: (row.circumstances.device_uuid, row.key))
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return paragraph("These boards have no repeated drift checks.")
    drawings, scatters, legend = [], [], list[markup.Entry]()
    for quantity, _ in QUANTITIES:
        lines = [_course(group, quantity, number % len(markup.MARKS)) for number, group in enumerate(several)]
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
    return markup.figure(markup.Chart(drawings, legend), caption)


def _course(rows: Sequence[MeasurementRow], quantity: str, look: int) -> markup.Series:
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
    return markup.Series(name, points, look, titles=titles)


def sweeps(rows: Sequence[SweepSizeRow]) -> str:
    """Return the sweeps, each folded, empty without any; of two rows of one size, board and loop the last counts."""
    groups = grouped(
        replaced((), rows), lambda row: (row.place.model, row.place.axis, row.conditions, row.device_uuid, row.loop_s)
    )
    sections = "".join(map(_sweep, groups.values()))
    return f"<h3>Sweeps over the size of the input</h3>{sections}" if groups else ""


def _sweep(rows: Sequence[SweepSizeRow]) -> str:
    rows = sorted(rows, key=lambda row: row.place.size)
    first = rows[0]
    axis, unit = first.place.axis, AxisKind(first.place.axis).unit
    panels, _ = size_curves(rows, (axis, unit), markup.log_axis)
    pieces = [line for curve in curves_of(rows) for line in curve.lines]
    known = {column.title: column for column in size_columns(axis, unit)}
    repetitions = Column[SweepSizeRow]("repetitions", lambda row: str(row.figures.repetitions))
    shown = (replace(known[title], title=title.removesuffix("/run")) for title in SIZES)
    sizes = [known[axis], repetitions, *shown]
    pieces_columns = [column for column in PIECES if column.title != "residual"]
    caption = "Marks are medians over repetitions; the line is the predicted curve. Both axes are logarithmic."
    parts = [
        markup.figure(markup.Chart(panels), caption) if panels else "",
        markup.table(sizes, rows),
        markup.table(pieces_columns, pieces, "Fit by pieces") if pieces else "",
        *(paragraph(f"{row.place.axis} {row.place.size}: {row.failure}") for row in rows if row.failure),
    ]
    conditions = first.conditions
    run = f"{conditions.execution}, {conditions.precision}, loops of {first.loop_s:g} s"
    place = f"{conditions.device_product}, board {board_of(first.device_uuid)}, {run}"
    return markup.folded(f"{first.place.model} over {axis} ({place})", "".join(parts))


def layers(
    found: Sequence[Compared], proposals: Proposals = NO_PROPOSALS, counted: Mapping[str, OperatorCounts] = NO_COUNTS
) -> str:
    """Return a tree for each model, in its usual execution, whose counts, or those of ``counted``, have paths."""
    usual = report_sections.usual_ones(found)
    counts = {one.row.name: with_paths(one.comparison.counts, counted.get(one.row.name)) for one in usual}
    known = [one for one in usual if counts[one.row.name].modules]
    about = (
        "Layers are in the order of execution; a layer that unfolds has the totals of what is inside it. The layers of "
        "a model add up to its sum of operators, which is not corrected. Shares are those of this sum."
    )
    parts = [*([paragraph(about)] if known else []), *(_tree(one, counts[one.row.name]) for one in known[:MOST_TREES])]
    # The other models need a command for their trees.
    more = [one.row.name for one in known[MOST_TREES:]]
    if more:
        named = markup.code(proposals.command("report", more[:1]))
        parts.append(f"<p>The first {MOST_TREES} models have a tree. Name others: {named}.</p>")
    without = [name for name, one in counts.items() if not one.modules]
    if without:
        names = f"{number_of(len(without), 'model')} ({escape(some_of(without))})"
        counting = markup.code(proposals.command("count", without[:MOST_TREES], "--meta"))
        shown = markup.code(proposals.command("layers", without[:1]))
        then = (
            f"{counting} counts them on shapes, without a GPU; then a report has the trees. {shown} shows one at once."
        )
        parts.append(f"<p>No tree of {names}: shipped counts do not name layers. {then}</p>")
    return "".join(parts)


def _tree(one: Compared, counts: OperatorCounts) -> str:
    own = layers_of(counts, one.comparison.cost)
    notes = "".join(map(paragraph, missing_notes(own)))
    heads = "".join(f'<span class="{name}">{escape(title)}</span>' for title, name in LAYER_COLUMNS.items())
    head = f'<div class="layer head"><span>layer</span>{heads}</div>'
    return markup.folded(one.name, f'{notes}<div class="layers">{head}{_node(own.tree, is_open=True)}</div>')


def _node(node: LayerNode, is_open: bool = False) -> str:
    row = node.row
    name = "" if node.name == row.layer else f"<b>{escape(node.name or 'model')}</b> "
    size = f' <small class="wide">{escape(row.input_sizes)}</small>' if row.input_sizes else ""
    times = f" ({number_of(row.calls, 'call')})" if row.calls > 1 and not node.children else ""
    reason = f' title="{escape(row.missing_reason)}"' if row.missing_reason else ""
    figures = {column.title: column.text(row) for column in FIGURES}
    cells = [
        f"<span{reason}>{name}{escape(layer_in_words(row))}{times}{size}</span>",
        *(f'<span class="{hides}">{figures[title]}</span>' for title, hides in LAYER_COLUMNS.items()),
    ]
    line = f'<span class="layer">{"".join(cells)}</span>'
    if not node.children:
        return f'<div class="leaf">{line}</div>'
    inside = "".join(map(_node, node.children))
    return f"<details{' open' if is_open else ''}><summary>{line}</summary>{inside}</details>"
