"""The charts of the report and of files: parity, errors, kinds of operators, gaps, drift, rooflines, correlations."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from opcost.comparing.comparison import KindCost, Remark, RemarkKind
from opcost.comparing.corrections import with_method_error
from opcost.comparing.model_result import Doubt, ModelResult, doubts_of
from opcost.comparing.roofline import COMPUTE, Roof
from opcost.estimates import NORMAL_QUANTILE, Estimate, sum_of_independent
from opcost.measuring.record import ComparisonRow
from opcost.operators.tuples import SIZE_IN_NAME
from opcost.reporting import markup as svg
from opcost.reporting.markup import Chart, Drawing, Entry, Panel, Series, drawing, element, text
from opcost.storage.files import replace_file
from opcost.units import MILLI, millijoules, milliseconds, percent, ratio, significant

if TYPE_CHECKING:
    # Only for types: the stages import torch.
    from opcost.stages.compare import ComparingReport

QUANTITIES = (("time", "ms"), ("energy", "mJ"))
KINDS_SHOWN = 7
"""One for each fill of ``markup.patterns``, besides that of the others."""

OTHERS = "others"

BAND_RATIO = 0.05
NAMED = 4
"""The number of models, furthest from the line, that are named in a parity figure."""

CHARACTER, DESCENT = 6.6, 5.0
"""Of letters of height 12: upper bound of the mean width, and height with some space below their line."""

MARK = 5.0
"""From the middle of a mark to its edge."""

ROW, BAR = 34.0, 13.0
BARS = 8
"""The most bars of a small chart."""

CELL_LABELS = 110.0
"""Room for the names beside and below a matrix."""


@dataclass(frozen=True)
class Compared:
    """One comparison under a name: its row, the cost of each kind of operator in the sum, and the remarks on it.

    ``result`` is what the row is a view of, None if only the row is known. ``remedy`` is the command that measures what
    is missing, None for the usual one.
    """

    name: str
    row: ComparisonRow
    kinds: tuple[KindCost, ...] = ()
    remarks: tuple[Remark, ...] = ()
    result: ModelResult | None = None
    remedy: str | None = None

    @property
    def comparison(self) -> ModelResult:
        assert self.result is not None
        return self.result

    @property
    def is_complete(self) -> bool:
        """Whether no operator of the sum is missing: only such a sum should equal the whole."""
        return self.row.time_s is not None and not self.row.missing_operators

    def doubts(self, quantity: str) -> tuple[Doubt, ...]:
        """Return the doubts of a sum of ``time`` or ``energy``; none if there is no sum, or no whole."""
        costs = self.row.costs(quantity)
        if costs.summed is None or costs.whole is None:
            return ()
        shares = (one.figures["time_ratio"] for one in self.remarks if one.kind is RemarkKind.FLAGGED_OPERATORS)
        return doubts_of(
            flagged_ratio=max((share for share in shares if isinstance(share, float)), default=0.0),
            missing_ratio=costs.over_whole(costs.unmeasured) if self.row.missing_operators else 0.0,
            unexplained_ratio=costs.over_whole(costs.unexplained),
            is_whole_flagged=any(one.kind is RemarkKind.FLAGGED_WHOLE for one in self.remarks),
        )

    def pair(self, quantity: str) -> tuple[Estimate, Estimate] | None:
        """Return sum and whole of ``time`` or ``energy``, None if one is unknown."""
        summed, whole = self.row.estimate(quantity), self.row.estimate(quantity, "full_")
        return None if summed is None or whole is None else (summed, whole)

    def ratio(self, quantity: str) -> Estimate | None:
        """Return sum over whole of ``time`` or ``energy``, None if one is unknown."""
        pair = self.pair(quantity)
        # The row's error of the ratio of energies includes that of normalising both to one temperature.
        of_energies = self.row.estimate("energy", unit="ratio")
        if quantity == "energy" and of_energies is not None:
            return of_energies
        return None if pair is None else pair[0].divided_by(pair[1])

    def corrected_ratio(self, quantity: str) -> Estimate | None:
        """Return the corrected sum over the whole with the error of the method, which rows lack; None if unknown."""
        ratio, pair = self.ratio(quantity), self.pair(quantity)
        correction = self.row.correction(quantity)
        if ratio is None or pair is None or correction is None:
            return None
        more = correction.times(1 / pair[1].value)
        return with_method_error(sum_of_independent([ratio, more]), quantity)


def compared(reports: Iterable[ComparingReport]) -> list[Compared]:
    """Return all comparisons, each under its model's name with the conditions that differ."""
    return [
        Compared(label, row, kinds or (), remarks or (), result, report.remedy)
        for report in reports
        for label, row, kinds, remarks, result in zip_longest(
            report.labels, report.comparisons, report.kinds, report.remarks, report.results
        )
    ]


