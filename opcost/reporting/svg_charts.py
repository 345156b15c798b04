"""The report's figures as SVG: parity, errors, kinds of operators, gaps, drift, and rooflines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from opcost.comparing.roofline import COMPUTE, Roof
from opcost.estimates import NORMAL_QUANTILE, Estimate
from opcost.reporting.axes import Axis, linear_axis, log_axis
from opcost.reporting.compared_models import OTHERS, ComparedModel, largest_kinds
from opcost.reporting.svg import MARKS, WIDTH, Panel, dots, drawing, element, patterns, text
from opcost.units import MILLI, millijoules, milliseconds, percent, ratio

BAND_RATIO = 0.05
NAMED = 4
"""The number of models, furthest from the line, that are named in a parity figure."""

CHARACTER = 6.6
"""Upper bound of the mean width of a letter of height 12, to detect overlapping texts."""

DESCENT = 5.0
"""Height of letters, with some space, below their line."""

ROW = 34.0
BAR = 13.0


@dataclass(frozen=True)
class StackedBar:
    """One bar: a share of the whole for each part, None if unknown; ``note`` is shown beside the name."""

    name: str
    note: str
    shares: tuple[float | None, ...]


@dataclass(frozen=True)
class Deviation:
    """A deviation as a ratio; ``look`` is the number of its mark, ``title`` its tooltip without the row's name."""

    value: Estimate
    look: int
    title: str


@dataclass(frozen=True)
class Course:
    """The course of a repeated measurement: points of time (min) and deviation (ratio)."""

    name: str
    points: tuple[tuple[float, float], ...]


def parity(models: Sequence[ComparedModel], quantity: str, unit: str) -> str:
    """Draw each model's sum over its whole with 95 % intervals. On the line, the sum equals the whole.

    Args:
        models: compared ones.
        quantity: ``time`` or ``energy``.
        unit: a thousandth of a second or joule.
    """
    label = f"{quantity}: sum of operators over whole model"
    points = [(model.name, *pair) for model in models if (pair := model.pair(quantity))]
    if not points:
        return _nothing(label, f"no model has {quantity} of both sum and whole")
    values = [estimate.value / MILLI for _, *pair in points for estimate in pair]
    panel = Panel(
        log_axis(values, f"{quantity} of the whole model ({unit})"),
        log_axis(values, f"{quantity}, sum of operators ({unit})"),
        *(52.0, 30.0, WIDTH - 10, 350.0),
    )
    return drawing(
        label,
        390.0,
        panel.axes(),
        *_parity_lines(panel),
        *(_spread(panel, summed, whole) for _, summed, whole in points),
        *(_parity_mark(panel, model, quantity) for model in models),
        *_names(panel, points),
    )


def _parity_lines(panel: Panel) -> list[str]:
    low, high = panel.x.low, panel.x.high
    bands = [
        [(max(low, low / share), max(low, low * share)), (min(high, high / share), min(high, high * share))]
        for share in (1 - BAND_RATIO, 1 + BAND_RATIO)
    ]
    return [panel.line([(low, low), (high, high)], "even"), *(panel.line(band, "band") for band in bands)]


def _spread(panel: Panel, summed: Estimate, whole: Estimate) -> str:
    x, y = whole.value / MILLI, summed.value / MILLI
    half_x, half_y = (NORMAL_QUANTILE * one.standard_error / MILLI for one in (whole, summed))
    left, right = (panel.across(max(panel.x.low, value)) for value in (x - half_x, x + half_x))
    top, bottom = (panel.up(max(panel.y.low, value)) for value in (y + half_y, y - half_y))
    d = f"M{left:.1f} {panel.up(y):.1f}H{right:.1f}M{panel.across(x):.1f} {top:.1f}V{bottom:.1f}"
    return element("path", {"class": "spread", "d": d})


def _parity_mark(panel: Panel, model: ComparedModel, quantity: str) -> str:
    pair, sum_over_whole = model.pair(quantity), model.ratio(quantity)
    if pair is None or sum_over_whole is None:
        return ""
    summed, whole = pair
    title = f"{model.name}: sum / whole {_with_interval(sum_over_whole)}"
    return panel.mark((whole.value / MILLI, summed.value / MILLI), 0, title)


def _with_interval(value: Estimate) -> str:
    return f"{ratio(value.value)} ± {ratio(NORMAL_QUANTILE * value.standard_error)}"


