"""The screen of a sweep without some repetitions or predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulated_machine import Load
from simulated_sweep import SimulatedSweep

from opcost.comparing.sweep_sizes import figures_of
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
    assert "flag" not in shown


def test_repetitions_that_do_not_count_are_named(result: SweepResult, capsys: pytest.CaptureFixture[str]) -> None:
    first, *others = result.repetitions
    doubtful = replace(first, measurement=replace(first.measurement, flags=(Flag.METERS_DISAGREE,)))
    repetitions = [doubtful, *others]
    sizes = [
        replace(row, figures=figures_of([one for one in repetitions if one.place.key == row.place.key]))
        for row in result.sizes
    ]
    print_sweep(replace(result, repetitions=repetitions, sizes=sizes))
    assert "Without 1 repetition with a flag that casts doubt." in capsys.readouterr().out
