"""Kernels alone beside those in the model, kind by kind."""

from dataclasses import replace

import pytest
from simulated_machine import SIMULATED_CONDITIONS

from opcost.comparing.gap import KernelTimeRow, kernel_errors, kernel_key
from opcost.measuring.conditions import COLD, GRAPH


def row(operator, in_model_s, alone_s, model="m", conditions=SIMULATED_CONDITIONS):
    key = kernel_key(model, conditions)
    return KernelTimeRow(
        key, model, operator, 1, in_model_s, alone_s, in_model_s, "2026-11-22T08:00:00+00:00", conditions
    )


def test_errors_that_cancel_are_reported_of_the_newest_rows_unless_something_does_not_run_alone():
    found = kernel_errors(
        [row("Conv2d", 6.0, 1.0), row("Conv2d", 6.0, 5.5), row("ReLU", 4.0, 4.3)], "m", SIMULATED_CONDITIONS
    )
    assert found.by_kind == (("Conv2d", pytest.approx(-0.05)), ("ReLU", pytest.approx(0.03)))
    assert found.ratio == pytest.approx(-0.02)
    assert found.absolute_ratio == pytest.approx(0.08)
    assert kernel_errors([row("Conv2d", 6.0, 5.5), row("nms", 1.0, None)], "m", SIMULATED_CONDITIONS) is None


def test_kernels_take_the_same_time_however_they_are_launched():
    profiled = [row("Conv2d", 6.0, 5.5)]
    in_graphs = replace(SIMULATED_CONDITIONS, execution=GRAPH, cache=COLD)
    assert kernel_errors(profiled, "m", in_graphs) is not None
    assert kernel_errors(profiled, "m", replace(in_graphs, torch_version="2.12.0")) is None
    assert kernel_errors(profiled, "another", in_graphs) is None