def _names(panel: Panel, points: Sequence[tuple[str, Estimate, Estimate]]) -> list[str]:
    """Return the names of the models furthest from the line, without names that would overlap."""
    furthest = sorted(points, key=lambda point: -abs(math.log(point[1].value / point[2].value)))
    drawn: list[str] = []
    taken: list[tuple[float, float, float]] = []
    for name, summed, whole in furthest:
        x, y = panel.across(whole.value / MILLI), panel.up(summed.value / MILLI)
        width = CHARACTER * len(name)
        # To the left of a mark above the line, to the right of a mark below it, if there is room.
        is_left = (summed.value >= whole.value and x - 10 - width > panel.left) or x + 10 + width > panel.right
        begin = x - 10 - width if is_left else x + 10
        for height in (y - 6,) if is_left else (y + 13, y + 4):
            is_within = panel.left < begin < panel.right - width and height + DESCENT < panel.bottom
            if is_within and not _overlaps(taken, begin, width, height):
                taken.append((begin, begin + width, height))
                drawn.append(text(name, x - 10 if is_left else x + 10, height, "small", "end" if is_left else "start"))
                break
        if len(drawn) == NAMED:
            break
    return drawn


def _overlaps(taken: Sequence[tuple[float, float, float]], begin: float, width: float, height: float) -> bool:
    return any(begin < right and left < begin + width and abs(height - y) < 13 for left, right, y in taken)


def kinds(models: Sequence[ComparedModel], quantity: str) -> tuple[str, list[str]]:
    """Draw the kinds of operators of each sum, as shares of the measured whole; return also the names of the fills."""
    shown = largest_kinds(models)
    known = [model for model in models if model.pair(quantity) is not None]
    rows = [
        StackedBar(
            model.name,
            _absolute(model, quantity),
            tuple(model.share(quantity, kind, shown) for kind in [*shown, OTHERS]),
        )
        for model in known
    ]
    label = f"{quantity}, share of the measured whole model (%)"
    return stacked_bars(rows, label, [*list(range(len(shown))), 7]), [*shown, OTHERS]


def _absolute(model: ComparedModel, quantity: str) -> str:
    pair = model.pair(quantity)
    write = milliseconds if quantity == "time" else millijoules
    return "" if pair is None else f"{write(pair[0].value).partition(' ')[0]} of {write(pair[1].value)}"


def stacked_bars(rows: Sequence[StackedBar], label: str, looks: Sequence[int]) -> str:
    """Draw bars, each with a line at the measured whole; parts below 0 are left of it.

    Args:
        rows: the bars.
        label: of the axis, which is in %.
        looks: the number of each part's fill.
    """
    if not rows:
        return _nothing(label, "no data")
    sums = [
        math.fsum(share for share in row.shares if share and (share > 0) == up) for row in rows for up in (True, False)
    ]
    axis = linear_axis([100 * value for value in (*sums, 1.0)], label, marks=6, has_zero=True)
    bottom = 8 + ROW * len(rows)
    panel = Panel(axis, Axis(0, 1, ""), 14.0, 4.0, WIDTH - 14, bottom)
    bars = [_bar(panel, row, 6 + ROW * number, looks) for number, row in enumerate(rows)]
    return drawing(label, bottom + 42, panel.horizontal_axis(), *bars)


def _bar(panel: Panel, row: StackedBar, top: float, looks: Sequence[int]) -> str:
    name = text(row.name, panel.left, top + 11, "small") + text(row.note, panel.right, top + 11, "small", "end")
    ends = {True: 0.0, False: 0.0}
    drawn = []
    for share, look in zip(row.shares, looks, strict=True):
        if share:
            begin, ends[share > 0] = ends[share > 0], ends[share > 0] + share
            left, right = sorted(panel.across(100 * end) for end in (begin, ends[share > 0]))
            field = {"x": left, "y": top + 15, "width": right - left, "height": BAR, "fill": f"url(#hatch{look})"}
            drawn.append(element("rect", {"class": "bar", **field}))
    whole = f"M{panel.across(100.0):.1f} {top + 12:.1f}v{BAR + 6:g}"
    return "".join(drawn) + element("path", {"class": "whole", "d": whole}) + name


def deviations(rows: Sequence[tuple[str, Sequence[Deviation]]], label: str) -> str:
    """Draw deviations with 95 % intervals, a row for each name.

    Args:
        rows: names, each with its deviations.
        label: of the axis, which is in %.
    """
    rows = [(name, marks) for name, marks in rows if marks]
    if not rows:
        return _nothing(label, "no data")
    half = NORMAL_QUANTILE
    ends = [
        100 * (mark.value.value + sign * half * mark.value.standard_error)
        for _, marks in rows
        for mark in marks
        for sign in (-1, 1)
    ]
    left = min(200.0, 14 + CHARACTER * max(len(name) for name, _ in rows))
    bottom = 10 + 20.0 * len(rows)
    panel = Panel(
        linear_axis(ends, label, marks=5, has_zero=True), Axis(len(rows), 0, ""), left, 4.0, WIDTH - 12, bottom
    )
    drawn = [_deviation_row(panel, number + 0.5, name, marks) for number, (name, marks) in enumerate(rows)]
    return drawing(label, bottom + 42, panel.horizontal_axis(), panel.vertical(0.0, "even"), *drawn)


