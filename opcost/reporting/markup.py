"""Markup as text: SVG figures and files of several, and the report as one HTML page that makes no requests.

Every text is escaped. Colours are classes, so that a style sheet decides. A figure has a view box and no size: a page
scales it. The page is made of ``report.html``, ``report.css``, ``figures.css`` and ``report.js`` beside this module.
Standard library only: power can be logged and drawn before anything is installed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from opcost import html_text
from opcost.html_text import Markup, prose

if TYPE_CHECKING:
    # Only for types: it imports rich.
    from opcost.reporting.tables import Table

Record = TypeVar("Record")

STEPS = (1.0, 2.0, 5.0, 10.0)
LOG_MARKS = (1.0, 2.0, 5.0)
"""Round steps between marks, and marks of logarithmic axes, in powers of ten."""

MOST_LOG_MARKS = 6
ROUNDING = 1e-9
"""Share of a step by which equal values may differ, because of rounding."""

SMALLEST = 1e-200
"""Smaller values count as 0: a tenth of a step would underflow."""

WIDTH = 400.0
"""Width of all figures, in units of the view box; texts are 12 high."""

LEGEND_ROW = 18.0
MOST_LETTERS = 50
"""Length of the longest title that fits above one figure."""

NAMESPACE = {"xmlns": "http://www.w3.org/2000/svg"}
HATCHES = (
    *("", "M-2 2 2-2M0 8 8 0M6 10 10 6", "M2 2h1.5M6 6h1.5", "M0 0 8 8M0 8 8 0", "M-2 6 2 10M0 0 8 8M6-2 10 2"),
    *("M0 4H8", "M0 4H8M4 0V8", "M4 2a2 2 0 1 0 .01 0"),
)
"""One for each colour of ``figures.css``, of 8 by 8: lines, dots, crosses, circles."""

MARKS = (
    *("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "M-3.5-3.5h7v7h-7z", "M0-4.5 4.5 3.5h-9z", "M0-5 5 0 0 5-5 0z"),
    *("M-4-4 4 4M-4 4 4-4", "M-5 0H5M0-5V5", "M0 4.5 4.5-3.5h-9z", "M-4-2.5h8v5h-8z"),
)
"""Circle, square, triangle, diamond, cross, plus, inverted triangle, brick: distinguishable without colour."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """An axis, linear or logarithmic: the quantity with its unit, and the marked values, each with its text."""

    low: float
    high: float
    label: str
    ticks: tuple[tuple[float, str], ...] = ()
    is_log: bool = False

    def position(self, value: float) -> float:
        """Return the position of a value: 0 at the low end, 1 at the high end, outside of these beyond."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear_axis(values: Iterable[float], label: str, marks: int = 5, has_zero: bool = False) -> Axis:
    """Return an axis that ends at round values, from 0 to 1 without any values; ``marks`` is about their number."""
    known = [*values, *([0.0] if has_zero else [])]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if max(abs(low), abs(high)) < SMALLEST:
        low, high = 0.0, 1.0
    elif high - low <= ROUNDING * max(abs(low), abs(high)):
        low, high = (min(0.0, 2 * low), max(0.0, 2 * low))
    width = (high - low) / marks
    power = 10.0 ** math.floor(math.log10(width))
    step = next(step * power for step in STEPS if step * power >= width * (1 - ROUNDING))
    digits = max(0, 1 - math.floor(math.log10(step)))
    first, last = math.floor(low / step + ROUNDING), math.ceil(high / step - ROUNDING)
    # Rounded, and 0 instead of -0.
    ticks = [(number * step, f"{round(number * step, digits) + 0.0:g}") for number in range(first, last + 1)]
    return Axis(first * step, last * step, label, tuple(ticks))


