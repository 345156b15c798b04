import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvidia_smi_stage import NvidiaSmiStage, is_alive

from opcost.meters import nvidia_smi
from opcost.meters.nvidia_smi import MIG_REASON, end_process, gpu_facts, start_process, supported_fields
from opcost.power.ports import DeviceFacts, GpuError


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NvidiaSmiStage]:
    stage = NvidiaSmiStage(tmp_path / "stage", monkeypatch)
    yield stage
    assert stage.living() == [], "nvidia-smi was left behind"


def test_facts_are_read_in_si_units(stage: NvidiaSmiStage) -> None:
    assert gpu_facts("0") == DeviceFacts(
        uuid="GPU-11111111-2222-3333-4444-555555555555",
        product="NVIDIA Fake GPU",
        memory_bytes=143771 * 2**20,
        power_limit_w=700.0,
        driver_version="580.65.06",
    )


@pytest.mark.parametrize(
    ("fault", "is_mig"), [("", False), ("mig_unknown", False), ("missing_instant", False), ("mig_enabled", True)]
)
def test_a_card_says_whether_it_is_divided(stage: NvidiaSmiStage, fault: str, is_mig: bool) -> None:
    stage.act(fault)
    facts = gpu_facts("0")
    assert (facts.no_energy_reason == MIG_REASON) is is_mig
    assert facts.driver_version == "580.65.06"


def test_a_decimal_comma_in_a_fact_is_understood(stage: NvidiaSmiStage) -> None:
    stage.act("decimal_comma")
    assert gpu_facts("0").power_limit_w == 700.0


def test_a_missing_nvidia_smi_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GpuError, match="not found: install the NVIDIA driver"):
        gpu_facts("0")


def test_a_hanging_nvidia_smi_is_killed_and_reported(stage: NvidiaSmiStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_smi, "TERMINATE_DEADLINE_S", 0.1)
    stage.act("hang")
    with pytest.raises(GpuError, match=r"did not answer within 0\.3 s: run `nvidia-smi`"):
        gpu_facts("0", deadline_s=0.3)


@pytest.mark.parametrize(
    ("fault", "words"), [("error_on_stdout", "communicate with the NVIDIA driver"), ("no_such_gpu", "No devices")]
)
def test_an_error_on_stdout_is_quoted(stage: NvidiaSmiStage, fault: str, words: str) -> None:
    stage.act(fault)
    with pytest.raises(GpuError, match=words):
        gpu_facts("7")
    with pytest.raises(GpuError, match=words):
        supported_fields("7")


def test_a_process_that_survives_its_kill_is_abandoned(stage: NvidiaSmiStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that waits inside a hung driver: here signals are simply not sent."""
    monkeypatch.setattr(nvidia_smi, "TERMINATE_DEADLINE_S", 0.05)
    monkeypatch.setattr(nvidia_smi, "KILL_DEADLINE_S", 0.05)
    stage.act("hang")
    with tempfile.TemporaryFile() as output, monkeypatch.context() as context:
        process = start_process([], output)
        context.setattr(subprocess.Popen, "send_signal", lambda process, number: None)
        end_process(process)
        assert is_alive(process.pid)
    process.kill()
    process.wait()


def test_a_new_driver_is_asked_for_everything(stage: NvidiaSmiStage) -> None:
    assert supported_fields("0") == nvidia_smi.LOG_FIELDS


def test_fields_that_a_driver_refuses_are_dropped_or_renamed(stage: NvidiaSmiStage) -> None:
    stage.act("missing_instant")
    fields = supported_fields("0")
    assert "power.draw.instant" not in fields
    assert "clocks_event_reasons.active" not in fields
    assert {"timestamp", "power.draw", "clocks_throttle_reasons.active", "pstate"} <= set(fields)
