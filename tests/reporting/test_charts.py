"""Charts: whole XML whatever names hold, every mark where its figure says, and the same in files as in the report."""

import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tables import COMPARED

from opcost.comparing.comparison import KindCost
from opcost.comparing.corrections import METHOD_ERROR_RATIOS
from opcost.comparing.roofline import COMPUTE, MEMORY, Roof
from opcost.estimates import Estimate
from opcost.measuring.data_sheets import FP32, TF32
from opcost.reporting.charts import (
    BARS,
    KINDS_SHOWN,
    OTHERS,
    Compared,
    Deviation,
    Rated,
    StackedBar,
    accuracy_chart,
    courses,
    deviations,
    error_chart,
    frontier,
    kind_chart,
    matrix,
    parity,
    roofline,
    stacked_bars,
    without_sizes,
    write_figures,
)
from opcost.reporting.charts import bars as cost_bars
from opcost.reporting.markup import (
    MARKS,
    Axis,
    Drawing,
    Entry,
    Panel,
    Series,
    curves,
    linear_axis,
    log_axis,
    patterns,
    patterns_figure,
)

NASTY = "<script>alert('x')</script> & \"more\""
WHOLE = Estimate(0.010, 0.0001)
KINDS = (KindCost("Conv2d", 0.006, 2.4), KindCost(NASTY, 0.003, 1.2))
NO_CORRECTION = {f"{part}_{cost}": None for part in ("correction", "power_limit") for cost in ("time_s", "energy_j")}


def model_of(
    name: str,
    times_s: tuple[Estimate, Estimate],
    energies_j: tuple[Estimate, Estimate] | None = None,
    kinds: tuple[KindCost, ...] = (),
    **more: float | None,
) -> Compared:
    """Return a comparison of these sums and wholes."""
    figures: dict[str, float | None] = {"energy_ratio": None, **NO_CORRECTION}
    for cost, unit, pair in (("time", "s", times_s), ("energy", "j", energies_j or (None, None))):
        for whole, one in zip(("", "full_"), pair, strict=True):
            figures |= {
                f"{whole}{cost}_{unit}": None if one is None else one.value,
                f"{whole}{cost}_standard_error_{unit}": None if one is None else one.standard_error,
            }
    return Compared(name, replace(COMPARED, **{**figures, **more}), kinds)  # type: ignore[arg-type]


ENERGIES = Estimate(3.6, 0.1), Estimate(4.0, 0.1)
MODEL = model_of(NASTY, (Estimate(0.009, 0.0001), WHOLE), ENERGIES, KINDS)
NO_ENERGY = model_of("no_energy", (Estimate(0.02, 0.0001), WHOLE), kinds=KINDS[:1])


def texts(svg: Drawing) -> list[str]:
    """Return all texts and titles of a figure, which must be whole XML."""
    return [part.text or "" for part in ET.fromstring(str(svg)).iter() if part.tag.endswith(("text", "title"))]


def marks(svg: Drawing) -> list[ET.Element]:
    return [part for part in ET.fromstring(str(svg)).iter() if "mark" in (part.get("class") or "").split()]


def bars(svg: Drawing) -> list[tuple[float, float]]:
    """Return begin and width of each bar."""
    parts = [part for part in ET.fromstring(str(svg)).iter() if part.get("class") == "bar"]
    return [(float(part.get("x", "0")), float(part.get("width", "0"))) for part in parts]


def test_parity_has_a_mark_for_each_model_that_has_both() -> None:
    time, energy = parity([MODEL, NO_ENERGY], "time", "ms"), parity([MODEL, NO_ENERGY], "energy", "mJ")
    assert (len(marks(time)), len(marks(energy))) == (2, 1)
    assert f"{NASTY}: sum / whole 0.900 ± 0.013" in texts(time)
    assert "energy, sum of operators (mJ)" in texts(energy)
    # The interval of the comparison has the error of normalising.
    normalised = parity(
        [replace(MODEL, row=replace(MODEL.row, energy_ratio=0.9, energy_standard_error_ratio=0.05))], "energy", "mJ"
    )
    assert f"{NASTY}: sum / whole 0.900 ± 0.050" in texts(normalised)


