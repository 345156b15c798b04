"""The benchmark of LayerwiseEnergy, on this CPU with a tiny model and a simulated energy counter."""

from __future__ import annotations

import csv
import importlib
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from powercap import RANGE_UJ, add_domain

from opcost.meters import energy

POWER_W = 40.0


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "benchmarks")
    return importlib.import_module("layerwise_overhead")


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Simulate a CPU with constant power; its counter is right however busy this machine is."""
    add_domain(tmp_path / "powercap", "intel-rapl:0", "package-0")
    opened = energy.open_rapl
    monkeypatch.setattr("opcost.running.energy_sources.open_rapl", lambda: opened(tmp_path / "powercap"))
    monkeypatch.setattr(
        "opcost.meters.rapl.RaplDomain.read_uj", lambda _: int(1e6 * POWER_W * time.monotonic()) % RANGE_UJ
    )


@pytest.mark.usefixtures("counter")
@pytest.mark.parametrize("options", [[], ["--train"]])
def test_a_tiny_model_runs_through(
    benchmark: Any,
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "tiny.csv"
    monkeypatch.setattr(benchmark, "WARM_UP_S", 0.05)
    words = ["tiny", "--device", "cpu", "--batch", "2", "--pairs", "2", "--seconds", "0.2", "--output", str(path)]
    monkeypatch.setattr(sys, "argv", ["layerwise_overhead.py", *words, *options])
    assert benchmark.main() == 0
    printed = capsys.readouterr().out
    assert "overhead" in printed
    assert "rows' sum against the meter" in printed
    with path.open(newline="") as file:
        blocks = list(csv.DictReader(file))
    assert [block["with_layers"] for block in blocks] == ["False", "True", "True", "False"]
    for block in blocks[1:3]:
        assert float(block["rows_j"]) == pytest.approx(float(block["meter_j"]), rel=0.2)
        assert int(block["marked"]) >= 2
    with path.with_name("tiny-layers.csv").open(newline="") as file:
        layers = list(csv.DictReader(file))
    assert {layer["layer"] for layer in layers} >= {"(model)", "0", "(between layers)"}
    assert all(float(layer["energy_j"]) >= 0 for layer in layers if layer["energy_j"])
