"""The findings of ``opcost info``: true of this machine, with the reason for all that is missing."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from opcost.__main__ import main
from opcost.meters.nvml import SAMPLES_SOURCE
from opcost.meters.vendor import GpuVendor
from opcost.power.ports import DeviceFacts, GpuError
from opcost.stages import info
from opcost.storage.database import Database
from opcost.storage.files import UserFolders, user_folders

ROOT = Path(__file__).parents[2]


class OneGpu:
    """A GPU with an energy counter and no buffer of samples."""

    library, sample_source = "NVML", SAMPLES_SOURCE

    def energy_j(self) -> float:
        return 1.0

    def power_samples(self, after_epoch_s: float) -> list[tuple[float, float]]:
        raise GpuError("NVML: Not Supported")

    def close(self) -> None:
        pass


class OneVendor(GpuVendor):
    library = "NVML"

    def uuids(self) -> list[str]:
        return ["GPU-1"]

    def open(self, uuid_or_index: str) -> OneGpu:  # type: ignore[override]
        assert uuid_or_index == "GPU-1"
        return OneGpu()

    def facts(self, uuid_or_index: str) -> DeviceFacts:
        return DeviceFacts("GPU-1", "NVIDIA L4", 24 * 10**9, 72.0, "580.1")


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opcost.meters.gpus.VENDORS", (OneVendor(),))


def found() -> info.Info:
    return info.find_info(UserFolders(Path("measurements"), Path("database")))


def test_the_shipped_rows_are_counted() -> None:
    shipped = found().shipped
    assert shipped.rows == len(Database(ROOT / "database").operator_measurements.rows())
    assert (shipped.models, shipped.devices) == (140, ("NVIDIA H100 80GB HBM3", "NVIDIA H200"))
    assert (shipped.database, shipped.measurements) == (str(ROOT / "database"), str(ROOT / "measurements"))


def test_a_new_home_has_no_rows_and_folders_that_are_named_are_the_only_ones(tmp_path: Path) -> None:
    own = info.find_info(user_folders(tmp_path)).own
    assert (own.rows, own.shipped_models_are_read, own.shipped_rows_are_read) == (0, True, True)
    assert (own.database, own.measurements) == (str(tmp_path / "database"), str(tmp_path / "measurements"))
    own = info.find_info(user_folders(None, tmp_path, ROOT / "docs/data/resnet50")).own
    assert (own.shipped_models_are_read, own.shipped_rows_are_read) == (False, False)
    assert own.rows == len(Database(ROOT / "docs/data/resnet50").operator_measurements.rows())


def test_a_gpu_has_the_meters_that_answer_or_the_reason(with_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found().gpus == (info.DeviceInfo("NVIDIA L4", ("counter",), None, "GPU-1", "580.1"),)
    assert found().no_gpu_reason is None
    monkeypatch.setattr(OneGpu, "energy_j", lambda self: self.power_samples(0.0))
    (gpu,) = found().gpus
    assert (gpu.meters, gpu.no_meter_reason) == ((), "NVML: Not Supported; NVML: Not Supported")


def test_without_a_gpu_or_nvml_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "pynvml", None)
        assert (found().gpus, found().no_gpu_reason) == ((), "nvidia-ml-py is not installed")
    monkeypatch.setattr(OneVendor, "uuids", lambda _: [])
    monkeypatch.setattr("opcost.meters.gpus.VENDORS", (OneVendor(),))
    assert (found().gpus, found().no_gpu_reason) == ((), "NVML lists no GPU")


def test_the_first_step_measures_or_installs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> str:
        raise PackageNotFoundError(name)

    assert found().versions.torch == importlib.metadata.version("torch")
    assert "measure-models" in found().next_steps[0].command
    monkeypatch.setattr(importlib.metadata, "version", refuse)
    versions, first = found().versions, found().next_steps[0]
    assert (versions.torch, versions.torchvision) == (None, None)
    assert first.command.endswith("-m pip install 'opcost[torch]'")


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_people_and_programs_read_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], with_gpu: None, arguments: list[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["opcost", "info", *arguments])
    assert main() == 0
    printed = capsys.readouterr().out
    data = json.loads(printed) if arguments else None
    assert data is None or data["gpus"][0]["meters"] == ["counter"]
    for text in ("NVIDIA L4", "580.1", "counter", "NVIDIA H200", str(ROOT / "database"), found().next_steps[1].command):
        assert text in printed