def log_axis(values: Iterable[float], label: str) -> Axis:
    """Return a logarithmic axis over values above 0, with some room at both ends; from 1 to 10 without any."""
    known = [value for value in values if value > 0]
    low, high = (min(known) / 1.25, max(known) * 1.25) if known else (1.0, 10.0)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [mark for e in exponents for m in LOG_MARKS if low <= (mark := m * 10.0**e) <= high]
    if len(inside) > MOST_LOG_MARKS:
        tens = [10.0**exponent for exponent in exponents if low <= 10.0**exponent <= high]
        inside = tens[:: math.ceil(len(tens) / MOST_LOG_MARKS)]
    return Axis(low, high, label, tuple((mark, f"{mark:g}") for mark in inside), is_log=True)


def element(name: str, attributes: Mapping[str, object] | None = None, *children: str) -> str:
    """Return an element; children are markup, attributes are escaped."""
    settings = ""
    for key, value in (attributes or {}).items():
        words = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        settings += f' {key}="{escape(words)}"'
    return f"<{name}{settings}>{''.join(children)}</{name}>" if children else f"<{name}{settings}/>"


def text(content: str, x: float, y: float, kind: str = "tick", anchor: str = "start") -> str:
    """Return a text; ``kind`` is its class."""
    return element("text", {"x": x, "y": y, "class": kind, "text-anchor": anchor}, escape(content))


def patterns() -> str:
    """Return the definitions of the hatched fills ``url(#hatch0)`` and on."""
    size = {"width": 8, "height": 8}
    tiles = (
        element(
            "pattern",
            {"id": f"hatch{number}", **size, "patternUnits": "userSpaceOnUse"},
            element("rect", {**size, "class": f"fill{number}"}),
            element("path", {"d": path or "M0 0", "class": "hatch"}),
        )
        for number, path in enumerate(HATCHES)
    )
    return element("defs", None, *tiles)


def patterns_figure() -> str:
    """Return a figure of size 0 with the fills of all other figures of a page."""
    settings = {"class": "figure definitions", "width": 0, "height": 0, "aria-hidden": "true"}
    return element("svg", {**NAMESPACE, **settings}, patterns())


@dataclass(frozen=True)
class Entry:
    """An entry of a legend: the markup of an icon of 24 by 12, and its label."""

    icon: str
    label: str

    @classmethod
    def of_mark(cls, look: int, label: str) -> Entry:
        settings = {"class": f"mark ink{look}", "d": MARKS[look], "transform": "translate(12 6)"}
        return cls(element("path", settings), label)

    @classmethod
    def of_fill(cls, number: int, label: str) -> Entry:
        return cls(element("rect", {"width": 24, "height": 12, "class": "bar", "fill": f"url(#hatch{number})"}), label)

    def __str__(self) -> str:
        """Return the markup of icon and label, for a page."""
        settings = {"viewBox": "0 0 24 12", "class": "figure swatch", "aria-hidden": "true"}
        return element("svg", {**NAMESPACE, **settings}, self.icon) + escape(self.label)


@dataclass(frozen=True)
class Drawing:
    """A whole figure, with a label for screen readers; as text it is an SVG element."""

    label: str
    height: float
    content: str

    def __str__(self) -> str:
        return self.placed({})

    def placed(self, place: Mapping[str, object]) -> str:
        """Return the element with further attributes, such as its place in another one."""
        settings = {"viewBox": f"0 0 {WIDTH:g} {self.height:g}", "role": "img", "class": "figure"}
        return element("svg", {**NAMESPACE, **settings, "aria-label": self.label, **place}, self.content)


def drawing(label: str, height: float, *children: str) -> Drawing:
    return Drawing(label, height, "".join(children))


def nothing(label: str, why: str) -> Drawing:
    """Return a figure with the reason why there is no data."""
    return drawing(f"{label}: {why}", 60.0, text(label, 2, 20, "name"), text(why, 2, 42))