def test_the_model_furthest_from_the_line_is_named_also_in_the_corner() -> None:
    models = [
        model_of(name, (Estimate(sum_s, 0.0), Estimate(full_s, 0.0)))
        for name, sum_s, full_s in (("shufflenet_v2_x0_5", 0.83e-3, 0.91e-3), ("vit_b_16", 29.9e-3, 30.2e-3))
    ]
    names = [part.text for part in ET.fromstring(str(parity(models, "time", "ms"))).iter() if part.tag.endswith("text")]
    assert "shufflenet_v2_x0_5" in names


def test_kinds_are_as_long_as_their_share_of_the_whole() -> None:
    chart = kind_chart([MODEL, NO_ENERGY])
    time, energy = chart.drawings
    first, second, alone = bars(time)
    assert [entry.label for entry in chart.legend] == ["Conv2d", NASTY, OTHERS]
    assert first[1] / second[1] == pytest.approx(2, rel=1e-3)
    assert second[0] == pytest.approx(first[0] + first[1], abs=0.02)
    assert alone == first
    assert "9.000 of 10.00 ms" in texts(time)
    assert len(bars(energy)) == 2


def test_small_kinds_are_taken_together() -> None:
    many = tuple(KindCost(f"kind{number}", 0.001, 0.4) for number in range(KINDS_SHOWN + 2))
    chart = kind_chart([model_of("many", (WHOLE, WHOLE), kinds=many)])
    assert len(chart.legend) == KINDS_SHOWN + 1
    shown = bars(chart.drawings[0])
    assert shown[-1][1] == pytest.approx(2 * shown[0][1], rel=1e-2)


def test_errors_come_in_their_order_with_the_corrected_sums_that_are_known() -> None:
    correction = {
        "correction_time_s": 0.0005,
        "correction_time_standard_error_s": 0.0,
        "correction_energy_j": 0.2,
        "correction_energy_standard_error_j": 0.3,
    }
    corrected = replace(MODEL, name="a", row=replace(MODEL.row, **correction))
    time, energy = error_chart([NO_ENERGY, corrected]).drawings
    names = [part.text for part in ET.fromstring(str(time)).iter() if part.get("class") == "small"]
    assert names == ["a", "no_energy"]
    assert {"a: time -10.0 %", "a: time -5.0 % corrected", "no_energy: time 100.0 %"} <= set(texts(time))
    assert "a: energy -5.0 % corrected" in texts(energy)
    plain, wide = corrected.ratio("energy"), corrected.corrected_ratio("energy")
    assert plain is not None
    assert wide is not None
    variances = plain.standard_error**2, (0.3 / 4.0) ** 2, (METHOD_ERROR_RATIOS["energy"] * wide.value) ** 2
    assert wide.standard_error == pytest.approx(math.sqrt(sum(variances)))
    assert NO_ENERGY.corrected_ratio("time") is None


def test_parts_below_zero_lie_left_of_it() -> None:
    figure = stacked_bars([StackedBar("a", "", (0.9, None, 0.2, -0.1))], "time", [0, 1, 2, 3])
    positive, more, negative = bars(figure)
    assert more[0] == pytest.approx(positive[0] + positive[1], abs=0.02)
    assert negative[0] + negative[1] == pytest.approx(positive[0], abs=0.02)


def test_a_small_chart_has_a_bar_for_each_known_cost() -> None:
    figure = cost_bars([("a", 2.0), ("unknown", None), (NASTY, 4.0), *(("more", 1.0) for _ in range(BARS))], "mJ")
    assert figure is not None
    drawn = bars(figure)
    assert len(drawn) == BARS
    (begin, width), (other_begin, other_width) = drawn[:2]
    assert (begin, other_width) == (other_begin, pytest.approx(2 * width, abs=0.02))
    texts = [element.text for element in ET.fromstring(str(figure)).iter() if element.tag.endswith("}text")]
    assert NASTY in texts
    assert "unknown" not in texts
    assert cost_bars([("a", None)], "mJ") is None


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
    lines = [Series("board 0d8f", ((0.0, 0.0), (5.0, 1.0)), 0), Series(NASTY, ((1.0, -1.0),), 1, titles=("x",))]
    figure = courses(lines, "time (%)")
    assert len(marks(figure)) == 3
    assert {"board 0d8f: 5, 1", "x"} <= set(texts(figure))


