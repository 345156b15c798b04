import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from nvidia_smi_stage import NvidiaSmiStage

SCRIPT = Path(__file__).parents[2] / "power_logger.py"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NvidiaSmiStage]:
    stage = NvidiaSmiStage(tmp_path / "stage", monkeypatch)
    yield stage
    assert stage.living() == [], "nvidia-smi was left behind"


def start(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    # -S: the script must run where nothing is installed.
    command = [sys.executable, "-S", str(SCRIPT), *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder)


def run(*arguments: str, folder: Path) -> tuple[int, str]:
    """Return exit status and stderr."""
    with start(*arguments, folder=folder) as process:
        output, errors = process.communicate(timeout=30)
    assert output == ""
    return process.returncode, errors


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_log_has_si_columns_and_times_with_their_zone(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    status, errors = run("--seconds", "0.4", "--output", "power.csv", folder=tmp_path)
    assert status == 0
    rows = rows_of(tmp_path / "power.csv")
    assert len(rows) > 5
    assert list(rows[0])[:3] == ["timestamp", "power_instant_w", "power_average_w"]
    assert list(rows[0].items())[3:] == [
        ("utilisation_ratio", "0.97"),
        ("sm_clock_hz", "1980000000"),
        ("temperature_c", "45"),
        ("memory_temperature_c", "39"),
        ("event_reasons", "0x0000000000000000"),
        ("memory_used_bytes", "1073741824"),
    ]
    moment = datetime.fromisoformat(rows[-1]["timestamp"])
    assert abs(datetime.now(timezone.utc) - moment) < timedelta(minutes=1)
    first_line, last_line = errors.splitlines()
    assert first_line.startswith("logging GPU 0 to power.csv")
    assert f"{len(rows)} rows" in last_line
    assert "mean power 30" in last_line


def test_the_summary_as_json_is_that_of_the_rows_in_the_file(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    with start("--seconds", "0.4", "--output", "power.csv", "--json", folder=tmp_path) as process:
        output, _ = process.communicate(timeout=30)
    summary, rows = json.loads(output), rows_of(tmp_path / "power.csv")
    powers_w = [float(row["power_instant_w"] or row["power_average_w"]) for row in rows]
    first, last = (datetime.fromisoformat(rows[index]["timestamp"]) for index in (0, -1))
    assert (summary["file"], summary["device"], summary["gpu"]) == ("power.csv", "cuda", "0")
    assert summary["rows"] == len(rows)
    assert (summary["minimum_power_w"], summary["maximum_power_w"]) == (min(powers_w), max(powers_w))
    assert summary["mean_power_w"] == pytest.approx(sum(powers_w) / len(powers_w))
    assert summary["duration_s"] == pytest.approx((last - first).total_seconds(), abs=0.002)
    assert summary["energy_j"] == pytest.approx(summary["mean_power_w"] * summary["duration_s"])


def test_no_json_of_a_plot_or_a_qualification(tmp_path: Path) -> None:
    for option, remedy in (("--plot", "leave"), ("--qualify", "leave --qualify out")):
        status, errors = run(option, *(["x.csv"] if option == "--plot" else []), "--json", folder=tmp_path)
        assert (status, len(errors.splitlines())) == (2, 1)
        assert remedy in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_is_its_normal_end(stage: NvidiaSmiStage, tmp_path: Path, number: signal.Signals) -> None:
    with start("--output", "power.csv", folder=tmp_path) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("logging")
        time.sleep(0.3)
        process.send_signal(number)
        ended_s = time.time()
        errors = process.stderr.read()
    assert process.returncode == 0
    assert "value changes" in errors
    rows = rows_of(tmp_path / "power.csv")
    assert datetime.fromisoformat(rows[-1]["timestamp"]).timestamp() > ended_s - 0.001
    assert (tmp_path / "power.csv").read_text().endswith("\n")


def test_without_nvidia_smi_one_line_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status, errors = run("--output", "power.csv", folder=tmp_path)
    assert status == 2
    assert len(errors.splitlines()) == 1
    assert "install the NVIDIA driver" in errors
    assert "--device cpu" in errors
    assert not (tmp_path / "power.csv").exists()


def test_a_driver_that_fails_in_the_middle_leaves_a_complete_file(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    stage.act("dies")
    status, errors = run("--output", "power.csv", folder=tmp_path)
    assert (status, "GPU is lost" in errors) == (2, True)
    assert len(rows_of(tmp_path / "power.csv")) == 8


def test_an_older_driver_leaves_the_instant_power_empty_in_a_file_named_by_its_time(
    stage: NvidiaSmiStage, tmp_path: Path
) -> None:
    stage.act("missing_instant")
    assert run("--seconds", "0.1", "--gpu", "GPU-11111111-2222-3333-4444-555555555555", folder=tmp_path)[0] == 0
    (path,) = tmp_path.glob("power_log_*Z.csv")
    row = rows_of(path)[0]
    assert (row["power_instant_w"], float(row["power_average_w"]) > 300) == ("", True)


def test_an_existing_file_is_never_overwritten(stage: NvidiaSmiStage, tmp_path: Path) -> None:
    (tmp_path / "power.csv").write_text("precious")
    status, errors = run("--seconds", "0.1", "--output", "power.csv", folder=tmp_path)
    assert status == 2
    assert "power.csv: must be a new file" in errors
    assert (tmp_path / "power.csv").read_text() == "precious"


@pytest.mark.parametrize(
    "arguments",
    [("--interval", "0"), ("--seconds", "nan"), ("--device", "tpu"), ("--device", "CUDA"), ("--device", "")],
)
def test_impossible_arguments_are_mistakes(tmp_path: Path, arguments: tuple[str, str]) -> None:
    status, errors = run(*arguments, folder=tmp_path)
    assert status == 2
    assert arguments[0] in errors


@pytest.mark.parametrize(
    ("arguments", "visible", "gpu"),
    [
        (("--device", "cuda:1"), None, "1"),
        (("--device", "cuda"), None, "0"),
        ((), "3", "3"),
        # As in torch, cuda:1 is the second visible GPU.
        (("--device", "cuda:1"), "GPU-11111111-2222-3333-4444-555555555555, 2", "2"),
        (("--gpu", "1"), "3", "1"),
    ],
)
def test_a_device_is_logged_that_torch_would_take(
    stage: NvidiaSmiStage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    visible: str | None,
    gpu: str,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    status, errors = run(*arguments, "--seconds", "0.05", folder=tmp_path)
    assert status == 0
    assert errors.startswith(f"logging GPU {gpu} to ")


@pytest.mark.parametrize("visible", ["", "0"])
def test_a_device_that_is_not_visible_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    status, errors = run("--device", "cuda:1", "--output", "power.csv", folder=tmp_path)
    assert status == 2
    assert errors.startswith(f"error: --device cuda:1: CUDA_VISIBLE_DEVICES has {len(visible)} GPUs")
    assert not (tmp_path / "power.csv").exists()


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_a_gpu_and_another_device_together_are_refused(tmp_path: Path, device: str) -> None:
    status, errors = run("--device", device, "--gpu", "0", "--output", "power.csv", folder=tmp_path)
    assert status == 2
    assert errors.splitlines() == [f"error: --gpu and --device {device} exclude each other; leave --gpu out"]


def test_help_shows_an_example_with_nothing_installed(tmp_path: Path) -> None:
    command = [sys.executable, "-S", str(SCRIPT), "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": os.defpath}).stdout
    assert "opcost power --device cuda:0 --output power.csv --seconds 60" in shown
    assert "--gpu" not in shown