def without_sizes(models: Sequence[Compared]) -> list[Compared]:
    """Return comparisons without input sizes in their names, except for models with several sizes."""
    sizes: dict[str, set[str]] = {}
    names = []
    for model in models:
        size = SIZE_IN_NAME.search(model.name)
        names.append(model.name if size is None else model.name[: size.start()])
        sizes.setdefault(names[-1], set()).add("" if size is None else size[0])
    return [
        model if len(sizes[name]) > 1 else replace(model, name=SIZE_IN_NAME.sub("", model.name))
        for name, model in zip(names, models, strict=True)
    ]


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


def parity_chart(models: Sequence[Compared]) -> Chart:
    return Chart([parity(models, quantity, unit) for quantity, unit in QUANTITIES])


def error_chart(models: Sequence[Compared]) -> Chart:
    """Return the error of each sum, plain and corrected, in order, in time and in energy."""
    drawings = []
    for quantity, _ in QUANTITIES:
        rows = []
        for model in models:
            sums = ((0, model.ratio(quantity), ""), (1, model.corrected_ratio(quantity), " corrected"))
            marks = []
            for look, of_sum, word in sums:
                if of_sum is not None:
                    off = Estimate(of_sum.value - 1, of_sum.standard_error)
                    marks.append(Deviation(off, look, f"{quantity} {percent(off.value)}{word}"))
            rows.append((model.name, marks))
        rows.sort(key=lambda row: row[1][0].value.value if row[1] else 0.0)
        drawings.append(deviations(rows, f"{quantity}: sum minus whole (% of the whole)"))
    return Chart(drawings, [Entry.of_mark(0, "sum"), Entry.of_mark(1, "corrected sum, if known")])


def kind_chart(models: Sequence[Compared]) -> Chart:
    """Return the kinds of operators of each sum, as shares of the measured whole, in time and in energy."""
    shares: dict[str, float] = {}
    for model in models:
        for one in model.kinds:
            shares[one.operator] = shares.get(one.operator, 0.0) + one.time_s / model.row.full_time_s
    # Those with the largest mean share of a model's time.
    shown = [*sorted(shares, key=lambda operator: (-shares[operator], operator))[:KINDS_SHOWN], OTHERS]
    looks = [*range(len(shown) - 1), len(svg.MARKS) - 1]
    drawings = []
    for quantity, _ in QUANTITIES:
        write = milliseconds if quantity == "time" else millijoules
        rows = []
        for model in models:
            if (pair := model.pair(quantity)) is None:
                continue
            summed, whole = (one.value for one in pair)
            costs = dict.fromkeys(shown, 0.0)
            for one in model.kinds:
                kind = one.operator if one.operator in shown else OTHERS
                costs[kind] += one.time_s if quantity == "time" else one.energy_j or 0.0
            note = f"{write(summed).partition(' ')[0]} of {write(whole)}"
            rows.append(StackedBar(model.name, note, tuple(cost / whole for cost in costs.values())))
        drawings.append(stacked_bars(rows, quantity, looks))
    return Chart(drawings, [Entry.of_fill(look, kind) for look, kind in zip(looks, shown, strict=True)])


def parity(models: Sequence[Compared], quantity: str, unit: str) -> Drawing:
    """Draw each model's sum over its whole (ms or mJ) with 95 % intervals. On the line, the sum equals the whole."""
    label = f"{quantity}: sum of operators over whole model"
    points = [(model, *pair) for model in models if (pair := model.pair(quantity))]
    if not points:
        return svg.nothing(label, f"no model has {quantity} of both sum and whole")
    values = [estimate.value / MILLI for _, *pair in points for estimate in pair]
    panel = Panel(
        svg.log_axis(values, f"{quantity} of the whole model ({unit})"),
        svg.log_axis(values, f"{quantity}, sum of operators ({unit})"),
        bottom=350.0,
    )
    low, high = panel.x.low, panel.x.high
    lines = [panel.line([(low, low), (high, high)], "even")]
    for share in (1 - BAND_RATIO, 1 + BAND_RATIO):
        begin, end = (max(low, low / share), max(low, low * share)), (min(high, high / share), min(high, high * share))
        lines.append(panel.line([begin, end], "band"))
    marks = []
    for model, summed, whole in points:
        x, y = whole.value / MILLI, summed.value / MILLI
        half_x, half_y = (NORMAL_QUANTILE * one.standard_error / MILLI for one in (whole, summed))
        lines.append(panel.line([(max(low, x - half_x), y), (x + half_x, y)], "spread"))
        lines.append(panel.line([(x, max(low, y - half_y)), (x, y + half_y)], "spread"))
        of_sum = model.ratio(quantity) or summed.divided_by(whole)
        interval = f"{ratio(of_sum.value)} ± {ratio(of_sum.standard_error)}"
        marks.append(panel.mark((x, y), 0, f"{model.name}: sum / whole {interval}"))
    places = [(model.name, whole.value / MILLI, summed.value / MILLI) for model, summed, whole in points]
    places.sort(key=lambda place: -abs(math.log(place[2] / place[1])))
    # To the left of a mark above the line, to the right of a mark below it.
    named = [(name, (whole, summed), summed >= whole) for name, whole, summed in places]
    return drawing(label, 390.0, panel.axes(), *lines, *marks, *_names(panel, named))