def test_curves_have_their_lines_bounds_and_marked_places() -> None:
    panel = Panel(linear_axis([0.0, 10.0], "s"), linear_axis([0.0, 10.0], "W"))
    series = [Series("a", ((0.0, 1.0), (10.0, 9.0)), line="line0", bounds=((0.0, 2.0), (8.0, 10.0))), Series("b", ())]
    figure = curves("power", panel, series, [(5.0, NASTY)])
    kinds = [part.get("class") for part in ET.fromstring(str(figure)).iter()]
    assert [kinds.count(kind) for kind in ("line0", "window", "band")] == [1, 1, 1]
    assert NASTY in texts(figure)


def test_a_matrix_says_each_value_and_what_is_unknown() -> None:
    figure = matrix(["a", NASTY], [[1.0, math.nan], [math.nan, -0.5]], "correlation")
    assert {"a, a: 1.00", f"a, {NASTY}: unknown", f"{NASTY}, {NASTY}: -0.50"} <= set(texts(figure))
    fills = [part.get("fill") for part in ET.fromstring(str(figure)).iter() if part.get("fill")]
    assert fills == ["rgb(0,0,255)", "#cccccc", "#cccccc", "rgb(255,128,128)"]


def test_a_roofline_says_where_each_point_lies() -> None:
    points = [(1.0, 1e12, MEMORY), None, (100.0, 1e14, COMPUTE)]
    plot = roofline(points, Roof({TF32: 2e14, FP32: 4e13}, 4e12), "speed (TFLOP/s)", 1e12)
    low, unknown, high = plot.positions
    assert unknown is None
    assert low is not None
    assert high is not None
    assert low[0] < high[0]
    assert low[1] > high[1]
    assert {"speed (TFLOP/s)", TF32, FP32} <= set(texts(plot.figure))
    assert f"M{low[0]:.1f} {low[1]:.1f}h.01" in str(plot.figure)


@pytest.mark.parametrize(
    "figure", [deviations([], "x"), stacked_bars([], "x", []), courses([], "x"), parity([], "time", "ms")]
)
def test_nothing_is_a_figure_that_says_why(figure: Drawing) -> None:
    assert len(texts(figure)) == 2
    assert "no model has energy of both sum and whole" in texts(parity([NO_ENERGY], "energy", "mJ"))


def test_fills_differ_by_more_than_colour_and_legends_escape_what_they_name() -> None:
    assert "<script>" not in str(Entry.of_mark(0, NASTY))
    ET.fromstring(patterns_figure())
    tiles = [part.get("d") for part in ET.fromstring(patterns()).iter() if part.get("class") == "hatch"]
    assert len(set(tiles)) == len(tiles) == 8
    assert len(set(MARKS)) == 8


# Files


@pytest.mark.parametrize("name", ["$a$", "a^{", "%", NASTY])
def test_files_have_the_report_s_charts_and_do_not_change_from_run_to_run(tmp_path: Path, name: str) -> None:
    models = [replace(MODEL, name=f"{name}_32x3x224x224"), NO_ENERGY]
    first, second = (write_figures(models, tmp_path / folder) for folder in ("first", "second"))
    assert [path.name for path in first] == ["parity.svg", "operators.svg", "errors.svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        root = ET.parse(one).getroot()
        found = [part.text or "" for part in root.iter() if part.tag.endswith(("text", "title"))]
        assert any(text.startswith(name) for text in found)
        assert len([part for part in root.iter() if part.get("role") == "img"]) == 3


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["resnext50_32x4d_32x3x224x224"], ["resnext50_32x4d"]),
        (["a_1x3x8x8", "a_1x3x8x8_bf16", "a_1x3x8x8_bf16-x"], ["a", "a_bf16", "a_bf16-x"]),
        (["resnet18_32x3x224x224 (eager)", "mvit_v1_b_8x3x16x224x224"], ["resnet18 (eager)", "mvit_v1_b"]),
        (["resnet34_32x3x56x56", "resnet34_32x3x224x224"], ["resnet34_32x3x56x56", "resnet34_32x3x224x224"]),
        (
            ["resnet34_32x3x56x56 (eager)", "resnet34_32x3x56x56 (graph)", "resnet34_32x3x224x224"],
            ["resnet34_32x3x56x56 (eager)", "resnet34_32x3x56x56 (graph)", "resnet34_32x3x224x224"],
        ),
        (["resnet34_32x3x56x56 (eager)", "resnet34_32x3x56x56 (graph)"], ["resnet34 (eager)", "resnet34 (graph)"]),
    ],
)
def test_names_are_shown_without_sizes_that_distinguish_nothing(names: list[str], shown: list[str]) -> None:
    models = [replace(MODEL, name=name) for name in names]
    assert [one.name for one in without_sizes(models)] == shown


