"""The drawing of a written power log, for ``power_logger.py --plot`` and for the report."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, pairwise
from pathlib import Path

from opcost.errors import UserError
from opcost.meters.nvidia_smi_log import parse_log
from opcost.power import log_rows
from opcost.power.log_rows import PowerRow
from opcost.power.meter_names import AVERAGE, COUNTER, INSTANT, SAMPLES
from opcost.reporting.power_drawing import Readings, drawing_of
from opcost.reporting.svg_power import power_svg
from opcost.storage.files import lines_of, replace_file

SAMPLES_ENDING = "-samples.csv"
COUNTER_ENDING = "-counter.csv"
"""Endings of the files with NVML's readings, beside nvidia-smi's rows."""


def plot_log(path: Path, output: Path | None = None) -> Path:
    """Draw a power log as SVG; return the file, by default beside the log.

    Raises:
        UserError: it is not a power log, or has no reading; or the output is not a ``.svg``.
    """
    if output is not None and output.suffix != ".svg":
        raise UserError(f"--output {output}: a drawing is an SVG file; name a file that ends in .svg")
    drawing = drawing_of(readings_of_log(path))
    if drawing is None:
        raise UserError(f"--plot {path}: the log has no power readings; name another log")
    target = output or path.with_suffix(".svg")
    replace_file(target, power_svg(drawing, f"Power of {path.stem}").encode())
    return target


def readings_of_log(path: Path) -> list[Readings]:
    """Return the readings in a log, and in the files of the same measurement beside it.

    Raises:
        UserError: there is no such file, or it is not a log that opcost writes.
    """
    if not path.is_file():
        raise UserError(f"--plot {path}: there is no such file; name a log of power_logger.py or block 2")
    beside = [path.with_name(path.stem + ending) for ending in (SAMPLES_ENDING, COUNTER_ENDING)]
    logs = [*(other for other in beside if other.is_file()), path]
    return [one for log in logs for one in _readings(log) if one.points]


def _readings(path: Path) -> list[Readings]:
    try:
        lines = lines_of(path)
        header = next(lines, "")
        if header in (log_rows.csv_header(), ",".join(log_rows.FOLLOWED_COLUMNS)):
            return _of_rows(_own_rows(lines, header.split(",")))
        if header == "epoch_s,power_w":
            return [Readings(SAMPLES, tuple(_pairs(lines)))]
        if header == "epoch_s,energy_j":
            return [Readings(COUNTER, tuple(_powers(list(_pairs(lines)))))]
        rows = [row.values for row in parse_log(chain([header], lines)).rows]
    except (ValueError, csv.Error) as error:
        raise UserError(f"--plot {path}: a line cannot be read ({error}); fix or delete it") from None
    if not rows:
        raise UserError(f"--plot {path}: this is not a power log; name a log of power_logger.py or block 2")
    return _of_rows(rows)


def _pairs(lines: Iterable[str]) -> Iterator[tuple[float, float]]:
    for cells in csv.reader(lines):
        moment_s, value = map(float, cells)
        yield moment_s, value


def _powers(energies: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield the mean power between two readings of an energy counter, at the later one."""
    for (before_s, before_j), (after_s, after_j) in pairwise(energies):
        if after_s > before_s:
            yield after_s, (after_j - before_j) / (after_s - before_s)


def _own_rows(lines: Iterable[str], columns: Sequence[str]) -> Iterator[PowerRow]:
    """Yield the rows of the first device in a log."""
    first = None
    for row in csv.DictReader(lines, columns):
        first = row.get("device") if first is None else first
        if row.get("device") != first:
            continue
        instant, average = row["power_instant_w"], row["power_average_w"]
        yield PowerRow(
            datetime.fromisoformat(row["timestamp"]).timestamp(),
            float(instant) if instant else None,
            float(average) if average else None,
        )


def _of_rows(rows: Iterable[PowerRow]) -> list[Readings]:
    rows = list(rows)
    fields: tuple[tuple[str, Callable[[PowerRow], float | None]], ...] = (
        (INSTANT, lambda row: row.power_instant_w),
        (AVERAGE, lambda row: row.power_average_w),
    )
    return [Readings(name, tuple(_known(rows, power_of)), is_step=True) for name, power_of in fields]


def _known(rows: Sequence[PowerRow], power_of: Callable[[PowerRow], float | None]) -> Iterator[tuple[float, float]]:
    for row in rows:
        power_w = power_of(row)
        if power_w is not None:
            yield row.epoch_s, power_w
