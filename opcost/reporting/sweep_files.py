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


def write_tables(result: SweepResult, folder: Path) -> list[Path]:
    """Write sizes, repetitions, kernels, pieces and correlations as CSV files without checksums; return the files."""
    found = spearman(result.repetitions or result.sizes)
    numbered = enumerate(same_information(found), start=1)
    groups = [{"group": number, "column": name} for number, names in numbered for name in names]
    contents = {
        "sizes": _rows_text(SweepSizeRow, result.sizes),
        "repetitions": _rows_text(SweepRepetitionRow, result.repetitions),
        "kernels": _rows_text(SweepKernelRow, result.kernels),
        "pieces": _table_text([field.name for field in fields(BreakLine)], map(asdict, result.pieces)),
        "correlations": found.to_csv(lineterminator="\n", index_label="column"),
        "correlation_groups": _table_text(["group", "column"], groups),
    }
    return [_written(folder / f"{name}.csv", text.encode()) for name, text in contents.items()]


def export_tree(result: SweepResult, power_logs: Path, folder: Path) -> list[Path]:
    """Write ``input_<size>/run_<k>/`` with ``power_metrics.json`` and ``latency.csv``; return the folders of sizes.

    ``power_metrics.json`` has all that is known of a repetition, in SI units, null if unknown. ``latency.csv`` has the
    time of each iteration that was timed one by one. It is left out if its log is not among the power logs, as after a
    clone: logs are not in git.
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

    ``names`` are those of the axis of sizes and of the unit, ``axis`` is ``log_axis`` or ``linear_axis``. The breaks of
    the curves are marked.
    """
    breaks = {curve.quantity: [(below * above) ** 0.5 for below, above in curve.breaks] for curve in curves}
    drawings, shown = [], []
    for quantity, label, scale in (
        ("time", "time of a run (ms)", MILLI),
        ("energy", "energy of a run (mJ)", MILLI),
        ("power", "power (W)", 1.0),
        ("energy per unit", f"energy per {names[1]} (µJ)", MICRO),
    ):
        costs = [(float(row.place.size), _costs(row)[quantity]) for row in rows]
        points = [(size, value / scale) for size, (value, *_) in costs if value is not None]
        known = [(size, value / scale) for size, (_, value, *_) in costs if value is not None]
        pairs = [(low, high) for _, (*_, low, high) in costs]
        bounds = [(low / scale, high / scale) for low, high in pairs if low is not None and high is not None]
        series = [
            Series("measured (median)", points, 0),
            Series("predicted", known, line="line1", bounds=bounds if len(bounds) == len(known) else ()),
        ]
        shown += [one for one in series if one.points]
        if points or known:
            title = f"{quantity} over {names[0]}"
            drawings.append(over_sizes(title, (names[0], label), series, axis, breaks.get(quantity, ())))
    return drawings, shown


def _costs(row: SweepSizeRow) -> dict[str, tuple[float | None, ...]]:
    """Return what is drawn of a size: the measured cost, the predicted one, and its bounds; None if unknown."""
    figures, predicted, units = row.figures, row.prediction, row.place.units_of_a_run
    time_s, energy_j = predicted.predicted_time_s, predicted.predicted_energy_j
    energies_j = energy_j, predicted.predicted_energy_lower_j, predicted.predicted_energy_upper_j
    per_unit_j = (value / units if units and value is not None else None for value in energies_j)
    power_w = None if energy_j is None or time_s is None else energy_j / time_s
    return {
        "time": (figures.time_s, time_s, predicted.predicted_time_lower_s, predicted.predicted_time_upper_s),
        "energy": (figures.energy_j, *energies_j),
        "power": (figures.power_w, power_w, None, None),
        "energy per unit": (figures.energy_per_unit_j, *per_unit_j),
    }


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
