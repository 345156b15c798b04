"""The figure of a followed program: power, load and temperatures over time, with its marks. It needs matplotlib."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from opcost.errors import UserError
from opcost.reporting.figures import RESOLUTION_DPI, STYLE

ENDINGS = (".png", ".pdf", ".svg")

PANELS = (
    ("power, W", "power_instant_w", "power_average_w", "cpu_power_w", 1.0),
    ("load, %", "utilisation_ratio", "", "cpu_load_ratio", 100.0),
    ("temperature, °C", "temperature_c", "", "cpu_temperature_c", 1.0),
)
"""Of each panel: title, column of the GPU, another one where it is empty, column of the CPU, and factor."""


def check_figure(target: Path) -> None:
    """Refuse a file that could not be drawn at the end.

    Raises:
        UserError: its format is unknown, or its folder is missing.
    """
    if target.suffix not in ENDINGS or not target.parent.is_dir():
        raise UserError(f"--figure {target}: name a file in a folder that exists, ending in {', '.join(ENDINGS)}")


def draw(log: Path, target: Path) -> Path:
    """Draw the log of a followed program; return the file."""
    with log.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    devices = list(dict.fromkeys(row["device"] for row in rows))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 5.0), layout="constrained")
        for axes, panel in zip(figure.subplots(len(PANELS), 1, sharex=True), PANELS, strict=True):
            title, column, other, of_cpu, factor = panel
            for device in devices:
                own = [row for row in rows if row["device"] == device]
                if device != "cpu":
                    axes.plot(*_points(own, rows, (column, other), factor), label=device, linewidth=1)
            host = [row for row in rows if row["device"] == devices[0]] if devices else []
            axes.plot(*_points(host, rows, (of_cpu,), factor), label="CPU", linewidth=1, linestyle="--")
            for moment_s, label in _marks(rows):
                axes.axvline(moment_s, color="0.7", linewidth=0.5)
                if panel is PANELS[0]:
                    axes.annotate(label, (moment_s, 1.0), xycoords=("data", "axes fraction"), fontsize=6, rotation=45)
            axes.set_ylabel(title)
            axes.set_ylim(bottom=0)
        axes.set_xlabel("time, s")
        figure.axes[0].legend(loc="lower right", fontsize=7)
        figure.savefig(target, dpi=RESOLUTION_DPI)
    return target


def _points(
    rows: Sequence[dict[str, str]], all_rows: Sequence[dict[str, str]], columns: Sequence[str], factor: float
) -> tuple[list[float], list[float]]:
    """Return times since the first row and the known values of the first column that has one."""
    cells = [(row, next((row[column] for column in columns if column and row[column]), "")) for row in rows]
    known = [(_moment_s(row) - _moment_s(all_rows[0]), float(cell) * factor) for row, cell in cells if cell]
    return [moment_s for moment_s, _ in known], [value for _, value in known]


def _marks(rows: Sequence[dict[str, str]]) -> list[tuple[float, str]]:
    """Return the first time of each run of rows with the same mark."""
    found: list[tuple[float, str]] = []
    for row in rows:
        if row["mark"] and (not found or found[-1][1] != row["mark"]):
            found.append((_moment_s(row) - _moment_s(rows[0]), row["mark"]))
    return found


def _moment_s(row: dict[str, str]) -> float:
    return datetime.fromisoformat(row["timestamp"]).timestamp()