def svg_file(title: str, drawings: Sequence[Drawing], legend: Sequence[Entry] = ()) -> bytes:
    """Return a file of figures side by side, two in a row, above their legend, for light and dark backgrounds."""
    columns = min(2, len(drawings))
    shown = title if len(title) <= columns * MOST_LETTERS else f"{title[: columns * MOST_LETTERS - 1]}…"
    parts, y = [text(shown, 2, 14, "title")], 20.0
    for begin in range(0, len(drawings), columns):
        row = drawings[begin : begin + columns]
        for column, one in enumerate(row):
            parts.append(one.placed({"x": column * WIDTH, "y": y, "width": WIDTH, "height": one.height}))
        y += max(one.height for one in row)
    for number, entry in enumerate(legend):
        x, line = 8 + (number % (2 * columns)) * WIDTH / 2, y + 4 + LEGEND_ROW * (number // (2 * columns))
        parts.append(element("g", {"transform": f"translate({x:g} {line:g})"}, entry.icon, text(entry.label, 32, 10)))
    height = y + LEGEND_ROW * math.ceil(len(legend) / (2 * columns)) + 8
    style = element("style", None, _file("figures.css"))
    ground = element("rect", {"class": "ground", "width": "100%", "height": "100%"})
    settings = {"viewBox": f"0 0 {columns * WIDTH:g} {height:g}", "role": "img", "class": "figure", "aria-label": title}
    beginning = style, ground, element("title", None, escape(title)), patterns()
    whole = element("svg", {**NAMESPACE, **settings}, *beginning, *parts)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{whole}\n'.encode()


@dataclass(frozen=True)
class Panel:
    """An area with two axes; its edges are in units of the view box, ``bottom`` below ``top``."""

    x: Axis
    y: Axis
    left: float = 52.0
    top: float = 30.0
    right: float = WIDTH - 10
    bottom: float = 220.0

    def across(self, value: float) -> float:
        return self.left + self.x.position(value) * (self.right - self.left)

    def up(self, value: float) -> float:
        return self.bottom - self.y.position(value) * (self.bottom - self.top)

    def axes(self) -> str:
        marks = [
            element("path", {"class": "grid", "d": f"M{self.left:g} {self.up(value):.1f}H{self.right:g}"})
            + text(words, self.left - 5, self.up(value) + 4, anchor="end")
            for value, words in self.y.ticks
        ]
        edge = element("path", {"class": "axis", "d": f"M{self.left:g} {self.top:g}V{self.bottom:g}"})
        return self.horizontal_axis() + "".join(marks) + edge + text(self.y.label, 2, self.top - 10, "name")

    def horizontal_axis(self) -> str:
        marks = [
            self.vertical(value, "grid") + text(words, self.across(value), self.bottom + 15, anchor="middle")
            for value, words in self.x.ticks
        ]
        # Near the middle of the figure, a long name has room on both sides.
        middle = WIDTH / 2 if self.left > WIDTH / 4 else (self.left + self.right) / 2
        edge = element("path", {"class": "axis", "d": f"M{self.left:g} {self.bottom:g}H{self.right:g}"})
        return "".join(marks) + edge + text(self.x.label, middle, self.bottom + 33, "name", "middle")

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> str:
        positions = " ".join(f"{self.across(x):.1f} {self.up(y):.1f}" for x, y in points)
        return element("path", {"class": kind, "d": f"M{positions}"})

    def vertical(self, value: float, kind: str) -> str:
        return element("path", {"class": kind, "d": f"M{self.across(value):.1f} {self.top:g}V{self.bottom:g}"})

    def mark(self, position: tuple[float, float], look: int, title: str) -> str:
        place = f"translate({self.across(position[0]):.1f} {self.up(position[1]):.1f})"
        settings = {"class": f"mark ink{look}", "d": MARKS[look], "transform": place}
        return element("path", settings, element("title", None, escape(title)))


@dataclass(frozen=True)
class Series:
    """Points that belong together, drawn as marks (``look``), as a line (its class), or as both.

    ``titles`` are the tooltips of marks, by default the values; ``bounds`` are the lower and the upper value at each
    point, drawn as an area.
    """

    name: str
    points: Points
    look: int | None = None
    line: str = ""
    titles: Sequence[str] = ()
    bounds: Points = ()

    @property
    def entry(self) -> Entry:
        if self.look is not None:
            return Entry.of_mark(self.look, self.name)
        return Entry(element("path", {"class": self.line, "d": "M0 6h24"}), self.name)

    def drawn(self, panel: Panel) -> str:
        parts = []
        if self.bounds:
            lower, upper = (
                [(x, ends[end]) for (x, _), ends in zip(self.points, self.bounds, strict=True)] for end in (0, 1)
            )
            parts.append(panel.line([*lower, *upper[::-1]], "window"))
        if self.line and len(self.points) > 1:
            parts.append(panel.line(self.points, self.line))
        titles = self.titles or [f"{self.name}: {x:g}, {y:.4g}" for x, y in self.points]
        if self.look is not None:
            parts += [panel.mark(point, self.look, title) for point, title in zip(self.points, titles, strict=True)]
        return "".join(parts)


def curves(
    label: str, panel: Panel, series: Sequence[Series], at: Sequence[tuple[float, str]] = (), *more: str
) -> Drawing:
    """Draw series in a panel, with a dotted line and a text at each value of ``at``; ``more`` is below all of it."""
    places = [
        panel.vertical(value, "band") + text(name, panel.across(value), panel.top - 2, "small", "middle")
        for value, name in at
    ]
    return drawing(label, panel.bottom + 40, *more, panel.axes(), *places, *(one.drawn(panel) for one in series))


def dots(positions: Points, kind: str) -> str:
    """Return many marks as the line caps of one path: a thousand elements would be slow to draw.

    Each line is very short, but not of length 0, for which PDFs draw no square.
    """
    return element("path", {"class": kind, "d": "".join(f"M{x:.1f} {y:.1f}h.01" for x, y in positions) or "M0 0"})


@dataclass(frozen=True)
class Chart:
    """Drawings that belong together, with their legend."""

    drawings: Sequence[Drawing]
    legend: Sequence[Entry] = ()


# The page of the report


def page(parts: Mapping[str, str], data: Any) -> str:
    """Return the whole page: markup for each slot of the template, and the script's data, as for JSON.

    Its policy forbids all requests, and every script and style except its own, by their hashes.
    """
    script, style = _file("report.js"), _file("figures.css") + _file("report.css")
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style))
    own_script, own_style = (f"'sha256-{own}'" for own in hashes)
    policy = f"default-src 'none'; script-src {own_script}; style-src {own_style}; img-src data:; base-uri 'none'"
    own = {"policy": escape(f"{policy}; form-action 'none'"), "script": script, "style": style}
    slots = {**parts, **own, "data": json_for_script(data)}
    # One pass: inserted text is not searched for slots.
    return re.sub(r"\{\{([a-z_]+)\}\}", lambda slot: slots[slot[1]], _file("report.html"))


def json_for_script(data: Any) -> str:
    """Return data as JSON that cannot end the script element that holds it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def table(columns: Table[Record], records: Iterable[Record], caption: str = "") -> str:
    """Return the table of some records, see ``html_text.table``."""
    rows = ([column.text(record) for column in columns] for record in records)
    return html_text.table([column.title for column in columns], rows, caption)


def figure(chart: Chart, caption: str) -> str:
    items = "".join(f"<li>{entry}</li>" for entry in chart.legend)
    listed = f'<ul class="legend">{items}</ul>' if items else ""
    panels = "".join(f"<div>{drawing}</div>" for drawing in chart.drawings)
    return f'<figure><div class="panels">{panels}</div>{listed}<figcaption>{prose(caption)}</figcaption></figure>'


def items(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{prose(text)}</li>' for text in texts)}</ul>" if texts else ""


def folded(title: str, content: str) -> str:
    """Return markup that unfolds when its title is selected."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def code(text: str) -> Markup:
    return Markup(f"<code>{escape(text)}</code>")


def _file(name: str) -> str:
    return files("opcost.reporting").joinpath(name).read_text(encoding="utf-8")
