"""Power over time, on a terminal while it is logged, and as SVG: logs, traces in the report, followed programs.

Standard library only: the power of a GPU can be logged and drawn before anything is installed.
"""

from __future__ import annotations

import csv
import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from opcost.errors import UserError
from opcost.meters.nvidia_smi import parse_log
from opcost.power import log_rows
from opcost.power.log_rows import PowerRow, power_of
from opcost.reporting.markup import Axis, Panel, Points, Series, curves, linear_axis, svg_file
from opcost.storage.files import lines_of, replace_file
from opcost.units import number_of, printable

if TYPE_CHECKING:
    from opcost.stages.follow_power import FollowReport

SHOWN_EVERY_S = 0.5
SHOWN_PARTS = 20
"""The most marked parts in a summary; ``--json`` has all."""

MOST_POINTS = 240
SAMPLES_ENDING = "-samples.csv"
COUNTER_ENDING = "-counter.csv"
"""Endings of the files with a GPU's samples and energy counter, beside the log."""

SAMPLES, COUNTER, INSTANT, AVERAGE = "power samples", "energy counter", "instant power", "average power"
"""Names of lines: a log does not say of which vendor or device it is."""

PANELS = (
    ("power (W)", ("power_instant_w", "power_average_w"), "cpu_power_w", 1.0),
    ("load (%)", ("utilisation_ratio",), "cpu_load_ratio", 100.0),
    ("temperature (°C)", ("temperature_c",), "cpu_temperature_c", 1.0),
)
"""Of a followed program: title, columns of a GPU, of which the first with a value counts, column of the CPU, factor."""


@dataclass(frozen=True)
class Readings:
    """The readings of one meter: time (s) and power (W), oldest first; of a step each holds until the next one."""

    name: str
    points: Points
    is_step: bool = False


@dataclass(frozen=True)
class Trace:
    """Lines to draw, with times since the first reading; ``window`` is the begin and end of the measurement."""

    time: Axis
    power: Axis
    lines: tuple[Readings, ...]
    window: tuple[float, float] | None


