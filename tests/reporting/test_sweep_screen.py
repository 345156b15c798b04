"""The screen of a sweep without some repetitions or predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulated_machine import Load
from simulated_sweep import SimulatedSweep

from opcost.comparing.sweep_sizes import SweepPrediction, figures_of
from opcost.measuring.flags import Flag
from opcost.reporting.sweep_tables import print_sweep
from opcost.stages.sweep_results import SweepResult

LOADS = {32: Load(0.001, 200.0), 64: Load(0.004, 300.0)}


@pytest.fixture
def result(tmp_path: Path) -> SweepResult:
    swept = SimulatedSweep(tmp_path, LOADS)
    return swept.result(swept.measure(repetitions=3))


def test_a_prediction_that_was_not_asked_for_is_no_line(
    result: SweepResult, capsys: pytest.CaptureFixture[str]
) -> None:
    print_sweep(result)
    shown = capsys.readouterr().out
    assert "not predicted" not in shown
    assert "doubtful" not in shown


def test_a_prediction_has_its_interval(
    result: SweepResult, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    predicted = SweepPrediction(0.002, 0.001, 0.004, 0.3, 0.2, 0.5, 0.0)
    print_sweep(replace(result, sizes=[replace(row, prediction=predicted) for row in result.sizes]))
    shown = capsys.readouterr().out
    assert "1.000 to 4.000" in shown
    assert "200.0 to 500.0" in shown


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (1, "Without 1 doubtful repetition (meters disagree)."),
        (3, "With 3 doubtful repetitions, because these sizes have no others (meters disagree)."),
    ],
)
def test_doubtful_repetitions_are_counted_with_their_reason(
    result: SweepResult, capsys: pytest.CaptureFixture[str], number: int, line: str
) -> None:
    key = result.sizes[0].place.key
    of_size = [row for row in result.repetitions if row.place.key == key]
    others = [row for row in result.repetitions if row.place.key != key]
    doubtful = [
        replace(row, measurement=replace(row.measurement, flags=(Flag.METERS_DISAGREE,))) for row in of_size[:number]
    ]
    repetitions = [*doubtful, *of_size[number:], *others]
    sizes = [
        replace(row, figures=figures_of([one for one in repetitions if one.place.key == row.place.key]))
        for row in result.sizes
    ]
    print_sweep(replace(result, repetitions=repetitions, sizes=sizes))
    assert line in capsys.readouterr().out
