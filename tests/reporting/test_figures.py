"""Figures of comparisons: what they show is what was compared."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure

from opcost.comparing.comparison import KindCost
from opcost.estimates import Estimate
from opcost.reporting.compared_models import KINDS_SHOWN, OTHERS, ComparedModel, without_sizes
from opcost.reporting.figures import ASIDE, errors, operators, parity, write_figures

WHOLE = Estimate(0.010, 0.0001)
KINDS = (KindCost("Conv2d", 0.006, 2.4), KindCost("ReLU", 0.003, None))
RESNET = ComparedModel("resnet18", Estimate(0.009, 0.0001), WHOLE, Estimate(3.6, 0.1), Estimate(4.0, 0.1), KINDS)
NO_ENERGY = ComparedModel("no_energy", Estimate(0.011, 0.0001), WHOLE, None, None, KINDS[:1])
MODELS = [RESNET, NO_ENERGY]


def texts(figure: Figure) -> set[str]:
    return {text.get_text() for axes in figure.axes for text in axes.texts}


def test_parity_has_a_point_for_each_sum_with_its_interval() -> None:
    figure = parity(MODELS)
    time, energy = (next(c for c in axes.containers if isinstance(c, ErrorbarContainer)) for axes in figure.axes)
    assert time.lines[0].get_xydata() == pytest.approx(np.array([[10.0, 9.0], [10.0, 11.0]]))
    assert energy.lines[0].get_xydata() == pytest.approx(np.array([[4000.0, 3600.0]]))
    (_, vertical) = time.lines[2]
    low, high = vertical.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((9.0 - 0.196, 9.0 + 0.196), rel=1e-3)
    assert texts(figure) == {"resnet18", "no_energy"}


def test_input_sizes_are_left_out_of_names_that_differ_without_them(tmp_path: Path) -> None:
    names = ["a_32x3x224x224", "b_32x3x224x224", "b_32x3x384x384", "c_2"]
    write_figures([replace(RESNET, name=name) for name in names], tmp_path)
    drawn = (tmp_path / "errors.svg").read_text()
    shown = [f"<!-- {name} -->" in drawn for name in ("a", *names[1:])]
    assert shown == [True] * 4


@pytest.mark.parametrize("name", [r"$\frac$", "$a$", "a$b", "a^{", "%"])
def test_a_name_is_drawn_as_it_is_and_not_as_a_formula(tmp_path: Path, name: str) -> None:
    kinds = (KindCost(name, 0.006, 2.4),)
    write_figures([replace(RESNET, name=name, kinds=kinds), NO_ENERGY], tmp_path)
    for figure in ("parity", "operators", "errors"):
        assert f"<!-- {name} -->" in (tmp_path / f"{figure}.svg").read_text()


def test_without_any_energy_a_panel_says_so() -> None:
    assert "not measured" in texts(parity([NO_ENERGY]))


def test_kinds_of_operators_are_stacked_as_shares_of_the_whole() -> None:
    figure = operators(MODELS)
    bars = [container for container in figure.axes[0].containers if isinstance(container, BarContainer)]
    widths = {bar.get_label(): [patch.get_width() for patch in bar.patches] for bar in bars}
    assert widths == {
        "Conv2d": pytest.approx([0.6, 0.6]),
        "ReLU": pytest.approx([0.3, 0.0]),
        OTHERS: [0.0, 0.0],
    }
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["resnet18", "no_energy"]


def test_small_kinds_are_taken_together() -> None:
    kinds = tuple(KindCost(f"kind{number}", 0.001, 0.4) for number in range(KINDS_SHOWN + 2))
    figure = operators([ComparedModel("many", WHOLE, WHOLE, None, None, kinds)])
    bars = {bar.get_label(): bar for bar in figure.axes[0].containers if isinstance(bar, BarContainer)}
    assert len(bars) == KINDS_SHOWN + 1
    assert bars[OTHERS].patches[0].get_width() == pytest.approx(0.2)


def test_errors_come_in_the_order_of_the_times() -> None:
    figure = errors([NO_ENERGY, RESNET])
    time, energy = (c for c in figure.axes[0].containers if isinstance(c, ErrorbarContainer))
    assert time.lines[0].get_xydata() == pytest.approx(np.array([[-0.1, ASIDE], [0.1, 1.0 + ASIDE]]))
    assert energy.lines[0].get_xydata() == pytest.approx(np.array([[-0.1, -ASIDE]]))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["resnet18", "no_energy"]


def test_corrected_sums_stand_beside_the_others_where_they_are_known() -> None:
    corrected = replace(RESNET, correction_time_s=Estimate(0.0005, 0.0), correction_energy_j=Estimate(0.2, 0.3))
    figure = errors([corrected, NO_ENERGY])
    drawn = {c.get_label(): c for c in figure.axes[0].containers if isinstance(c, ErrorbarContainer)}
    assert list(drawn) == ["time", "time, corrected", "energy", "energy, corrected"]
    time, energy = (drawn[f"{quantity}, corrected"] for quantity in ("time", "energy"))
    assert time.lines[0].get_xydata() == pytest.approx(np.array([[-0.05, ASIDE]]))
    assert energy.lines[0].get_xydata() == pytest.approx(np.array([[-0.05, -ASIDE]]))
    plain, wide = corrected.ratio("energy"), corrected.corrected_ratio("energy")
    variances = plain.standard_error**2, (0.3 / corrected.full_energy_j.value) ** 2, (0.01 * wide.value) ** 2
    assert wide.standard_error == pytest.approx(math.sqrt(sum(variances)))
    assert NO_ENERGY.corrected_ratio("time") is None


def test_figures_are_files_that_do_not_change_from_run_to_run(tmp_path: Path) -> None:
    first, second = (write_figures(MODELS, tmp_path / name) for name in ("first", "second"))
    assert sorted(path.name for path in first) == [
        *("errors.png", "errors.svg", "operators.png", "operators.svg", "parity.png", "parity.svg")
    ]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    for path in first:
        assert path.suffix == ".png" or ET.parse(path).getroot().tag.endswith("svg")


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
    models = [replace(RESNET, name=name) for name in names]
    assert [one.name for one in without_sizes(models)] == shown