def show_line(line: str) -> None:
    """Replace the line that stderr shows if it is a terminal; an empty one clears it."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{printable(line)[:width]}", end="", file=sys.stderr, flush=True)


def shown(batches: Iterable[tuple[PowerRow, ...]]) -> Iterator[tuple[PowerRow, ...]]:
    """Yield rows unchanged, and show the power on stderr if that is a terminal, twice a second at most."""
    shown_s = 0.0
    for rows in batches:
        known = [(row.epoch_s, power_w) for row in rows if (power_w := power_of(row)) is not None]
        if known and known[-1][0] - shown_s >= SHOWN_EVERY_S:
            shown_s, power_w = known[-1]
            show_line(f"{power_w:.1f} W now")
        yield rows
    show_line("")


def summary_lines(report: FollowReport) -> Iterator[str]:
    for part in report.parts[:SHOWN_PARTS]:
        yield printable(str(part))
    if len(report.parts) > SHOWN_PARTS:
        yield f"and {number_of(len(report.parts) - SHOWN_PARTS, 'part')} more"
    yield printable(f"{report.followed}: {report.run}")
    yield f"{report.file}: {number_of(report.rows, 'row')}"


def trace_of(
    readings: Sequence[Readings], window: tuple[float, float] | None = None, most_points: int = MOST_POINTS
) -> Trace | None:
    """Return simultaneous readings of meters (s since the epoch) as a trace with a measurement's window, if any.

    The power axis begins at 0, so that a small ripple looks small. Thinned lines keep peaks and dips.
    """
    known = [one for one in readings if one.points]
    if not known:
        return None
    begin_s = min(one.points[0][0] for one in known)
    end_s = max(one.points[-1][0] for one in known)
    lines = tuple(Readings(one.name, _line(one, begin_s, most_points)) for one in known)
    power = linear_axis((value for one in known for _, value in one.points), "power (W)", has_zero=True)
    if window is not None:
        low_s, high_s = (min(end_s, max(begin_s, moment_s)) - begin_s for moment_s in window)
        window = (low_s, high_s) if low_s < high_s else None
    return Trace(_time_axis(end_s - begin_s), power, lines, window)


def plot_log(path: Path, output: Path | None = None) -> Path:
    """Draw a power log as SVG; return the file, by default beside the log.

    Raises UserError: it is not a power log, or has no reading; or the output is not a ``.svg``.
    """
    if output is not None and output.suffix != ".svg":
        raise UserError(f"--output {output}: a drawing is an SVG file; name a file that ends in .svg")
    trace = trace_of(readings_of_log(path))
    if trace is None:
        raise UserError(f"--plot {path}: the log has no power readings; name another log")
    target, title = output or path.with_suffix(".svg"), f"Power of {path.stem}"
    panel = Panel(trace.time, trace.power, bottom=200.0)
    series = [Series(one.name, one.points, line=f"line{number}") for number, one in enumerate(trace.lines)]
    replace_file(target, svg_file(title, [curves(title, panel, series)], [one.entry for one in series]))
    return target


def readings_of_log(path: Path) -> list[Readings]:
    """Return the readings in a log, and in the files of the same measurement beside it.

    Raises UserError: there is no such file, or it is not a log that opcost writes.
    """
    if not path.is_file():
        raise UserError(f"--plot {path}: there is no such file; name a log of power_logger.py or block 2")
    beside = [path.with_name(path.stem + ending) for ending in (SAMPLES_ENDING, COUNTER_ENDING)]
    logs = [*(other for other in beside if other.is_file()), path]
    return [one for log in logs for one in _readings(log) if one.points]


def check_figure(target: Path) -> None:
    """Refuse, with a ``UserError``, a file that could not be drawn at the end: no SVG, or in no folder."""
    if target.suffix != ".svg" or not target.parent.is_dir():
        raise UserError(f"--figure {target}: name a file in a folder that exists, ending in .svg")


def draw_followed(log: Path, target: Path) -> Path:
    """Draw power, load and temperatures of a followed program with its marks; return the file."""
    with log.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    moments_s = [datetime.fromisoformat(row["timestamp"]).timestamp() for row in rows]
    timed = [(moment_s - moments_s[0], row) for moment_s, row in zip(moments_s, rows, strict=True)]
    marks = [(0.0, ""), *((moment_s, row["mark"]) for moment_s, row in timed if row["mark"])]
    at = [(moment_s, mark) for (_, before), (moment_s, mark) in pairwise(marks) if mark != before]
    devices = list(dict.fromkeys(row["device"] for row in rows))
    gpus = [device for device in devices if device != "cpu"]
    drawings, entries = [], {}
    for title, columns, of_cpu, factor in PANELS:
        # The CPU's columns stand in the rows of each device.
        lines = [*((gpu, gpu, columns) for gpu in gpus), *(("CPU", device, (of_cpu,)) for device in devices[:1])]
        series = []
        for number, (name, device, names) in enumerate(lines):
            own = [(moment_s, row) for moment_s, row in timed if row["device"] == device]
            cells = [(moment_s, next((row[column] for column in names if row[column]), "")) for moment_s, row in own]
            points = _thinned([(moment_s, float(cell) * factor) for moment_s, cell in cells if cell], MOST_POINTS)
            if points:
                series.append(Series(name, points, line=f"line{3 if name == 'CPU' else number % 3}"))
        entries.update({one.name: one.entry for one in series})
        values = linear_axis([y for one in series for _, y in one.points], title, has_zero=True)
        panel = Panel(_time_axis(timed[-1][0] if timed else 0.0), values, bottom=200.0)
        drawings.append(curves(title, panel, series, at))
    replace_file(target, svg_file(f"Power of {log.stem}", drawings, list(entries.values())))
    return target


def _time_axis(duration_s: float) -> Axis:
    rounded = linear_axis([0.0, duration_s or 1.0], "time (s)")
    ticks = tuple(tick for tick in rounded.ticks if tick[0] <= duration_s or not duration_s)
    return Axis(0.0, duration_s or 1.0, rounded.label, ticks)


def _line(readings: Readings, begin_s: float, most_points: int) -> Points:
    """Return the points to draw: all peaks and dips, and stairs of a log that repeats values."""
    points: Points = [(moment_s - begin_s, power_w) for moment_s, power_w in readings.points]
    if not readings.is_step:
        return _thinned(points, most_points)
    changed = [now for before, now in pairwise(points) if before[1] != now[1]]
    last = [points[-1]] if len(points) > 1 and (not changed or changed[-1] != points[-1]) else []
    steps = _thinned([points[0], *changed, *last], most_points // 2)
    corners = (((after[0], before[1]), after) for before, after in pairwise(steps))
    return [steps[0], *chain.from_iterable(corners)]


def _thinned(points: Points, most: int) -> Points:
    if len(points) <= most:
        return points
    per_span = math.ceil(2 * len(points) / most)
    spans = (points[begin : begin + per_span] for begin in range(0, len(points), per_span))
    kept = ({min(span, key=lambda point: point[1]), max(span, key=lambda point: point[1])} for span in spans)
    return [point for ends in kept for point in sorted(ends)]


def _readings(path: Path) -> list[Readings]:
    try:
        lines = lines_of(path)
        header = next(lines, "")
        if header in ("epoch_s,power_w", "epoch_s,energy_j"):
            pairs = [(float(moment_s), float(value)) for moment_s, value in csv.reader(lines)]
            if header == "epoch_s,power_w":
                return [Readings(SAMPLES, pairs)]
            # The mean power between two readings, at the later one.
            between = pairwise(pairs)
            means = [(end_s, (end_j - j) / (end_s - s)) for (s, j), (end_s, end_j) in between if end_s > s]
            return [Readings(COUNTER, means)]
        if header in map(",".join, (log_rows.COLUMNS, log_rows.FOLLOWED_COLUMNS)):
            rows = list(_own_rows(lines, header.split(",")))
        else:
            rows = [row.values for row in parse_log(chain([header], lines))]
            if not rows:
                raise UserError(f"--plot {path}: this is not a power log; name a log of power_logger.py or block 2")
    except (ValueError, csv.Error) as error:
        raise UserError(f"--plot {path}: a line cannot be read ({error}); fix or delete it") from None
    instant = [(row.epoch_s, row.power_instant_w) for row in rows if row.power_instant_w is not None]
    average = [(row.epoch_s, row.power_average_w) for row in rows if row.power_average_w is not None]
    return [Readings(INSTANT, instant, is_step=True), Readings(AVERAGE, average, is_step=True)]


def _own_rows(lines: Iterable[str], columns: Sequence[str]) -> Iterator[PowerRow]:
    first = None
    for row in csv.DictReader(lines, columns):
        first = row.get("device") if first is None else first
        if row.get("device") == first:
            moment_s = datetime.fromisoformat(row["timestamp"]).timestamp()
            instant, average = row["power_instant_w"], row["power_average_w"]
            yield PowerRow(moment_s, float(instant) if instant else None, float(average) if average else None)
