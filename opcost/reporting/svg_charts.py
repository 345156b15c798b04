"""The report's figures as SVG: sums against wholes, kinds of operators, what the gap is made of, the roofline."""

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
"""Models furthest from the line that are named in a parity figure."""

CHARACTER = 6.6
"""How wide a letter of 12 is at most, on average: to see whether texts meet."""

DESCENT = 5.0
"""How far letters and the room around them reach below their line."""

ROW = 34.0
BAR = 13.0


@dataclass(frozen=True)
class StackedBar:
    """One bar: shares of a whole, one for each piece, None where it is not known; ``note`` stands beside the name."""

    name: str
    note: str
    shares: tuple[float | None, ...]


@dataclass(frozen=True)
class Deviation:
    """By how much something differs, as a share; ``look`` is the number of its mark."""

    value: Estimate
    look: int
    says: str


@dataclass(frozen=True)
class Course:
    """What was looked at again and again: minutes, and by what share it was off."""

    name: str
    points: tuple[tuple[float, float], ...]


def parity(models: Sequence[ComparedModel], quantity: str, unit: str) -> str:
    """Draw each model's sum over its whole with 95 % intervals: on the line, the parts make the whole.

    Args:
        models: compared ones.
        quantity: ``time`` or ``energy``.
        unit: a thousandth of a second or joule.
    """
    label = f"{quantity} of operators over whole"
    points = [(model.name, *pair) for model in models if (pair := model.pair(quantity))]
    if not points:
        return _nothing(label, f"no {quantity} is known of both sum and whole")
    values = [estimate.value / MILLI for _, *pair in points for estimate in pair]
    panel = Panel(
        log_axis(values, f"{quantity} of the whole model ({unit})"),
        log_axis(values, f"{quantity}, operators summed ({unit})"),
        *(52.0, 30.0, WIDTH - 10, 350.0),
    )
    return drawing(
        label,
        390.0,
        panel.axes(),
        *_parity_lines(panel),
        *(_spread(panel, summed, whole) for _, summed, whole in points),
        *(_parity_mark(panel, name, summed, whole) for name, summed, whole in points),
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


def _parity_mark(panel: Panel, name: str, summed: Estimate, whole: Estimate) -> str:
    title = f"{name}: sum / whole {_with_interval(summed.divided_by(whole))}"
    return panel.mark((whole.value / MILLI, summed.value / MILLI), 0, title)


def _with_interval(value: Estimate) -> str:
    return f"{ratio(value.value)} ± {ratio(NORMAL_QUANTILE * value.standard_error)}"


def _names(panel: Panel, points: Sequence[tuple[str, Estimate, Estimate]]) -> list[str]:
    """Return the names of the models furthest from the line, those left out that would cover another."""
    furthest = sorted(points, key=lambda point: -abs(math.log(point[1].value / point[2].value)))
    drawn: list[str] = []
    taken: list[tuple[float, float, float]] = []
    for name, summed, whole in furthest:
        x, y = panel.across(whole.value / MILLI), panel.up(summed.value / MILLI)
        width = CHARACTER * len(name)
        # Above the line to the left of the mark, below it to the right, where there is room.
        is_left = (summed.value >= whole.value and x - 10 - width > panel.left) or x + 10 + width > panel.right
        begin = x - 10 - width if is_left else x + 10
        for height in (y - 6,) if is_left else (y + 13, y + 4):
            is_within = panel.left < begin < panel.right - width and height + DESCENT < panel.bottom
            if is_within and not _meets(taken, begin, width, height):
                taken.append((begin, begin + width, height))
                drawn.append(text(name, x - 10 if is_left else x + 10, height, "small", "end" if is_left else "start"))
                break
        if len(drawn) == NAMED:
            break
    return drawn


def _meets(taken: Sequence[tuple[float, float, float]], begin: float, width: float, height: float) -> bool:
    return any(begin < right and left < begin + width and abs(height - y) < 13 for left, right, y in taken)


def kinds(models: Sequence[ComparedModel], quantity: str) -> tuple[str, list[str]]:
    """Draw what kinds of operators each sum consists of, as shares of the measured whole; return what fills mean."""
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
    """Draw bars of pieces, across each a line at the measured whole; what is below 0 lies left of it.

    Args:
        rows: the bars.
        label: of the axis, which is in %.
        looks: the number of each piece's fill.
    """
    if not rows:
        return _nothing(label, "nothing is known")
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
    """Draw by what share something is off, a row for each name, with 95 % intervals.

    Args:
        rows: names, each with what is to be seen there.
        label: of the axis, which is in %.
    """
    rows = [(name, marks) for name, marks in rows if marks]
    if not rows:
        return _nothing(label, "nothing is known")
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


def _deviation_row(panel: Panel, place: float, name: str, marks: Sequence[Deviation]) -> str:
    most = int((panel.left - 14) / CHARACTER) + 1
    shown = name if len(name) <= most else name[: most - 1] + "…"
    drawn = [text(shown, panel.left - 6, panel.up(place) + 4, "small", "end")]
    for mark in marks:
        half = 100 * NORMAL_QUANTILE * mark.value.standard_error
        middle = 100 * mark.value.value
        drawn.append(panel.line([(middle - half, place), (middle + half, place)], "spread"))
        drawn.append(panel.mark((middle, place), mark.look, f"{name}: {mark.says}"))
    return "".join(drawn)


def courses(lines: Sequence[Course], label: str) -> str:
    """Draw what changed in the course of campaigns, one look for each."""
    points = [point for line in lines for point in line.points]
    if not points:
        return _nothing(label, "nothing was looked at more than once")
    panel = Panel(
        linear_axis([x for x, _ in points], "minutes since the first look", has_zero=True),
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
    """A drawn roofline; ``places`` is where each point lies, in units of its view box, None where it has none."""

    svg: str
    places: tuple[tuple[float, float] | None, ...]


def roofline(points: Sequence[tuple[float, float, str] | None], roof: Roof, label: str, scale: float) -> RooflinePlot:
    """Draw rates over intensities below the roof that the best of them make.

    Args:
        points: FLOPs per byte, FLOPs per second or joule, and the side, of each tuple; None of one without them.
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
    places = tuple(None if point is None else (panel.across(point[0]), panel.up(point[1] / scale)) for point in points)
    sides = [(place, point[2]) for place, point in zip(places, points, strict=True) if place and point]
    foot = max(x.low, y.low * scale / roof.byte_rate)
    slope = [(end, end * roof.byte_rate / scale) for end in (foot, max(ridges))]
    figure = drawing(
        label,
        330.0,
        panel.axes(),
        dots([place for place, side in sides if side != COMPUTE], "dots"),
        dots([place for place, side in sides if side == COMPUTE], "squares"),
        panel.line(slope, "even"),
        *(_ceiling(panel, roof, arithmetic, scale) for arithmetic in roof.flop_rates),
        element("circle", {"class": "chosen", "r": 7, "visibility": "hidden"}),
    )
    return RooflinePlot(figure, places)


def _ceiling(panel: Panel, roof: Roof, arithmetic: str, scale: float) -> str:
    """Draw the roof of one arithmetic, from where it meets the memory's, with its name at the right end."""
    rate = roof.flop_rates[arithmetic] / scale
    line = panel.line([(roof.ridge_flop_per_byte(arithmetic), rate), (panel.x.high, rate)], "even")
    return line + text(arithmetic, panel.right, panel.up(rate) - 4, "small", "end")


def legend_mark(look: int, says: str) -> str:
    """Return a mark with what it means, as a small figure."""
    mark = element("path", {"class": f"mark ink{look}", "d": MARKS[look], "transform": "translate(12 6)"})
    settings = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": "0 0 24 12", "class": "figure swatch"}
    return element("svg", {**settings, "aria-hidden": "true"}, mark) + escape(says)


def _nothing(label: str, why: str) -> str:
    """Return a figure that says why there is nothing to see."""
    return drawing(f"{label}: {why}", 60.0, text(label, 2, 20, "name"), text(why, 2, 42))


def patterns_figure() -> str:
    """Return a figure without size that holds the fills of all others."""
    settings = {"xmlns": "http://www.w3.org/2000/svg", "class": "figure definitions", "width": 0, "height": 0}
    return element("svg", {**settings, "aria-hidden": "true"}, patterns())
