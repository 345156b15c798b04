"""Kernels of tuples alone beside the model's; without a GPU only what is counted from them."""

import gc
import weakref
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from test_count import add_model

from opcost.errors import UserError
from opcost.measuring.conditions import EAGER
from opcost.measuring.record import KernelTimeRow
from opcost.operators.tuples import OperatorTuple
from opcost.running.request import RunRequest
from opcost.stages import verify
from opcost.stages.verify import KernelsReport, compare_kernels
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database
from opcost.torch_backend.probes import Kernel, Mark
from opcost.torch_backend.ready_model import ReadyModel


def request_for(folder: Path, device: str) -> RunRequest:
    add_model(folder, "small", "squeezenet1_1", [1, 3, 64, 64])
    return RunRequest((), ModelFolders(folder / "measurements"), Database(folder / "database"), device)


def test_kernels_need_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="kernels are compared on a GPU"):
        compare_kernels(request_for(tmp_path, "cpu"), RecordedProgress())


class FakeProfiler:
    """Says that each marked call launched one kernel of 1 s, and as often as it is run alone.

    What the first profile of a process says is wrong; the second is of the model.
    """

    def __init__(self, alone_name: str) -> None:
        self.alone_name = alone_name
        self.profiles = 0

    def __call__(self, run: Callable[[Mark], None]) -> list[Kernel]:
        marks: list[str] = []

        class Marked:
            def __init__(self, mark: str) -> None:
                marks.append(mark)

            def __enter__(self) -> None:
                pass

            def __exit__(self, *_: object) -> None:
                pass

        run(Marked)
        self.profiles += 1
        if self.profiles > 2:
            return [Kernel(self.alone_name, 1.0, mark) for mark in marks for _ in range(3)]
        in_model = [Kernel("kernel", 1.0, None if self.profiles == 1 else mark) for mark in marks]
        return [*in_model, Kernel("stray", 0.5 * len(marks), None)]


def compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, alone_name: str
) -> tuple[KernelsReport, list[KernelTimeRow]]:
    monkeypatch.setattr("opcost.stages.verify.profiled", FakeProfiler(alone_name))
    # The model itself runs on the CPU.
    monkeypatch.setattr("opcost.stages.verify._compare", on_cpu(verify._compare))
    campaign = SimulatedCampaign(folder, {}, device="cuda:0")
    request = request_for(folder, "cuda")
    (report,) = compare_kernels(request, RecordedProgress(), campaign.open_apparatus)
    return report, request.database.kernel_times.rows()


def on_cpu(compare: Callable[..., KernelsReport]) -> Callable[..., KernelsReport]:
    return lambda config, _, code: compare(config, "cpu", code)


def test_shares_are_of_all_kernel_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, rows = compared(tmp_path, monkeypatch, "kernel")
    assert report.counted_ratio == pytest.approx(1 / 1.5)
    assert report.same_kernels_ratio == report.counted_ratio
    assert report.differences == ()
    assert {kind.operator for kind in report.kinds} >= {"Conv2d", "ReLU", "cat"}
    assert all(kind.in_model_s == kind.alone_s == kind.same_kernels_s == kind.calls for kind in report.kinds)
    tuples = report.tuples
    assert sum(one.in_model_s for one in tuples) == sum(kind.in_model_s for kind in report.kinds)
    assert len(tuples) > len(report.kinds)
    assert any(one.operator.startswith("torch.nn.Conv2d(in_channels=3, out_channels=64, ") for one in tuples)
    assert [(row.operator, row.calls, row.in_model_time_s) for row in rows] == [
        (kind.operator, kind.calls, kind.in_model_s) for kind in report.kinds
    ]
    assert {row.conditions.execution for row in rows} == {EAGER}


def test_other_kernels_alone_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = compared(tmp_path, monkeypatch, "another")
    assert report.same_kernels_ratio == 0
    assert all("alone 1 x another; in the model 1 x kernel" in line for line in report.differences)
    assert not torch.is_inference_mode_enabled()


def test_the_model_is_released_before_its_tuples_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both may not fit into a GPU's memory."""
    profiled_calls, run_alone = verify.profiled_calls, verify._alone
    models: list[weakref.ref[torch.nn.Module]] = []
    left: list[object] = []

    def noted(ready: ReadyModel, composites: Collection[str]) -> tuple[list[OperatorTuple], list[Kernel]]:
        models.append(weakref.ref(ready.model))
        return profiled_calls(ready, composites)

    def alone(*arguments: Any) -> dict[OperatorTuple, verify.Launched | str]:
        gc.collect()
        left.extend(model() for model in models)
        return run_alone(*arguments)

    monkeypatch.setattr(verify, "profiled_calls", noted)
    monkeypatch.setattr(verify, "_alone", alone)
    compared(tmp_path, monkeypatch, "kernel")
    assert left == [None]
