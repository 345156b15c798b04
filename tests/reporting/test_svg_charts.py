"""The report's figures: whole XML whatever names hold, and every mark where its figure says."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from opcost.comparing.comparison import KindCost
from opcost.comparing.roofline import COMPUTE, FP32, MEMORY, TF32, Roof
from opcost.estimates import Estimate
from opcost.reporting.compared_models import KINDS_SHOWN, ComparedModel
from opcost.reporting.svg import MARKS, patterns
from opcost.reporting.svg_charts import (
    Course,
    Deviation,
    StackedBar,
    courses,
    deviations,
    kinds,
    legend_mark,
    parity,
    patterns_figure,
    roofline,
    stacked_bars,
)

NASTY = "<script>alert('x')</script> & \"more\""
WHOLE = Estimate(0.010, 0.0001)
KINDS = (KindCost("Conv2d", 0.006, 2.4), KindCost(NASTY, 0.003, 1.2))
MODEL = ComparedModel(NASTY, Estimate(0.009, 0.0001), WHOLE, Estimate(3.6, 0.1), Estimate(4.0, 0.1), KINDS)
NO_ENERGY = ComparedModel("no_energy", Estimate(0.02, 0.0001), WHOLE, None, None, KINDS[:1])


def texts(svg: str) -> list[str]:
    """Return all texts and titles of a figure, which must be whole XML."""
    return [part.text or "" for part in ET.fromstring(svg).iter() if part.tag.endswith(("text", "title"))]


def marks(svg: str) -> list[ET.Element]:
    return [part for part in ET.fromstring(svg).iter() if "mark" in (part.get("class") or "").split()]


def bars(svg: str) -> list[tuple[float, float]]:
    """Return begin and width of each bar."""
    parts = [part for part in ET.fromstring(svg).iter() if part.get("class") == "bar"]
    return [(float(part.get("x", "0")), float(part.get("width", "0"))) for part in parts]


def test_parity_has_a_mark_for_each_model_that_has_both() -> None:
    time, energy = parity([MODEL, NO_ENERGY], "time", "ms"), parity([MODEL, NO_ENERGY], "energy", "mJ")
    assert (len(marks(time)), len(marks(energy))) == (2, 1)
    assert f"{NASTY}: sum / whole 0.900 ± 0.026" in texts(time)
    assert "energy, sum of operators (mJ)" in texts(energy)


def test_an_energy_has_the_interval_of_the_comparison_with_the_error_of_normalising() -> None:
    (mark,) = marks(parity([replace(MODEL, energy_ratio=Estimate(0.9, 0.05))], "energy", "mJ"))
    assert f"{NASTY}: sum / whole 0.900 ± 0.098" in [part.text for part in mark]


def test_the_model_furthest_from_the_line_is_named_also_in_the_corner() -> None:
    models = [
        ComparedModel(name, Estimate(sum_s, 0.0), Estimate(full_s, 0.0), None, None, ())
        for name, sum_s, full_s in (("shufflenet_v2_x0_5", 0.83e-3, 0.91e-3), ("vit_b_16", 29.9e-3, 30.2e-3))
    ]
    names = [part.text for part in ET.fromstring(parity(models, "time", "ms")).iter() if part.tag.endswith("text")]
    assert "shufflenet_v2_x0_5" in names


def test_without_any_energy_a_figure_says_so() -> None:
    assert "no model has energy of both sum and whole" in texts(parity([NO_ENERGY], "energy", "mJ"))


def test_kinds_are_as_long_as_their_share_of_the_whole() -> None:
    figure, names = kinds([MODEL], "time")
    first, second = bars(figure)
    assert names == ["Conv2d", NASTY, "others"]
    assert first[1] / second[1] == pytest.approx(2, rel=1e-3)
    assert second[0] == pytest.approx(first[0] + first[1], abs=0.02)
    assert "9.000 of 10.00 ms" in texts(figure)


def test_small_kinds_are_taken_together() -> None:
    many = tuple(KindCost(f"kind{number}", 0.001, 0.4) for number in range(KINDS_SHOWN + 2))
    figure, names = kinds([ComparedModel("many", WHOLE, WHOLE, None, None, many)], "time")
    assert len(names) == KINDS_SHOWN + 1
    assert bars(figure)[-1][1] == pytest.approx(2 * bars(figure)[0][1], rel=1e-2)


def test_parts_below_zero_lie_left_of_it() -> None:
    figure = stacked_bars([StackedBar("a", "", (0.9, None, 0.2, -0.1))], "share (%)", [0, 1, 2, 3])
    positive, more, negative = bars(figure)
    assert more[0] == pytest.approx(positive[0] + positive[1], abs=0.02)
    assert negative[0] + negative[1] == pytest.approx(positive[0], abs=0.02)


def test_deviations_keep_their_order_and_leave_out_what_is_not_known() -> None:
    rows = [
        ("a", [Deviation(Estimate(-0.02, 0.01), 0, "2 % off")]),
        ("b", []),
        (NASTY, [Deviation(Estimate(0.1, 0), 1, "x")]),
    ]
    figure = deviations(rows, "off (%)")
    assert len(marks(figure)) == 2
    assert "a: 2 % off" in texts(figure)
    left, right = (float((mark.get("transform") or "")[10:].split()[0]) for mark in marks(figure))
    assert left < right


def test_a_course_has_a_mark_for_each_look() -> None:
    figure = courses([Course("board 0d8f", ((0.0, 0.0), (5.0, 0.01))), Course(NASTY, ((1.0, -0.01),))], "time (%)")
    assert len(marks(figure)) == 3
    assert "board 0d8f: 1.00 % after 5 min" in texts(figure)


def test_a_roofline_says_where_each_point_lies() -> None:
    points = [(1.0, 1e12, MEMORY), None, (100.0, 1e14, COMPUTE)]
    plot = roofline(points, Roof({TF32: 2e14, FP32: 4e13}, 4e12), "speed (TFLOP/s)", 1e12)
    low, unknown, high = plot.positions
    assert unknown is None
    assert low is not None
    assert high is not None
    assert low[0] < high[0]
    assert low[1] > high[1]
    assert {"speed (TFLOP/s)", TF32, FP32} <= set(texts(plot.svg))
    assert f"M{low[0]:.1f} {low[1]:.1f}h.01" in plot.svg


@pytest.mark.parametrize(
    "figure", [deviations([], "x"), stacked_bars([], "x", []), courses([], "x"), parity([], "time", "ms")]
)
def test_nothing_is_a_figure_that_says_why(figure: str) -> None:
    assert len(texts(figure)) == 2


def test_fills_differ_by_more_than_colour() -> None:
    ET.fromstring(patterns_figure())
    tiles = [part.get("d") for part in ET.fromstring(patterns()).iter() if part.get("class") == "hatch"]
    assert len(set(tiles)) == len(tiles) == 8
    assert len(set(MARKS)) == 8


def test_legends_escape_what_they_name() -> None:
    assert "<script>" not in legend_mark(0, NASTY)
