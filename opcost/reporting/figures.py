"""Figures of comparisons for a paper, each as PNG and as SVG."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter, StrMethodFormatter

from opcost.estimates import NORMAL_QUANTILE, Estimate
from opcost.reporting.compared_models import (
    COLOURS,
    HATCHES,
    OTHERS,
    QUANTITIES,
    ComparedModel,
    compared_model,
    largest_kinds,
    without_sizes,
)
from opcost.stages.compare import ComparingReport
from opcost.units import MILLI, percent

NAMED = 3
"""The number of models, furthest from the line, that are named in the parity plot."""

CROWDED = 100.0
"""A range (highest over lowest value) in which marks at 1, 2, 5, 10 and so on would overlap."""

BAND_RATIO = 0.05
INTERVAL = "a model and its 95 % intervals"
ASIDE = 0.15
"""Share of a row by which time and energy are shifted, so that they do not overlap."""

RESOLUTION_DPI = 200
STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "opcost",
    # Names may have dollar signs, which begin formulas.
    "text.parse_math": False,
}


def write_figures(models: Sequence[ComparedModel], folder: Path) -> list[Path]:
    """Draw all figures of models into a folder; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    models = without_sizes(models)
    with mpl.rc_context(STYLE):
        figures = {"parity": parity(models), "operators": operators(models), "errors": errors(models)}
        return [path for name, figure in figures.items() for path in saved(figure, folder / name)]


