"""Every counted tuple is rebuilt from its pickle, runs alone, and does what was counted."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_apparatus import RecordedProgress

from opcost.running.request import RunRequest
from opcost.stages.count import CountReport, count_operators
from opcost.stages.make_configs import make_configs
from opcost.stages.verify import rebuild_operators
from opcost.storage.configs import ModelFolders
from opcost.storage.counts_file import read_counts, write_counts
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS

ROOT = Path(__file__).parents[2]

MODELS = (
    "convnext_tiny densenet121 googlenet maxvit_t mobilenet_v3_small mvit_v2_s raft_small shufflenet_v2_x0_5 "
    "ssdlite320_mobilenet_v3_large swin_t vit_b_16"
).split()
"""Between them they have every kind of operator of the zoo but the regions of two-stage detectors."""


@pytest.fixture(scope="module")
def request_of_models(tmp_path_factory: pytest.TempPathFactory) -> RunRequest:
    folder = tmp_path_factory.mktemp("zoo")
    make_configs(ModelFolders(folder / "measurements"), MODELS)
    request = RunRequest((), ModelFolders(folder / "measurements"), Database(folder / "database"), "cpu")
    reports = count_operators(request, RecordedProgress(), on_meta=True)
    assert all(isinstance(report, CountReport) for report in reports), reports
    return request


def test_each_tuple_of_ten_models_does_alone_what_was_counted(request_of_models: RunRequest) -> None:
    progress = RecordedProgress()
    reports = rebuild_operators(request_of_models, progress)
    assert [line for report in reports for line in report.failures] == []
    # RAFT moves coordinates from the CPU. A tuple does not have the device of each tensor.
    copies = [line for report in reports if report.name.startswith("raft") for line in report.value_dependent]
    assert [line.partition(" on ")[0] for line in copies] == ["torch.Tensor.to"] * 2
    others = [report for report in reports if not report.name.startswith(("raft", "ssdlite"))]
    assert [len(report.value_dependent) for report in others] == [0] * 9
    operators = sum(report.operators for report in reports)
    assert operators > 1500
    assert sum(report.rebuilt for report in reports) > 0.98 * operators
    assert progress.ended == 1


def test_a_fresh_process_rebuilds_from_the_pickles_alone_and_what_was_counted_otherwise_is_status_1(
    request_of_models: RunRequest,
) -> None:
    (config,) = request_of_models.folders.configs(["vit_b_16*"])
    counts = read_counts(COUNTS.path(config), "x")
    first, *rest = counts.counts
    write_counts(COUNTS.path(config), replace(counts, counts=(replace(first, flop=first.flop + 2), *rest)))
    options = ["--json", "--device", "cpu", "--measurements", str(request_of_models.folders.own)]
    command = [sys.executable, "-m", "opcost", "verify", "operators", "mobilenet*", "vit_b_16*", *options]
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    finally:
        write_counts(COUNTS.path(config), counts)
    assert result.returncode == 1, result.stderr
    good, bad = json.loads(result.stdout)
    assert good["rebuilt"] == good["operators"] > 50
    assert bad["rebuilt"] == bad["operators"] - 1
    (failure,) = bad["failures"]
    assert failure.startswith(f"{first.operator}: ")
    assert all(str(flop) in failure for flop in (first.flop, first.flop + 2))
