"""The report: comparisons, the measurements behind them, and the next steps, as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from opcost import __version__
from opcost.columns import columns_of
from opcost.comparing.operator_costs import TupleCost, TupleFlag, roofline_of_tuples, tuple_costs
from opcost.comparing.roofline import Roofline
from opcost.comparing.sweep_sizes import SweepSizeRow
from opcost.errors import UserError
from opcost.estimates import Estimate
from opcost.measuring.conditions import Circumstances, Conditions
from opcost.measuring.flags import meanings
from opcost.measuring.record import Measurement, MeasurementRow
from opcost.measuring.setting import is_meant
from opcost.operators.tuples import SIZE_IN_NAME
from opcost.reporting import report_details, report_sections
from opcost.reporting.charts import RooflinePlot
from opcost.reporting.charts import roofline as drawn_roofline
from opcost.reporting.html import page
from opcost.reporting.power_traces import Trace, readings_of_log, trace_of
from opcost.reporting.report_sections import Compared, board_of, compared, without_identities
from opcost.reporting.svg import Axis, patterns_figure
from opcost.running.request import Request
from opcost.stages.compare import ComparingReport, ModelComparisons
from opcost.stages.show import DeviceRanking
from opcost.stages.wanted_model import Proposals
from opcost.storage.files import replace_file

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
"""The other columns, which are listed for each tuple under their names."""


def write_report(
    path: Path,
    request: Request,
    models: Sequence[ModelComparisons],
    reports: Sequence[ComparingReport],
    rankings: Sequence[DeviceRanking] = (),
) -> None:
    """Write the report of comparisons to a file, which is replaced.

    Args:
        path: the file.
        request: the database has sweeps, qualifications, drift checks and power logs; names and device choose sweeps.
        models: the comparisons.
        reports: the same as rows.
        rankings: models by energy per sample, for each device.
    """
    database = request.database
    found = compared(models, reports)
    comparisons = [one.comparison for one in found]
    tuples = tuple_costs(comparisons)
    roofline = roofline_of_tuples(tuples)
    plots = []
    if roofline is not None:
        points = _points(roofline, tuples, in_energy=False)
        plots.append(drawn_roofline(points, roofline.time, "speed (TFLOP/s)", 1e12))
        if roofline.energy is not None:
            points = _points(roofline, tuples, in_energy=True)
            plots.append(drawn_roofline(points, roofline.energy, "efficiency (GFLOP/J)", 1e9))
    measured = (
        row for one in found for row in (one.comparison.full, *(part.row for part in one.comparison.cost.parts))
    )
    boards = {row.circumstances.device_uuid for row in measured}
    proposals = Proposals.of(model.config for model in models)
    parts = {
        "about": f"opcost {__version__}, {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "summary": report_sections.summary(found, tuples, reports),
        "ranking": report_sections.ranking(rankings),
        "sweeps": report_details.sweeps(_sweeps(request, models)),
        "parity": report_sections.parity(found),
        "errors": report_sections.errors(found),
        "meters": report_details.meters(database.meter_qualifications.rows(), boards),
        "drift": report_details.drift(database.drift_checks.rows(), boards),
        "flags": report_sections.flags(found, tuples),
        "kinds": report_sections.kinds(found),
        "layers": report_details.layers(found, proposals),
        "rooflines": report_sections.rooflines(roofline, plots, tuples),
        "gaps": report_sections.gaps(found),
        "kernels": report_sections.kernel_kinds(found),
        "remarks": report_sections.remarks(found, reports),
        "steps": report_sections.steps(found, tuples, reports, proposals),
        "patterns": patterns_figure(),
    }
    replace_file(path, page(parts, _data(found, tuples, roofline, plots, database.power_logs)).encode())


def _sweeps(request: Request, models: Sequence[ModelComparisons]) -> list[SweepSizeRow]:
    """Return the sizes of sweeps on the chosen device, and of the named models if any are named.

    The name of a sweep begins with that of its model, or of its config.
    """
    sizes = [row for row in request.database.sweep_sizes.rows() if is_meant(request.device, row.conditions)]
    if not request.names:
        return sizes
    configs = [one.config for one in models]
    names = {name for one in configs for name in (one.model_name, SIZE_IN_NAME.sub("", one.config_name))}
    return [row for row in sizes if row.place.model.partition(" ")[0] in names]


Point: TypeAlias = "tuple[float, float, str] | None"


def _points(roofline: Roofline, tuples: Sequence[TupleCost], in_energy: bool) -> list[Point]:
    """Return a point of the roofline for each tuple; None if it has no FLOPs or no cost."""
    points: list[Point] = []
    for work in (one.work for one in tuples):
        cost = None if work is None else work.energy_j if in_energy else work.time_s
        if work is None or not work.flop or work.flop_per_byte is None or cost is None:
            points.append(None)
        else:
            points.append((work.flop_per_byte, work.flop / cost, roofline.time.side(work) or ""))
    return points


@dataclass
class Shared:
    """Values that many tuples have in common, each stored once."""

    values: list[Any]

    def index(self, value: Any) -> int:
        """Return the index of a value, which is added if it is new."""
        if value not in self.values:
            self.values.append(value)
        return self.values.index(value)


def _data(
    found: Sequence[Compared],
    tuples: Sequence[TupleCost],
    roofline: Roofline | None,
    plots: Sequence[RooflinePlot],
    logs: Path,
) -> dict[str, Any]:
    """Return the data of the page's script: tuples, and the shared values that they refer to by index."""
    conditions, circumstances, axes, lines = Shared([]), Shared([]), Shared([]), Shared([])

    @cache
    def named(value: Conditions | Circumstances) -> list[list[Any]]:
        pairs = [(field.name, getattr(value, field.name)) for field in fields(value)]
        return [[name, board_of(known) if name == "device_uuid" else _plain(known)] for name, known in pairs]

    counted = report_sections.counted_once(found)
    entries = []
    for index, one in enumerate(tuples):
        places = [plot.positions[index] for plot in plots]
        entry = {**_entry(one, roofline), "positions": [at and [round(value, 1) for value in at] for at in places]}
        if one.row is not None:
            entry["conditions"] = conditions.index(named(one.row.conditions))
            entry["circumstances"] = circumstances.index(named(one.row.circumstances))
            trace = _trace(one.row, logs)
            entry["trace"] = None if trace is None else _compact(trace, axes, lines)
        entries.append(entry)
    names = list(dict.fromkeys(name for entry in entries for name in entry))
    return {
        "models": [
            {"label": one.model.name, "full_time_s": one.row.full_time_s, "is_usual": index in counted}
            for index, one in enumerate(found)
        ],
        "flags": {flag.value: flag.meaning for flag in TupleFlag},
        "fields": names,
        "facts": FACTS,
        "tuples": [[entry.get(name) for name in names] for entry in entries],
        "conditions": conditions.values,
        "circumstances": circumstances.values,
        "axes": axes.values,
        "lines": lines.values,
    }