def parity(models: Sequence[ComparedModel]) -> Figure:
    """Draw each model's sum over its whole, with 95 % intervals. On the line, the sum equals the whole."""
    figure = Figure(figsize=(7.0, 3.4), layout="constrained")
    for axes, (quantity, unit) in zip(figure.subplots(1, 2), QUANTITIES, strict=True):
        points = [(model.name, *pair) for model in models if (pair := model.pair(quantity))]
        _draw_parity(axes, points)
        for axis in (axes.xaxis, axes.yaxis):
            mark_plainly(axis)
        axes.set_aspect("equal")
        axes.set_xlabel(f"{quantity} of the whole model ({unit})")
        axes.set_ylabel(f"{quantity}, sum of operators ({unit})")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def mark_plainly(axis: Axis) -> None:
    """Mark 1, 2, 5, 10 and so on at a logarithmic axis, or powers of ten if there are many, as plain numbers."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < CROWDED * low else (1.0,)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())


def operators(models: Sequence[ComparedModel]) -> Figure:
    """Draw the kinds of operators of each sum, as shares of the measured whole, which is 100 %."""
    shown = largest_kinds(models)
    figure = Figure(figsize=(7.0, 1.4 + 0.28 * len(models)), layout="constrained")
    for axes, (quantity, _) in zip(figure.subplots(1, 2, sharey=True), QUANTITIES, strict=True):
        _draw_stacks(axes, models, quantity, shown)
        axes.set_xlabel(f"{quantity}, share of the whole")
    # Once, for the first model on top: the axes share it.
    figure.axes[0].invert_yaxis()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def errors(models: Sequence[ComparedModel]) -> Figure:
    """Draw the error of each sum, plain and corrected, with 95 % intervals, in the order of time."""
    figure = Figure(figsize=(7.0, 1.2 + 0.22 * len(models)), layout="constrained")
    axes = figure.subplots()
    ordered = sorted(models, key=lambda model: ratio.value if (ratio := model.ratio("time")) else 0.0)
    for (quantity, _), marker, colour, aside in zip(QUANTITIES, "os", COLOURS, (ASIDE, -ASIDE), strict=False):
        sums = [model.ratio(quantity) for model in ordered]
        corrected = [model.corrected_ratio(quantity) for model in ordered]
        look = {"fmt": marker, "color": colour, "markersize": 4, "linewidth": 1}
        _draw_errors(axes, sums, aside, **look, label=quantity)
        _draw_errors(axes, corrected, aside, **look, markerfacecolor="white", label=f"{quantity}, corrected")
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(ordered)), [model.name for model in ordered])
    axes.set_ylim(-0.5, len(ordered) - 0.5)
    axes.xaxis.set_major_formatter(FuncFormatter(_percent))
    axes.set_xlabel("sum of operators minus measured whole, share of the whole; bars are 95 % intervals")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw_errors(axes: Axes, ratios: Sequence[Estimate | None], aside: float, **look: Any) -> None:
    """Draw the known ratios, each in its row; nothing, not even in the legend, if none is known."""
    found = [(row + aside, ratio) for row, ratio in enumerate(ratios) if ratio is not None]
    if found:
        spans = [NORMAL_QUANTILE * ratio.standard_error for _, ratio in found]
        axes.errorbar([ratio.value - 1 for _, ratio in found], [row for row, _ in found], xerr=spans, **look)


def _percent(value: float, _: int | None) -> str:
    return f"{100 * value:+.3g} %" if value else "0"


def _draw_parity(axes: Axes, points: Sequence[tuple[str, Estimate, Estimate]]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    if not points:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center")
        return
    wholes, sums = [whole for _, _, whole in points], [summed for _, summed, _ in points]
    x, y = ([one.value / MILLI for one in column] for column in (wholes, sums))
    x_spans, y_spans = ([NORMAL_QUANTILE * one.standard_error / MILLI for one in column] for column in (wholes, sums))
    axes.errorbar(
        x, y, xerr=x_spans, yerr=y_spans, fmt="o", color=COLOURS[0], markersize=4, linewidth=1, label=INTERVAL
    )
    ends = [0.7 * min(*x, *y), 1.4 * max(*x, *y)]
    axes.plot(ends, ends, color="black", linewidth=0.8, label="sum = whole")
    for ratio, label in ((1 - BAND_RATIO, f"± {percent(BAND_RATIO, digits=0)}"), (1 + BAND_RATIO, None)):
        axes.plot(ends, [ratio * end for end in ends], color="black", linewidth=0.5, linestyle=":", label=label)
    furthest = sorted(range(len(points)), key=lambda index: -abs(math.log(y[index] / x[index])))
    for index in furthest[:NAMED]:
        # Away from the line, and from the figure's edge.
        offset, side = ((-4, 4), "right") if x[index] ** 2 > ends[0] * ends[1] else ((4, -8), "left")
        position = (x[index], y[index])
        axes.annotate(points[index][0], position, xytext=offset, textcoords="offset points", ha=side, fontsize=6)


def _draw_stacks(axes: Axes, models: Sequence[ComparedModel], quantity: str, shown: Sequence[str]) -> None:
    left = [0.0] * len(models)
    looks = [*list(zip(COLOURS, HATCHES, strict=True))[: len(shown)], (COLOURS[-1], HATCHES[-1])]
    for kind, (colour, hatch) in zip([*shown, OTHERS], looks, strict=True):
        widths = [model.share(quantity, kind, shown) for model in models]
        axes.barh(range(len(models)), widths, left=left, color=colour, hatch=hatch, edgecolor="white", label=kind)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.axvline(1.0, color="black", linewidth=1.2, label="measured whole")
    axes.set_yticks(range(len(models)), [model.name for model in models])
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))


def saved(figure: Figure, path: Path) -> Iterator[Path]:
    """Write a figure as PNG and SVG, and yield each file."""
    for suffix, metadata in ((".png", {"Software": None}), (".svg", {"Date": None})):
        file = path.with_suffix(suffix)
        figure.savefig(file, dpi=RESOLUTION_DPI, metadata=metadata)
        yield file


def draw_comparisons(reports: Sequence[ComparingReport], folder: Path) -> list[Path]:
    """Draw figures of comparisons; return the files, none if there is nothing to draw."""
    models = [
        compared_model(label, row, kinds)
        for report in reports
        for label, row, kinds in zip(report.labels, report.comparisons, report.kinds, strict=True)
        if not row.missing_operators
    ]
    incomplete = sum(len(report.comparisons) for report in reports) - len(models)
    if incomplete:
        text = "figures: %d comparisons are left out, since operators are missing"
        logging.getLogger(__name__).warning(text, incomplete)
    return write_figures(models, folder) if models else []
