"""SVG as text: elements, and a panel with axes, lines and marks.

Every text is escaped. Colours are classes, so that a style sheet decides. A figure has a view box and no size: a page
scales it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from opcost.reporting.axes import Axis

WIDTH = 400.0
"""Width of all figures, in units of the view box; texts are 12 high."""

PATTERN_SIZE = 8
HATCHES = ("", "M-2 2 2-2M0 8 8 0M6 10 10 6", "M2 2h1.5M6 6h1.5", "M0 0 8 8M0 8 8 0")
MORE_HATCHES = ("M-2 6 2 10M0 0 8 8M6-2 10 2", "M0 4H8", "M0 4H8M4 0V8", "M4 2a2 2 0 1 0 .01 0")
"""One for each colour of ``compared_models.COLOURS``, as its HATCHES: lines, dots, crosses, circles."""

SHAPES = ("M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "M-3.5-3.5h7v7h-7z", "M0-4.5 4.5 3.5h-9z", "M0-5 5 0 0 5-5 0z")
MORE_SHAPES = ("M-4-4 4 4M-4 4 4-4", "M-5 0H5M0-5V5", "M0 4.5 4.5-3.5h-9z", "M-4-2.5h8v5h-8z")
MARKS = SHAPES + MORE_SHAPES
"""Circle, square, triangle, diamond, cross, plus, inverted triangle, brick: distinguishable without colour."""


def element(name: str, attributes: Mapping[str, object] | None = None, *children: str) -> str:
    """Return an element; children are markup, attributes are escaped."""
    settings = "".join(f' {key}="{escape(_text(value))}"' for key, value in (attributes or {}).items())
    return f"<{name}{settings}>{''.join(children)}</{name}>" if children else f"<{name}{settings}/>"


def text(content: str, x: float, y: float, kind: str = "tick", anchor: str = "start") -> str:
    """Return a text; ``kind`` is its class."""
    return element("text", {"x": x, "y": y, "class": kind, "text-anchor": anchor}, escape(content))


def drawing(label: str, height: float, *children: str) -> str:
    """Return a whole figure, with a label for screen readers."""
    settings = {"viewBox": f"0 0 {WIDTH:g} {height:g}", "role": "img", "class": "figure", "aria-label": label}
    return element("svg", {"xmlns": "http://www.w3.org/2000/svg", **settings}, *children)


def patterns() -> str:
    """Return the definitions of the hatched fills ``url(#hatch0)`` and on."""
    tiles = (
        element(
            "pattern",
            {
                "id": f"hatch{number}",
                "width": PATTERN_SIZE,
                "height": PATTERN_SIZE,
                "patternUnits": "userSpaceOnUse",
            },
            element("rect", {"width": PATTERN_SIZE, "height": PATTERN_SIZE, "class": f"fill{number}"}),
            element("path", {"d": path or "M0 0", "class": "hatch"}),
        )
        for number, path in enumerate(HATCHES + MORE_HATCHES)
    )
    return element("defs", None, *tiles)


def swatch(number: int) -> str:
    """Return a small rectangle with a fill, for legends."""
    settings = {"viewBox": "0 0 24 12", "class": "figure swatch", "aria-hidden": "true"}
    return element(
        "svg",
        {"xmlns": "http://www.w3.org/2000/svg", **settings},
        element("rect", {"width": 24, "height": 12, "class": "bar", "fill": f"url(#hatch{number})"}),
    )


@dataclass(frozen=True)
class Panel:
    """An area with two axes; its edges are in units of the view box, ``bottom`` below ``top``."""

    x: Axis
    y: Axis
    left: float
    top: float
    right: float
    bottom: float

    def across(self, value: float) -> float:
        """Return the horizontal coordinate of a value."""
        return self.left + self.x.position(value) * (self.right - self.left)

    def up(self, value: float) -> float:
        """Return the vertical coordinate of a value."""
        return self.bottom - self.y.position(value) * (self.bottom - self.top)

    def axes(self) -> str:
        """Return grid, marks, and the names of both axes."""
        return self.horizontal_axis() + self.vertical_axis()

    def horizontal_axis(self) -> str:
        """Return the lower axis with its marks."""
        marks = [
            self.vertical(tick.value, "grid")
            + text(tick.text, self.across(tick.value), self.bottom + 15, anchor="middle")
            for tick in self.x.ticks
        ]
        # Near the middle of the figure, a long name has room on both sides.
        middle = WIDTH / 2 if self.left > WIDTH / 4 else (self.left + self.right) / 2
        name = text(self.x.label, middle, self.bottom + 33, "name", "middle")
        return "".join(marks) + self._edge(self.left, self.bottom, self.right, self.bottom) + name

    def vertical_axis(self) -> str:
        """Return the left axis with its marks, and its name above it."""
        marks = [
            element("path", {"class": "grid", "d": f"M{self.left:g} {self.up(tick.value):.1f}H{self.right:g}"})
            + text(tick.text, self.left - 5, self.up(tick.value) + 4, anchor="end")
            for tick in self.y.ticks
        ]
        name = text(self.y.label, 2, self.top - 10, "name")
        return "".join(marks) + self._edge(self.left, self.top, self.left, self.bottom) + name

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> str:
        """Return a line through values of both axes."""
        positions = " ".join(f"{self.across(x):.1f} {self.up(y):.1f}" for x, y in points)
        return element("path", {"class": kind, "d": f"M{positions}"})

    def vertical(self, value: float, kind: str) -> str:
        """Return a line from top to bottom."""
        return element("path", {"class": kind, "d": f"M{self.across(value):.1f} {self.top:g}V{self.bottom:g}"})

    def mark(self, position: tuple[float, float], look: int, title: str, kind: str = "") -> str:
        """Return a mark at values of both axes, with a tooltip."""
        settings = {
            "class": f"mark ink{look} {kind}".strip(),
            "d": MARKS[look],
            "transform": f"translate({self.across(position[0]):.1f} {self.up(position[1]):.1f})",
        }
        return element("path", settings, element("title", None, escape(title)))

    def _edge(self, x: float, y: float, to_x: float, to_y: float) -> str:
        return element("path", {"class": "axis", "d": f"M{x:g} {y:g}L{to_x:g} {to_y:g}"})


def dots(positions: Sequence[tuple[float, float]], kind: str) -> str:
    """Return many marks as the line caps of one path: a thousand elements would be slow to draw.

    Each line is very short, but not of length 0, for which PDFs draw no square.
    """
    return element("path", {"class": kind, "d": "".join(f"M{x:.1f} {y:.1f}h.01" for x, y in positions) or "M0 0"})


def _text(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
