"""The figure of a power-cap sweep: the Pareto front, and the fit over the cap. It needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from opcost.metering.power_caps import is_efficient, medians_of
from opcost.reporting.compared_models import COLOURS
from opcost.reporting.figures import RESOLUTION_DPI, STYLE
from opcost.stages.power_cap import CapSweep


def draw_cap_sweep(sweep: CapSweep, target: Path) -> Path:
    """Draw energy over time with the Pareto front, and both over the cap with the fit; return the file."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 3.2), layout="constrained")
        pareto, over_caps = figure.subplots(1, 2)
        _draw_pareto(pareto, sweep)
        _draw_over_caps(over_caps, sweep)
        figure.savefig(target, dpi=RESOLUTION_DPI)
    return target


def _draw_pareto(axes: Axes, sweep: CapSweep) -> None:
    points = medians_of(sweep.points)
    front = sorted((point for point in points if is_efficient(point, points)), key=lambda point: point.time_s)
    axes.plot([point.time_s for point in points], [point.energy_j for point in points], "o", color="0.7", markersize=4)
    axes.plot(
        [point.time_s for point in front],
        [point.energy_j for point in front],
        "o-",
        color=COLOURS[0],
        markersize=4,
        label="Pareto front",
    )
    for point in front:
        axes.annotate(
            f"{point.cap_w:g} W", (point.time_s, point.energy_j), fontsize=6, xytext=(3, 3), textcoords="offset points"
        )
    best_w = sweep.proposal.cap_w
    axes.plot(sweep.fit.time_s(best_w), sweep.fit.energy_j(best_w), "*", color=COLOURS[5], label=f"least {sweep.wish}")
    axes.set_xlabel("time, s")
    axes.set_ylabel("energy, J")
    axes.legend(fontsize=6, frameon=False)


def _draw_over_caps(axes: Axes, sweep: CapSweep) -> None:
    fit, found_w = sweep.fit, sweep.found_limit_w
    caps = np.linspace(fit.lowest_w, fit.highest_w, 200)
    reference = fit.time_s(found_w), fit.energy_j(found_w)
    for place, (name, marker) in enumerate((("time", "o"), ("energy", "s"))):
        curve = [(fit.time_s(cap), fit.energy_j(cap))[place] / reference[place] for cap in caps]
        measured = [(point.time_s, point.energy_j)[place] / reference[place] for point in sweep.points]
        axes.plot(caps, curve, color=COLOURS[place], linewidth=1)
        axes.plot([point.cap_w for point in sweep.points], measured, marker, color=COLOURS[place], ms=3, label=name)
    axes.axvline(sweep.proposal.cap_w, color=COLOURS[5], linewidth=0.8, linestyle=":")
    axes.set_xlabel("power cap, W")
    axes.set_ylabel(f"ratio to {found_w:g} W")
    axes.legend(fontsize=6, frameon=False)
