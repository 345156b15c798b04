"""Power caps under the names that users know, on a library that plays NVML."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import nvml_stage
import pytest

ROOT = Path(__file__).parents[2]

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


def run(program: str, folder: Path, library: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "OPCOST_ALLOW_POWER_LIMIT"},
        "PYTHONPATH": str(ROOT),
        "LD_LIBRARY_PATH": str(library),
        "TMPDIR": str(folder),
        "FAKE_NVML_LIMIT": str(folder / "limit"),
        **variables,
    }
    (folder / "limit").write_text("650000")
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_training_is_profiled_once_a_cap(tmp_path: Path, library: Path) -> None:
    done = run(PROFILER, tmp_path, library, OPCOST_ALLOW_POWER_LIMIT="1")
    assert done.returncode == 0, done.stderr
    cap_w, calls, arguments = done.stdout.split(maxsplit=2)
    assert 200 <= float(cap_w) <= 650
    assert arguments == "('data', 'model', 'loss', 'optimizer')\n"
    with (tmp_path / "out.csv").open(newline="") as file:
        head, *rows = list(csv.reader(file))
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