def _names(
    panel: Panel, places: Sequence[tuple[str, tuple[float, float], bool]], most: int = NAMED, marks: svg.Points = ()
) -> list[str]:
    """Return the first names with room beside their marks, and on no other; a place says last whether on the left."""
    drawn: list[str] = []
    taken = [(panel.across(x) - MARK, panel.across(x) + MARK, panel.up(y) + MARK) for x, y in marks]
    for name, place, on_left in places:
        x, y, width = panel.across(place[0]), panel.up(place[1]), CHARACTER * len(name)
        is_left = (on_left and x - 10 - width > panel.left) or x + 10 + width > panel.right
        begin = x - 10 - width if is_left else x + 10
        for height in (y - 6,) if is_left else (y + 13, y + 4):
            is_within = panel.left < begin < panel.right - width and height + DESCENT < panel.bottom
            if is_within and not any(
                begin < right and left < begin + width and abs(height - other) < 13 for left, right, other in taken
            ):
                taken.append((begin, begin + width, height))
                drawn.append(text(name, x - 10 if is_left else x + 10, height, "small", "end" if is_left else "start"))
                break
        if len(drawn) == most:
            break
    return drawn


@dataclass(frozen=True)
class Rated:
    """A model with its energy for an image, and the accuracy that is published of these weights."""

    name: str
    energy_j: float
    top1_percent: float
    weights: str


def frontier(models: Iterable[Rated]) -> list[Rated]:
    """Return the models that no other one reaches in accuracy with as little energy, the least energy first."""
    found: list[Rated] = []
    for one in sorted(models, key=lambda one: (one.energy_j, -one.top1_percent)):
        if not found or one.top1_percent > found[-1].top1_percent:
            found.append(one)
    return found


def accuracy_chart(models: Sequence[Rated]) -> Chart:
    """Return the energy of an image over the published accuracy, with a line along the efficient frontier."""
    label = "energy of an image (mJ)"
    best = frontier(models)
    x = svg.linear_axis([one.top1_percent for one in models], "published top-1 accuracy (%)")
    y = svg.log_axis([one.energy_j / MILLI for one in models], label)
    panel = Panel(x, y, right=svg.WIDTH - 20, bottom=290.0)

    def drawn(name: str, shown: Sequence[Rated], look: int, line: str) -> Series:
        titles = [f"{one.name}: {significant(one.energy_j / MILLI)} mJ, {one.top1_percent:g} %" for one in shown]
        points = [(one.top1_percent, one.energy_j / MILLI) for one in shown]
        return Series(name, points, look, line, titles)

    series = drawn("model", models, 0, ""), drawn("efficient frontier: no model is better in both", best, 1, "even")
    # Models of the frontier have the others above them, on their left.
    named = best if len(models) > BARS else [*best, *(one for one in models if one not in best)]
    places = [(one.name, (one.top1_percent, one.energy_j / MILLI), one not in best) for one in named]
    names = _names(panel, places, len(named), series[0].points)
    figure = svg.curves(f"{label} over {x.label}", panel, series)
    return Chart([replace(figure, content=figure.content + "".join(names))], [one.entry for one in series])


