"""Figures of a sweep, for screens and for a paper: its curves, linear and logarithmic, and the correlations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, StrMethodFormatter

from opcost.comparing.sweep_changes import Curve
from opcost.reporting.compared_models import COLOURS
from opcost.reporting.correlations import spearman
from opcost.reporting.figures import STYLE, mark_plainly, saved
from opcost.reporting.sweep_curves import Drawn, drawn_points

if TYPE_CHECKING:
    # Only for types: the stage imports torch.
    from opcost.stages.sweep_results import SweepResult

SCALES = ("linear", "log")


@dataclass(frozen=True)
class Medium:
    """Where a figure is seen: its name, its width in inches and its size of text in points."""

    name: str
    width: float
    points: int


MEDIA = (Medium("paper", 7.0, 8), Medium("screen", 11.0, 10))


def write_sweep_figures(result: SweepResult, folder: Path) -> list[Path]:
    """Draw a sweep into a folder; return the files, none if there is nothing to draw."""
    if not any(panel.points or panel.predicted for panel in drawn_points(result.sizes, result.unit)):
        return []
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for medium in MEDIA:
        with mpl.rc_context({**STYLE, "font.size": medium.points}):
            for name, figure in _figures(result, medium):
                files += saved(figure, folder / f"{name}-{medium.name}")
    return files


def _figures(result: SweepResult, medium: Medium) -> Iterator[tuple[str, Figure]]:
    for scale in SCALES:
        yield f"curves-{scale}", curves(result, medium, scale)
    matrix = spearman(result.repetitions or result.sizes)
    if len(matrix) > 1:
        yield "correlations", correlations(matrix, medium)


def curves(result: SweepResult, medium: Medium, scale: str) -> Figure:
    """Draw time, energy, power and energy per unit over the size: measured points, and the predicted curve."""
    figure = Figure(figsize=(medium.width, 0.75 * medium.width), layout="constrained")
    breaks = {curve.quantity: curve for curve in result.curves}
    panels = drawn_points(result.sizes, result.unit)
    for axes, panel in zip(figure.subplots(2, 2).flat, panels, strict=True):
        _draw_panel(axes, panel, scale)
        _draw_breaks(axes, breaks.get(panel.quantity))
        axes.set_xlabel(f"{result.axis} ({result.name})")
        axes.set_ylabel(panel.label)
    labels = {label: handle for axes in figure.axes for handle, label in zip(*_legend(axes), strict=True)}
    figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def correlations(matrix: pd.DataFrame, medium: Medium) -> Figure:
    """Draw Spearman's correlation of each pair of columns: blue for 1, red for -1, grey where it is unknown."""
    side = max(medium.width, 0.17 * len(matrix) * medium.points / 8)
    figure = Figure(figsize=(side, side), layout="constrained")
    axes = figure.subplots()
    colours = mpl.colormaps["RdBu"].with_extremes(bad="0.8")
    image = axes.imshow(np.ma.masked_invalid(matrix.to_numpy()), cmap=colours, vmin=-1.0, vmax=1.0)
    places = range(len(matrix))
    axes.set_xticks(places, list(matrix.columns), rotation=90)
    axes.set_yticks(places, list(matrix.columns))
    axes.tick_params(labelsize=0.75 * medium.points, length=0)
    figure.colorbar(image, ax=axes, shrink=0.6, label="Spearman's rank correlation")
    return figure


def _draw_panel(axes: Axes, panel: Drawn, scale: str) -> None:
    measured, predicted = panel.points, panel.predicted
    if measured:
        axes.plot(*_columns(measured), "o", color=COLOURS[0], markersize=3, label="measured (median)")
    if predicted:
        x, y = _columns(predicted)
        axes.plot(x, y, "-", color=COLOURS[1], linewidth=1, label="predicted")
        if panel.bounds:
            low, high = zip(*panel.bounds, strict=True)
            axes.fill_between(x, low, high, color=COLOURS[1], alpha=0.2, linewidth=0, label="90 % interval")
    axes.set_xscale(scale)
    if not measured and not predicted:
        axes.text(0.5, 0.5, "unknown", transform=axes.transAxes, ha="center", va="center")
        return
    if scale == "log":
        axes.set_yscale("log")
        axes.set_xticks(sorted({x for x, _ in (*measured, *predicted)}))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        mark_plainly(axes.yaxis)
        axes.tick_params(axis="x", rotation=45)
    else:
        axes.set_ylim(bottom=0.0)


def _draw_breaks(axes: Axes, curve: Curve | None) -> None:
    for one in () if curve is None else curve.breaks:
        middle = (one.before * one.after) ** 0.5 if axes.get_xscale() == "log" else (one.before + one.after) / 2
        axes.axvline(middle, color="black", linestyle=":", linewidth=0.8, label="break of the fit by pieces")


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _legend(axes: Axes) -> tuple[Sequence[Any], Sequence[str]]:
    handles, labels = axes.get_legend_handles_labels()
    return handles, labels