def _entry(one: TupleCost, roofline: Roofline | None) -> dict[str, Any]:
    operator, work = one.case.operator, one.work
    roof = None if roofline is None else roofline.time
    return {
        "key": one.case.key if one.row is None else one.row.key,
        "operator": operator.operator,
        "parameters": operator.parameters_text,
        "inputs": operator.inputs_text,
        "input_data": str(one.case.input_data),
        **_figures(one.row, one.time_s, one.energy_j),
        "flop": one.count.flop,
        "memory_bytes": one.count.memory_bytes,
        "side": roof.side(work) if roof and work else None,
        "roof_ratio": _plain(roof.reached(work, work.time_s)) if roof and work else None,
        "flags": [flag.value for flag in TupleFlag if flag in one.flags],
        "uses": [[use.comparison, use.calls, int(use.is_summed)] for use in one.uses],
    }


def _figures(row: MeasurementRow | None, time_s: Estimate | None, energy_j: Estimate | None) -> dict[str, Any]:
    if row is None or time_s is None:
        return {}
    measured = row.measurement
    reason = measured.energy_missing_reason
    return {
        "time_s": time_s.value,
        "time_standard_error_s": time_s.standard_error,
        "energy_j": None if energy_j is None else energy_j.value,
        "energy_standard_error_j": None if energy_j is None else energy_j.standard_error,
        "energy_at_reference_j": measured.energy_at_reference_j,
        "energy_missing_reason": None if reason is None else without_identities(reason),
        "power_w": measured.power_w,
        "measured_on": row.input_data,
        "facts": [_plain(getattr(measured, name)) for name in FACTS],
        "measured_flags": meanings(measured.flags),
        "power_log": None if measured.power_log is None else Path(measured.power_log).name,
    }


def _plain(value: Any) -> Any:
    """Return a value for people: texts without identities, numbers with six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return without_identities(value) if isinstance(value, str) else value


def _trace(row: MeasurementRow, logs: Path) -> Trace | None:
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
    return trace_of(readings[:2], (begin_s, end_s), TRACE_POINTS)


def _compact(trace: Trace, axes: Shared, lines: Shared) -> dict[str, Any]:
    """Return a trace in few characters: integer coordinates, and shared axes and names by index."""

    def on_grid(axis: Axis, value: float) -> int:
        return round(TRACE_GRID * axis.position(value))

    time, power = trace.time, trace.power
    return {
        "axes": [
            axes.index([axis.label, [[on_grid(axis, value), text] for value, text in axis.ticks]])
            for axis in (time, power)
        ],
        "lines": [
            [lines.index(line.name), " ".join(f"{on_grid(time, x)} {on_grid(power, y)}" for x, y in line.points)]
            for line in trace.lines
        ],
        "window": None if trace.window is None else [on_grid(time, end) for end in trace.window],
    }
