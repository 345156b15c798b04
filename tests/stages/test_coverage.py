"""Operator tuples carry all of an unobserved run, model by model; a table says so, and where not."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torchvision
from simulated_apparatus import RecordedProgress
from torch import nn
from torchvision.models._api import BUILTIN_MODELS

from opcost.errors import UserError
from opcost.reporting.pages import coverage_page, summary
from opcost.sources.port import PublishedFacts
from opcost.stages.verify import CoverageFailure, CoverageReport, CoverageRow, Proposals, check_coverage

ROOT = Path(__file__).parents[2]

FAMILIES = (
    "alexnet convnext_tiny deeplabv3_mobilenet_v3_large densenet121 efficientnet_b0 googlenet inception_v3 "
    "lraspp_mobilenet_v3_large maxvit_t mnasnet0_5 mobilenet_v3_large mvit_v2_s r2plus1d_18 raft_small regnet_y_400mf "
    "resnet18 s3d shufflenet_v2_x1_0 squeezenet1_1 swin3d_t swin_v2_t vgg11_bn vit_b_16 vit_h_14"
).split()
"""One model of each kind that torchvision has, and the one with the largest image; detectors come below."""

ROW = CoverageRow(
    model_name="resnet18",
    task="classification",
    input_size=(1, 3, 224, 224),
    device="cpu",
    module_calls=60,
    function_calls=8,
    tuples=28,
    operations=68,
    captured_operations=68,
    is_undisturbed=True,
    outside=(),
    flop_ratio=1.0,
    memory_bytes_ratio=1.0,
    multiply_adds=1.814e9,
    published=PublishedFacts(1.814e9, 11_689_512),
    parameters=11_689_512,
    meta_other_tuples=0,
    meta_memory_bytes_ratio=1.0,
    proposals=None,
)


def rows_of(report: CoverageReport) -> tuple[CoverageRow, ...]:
    assert report.failures == ()
    return report.rows


def page_of(*rows: CoverageRow, failures: tuple[CoverageFailure, ...] = ()) -> str:
    report = CoverageReport(rows, failures, "A CPU", ("torch 2.15", "torchvision 0.29"))
    return coverage_page(report, "opcost verify coverage")


@pytest.mark.parametrize("model_name", FAMILIES)
def test_tuples_carry_all_that_a_model_computes_and_moves(model_name: str) -> None:
    (row,) = rows_of(check_coverage([model_name], "cpu", True, RecordedProgress()))
    assert row.device == "meta"
    assert row.is_undisturbed
    assert row.outside == ()
    assert (row.flop_ratio, row.memory_bytes_ratio) == (1.0, 1.0)
    assert row.multiply_adds == pytest.approx(row.published.multiply_adds, rel=5e-3)
    assert row.parameters == row.published.parameters


@pytest.mark.parametrize("model_name", ["mobilenet_v3_small", "vit_b_16"])
def test_meta_gives_the_same_tuples_at_the_same_cost_as_the_device(model_name: str) -> None:
    (row,) = rows_of(check_coverage([model_name], "cpu", False, RecordedProgress()))
    assert row.device == "cpu"
    assert (row.is_undisturbed, row.flop_ratio, row.memory_bytes_ratio) == (True, 1.0, 1.0)
    assert (row.meta_other_tuples, row.meta_memory_bytes_ratio) == (0, 1.0)


@pytest.mark.parametrize(
    ("model_name", "number"), [("ssdlite320_mobilenet_v3_large", None), ("fasterrcnn_mobilenet_v3_large_320_fpn", 150)]
)
def test_detectors_run_for_real_and_are_carried_too(model_name: str, number: int | None) -> None:
    (row,) = rows_of(check_coverage([model_name], "cpu", True, RecordedProgress()))
    assert row.device == "cpu"
    assert (row.is_undisturbed, row.outside) == (True, ())
    assert row.flop_ratio == 1.0
    # Calls of one tuple may move different numbers of bytes where data decide; the mean is rounded to whole bytes.
    assert row.memory_bytes_ratio == pytest.approx(1.0, abs=1e-6)
    assert row.parameters == row.published.parameters
    assert row.proposals == (None if number is None else Proposals(number, pytest.approx(0.0, abs=0.1)))


def test_a_model_that_cannot_be_checked_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Inverse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.inv(x[..., 1:])

    monkeypatch.setitem(BUILTIN_MODELS, "inverse", Inverse)
    progress = RecordedProgress()
    report = check_coverage(["inverse", "resnet18"], "cpu", True, progress)
    (failure,), (row,) = report.failures, report.rows
    assert failure.model_name == "inverse"
    assert "must be" in failure.reason
    assert (row.model_name, row.is_complete, report.is_complete) == ("resnet18", True, False)
    assert report.libraries == (f"torch {torch.__version__}", f"torchvision {torchvision.__version__}")
    assert progress.ended == 1


def test_a_model_of_unknown_flop_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unknown(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch._standard_gamma(x @ x)

    monkeypatch.setitem(BUILTIN_MODELS, "gamma", Unknown)
    report = check_coverage(["gamma"], "cpu", False, RecordedProgress())
    (row,) = report.rows
    assert (row.flop_ratio, row.multiply_adds, row.memory_bytes_ratio) == (None, None, 1.0)
    assert (row.is_undisturbed, row.is_complete, report.is_complete) == (True, False, False)
    page = coverage_page(report, "opcost verify coverage")
    assert "- models of unknown FLOPs: gamma\n" in page
    assert page.splitlines()[-1].endswith("| no formula for the FLOPs of aten::_standard_gamma |")


def test_a_name_that_matches_no_model_gets_a_suggestion() -> None:
    with pytest.raises(UserError) as caught:
        check_coverage(["resnet81", "vit_*", "my_model"], "cpu", True, RecordedProgress())
    first, second = caught.value.lines
    assert "resnet18" in first.partition("did you mean ")[2]
    assert "my_model" in second


# The page


def test_the_page_has_a_line_for_each_model() -> None:
    page = page_of(ROW, replace(ROW, model_name="other"), failures=(CoverageFailure("broken", "why"),))
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2] == (
        "| resnet18 | 1x3x224x224 | cpu | 60 | 8 | 28 | 68 | 100.0000 % | 100.0000 % | 1.814 | 1.814 | = | = |  |"
    )
    assert "by `opcost verify coverage` with torch 2.15, torchvision 0.29, A CPU.\n" in page
    assert "- not checked: broken (why)\n" in page


@pytest.mark.parametrize(
    ("changes", "words", "is_complete"),
    [
        ({"is_undisturbed": False, "captured_operations": 70}, "captured run: 70 operations, different", False),
        ({"outside": ("fill_", "mm")}, "in no tuple: fill_, mm", False),
        ({"multiply_adds": 1.9e9}, "unexplained", True),
        (
            {"multiply_adds": 4.04e7, "published": PublishedFacts(4e7, None)},
            "equal within the rounding of the published figure",
            True,
        ),
        ({"multiply_adds": 1e9, "proposals": Proposals(7, 1000.2)}, "its box head has 7 regions here", True),
        ({"meta_other_tuples": 2, "meta_memory_bytes_ratio": 1.01}, "| 2, 1.0100 |", True),
        ({"meta_other_tuples": None, "meta_memory_bytes_ratio": None}, "| = | - |", True),
        ({"parameters": 5}, "| 5 / 11,689,512 |", True),
        ({"published": PublishedFacts(None, None)}, "| 1.814 | - | - |", True),
        ({"flop_ratio": None}, "| - | 100.0000 % |", True),
        ({"memory_bytes_ratio": 0.9995}, "| 99.9500 % |", True),
        ({"memory_bytes_ratio": 0.998}, "| 99.8000 % |", False),
        ({"flop_ratio": 0.9999}, "| 99.9900 % |", False),
        ({"flop_ratio": 0.0}, "| 0.0000 % |", False),
        ({"flop_ratio": 1.5}, "| 150.0000 % |", False),
    ],
)
def test_what_is_not_as_it_should_be_stands_in_the_line_and_a_model_is_complete_if_tuples_carry_it(
    changes: dict[str, object], words: str, is_complete: bool
) -> None:
    row = replace(ROW, **changes)
    assert words in page_of(row).splitlines()[-1]
    assert row.is_complete is is_complete


def test_the_summary_names_the_worst_of_all_models() -> None:
    worse = replace(
        ROW,
        model_name="worse",
        flop_ratio=0.5,
        memory_bytes_ratio=0.25,
        outside=("mm",),
        is_undisturbed=False,
        parameters=1,
        multiply_adds=9e9,
    )
    assert summary([ROW, worse]).splitlines() == [
        "- models: 2",
        "- in tuples: at least 50.0000 % of FLOPs, 25.0000 % of bytes",
        "- operations in no tuple: mm",
        "- models that ran other operations while captured: worse",
        "- multiply-adds that deviate by more than 0.5 % from the published figure: 1 of 2 (worse)",
        "- numbers of parameters that deviate from the published ones: 1 of 2 (worse)",
    ]


def test_a_folder_or_a_file_in_none_is_refused_before_anything_is_counted(tmp_path: Path) -> None:
    for output, reason in (
        (tmp_path, "this is a folder; name a file"),
        (tmp_path / "a" / "b.md", "there is no folder"),
    ):
        command = [sys.executable, "-m", "opcost", "verify", "coverage", "resnet18", "--output", str(output)]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith(f"error: --output {output}: {reason}")
