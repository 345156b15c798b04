"""The files of a sweep: its tables as CSV, its figures, and a folder tree for scripts that read one."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from opcost.columns import by_column, columns_of
from opcost.comparing.sweep_sizes import BreakLine, Curve, SweepSizeRow
from opcost.measuring.sweep_record import SweepKernelRow, SweepRepetitionRow
from opcost.reporting.charts import matrix, over_sizes
from opcost.reporting.svg import Axis, Drawing, Series, linear_axis, log_axis, svg_file
from opcost.storage.files import replace_file
from opcost.units import MILLI

if TYPE_CHECKING:
    # Only for types: the stage imports torch.
    from opcost.stages.sweep_results import SweepResult

MICRO = 1e-6

SAME_RANKS = 0.99
"""The absolute correlation from which two columns order rows alike: each has the other's order."""

FEWEST_ROWS = 3

Bounded = tuple["float | None", "float | None", "float | None"]
"""A predicted value and its bounds, None if they are unknown."""


def write_tables(result: SweepResult, folder: Path) -> list[Path]:
    """Write sizes, repetitions, kernels, pieces and correlations as CSV files without checksums; return the files."""
    found = spearman(result.repetitions or result.sizes)
    groups = [
        {"group": number, "column": name}
        for number, names in enumerate(same_information(found), start=1)
        for name in names
    ]
    pieces = (
        [field.name for field in fields(BreakLine)],
        [asdict(line) for line in result.pieces],
    )
    contents = {
        "sizes": _rows_text(SweepSizeRow, result.sizes),
        "repetitions": _rows_text(SweepRepetitionRow, result.repetitions),
        "kernels": _rows_text(SweepKernelRow, result.kernels),
        "pieces": _table_text(*pieces),
        "correlations": found.to_csv(lineterminator="\n", index_label="column"),
        "correlation_groups": _table_text(["group", "column"], groups),
    }
    return [_written(folder / f"{name}.csv", text.encode()) for name, text in contents.items()]


def export_tree(result: SweepResult, power_logs: Path, folder: Path) -> list[Path]:
    """Write ``input_<size>/run_<k>/`` with ``power_metrics.json`` and ``latency.csv``; return the folders of sizes.

    ``power_metrics.json`` has all that is known of a repetition, in SI units, null if unknown. ``latency.csv`` has the
    time of each iteration that was timed one by one. It is left out if its log is not here, as after a clone: logs are
    not in git.

    Args:
        result: of a sweep.
        power_logs: the folder with the times of iterations.
        folder: of the tree.
    """
    for row in result.repetitions:
        run = folder / f"input_{row.place.size}" / f"run_{row.repetition}"
        known = by_column(row) | {"flags": [flag.value for flag in row.measurement.flags]}
        _written(run / "power_metrics.json", f"{json.dumps(known, indent=2)}\n".encode())
        log = None if row.iterations_log is None else power_logs / row.iterations_log
        if log is not None and log.is_file():
            replace_file(run / "latency.csv", log.read_bytes())
    return [folder / f"input_{size}" for size in dict.fromkeys(row.place.size for row in result.repetitions)]


def write_sweep_figures(result: SweepResult, folder: Path) -> list[Path]:
    """Draw a sweep into a folder; return the files, none if there is nothing to draw.

    ``curves-linear.svg`` and ``curves-log.svg`` have time, energy, power and energy per unit over the size with the
    breaks of the fit by pieces, ``correlations.svg`` Spearman's correlation of each pair of columns.
    """
    if not any(row.figures.time_s or row.prediction.predicted_time_s for row in result.sizes):
        return []
    files = []
    for scale, axis in (("linear", lambda values, label: linear_axis(values, label, has_zero=True)), ("log", log_axis)):
        names = (f"{result.axis} ({result.name})", result.unit)
        drawings, legend = size_curves(result.sizes, names, axis, result.curves)
        entries = {one.name: one.entry for one in legend}
        files.append(_written(folder / f"curves-{scale}.svg", svg_file(result.name, drawings, list(entries.values()))))
    found = spearman(result.repetitions or result.sizes)
    if len(found) > 1:
        label = "Spearman's rank correlation, from -1 (red) to 1 (blue)"
        drawing = matrix(list(found.columns), found.to_numpy().tolist(), label)
        files.append(_written(folder / "correlations.svg", svg_file(label, [drawing])))
    return files


