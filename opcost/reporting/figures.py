"""Figures as SVG files: those of comparisons, and that of a sweep of power caps."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from opcost.metering.power_caps import is_efficient, medians_of
from opcost.reporting.charts import error_chart, kind_chart, parity_chart
from opcost.reporting.compared_models import ComparedModel, compared_model, without_sizes
from opcost.reporting.svg import Panel, Series, curves, linear_axis, svg_file, text
from opcost.storage.files import replace_file

if TYPE_CHECKING:
    # Only for types: the stages import torch.
    from opcost.stages.compare import ComparingReport
    from opcost.stages.power_cap import CapSweep

CURVE_POINTS = 200


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
        message = "figures: %d comparisons are left out, since operators are missing"
        logging.getLogger(__name__).warning(message, incomplete)
    return write_figures(models, folder) if models else []


def write_figures(models: Sequence[ComparedModel], folder: Path) -> list[Path]:
    """Draw the report's charts of models into a folder, those of operators and of errors included; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    models = without_sizes(models)
    figures = {
        "parity": ("Sum of operators over whole model", parity_chart(models)),
        "operators": ("Kinds of operators", kind_chart(models)),
        "errors": ("Sum of operators minus whole model, with 95 % intervals", error_chart(models)),
    }
    paths = [folder / f"{name}.svg" for name in figures]
    for path, (title, chart) in zip(paths, figures.values(), strict=True):
        replace_file(path, svg_file(title, chart.drawings, chart.legend))
    return paths


def draw_cap_sweep(sweep: CapSweep, target: Path) -> Path:
    """Draw energy over time with the Pareto front, and both over the cap with the fit; return the file."""
    points, fit, best_w = medians_of(sweep.points), sweep.fit, sweep.proposal.cap_w
    front = sorted((point for point in points if is_efficient(point, points)), key=lambda point: point.time_s)
    costs = [
        Series(name, [(one.time_s, one.energy_j) for one in own], look, line, [f"{one.cap_w:g} W" for one in own])
        for name, own, look, line in (("measured cap", points, 7, ""), ("Pareto front", front, 0, "line0"))
    ]
    costs.append(Series(f"least {sweep.wish}", [(fit.time_s(best_w), fit.energy_j(best_w))], 3))
    places = [place for one in costs for place in one.points]
    times, energies = linear_axis([x for x, _ in places], "time (s)"), linear_axis([y for _, y in places], "energy (J)")
    found_w = sweep.found_limit_w
    caps = np.linspace(fit.lowest_w, fit.highest_w, CURVE_POINTS)
    ratios = []
    for look, (name, of_fit, of_point) in enumerate(
        (("time", fit.time_s, "time_s"), ("energy", fit.energy_j, "energy_j"))
    ):
        measured = [(one.cap_w, getattr(one, of_point) / of_fit(found_w)) for one in sweep.points]
        ratios.append(Series(name, measured, look))
        ratios.append(
            Series(f"{name}, fit", [(cap, of_fit(cap) / of_fit(found_w)) for cap in caps], line=f"line{look}")
        )
    all_ratios = [place for one in ratios for place in one.points]
    watts = linear_axis([x for x, _ in all_ratios], "power cap (W)")
    over = linear_axis([y for _, y in all_ratios], f"ratio to {found_w:g} W")
    pareto = Panel(times, energies)
    names = [
        text(f"{one.cap_w:g} W", pareto.across(one.time_s) + 6, pareto.up(one.energy_j) - 4, "small") for one in front
    ]
    drawings = [
        curves("energy over time", pareto, costs, (), *names),
        curves("time and energy over the cap", Panel(watts, over), ratios, [(best_w, f"{best_w:g} W")]),
    ]
    replace_file(target, svg_file(sweep.work, drawings, [one.entry for one in (*costs, *ratios)]))
    return target
