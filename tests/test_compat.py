"""The tools under the names that users know: on a library that plays NVML, without any meter, and on a CPU's model."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import nvml_stage
import pytest
import torch
from torch import nn

from opcost import UserError
from opcost.compat import AsynchronousMeasurementTool, LayerwiseMeasurementTool

ROOT = Path(__file__).parents[1]

SNIPPETS = """
import time
from opcost.compat import EnergyMeasurementTool
tracker = EnergyMeasurementTool(out_file="out.csv", gpu_num=0)
for epoch in range(2):
    tracker.start()
    time.sleep(0.3)
    tracker.stop()
tracker.start()
raise ValueError("the rows are written all the same")
"""

ASYNCHRONOUS = """
import time
from opcost.compat import AsynchronousMeasurementTool
tracker = AsynchronousMeasurementTool(out_file="out.csv", gpu_num=0)
tracker.start(0.2)
time.sleep(0.9)
"""

PROFILER = """
import time
from opcost.compat import power_cap_profiler
calls = []
def train(dataloader, model, loss_fn, optimizer):
    calls.append((dataloader, model, loss_fn, optimizer))
    time.sleep(0.3)
# Not below a main guard: the guardian must not run the user's script again.
print(power_cap_profiler(0, "model", "data", train, "loss", "optimizer", "out.csv"), len(calls), calls[0])
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_stage.build(tmp_path_factory.mktemp("nvml") / "library", ())


def run(program: str, folder: Path, library: Path | None, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "OPCOST_ALLOW_POWER_LIMIT"},
        "PYTHONPATH": str(ROOT),
        "LD_LIBRARY_PATH": str(library or ""),
        "TMPDIR": str(folder),
        "FAKE_NVML_LIMIT": str(folder / "limit"),
        **variables,
    }
    (folder / "limit").write_text("650000")
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def read(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def rows_of(program: str, folder: Path, library: Path | None = None) -> list[list[str]]:
    """Return the rows that a program leaves behind."""
    run(program, folder, library)
    return read(folder / "out.csv")


def test_snippets_are_seconds_and_kwh(library: Path, tmp_path: Path) -> None:
    first, second, unended = rows_of(SNIPPETS, tmp_path, library)
    for elapsed_s, _, gpu_kwh in (first, second):
        assert 0.3 <= float(elapsed_s) < 0.6
        assert float(gpu_kwh) * 3.6e6 == pytest.approx(400.0 * float(elapsed_s), rel=0.03)
    assert unended[2] == "" or float(unended[2]) > 0


def test_readings_have_eight_columns_and_energies_since_the_start(library: Path, tmp_path: Path) -> None:
    rows = rows_of(ASYNCHRONOUS, tmp_path, library)
    assert len(rows) >= 4
    assert {len(row) for row in rows} == {8}
    assert (float(rows[0][0]), rows[0][4]) == (0.0, "")
    for elapsed_s, *_, gpu_kwh, busy_percent, _, power_w in rows[1:-1]:
        assert float(gpu_kwh) * 3.6e6 == pytest.approx(400.0 * float(elapsed_s), rel=0.05)
        assert float(power_w) == pytest.approx(400.0, rel=0.05)
        assert float(busy_percent) == 0


def test_without_a_meter_times_and_loads_are_known(tmp_path: Path) -> None:
    assert [float(elapsed_s) >= 0 for elapsed_s, *_ in rows_of(SNIPPETS, tmp_path)] == [True] * 3
    rows = rows_of(ASYNCHRONOUS, tmp_path)
    assert {row[4] for row in rows} == {""}
    assert all(0 <= float(row[2]) <= 100 for row in rows[1:] if row[2])


def test_a_second_start_and_a_wrong_interval_are_mistakes(tmp_path: Path) -> None:
    tool = AsynchronousMeasurementTool(tmp_path / "out.csv")
    tool.stop()
    with pytest.raises(UserError, match="positive"):
        tool.start(0)
    tool.start(10)
    with pytest.raises(UserError, match="without stop"):
        tool.start(1)
    tool.stop()


def test_a_row_for_each_layer_and_the_same_model(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    tracker = LayerwiseMeasurementTool(path, 0)
    assert path.read_text() == ""
    own = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    model = tracker.start(own)
    assert model is own
    for _ in range(3):
        model(torch.randn(4, 8)).sum().backward()
    with pytest.raises(UserError, match="without stop"):
        tracker.start(model)
    tracker.stop()
    rows = read(path)
    assert [name for name, _ in rows] == ["Sequential", "Linear", "ReLU", "Linear"]
    assert all(cell == "" or float(cell) >= 0 for _, cell in rows)
    assert "forward" not in vars(model)
    with pytest.raises(UserError, match="without start"):
        tracker.stop()


def test_training_is_profiled_once_a_cap(tmp_path: Path, library: Path) -> None:
    done = run(PROFILER, tmp_path, library, OPCOST_ALLOW_POWER_LIMIT="1")
    assert done.returncode == 0, done.stderr
    cap_w, calls, arguments = done.stdout.split(maxsplit=2)
    assert 200 <= float(cap_w) <= 650
    assert arguments == "('data', 'model', 'loss', 'optimizer')\n"
    head, *rows = read(tmp_path / "out.csv")
    assert head == ["power cap (W)", "time (s)", "energy (J)", "energy (kWh)", "EDP (J s)", "ED2P (J s^2)"]
    # The first call is a warm-up. Noise of these short calls may ask for caps besides the eight.
    assert len(rows) == int(calls) - 1 >= 10
    for cells in rows:
        cap_w, time_s, energy_j, kwh, edp, ed2p = map(float, cells)
        assert 200 <= cap_w <= 650
        assert energy_j == pytest.approx(400 * time_s, rel=0.05)
        assert (kwh * 3.6e6, edp, ed2p) == pytest.approx((energy_j, energy_j * time_s, energy_j * time_s**2))
    assert (tmp_path / "limit").read_text() == "650000"


def test_a_cap_is_set_and_reset(tmp_path: Path, library: Path) -> None:
    program = "from opcost.compat import *; set_power_cap(0, 300); print(open('limit').read()); reset_power_cap(0)"
    done = run(program, tmp_path, library, OPCOST_ALLOW_POWER_LIMIT="1")
    assert (done.returncode, done.stdout) == (0, "300000\n"), done.stderr
    assert (tmp_path / "limit").read_text() == "700000"


@pytest.mark.parametrize(
    "call", ["set_power_cap(0, 300)", "reset_power_cap(0)", "power_cap_profiler(0, 1, 2, print, 3, 4, 'out.csv')"]
)
def test_nothing_is_set_without_consent(tmp_path: Path, library: Path, call: str) -> None:
    done = run(f"from opcost.compat import *; {call}", tmp_path, library)
    assert done.returncode == 1
    assert "only if the card's owner has agreed" in done.stderr
    assert (tmp_path / "limit").read_text() == "650000"
    assert not (tmp_path / "out.csv").exists()