def stacked_bars(rows: Sequence[StackedBar], quantity: str, looks: Sequence[int]) -> Drawing:
    """Draw bars over an axis in % with a line at the measured whole, parts below 0 to the left; ``looks`` are fills."""
    label = f"{quantity}, share of the measured whole model (%)"
    if not rows:
        return svg.nothing(label, "no data")
    sums = [
        math.fsum(share for share in row.shares if share and (share > 0) == up) for row in rows for up in (True, False)
    ]
    axis = svg.linear_axis([100 * value for value in (*sums, 1.0)], label, marks=6, has_zero=True)
    bottom = 8 + ROW * len(rows)
    panel = Panel(axis, svg.Axis(0, 1, ""), 14.0, 4.0, svg.WIDTH - 14, bottom)
    drawn = []
    for number, row in enumerate(rows):
        top = 6 + ROW * number
        ends = {True: 0.0, False: 0.0}
        for share, look in zip(row.shares, looks, strict=True):
            if share:
                begin, ends[share > 0] = ends[share > 0], ends[share > 0] + share
                left, right = sorted(panel.across(100 * end) for end in (begin, ends[share > 0]))
                field = {"x": left, "y": top + 15, "width": right - left, "height": BAR, "fill": f"url(#hatch{look})"}
                drawn.append(element("rect", {"class": "bar", **field}))
        whole = f"M{panel.across(100.0):.1f} {top + 12:.1f}v{BAR + 6:g}"
        drawn.append(element("path", {"class": "whole", "d": whole}))
        drawn.append(text(row.name, panel.left, top + 11, "small"))
        drawn.append(text(row.note, panel.right, top + 11, "small", "end"))
    return drawing(label, bottom + 42, panel.horizontal_axis(), *drawn)


def bars(costs: Sequence[tuple[str, float | None]], label: str) -> Drawing | None:
    """Draw a bar for each known cost under its name; None if none is known. ``label`` has the unit."""
    known = [(name, value) for name, value in costs if value is not None][:BARS]
    if not known:
        return None
    axis = svg.linear_axis([value for _, value in known], label, has_zero=True)
    panel = Panel(axis, svg.Axis(0, 1, ""), 14.0, 4.0, svg.WIDTH - 14, 8 + ROW * len(known))
    drawn = []
    for number, (name, value) in enumerate(known):
        top = 6 + ROW * number
        place = {"x": panel.left, "y": top + 15, "width": panel.across(value) - panel.left, "height": BAR}
        drawn.append(element("rect", {"class": "bar", **place, "fill": "url(#hatch0)"}))
        drawn.append(text(name, panel.left, top + 11, "small"))
        drawn.append(text(significant(value), panel.right, top + 11, "small", "end"))
    return drawing(label, panel.bottom + 42, panel.horizontal_axis(), *drawn)


def deviations(rows: Sequence[tuple[str, Sequence[Deviation]]], label: str) -> Drawing:
    """Draw deviations with 95 % intervals over an axis in %, a row for each name that has any."""
    rows = [(name, marks) for name, marks in rows if marks]
    if not rows:
        return svg.nothing(label, "no data")

    def ends(mark: Deviation) -> list[float]:
        half = NORMAL_QUANTILE * mark.value.standard_error
        return [100 * (mark.value.value - half), 100 * (mark.value.value + half)]

    left = min(200.0, 14 + CHARACTER * max(len(name) for name, _ in rows))
    most = int((left - 14) / CHARACTER) + 1
    axis = svg.linear_axis([end for _, marks in rows for mark in marks for end in ends(mark)], label, has_zero=True)
    panel = Panel(axis, svg.Axis(len(rows), 0, ""), left, 4.0, svg.WIDTH - 12, 10 + 20.0 * len(rows))
    drawn = []
    for number, (name, marks) in enumerate(rows):
        place = number + 0.5
        shown = name if len(name) <= most else name[: most - 1] + "…"
        drawn.append(text(shown, left - 6, panel.up(place) + 4, "small", "end"))
        for mark in marks:
            drawn.append(panel.line([(end, place) for end in ends(mark)], "spread"))
            drawn.append(panel.mark((100 * mark.value.value, place), mark.look, f"{name}: {mark.title}"))
    return drawing(label, panel.bottom + 42, panel.horizontal_axis(), panel.vertical(0.0, "even"), *drawn)


def courses(lines: Sequence[Series], label: str) -> Drawing:
    """Draw the courses of repeated measurements: points of time (min) and deviation (%)."""
    points = [point for line in lines for point in line.points]
    if not points:
        return svg.nothing(label, "no repeated measurements")
    x = svg.linear_axis([x for x, _ in points], "time since the first measurement (min)", has_zero=True)
    panel = Panel(x, svg.linear_axis([y for _, y in points], label, has_zero=True), bottom=200.0)
    return svg.curves(label, panel, lines, (), panel.line([(x.low, 0.0), (x.high, 0.0)], "even"))


