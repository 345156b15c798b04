"""A power trace in a terminal, redrawn while rows arrive.

It is drawn when rows arrive, not by a thread, which would take Python's time from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from opcost.power.log_rows import PowerRow, power_of
from opcost.reporting.power_drawing import PowerDrawing, Readings, drawing_of

SHOWN_S = 60.0
"""Time span that is shown."""

REDRAWN_EVERY_S = 0.5
HEIGHT = 10
LABEL = 7
"""Characters for the marks of the power axis."""

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a Braille character (Unicode from U+2800 on), by column and row: 2 by 4 points."""

BRAILLE = 0x2800
MARKS = 4


class LiveTrace:
    """Shows the power of the last minute below the last line, from ``__enter__`` to ``__exit__``."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._points: deque[tuple[float, float]] = deque()
        self._drawn_s = 0.0

    def __enter__(self) -> LiveTrace:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def add(self, rows: Iterable[PowerRow]) -> None:
        """Add rows; redraw after ``REDRAWN_EVERY_S``."""
        for row in rows:
            power_w = power_of(row)
            if power_w is not None:
                self._points.append((row.epoch_s, power_w))
        while self._points and self._points[0][0] < self._points[-1][0] - SHOWN_S:
            self._points.popleft()
        if self._points and self._points[-1][0] - self._drawn_s >= REDRAWN_EVERY_S:
            self._drawn_s = self._points[-1][0]
            self._live.update(Text(self._text()), refresh=True)

    def _text(self) -> str:
        width = max(10, self._console.width - LABEL - 2)
        readings = Readings("power", tuple(self._points), is_step=True)
        drawing = drawing_of([readings], most_points=4 * width, marks=MARKS)
        now = f"{self._points[-1][1]:.1f} W now"
        return "" if drawing is None else f"{trace_text(drawing, width, HEIGHT)}\n{now}"


def trace_text(drawing: PowerDrawing, width: int, height: int) -> str:
    """Return a drawing's first line as text, with both axes.

    Width and height are in characters, without the axes. Each character has 2 by 4 points.
    """
    cells = [[0] * width for _ in range(height)]
    for column, top, bottom in _columns(drawing.lines[0].points, 2 * width, 4 * height):
        for row in range(top, bottom + 1):
            cells[row // 4][column // 2] |= DOTS[column % 2][row % 4]
    marks = {round((1 - drawing.power.position(tick.value)) * (height - 1)): tick.text for tick in drawing.power.ticks}
    lines = [
        f"{marks.get(row, ''):>{LABEL}} │{''.join(chr(BRAILLE + dots) for dots in line)}"
        for row, line in enumerate(cells)
    ]
    return "\n".join([f"{drawing.power.label:>{LABEL}}", *lines, *_time_axis(drawing, width)])


def _columns(positions: Iterable[tuple[float, float]], columns: int, rows: int) -> list[tuple[int, int, int]]:
    """Return a line as spans of points (column, topmost and lowest row), without gaps at steps."""
    spans = []
    last: tuple[int, int] | None = None
    for x, y in positions:
        column, row = round(x * (columns - 1)), round((1 - y) * (rows - 1))
        from_column, from_row = last or (column, row)
        spans += [(between, from_row, from_row) for between in range(from_column, column)]
        spans.append((column, min(row, from_row), max(row, from_row)))
        last = (column, row)
    return spans


def _time_axis(drawing: PowerDrawing, width: int) -> list[str]:
    """Return the lower axis with its name, and as many of its marks as there is room for."""
    marks = [" "] * (width + 4)
    end = -1
    for tick in drawing.time.ticks:
        begin = round(drawing.time.position(tick.value) * (width - 1))
        if begin > end and begin + len(tick.text) <= len(marks):
            marks[begin : begin + len(tick.text)] = tick.text
            end = begin + len(tick.text)
    space = " " * (LABEL + 1)
    return [f"{space}└{'─' * width}", f"{space} {''.join(marks).rstrip()}  {drawing.time.label}"]
