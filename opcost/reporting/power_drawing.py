"""The layout of a power trace: readings of meters → axes, lines and the measured window.

Pages, SVGs and terminals draw the same layout. Standard library only: the power of a GPU can be logged and shown before
anything is installed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from opcost.reporting.axes import Axis, linear_axis

MOST_POINTS = 240
"""Points of one line: no screen resolves more."""


@dataclass(frozen=True)
class Readings:
    """The readings of one meter: pairs of a time (epoch, s) and a power (W), oldest first.

    ``is_step`` says that a reading holds until the next one, as in a log that repeats values.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    is_step: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a drawing, with positions from 0 to 1 on both axes."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class PowerDrawing:
    """A drawing; ``window`` is the begin and end of the measurement on the time axis, None without one."""

    time: Axis
    power: Axis
    lines: tuple[Line, ...]
    window: tuple[float, float] | None


def drawing_of(
    readings: Sequence[Readings],
    window: tuple[float, float] | None = None,
    most_points: int = MOST_POINTS,
    marks: int = 5,
) -> PowerDrawing | None:
    """Return the drawing of simultaneous readings of meters, None if there are none.

    Time counts from the first reading. The power axis begins at 0, so that a small ripple looks small.

    Args:
        readings: of each meter; meters without any are left out.
        window: begin and end of the measurement (epoch, s).
        most_points: the most points of one line; of more, each span of time keeps its lowest and its highest reading.
        marks: the approximate number of marks on each axis.
    """
    known = [one for one in readings if one.points]
    if not known:
        return None
    begin_s = min(one.points[0][0] for one in known)
    end_s = max(one.points[-1][0] for one in known)
    time = _time_axis(end_s - begin_s, marks)
    power = linear_axis((value for one in known for _, value in one.points), "power (W)", marks, has_zero=True)
    lines = tuple(Line(one.name, _positions(one, begin_s, time, power, most_points)) for one in known)
    return PowerDrawing(time, power, lines, _window(window, begin_s, time))


def _time_axis(duration_s: float, marks: int) -> Axis:
    rounded = linear_axis([0.0, duration_s or 1.0], "time (s)", marks)
    ticks = tuple(tick for tick in rounded.ticks if tick.value <= duration_s or not duration_s)
    return Axis(0.0, duration_s or 1.0, rounded.label, ticks)


def _window(window: tuple[float, float] | None, begin_s: float, time: Axis) -> tuple[float, float] | None:
    """Return a window's ends as positions, None if it is outside of the log."""
    if window is None:
        return None
    low, high = (min(1.0, max(0.0, time.position(moment_s - begin_s))) for moment_s in window)
    return (low, high) if low < high else None


def _positions(
    readings: Readings, begin_s: float, time: Axis, power: Axis, most_points: int
) -> tuple[tuple[float, float], ...]:
    points = _changes(readings.points) if readings.is_step else readings.points
    thinned = _thinned(points, most_points // 2 if readings.is_step else most_points)
    positions = [(time.position(moment_s - begin_s), power.position(power_w)) for moment_s, power_w in thinned]
    return tuple(_stairs(positions) if readings.is_step else positions)


def _changes(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the first point, the points at which the value changes, and the last one."""
    changed = [now for before, now in itertools.pairwise(points) if before[1] != now[1]]
    last = [points[-1]] * (not changed or changed[-1] != points[-1])
    return [points[0], *changed, *(last if len(points) > 1 else [])]


def _stairs(positions: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return a line that keeps its height until the next point."""
    between = [(after[0], before[1]) for before, after in itertools.pairwise(positions)]
    pairs = zip(between, positions[1:], strict=True)
    return [positions[0], *(position for pair in pairs for position in pair)]


def _thinned(points: Sequence[tuple[float, float]], most: int) -> Sequence[tuple[float, float]]:
    """Return fewer points with all peaks and dips: the lowest and the highest one of each of equal spans."""
    if len(points) <= most:
        return points
    per_span = math.ceil(2 * len(points) / most)
    spans = (points[begin : begin + per_span] for begin in range(0, len(points), per_span))
    kept = ({min(span, key=_power), max(span, key=_power)} for span in spans)
    return [point for ends in kept for point in sorted(ends)]


def _power(point: tuple[float, float]) -> float:
    return point[1]