@dataclass(frozen=True)
class RooflinePlot:
    """A drawn roofline; ``positions`` are those of all points in units of its view box, None for points not drawn."""

    figure: Drawing
    positions: tuple[tuple[float, float] | None, ...]


def roofline(points: Sequence[tuple[float, float, str] | None], roof: Roof, label: str, scale: float) -> RooflinePlot:
    """Draw rates over arithmetic intensities, below the roof; the vertical axis is in ``scale`` times their units.

    A point is the FLOPs per byte, the FLOPs per second or joule, and the side of a tuple; None without FLOPs.
    """
    known = [point for point in points if point is not None]
    ridges = {arithmetic: roof.ridge_flop_per_byte(arithmetic) for arithmetic in roof.flop_rates}
    x = svg.log_axis([*(x for x, _, _ in known), *ridges.values()], "arithmetic intensity (FLOP per byte)")
    y = svg.log_axis([rate / scale for rate in (*(rate for _, rate, _ in known), *roof.flop_rates.values())], label)
    panel = Panel(x, y, bottom=290.0)
    positions = tuple(point and (panel.across(point[0]), panel.up(point[1] / scale)) for point in points)
    sides = [(at, point[2]) for at, point in zip(positions, points, strict=True) if at and point]
    foot = max(x.low, y.low * scale / roof.byte_rate)
    roofs = [panel.line([(end, end * roof.byte_rate / scale) for end in (foot, max(ridges.values()))], "even")]
    for arithmetic, rate in roof.flop_rates.items():
        # From the intersection with the memory's roof, with the name at the right end.
        roofs.append(panel.line([(ridges[arithmetic], rate / scale), (x.high, rate / scale)], "even"))
        roofs.append(text(arithmetic, panel.right, panel.up(rate / scale) - 4, "small", "end"))
    figure = drawing(
        label,
        330.0,
        panel.axes(),
        svg.dots([at for at, side in sides if side != COMPUTE], "dots"),
        svg.dots([at for at, side in sides if side == COMPUTE], "squares"),
        *roofs,
        element("circle", {"class": "chosen", "r": 7, "visibility": "hidden"}),
    )
    return RooflinePlot(figure, positions)


def matrix(names: Sequence[str], values: Sequence[Sequence[float]], label: str) -> Drawing:
    """Draw a square matrix of values from -1 (red) to 1 (blue) with names at both sides; NaN is grey."""
    size = (svg.WIDTH - CELL_LABELS - 4) / len(names)
    parts = []
    for row, (name, line) in enumerate(zip(names, values, strict=True)):
        y, small = 8 + size * row, f"font-size:{min(11.0, 0.9 * size):.1f}px"
        for column, value in enumerate(line):
            place = {"x": CELL_LABELS + size * column, "y": y, "width": size, "height": size}
            faded = 0 if math.isnan(value) else round(255 * (1 - abs(value)))
            fill = f"rgb({faded},{faded},255)" if value > 0 else f"rgb(255,{faded},{faded})"
            fill, words = ("#cccccc", "unknown") if math.isnan(value) else (fill, f"{value:.2f}")
            title = element("title", None, escape(f"{name}, {names[column]}: {words}"))
            parts.append(element("rect", {**place, "fill": fill}, title))
        beside = {"x": CELL_LABELS - 4, "y": y + 0.7 * size, "text-anchor": "end", "style": small}
        x, end = CELL_LABELS + size * (row + 0.7), 12 + size * len(names)
        below = {"transform": f"translate({x:.1f} {end:.1f}) rotate(-90)", "text-anchor": "end", "style": small}
        parts += [element("text", place, escape(name)) for place in (beside, below)]
    return drawing(label, 16 + size * len(names) + CELL_LABELS, *parts)


def draw_comparisons(reports: Sequence[ComparingReport], folder: Path) -> list[Path]:
    """Draw figures of comparisons; return the files, none if there is nothing to draw."""
    models = [one for one in compared(reports) if not one.row.missing_operators]
    incomplete = sum(len(report.comparisons) for report in reports) - len(models)
    if incomplete:
        message = "figures: %d comparisons are left out, since operators are missing"
        logging.getLogger(__name__).warning(message, incomplete)
    return write_figures(models, folder) if models else []


def write_figures(models: Sequence[Compared], folder: Path) -> list[Path]:
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
        replace_file(path, svg.svg_file(title, chart.drawings, chart.legend))
    return paths
