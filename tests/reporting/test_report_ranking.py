"""The report's first question on the committed database: an answer over its picture, and a table that fits a page."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from committed_tables import committed

from opcost.comparing.ranking import SUM
from opcost.reporting.report import write_report
from opcost.reporting.report_sections import ranking
from opcost.running.request import Request
from opcost.stages.compare import find_comparisons
from opcost.stages.show import DeviceRanking, rankings_of
from opcost.storage.configs import ModelFolders

NAMES = ("resnet18_32x3x32x32", "resnet50_32x3x224x224", "swin_t_32x3x224x224", "vit_b_16_32x3x224x224")


@pytest.fixture(scope="module")
def request_of_four() -> Request:
    measurements = Path(__file__).parents[2] / "measurements"
    return Request(NAMES, ModelFolders(measurements).read_once(), committed(), "NVIDIA H200")


@pytest.fixture(scope="module")
def rankings(request_of_four: Request) -> Sequence[DeviceRanking]:
    return rankings_of(request_of_four)


def with_row(found: Sequence[DeviceRanking], name: str, **changed: Any) -> list[DeviceRanking]:
    (one,) = found
    models = [
        replace(model, row=replace(model.row, **changed)) if model.row.name == name else model for model in one.models
    ]
    return [replace(one, models=tuple(models))]


def shown(found: Sequence[DeviceRanking]) -> str:
    return unescape(ranking(found)).replace("\u00a0", " ")


def test_a_picture_and_its_answer_come_before_the_table(rankings: Sequence[DeviceRanking]) -> None:
    found = shown(rankings)
    answer, picture, table = (found.index(part) for part in ("<strong>The least", 'aria-label="energy of', "<table>"))
    assert answer < picture < table
    assert re.search(r"at least 80 % top-1 is [\d.]+ mJ per image: resnet50, 80.858 % with IMAGENET1K_V2\.", found)
    # ResNet-18 has weights for larger images than it was measured with.
    assert "3 models of torchvision" in found


@pytest.mark.parametrize("doubt", [{"is_whole_flagged": True}, {"is_unexplained": True}, {"source": SUM}])
def test_what_is_doubtful_or_estimated_is_no_answer(rankings: Sequence[DeviceRanking], doubt: dict[str, Any]) -> None:
    found = shown(with_row(rankings, NAMES[1], **doubt))
    assert "per image: swin_t, 81.474 % with IMAGENET1K_V1." in found
    assert "2 models of torchvision" in found


def test_without_a_published_accuracy_the_picture_has_bars(rankings: Sequence[DeviceRanking]) -> None:
    (one,) = rankings
    (small,) = (model for model in one.models if model.row.name == NAMES[0])
    found = shown([replace(one, models=(small,))])
    assert "top-1" not in found
    assert 'aria-label="least energy per sample (mJ)"' in found
    assert "<svg" not in shown(with_row([replace(one, models=(small,))], NAMES[0], is_whole_flagged=True))


def test_the_saving_is_shown_and_columns_without_room_are_named(rankings: Sequence[DeviceRanking]) -> None:
    found = shown(rankings)
    heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', found)
    (left_out,) = re.findall(r"Not shown: (.*?)\.<", found)
    assert {"mJ/sample", "time roof", "energy roof", "saving mJ/sample"} < set(heads)
    assert "samples/s" in left_out.split(", ")
    assert set(heads).isdisjoint(left_out.split(", "))


def test_a_card_has_one_roof_for_each_arithmetic(
    request_of_four: Request, rankings: Sequence[DeviceRanking], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    write_report(path, request_of_four, find_comparisons(request_of_four), rankings)
    roofs = re.findall(r"([\d.]+) TFLOP/s in (\w+)", path.read_text(encoding="utf-8"))
    assert len(roofs) == 2 * len(set(roofs)) == 2 * len({arithmetic for _, arithmetic in roofs})
