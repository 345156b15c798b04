"""A power trace as SVG: as a file, or as a figure of a page."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from opcost.reporting.power_drawing import PowerDrawing
from opcost.reporting.svg import WIDTH, Panel, drawing, element, text

HEIGHT = 240.0
LEGEND_ROW = 18.0
MOST_LETTERS = 50
"""Length of the longest title that fits into the figure."""


def power_svg(trace: PowerDrawing, title: str) -> str:
    """Return a power trace as the text of an SVG file, for light and dark backgrounds."""
    style = element("style", None, files("opcost.reporting").joinpath("figures.css").read_text(encoding="utf-8"))
    style += element("rect", {"class": "ground", "width": "100%", "height": "100%"})
    return f'<?xml version="1.0" encoding="utf-8"?>\n{power_figure(trace, title, style)}\n'


def power_figure(trace: PowerDrawing, title: str, style: str = "") -> str:
    """Return a power trace as a figure."""
    panel = Panel(trace.time, trace.power, 40.0, 48.0, WIDTH - 12, HEIGHT - 40)
    height = HEIGHT + LEGEND_ROW * len(trace.lines)
    return drawing(
        title,
        height,
        style,
        element("title", None, escape(title)),
        text(title if len(title) <= MOST_LETTERS else f"{title[: MOST_LETTERS - 1]}…", 2, 14, "title"),
        _window(trace, panel),
        panel.axes(),
        *(_line(line.points, number, panel) for number, line in enumerate(trace.lines)),
        *(_legend(line.name, number) for number, line in enumerate(trace.lines)),
    )


def _window(trace: PowerDrawing, panel: Panel) -> str:
    if trace.window is None:
        return ""
    begin, end = (panel.left + position * (panel.right - panel.left) for position in trace.window)
    height = panel.bottom - panel.top
    field = element("rect", {"class": "window", "x": begin, "y": panel.top, "width": end - begin, "height": height})
    return field + text("measured", (begin + end) / 2, panel.top + 12, "tick", "middle")


def _line(positions: tuple[tuple[float, float], ...], number: int, panel: Panel) -> str:
    width, height = panel.right - panel.left, panel.bottom - panel.top
    points = " ".join(f"{panel.left + x * width:.1f} {panel.bottom - y * height:.1f}" for x, y in positions)
    return element("path", {"class": f"line{number}", "d": f"M{points}"})


def _legend(name: str, number: int) -> str:
    y = HEIGHT + 8 + LEGEND_ROW * number
    return element("path", {"class": f"line{number}", "d": f"M40 {y:g}h28"}) + text(name, 74, y + 4)