# Axes


FINITE = st.floats(-1e9, 1e9, allow_subnormal=False)
POSITIVE = st.floats(1e-9, 1e12)


def ticks_of(axis: Axis) -> list[str]:
    return [text for _, text in axis.ticks]


def test_a_linear_axis_ends_at_round_values_and_has_zero_if_it_is_to() -> None:
    axis = linear_axis([3.0, 97.0], "power (W)")
    assert (axis.low, axis.high) == (0.0, 100.0)
    assert ticks_of(axis) == ["0", "20", "40", "60", "80", "100"]
    # No digits are left by adding.
    assert ticks_of(linear_axis([0.0, 0.3], "share", marks=3)) == ["0", "0.1", "0.2", "0.3"]
    assert "-0" not in ticks_of(linear_axis([-0.3, 0.2], "share"))
    axis = linear_axis([340.0, 350.0], "power (W)", has_zero=True)
    assert (axis.low, axis.position(axis.high)) == (0, 1)


@pytest.mark.parametrize("values", [[], [5.0], [0.0], [-2.0, -2.0], [5e-324]])
def test_few_values_make_an_axis_all_the_same(values: list[float]) -> None:
    axis = linear_axis(values, "x")
    assert axis.low < axis.high
    assert all(0 <= axis.position(value) <= 1 for value in values)


@given(st.lists(FINITE, min_size=1))
def test_values_lie_on_their_linear_axis(values: list[float]) -> None:
    axis = linear_axis(values, "x")
    assert all(-1e-6 <= axis.position(value) <= 1 + 1e-6 for value in values)
    assert all(-1e-6 <= axis.position(value) <= 1 + 1e-6 for value, _ in axis.ticks)
    assert 2 <= len(axis.ticks) <= 12


@given(st.lists(POSITIVE, min_size=1))
def test_values_lie_on_their_logarithmic_axis(values: list[float]) -> None:
    axis = log_axis(values, "x")
    assert all(0 < axis.position(value) < 1 for value in values)
    assert all(axis.low <= value <= axis.high for value, _ in axis.ticks)


def test_a_logarithmic_axis_marks_decades_where_it_is_long_and_equal_ratios_are_equal_distances() -> None:
    assert ticks_of(log_axis([1.0, 100.0], "x")) == ["1", "10", "100"]
    assert ticks_of(log_axis([1.0, 8.0], "x")) == ["1", "2", "5", "10"]
    axis = log_axis([1.0, 1000.0], "x")
    assert axis.position(10.0) - axis.position(1.0) == pytest.approx(axis.position(1000.0) - axis.position(100.0))
    assert math.isclose(log_axis([], "x").position(1.0), 0.0)


def test_on_the_frontier_no_model_is_better_in_both() -> None:
    costs = {"least": (1.0, 60.0), "worse": (2.0, 60.0), "good": (3.0, 80.0), "tie": (3.0, 79.0), "best": (9.0, 81.0)}
    models = [Rated(name, energy_j, top1, "V1") for name, (energy_j, top1) in costs.items()]
    assert [one.name for one in frontier(reversed(models))] == ["least", "good", "best"]
    (drawing,) = accuracy_chart(models).drawings
    # Of few models, those beside the line are named, too.
    assert {text.text for text in ET.fromstring(str(drawing)).iter("{http://www.w3.org/2000/svg}text")} > set(costs)
