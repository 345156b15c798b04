"""The drawing of a power trace: what is drawn is what was read, whatever draws it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.reporting.power_drawing import Readings, drawing_of

BEGIN_S = 1_790_000_000.0
STEADY = Readings("samples", tuple((BEGIN_S + 0.1 * i, 400.0 + i) for i in range(11)))


def test_time_counts_from_the_first_reading_and_power_from_zero() -> None:
    drawing = drawing_of([STEADY])
    assert drawing is not None
    assert (drawing.time.low, drawing.time.high) == (0.0, pytest.approx(1.0))
    assert drawing.power.low == 0
    (line,) = drawing.lines
    assert line.points[0] == (0.0, pytest.approx(400 / drawing.power.high))
    assert line.points[-1] == (pytest.approx(1.0), pytest.approx(410 / drawing.power.high))


def test_the_window_is_where_it_was_measured_and_within_the_log() -> None:
    drawing = drawing_of([STEADY], window=(BEGIN_S + 0.25, BEGIN_S + 7))
    assert drawing is not None
    assert drawing.window == (pytest.approx(0.25), 1.0)


def test_a_window_of_another_time_is_none() -> None:
    drawing = drawing_of([STEADY], window=(BEGIN_S - 9, BEGIN_S - 8))
    assert drawing is not None
    assert drawing.window is None


def test_meters_share_both_axes() -> None:
    later = Readings("other", ((BEGIN_S + 2.0, 900.0),))
    drawing = drawing_of([STEADY, Readings("silent", ()), later])
    assert drawing is not None
    assert [line.name for line in drawing.lines] == ["samples", "other"]
    assert drawing.lines[1].points == ((1.0, pytest.approx(900 / drawing.power.high)),)


def test_without_readings_there_is_nothing_to_draw() -> None:
    assert drawing_of([]) is None
    assert drawing_of([Readings("silent", ())]) is None


def test_a_log_that_repeats_values_is_drawn_as_stairs() -> None:
    points = tuple((BEGIN_S + i, 100.0 if i < 3 else 200.0) for i in range(6))
    drawing = drawing_of([Readings("smi", points, is_step=True)])
    assert drawing is not None
    heights = [round(y * drawing.power.high) for _, y in drawing.lines[0].points]
    assert heights == [100, 100, 200, 200, 200]
    assert [round(5 * x) for x, _ in drawing.lines[0].points] == [0, 3, 3, 5, 5]


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=400), st.booleans())
def test_long_traces_keep_their_extremes_and_few_points(powers_w: list[float], is_step: bool) -> None:
    points = tuple((BEGIN_S + 0.02 * i, power_w) for i, power_w in enumerate(powers_w))
    drawing = drawing_of([Readings("x", points, is_step)], most_points=40)
    assert drawing is not None
    places = drawing.lines[0].points
    assert len(places) <= 44
    heights = [y * drawing.power.high for _, y in places]
    assert max(heights) == pytest.approx(max(powers_w))
    assert min(heights) == pytest.approx(min(powers_w))
    assert [x for x, _ in places] == sorted(x for x, _ in places)