def size_curves(
    rows: Sequence[SweepSizeRow], names: tuple[str, str], axis: Callable[..., Axis], curves: Iterable[Curve] = ()
) -> tuple[list[Drawing], list[Series]]:
    """Return figures of time, energy, power, and energy per pixel, token or sample over the size, and their series.

    Args:
        rows: the sizes; figures are medians over repetitions.
        names: of the axis of sizes, and of the unit.
        axis: ``log_axis`` or ``linear_axis``.
        curves: whose breaks are marked.
    """
    breaks = {curve.quantity: [(one.before * one.after) ** 0.5 for one in curve.breaks] for curve in curves}
    costs: tuple[
        tuple[str, str, float, Callable[[SweepSizeRow], float | None], Callable[[SweepSizeRow], Bounded]], ...
    ] = (
        ("time", "time of a run (ms)", MILLI, lambda row: row.figures.time_s, _predicted_time),
        ("energy", "energy of a run (mJ)", MILLI, lambda row: row.figures.energy_j, _predicted_energy),
        ("power", "power (W)", 1.0, lambda row: row.figures.power_w, _predicted_power),
        (
            *("energy per unit", f"energy per {names[1]} (µJ)", MICRO),
            *(lambda row: row.figures.energy_per_unit_j, _predicted_energy_per_unit),
        ),
    )
    drawings, shown = [], []
    for quantity, label, scale, measured, predicted in costs:
        points = [(float(row.place.size), value / scale) for row in rows if (value := measured(row)) is not None]
        curve = [(float(row.place.size), *predicted(row)) for row in rows]
        known = [(size, value / scale) for size, value, _, _ in curve if value is not None]
        bounds = [(low / scale, high / scale) for _, _, low, high in curve if low is not None and high is not None]
        series = [
            Series("measured (median)", points, 0),
            Series("predicted", known, line="line1", bounds=bounds if len(bounds) == len(known) else ()),
        ]
        shown += [one for one in series if one.points]
        if points or known:
            drawings.append(
                over_sizes(f"{quantity} over {names[0]}", (names[0], label), series, axis, breaks.get(quantity, ()))
            )
    return drawings, shown


def _predicted_time(row: SweepSizeRow) -> Bounded:
    one = row.prediction
    return one.predicted_time_s, one.predicted_time_lower_s, one.predicted_time_upper_s


def _predicted_energy(row: SweepSizeRow) -> Bounded:
    one = row.prediction
    return one.predicted_energy_j, one.predicted_energy_lower_j, one.predicted_energy_upper_j


def _predicted_power(row: SweepSizeRow) -> Bounded:
    energy_j, time_s = row.prediction.predicted_energy_j, row.prediction.predicted_time_s
    return None if energy_j is None or time_s is None else energy_j / time_s, None, None


def _predicted_energy_per_unit(row: SweepSizeRow) -> Bounded:
    units = row.place.units_of_a_run
    value, lower, upper = (None if one is None or not units else one / units for one in _predicted_energy(row))
    return value, lower, upper


def spearman(rows: Sequence[Any]) -> pd.DataFrame:
    """Return Spearman's rank correlation of each pair of numeric columns that vary; NaN for too few rows.

    pandas computes it as scipy does: Pearson's correlation of ranks, equal values having their mean rank.
    """
    if not rows:
        nothing: pd.DataFrame = pd.DataFrame()
        return nothing
    names = [field.name for field in columns_of(type(rows[0])) if field.kind in (int, float)]
    frame = pd.DataFrame([by_column(row) for row in rows])[names].apply(pd.to_numeric)
    varied = [name for name in names if frame[name].nunique() > 1 and frame[name].notna().sum() >= FEWEST_ROWS]
    found: pd.DataFrame = frame[varied].corr(method="spearman", min_periods=FEWEST_ROWS)
    return found


def same_information(found: pd.DataFrame) -> list[list[str]]:
    """Return groups of two or more columns, each of which orders rows as the group's first does, or in reverse."""
    names = [str(name) for name in found.columns]
    known = {name: dict(zip(names, column, strict=True)) for name, column in zip(names, found.to_numpy(), strict=True)}
    left, groups = names, []
    while left:
        first, *others = left
        alike = [name for name in others if abs(known[first][name]) >= SAME_RANKS]
        left = [name for name in others if name not in alike]
        if alike:
            groups.append([first, *alike])
    return groups


def _rows_text(kind: Any, rows: Iterable[Any]) -> str:
    cells = [
        by_column(row)
        | ({"flags": "|".join(flag.value for flag in row.measurement.flags)} if hasattr(row, "measurement") else {})
        for row in rows
    ]
    return _table_text([field.name for field in columns_of(kind)], cells)


def _table_text(names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _written(path: Path, content: bytes) -> Path:
    replace_file(path, content)
    return path
