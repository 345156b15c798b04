"""The tools under the names that users know: their rows on a library that plays NVML, and without any meter."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import nvml_stage
import pytest

from opcost import UserError
from opcost.compat import AsynchronousMeasurementTool

ROOT = Path(__file__).parents[2]

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


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_stage.build(tmp_path_factory.mktemp("nvml") / "library", ())


def rows_of(program: str, folder: Path, library: Path | None = None) -> list[list[str]]:
    """Return the rows that a program leaves behind."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(library or "")}
    subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, check=False, timeout=60
    )
    with (folder / "out.csv").open(newline="") as file:
        return list(csv.reader(file))


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
