"""The drawing of a power trace: readings of meters → axes, lines and the measured window.

A page, an SVG and a terminal draw what this says, so that a trace looks alike everywhere. Standard library only: a GPU
is logged, and its trace shown, before anything is installed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from opcost.reporting.axes import Axis, linear_axis

MOST_POINTS = 240
"""Of one line: more than that no screen shows apart."""


@dataclass(frozen=True)
class Readings:
    """What one meter logged: pairs of a moment (epoch, s) and a power (W), oldest first.

    ``is_step`` says that a reading holds until the next one, as a log that repeats values shows it.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    is_step: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a drawing: places from 0 to 1 on both axes."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class PowerDrawing:
    """A drawing; ``window`` is the measured span's begin and end as places on the time axis, None without one."""

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
    """Return the drawing of what meters logged at the same time; None where none has a reading.

    Time counts from the first reading. Power begins at 0, so that a small ripple looks small.

    Args:
        readings: of each meter; those without any are left out.
        window: begin and end of what was measured (epoch, s).
        most_points: of one line; beyond, each span of time keeps its lowest and its highest reading.
        marks: about how many on each axis.
    """
    known = [one for one in readings if one.points]
    if not known:
        return None
    begin_s = min(one.points[0][0] for one in known)
    end_s = max(one.points[-1][0] for one in known)
    time = _time_axis(end_s - begin_s, marks)
    power = linear_axis((value for one in known for _, value in one.points), "power (W)", marks, has_zero=True)
    lines = tuple(Line(one.name, _places(one, begin_s, time, power, most_points)) for one in known)
    return PowerDrawing(time, power, lines, _window(window, begin_s, time))


def _time_axis(duration_s: float, marks: int) -> Axis:
    rounded = linear_axis([0.0, duration_s or 1.0], "time (s)", marks)
    ticks = tuple(tick for tick in rounded.ticks if tick.value <= duration_s or not duration_s)
    return Axis(0.0, duration_s or 1.0, rounded.label, ticks)


def _window(window: tuple[float, float] | None, begin_s: float, time: Axis) -> tuple[float, float] | None:
    """Return a window's ends as places; None where the log holds nothing of it."""
    if window is None:
        return None
    low, high = (min(1.0, max(0.0, time.place(moment_s - begin_s))) for moment_s in window)
    return (low, high) if low < high else None


def _places(
    readings: Readings, begin_s: float, time: Axis, power: Axis, most_points: int
) -> tuple[tuple[float, float], ...]:
    points = _changes(readings.points) if readings.is_step else readings.points
    thinned = _thinned(points, most_points // 2 if readings.is_step else most_points)
    places = [(time.place(moment_s - begin_s), power.place(power_w)) for moment_s, power_w in thinned]
    return tuple(_stairs(places) if readings.is_step else places)


def _changes(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points at which a value is another than before, and the last one."""
    changed = [now for before, now in itertools.pairwise(points) if before[1] != now[1]]
    last = [points[-1]] * (not changed or changed[-1] != points[-1])
    return [points[0], *changed, *(last if len(points) > 1 else [])]


def _stairs(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return a line that keeps its height until the next place."""
    between = [(after[0], before[1]) for before, after in itertools.pairwise(places)]
    pairs = zip(between, places[1:], strict=True)
    return [places[0], *(place for pair in pairs for place in pair)]


def _thinned(points: Sequence[tuple[float, float]], most: int) -> Sequence[tuple[float, float]]:
    """Return few points that keep every peak and every dip: of each of equal spans the lowest and the highest."""
    if len(points) <= most:
        return points
    per_span = math.ceil(2 * len(points) / most)
    spans = (points[begin : begin + per_span] for begin in range(0, len(points), per_span))
    kept = ({min(span, key=_power), max(span, key=_power)} for span in spans)
    return [point for ends in kept for point in sorted(ends)]


def _power(point: tuple[float, float]) -> float:
    return point[1]