def _deviation_row(panel: Panel, position: float, name: str, marks: Sequence[Deviation]) -> str:
    most = int((panel.left - 14) / CHARACTER) + 1
    shown = name if len(name) <= most else name[: most - 1] + "…"
    drawn = [text(shown, panel.left - 6, panel.up(position) + 4, "small", "end")]
    for mark in marks:
        half = 100 * NORMAL_QUANTILE * mark.value.standard_error
        middle = 100 * mark.value.value
        drawn.append(panel.line([(middle - half, position), (middle + half, position)], "spread"))
        drawn.append(panel.mark((middle, position), mark.look, f"{name}: {mark.title}"))
    return "".join(drawn)


def courses(lines: Sequence[Course], label: str) -> str:
    """Draw courses, each with its own mark."""
    points = [point for line in lines for point in line.points]
    if not points:
        return _nothing(label, "no repeated measurements")
    panel = Panel(
        linear_axis([x for x, _ in points], "time since the first measurement (min)", has_zero=True),
        linear_axis([100 * y for _, y in points], label, has_zero=True),
        *(46.0, 30.0, WIDTH - 12, 200.0),
    )
    drawn = [
        panel.mark((x, 100 * y), number % len(MARKS), f"{line.name}: {percent(y, digits=2)} after {x:.0f} min")
        for number, line in enumerate(lines)
        for x, y in line.points
    ]
    return drawing(label, 240.0, panel.axes(), panel.line([(panel.x.low, 0.0), (panel.x.high, 0.0)], "even"), *drawn)


@dataclass(frozen=True)
class RooflinePlot:
    """A drawn roofline; ``positions`` are those of all points in units of its view box, None for points not drawn."""

    svg: str
    positions: tuple[tuple[float, float] | None, ...]


def roofline(points: Sequence[tuple[float, float, str] | None], roof: Roof, label: str, scale: float) -> RooflinePlot:
    """Draw rates over arithmetic intensities, below the roof.

    Args:
        points: FLOPs per byte, FLOPs per second or joule, and side of each tuple; None for tuples without FLOPs.
        roof: in the same units.
        label: of the vertical axis, in ``scale`` times these units.
        scale: such as 1e12.
    """
    known = [point for point in points if point is not None]
    ridges = [roof.ridge_flop_per_byte(arithmetic) for arithmetic in roof.flop_rates]
    intensities = [x for x, _, _ in known] + ridges
    x = log_axis(intensities, "arithmetic intensity (FLOP per byte)")
    y = log_axis([rate / scale for _, rate, _ in known] + [rate / scale for rate in roof.flop_rates.values()], label)
    panel = Panel(x, y, 46.0, 30.0, WIDTH - 12, 290.0)
    positions = tuple(point and (panel.across(point[0]), panel.up(point[1] / scale)) for point in points)
    sides = [(at, point[2]) for at, point in zip(positions, points, strict=True) if at and point]
    foot = max(x.low, y.low * scale / roof.byte_rate)
    slope = [(end, end * roof.byte_rate / scale) for end in (foot, max(ridges))]
    figure = drawing(
        label,
        330.0,
        panel.axes(),
        dots([at for at, side in sides if side != COMPUTE], "dots"),
        dots([at for at, side in sides if side == COMPUTE], "squares"),
        panel.line(slope, "even"),
        *(_ceiling(panel, roof, arithmetic, scale) for arithmetic in roof.flop_rates),
        element("circle", {"class": "chosen", "r": 7, "visibility": "hidden"}),
    )
    return RooflinePlot(figure, positions)


def _ceiling(panel: Panel, roof: Roof, arithmetic: str, scale: float) -> str:
    """Draw the roof of one arithmetic, from its intersection with the memory's roof, with its name at the right end."""
    rate = roof.flop_rates[arithmetic] / scale
    line = panel.line([(roof.ridge_flop_per_byte(arithmetic), rate), (panel.x.high, rate)], "even")
    return line + text(arithmetic, panel.right, panel.up(rate) - 4, "small", "end")


def legend_mark(look: int, label: str) -> str:
    """Return a mark as a small figure, with its label."""
    mark = element("path", {"class": f"mark ink{look}", "d": MARKS[look], "transform": "translate(12 6)"})
    settings = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": "0 0 24 12", "class": "figure swatch"}
    return element("svg", {**settings, "aria-hidden": "true"}, mark) + escape(label)


def _nothing(label: str, why: str) -> str:
    """Return a figure with the reason why there is no data."""
    return drawing(f"{label}: {why}", 60.0, text(label, 2, 20, "name"), text(why, 2, 42))


def patterns_figure() -> str:
    """Return a figure of size 0 with the fills of all other figures."""
    settings = {"xmlns": "http://www.w3.org/2000/svg", "class": "figure definitions", "width": 0, "height": 0}
    return element("svg", {**settings, "aria-hidden": "true"}, patterns())
