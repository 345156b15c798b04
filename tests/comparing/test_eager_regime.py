"""Eager runs: a declared time on the device and for the launch of each operator, and what a model makes of them."""

from dataclasses import replace

import pytest
from simulated_machine import SIMULATED_CONDITIONS, declared_row

from opcost.comparing.comparison import Evidence, compare
from opcost.comparing.gap import EagerCost, eager_cost
from opcost.comparing.remarks import Remark, RemarkKind
from opcost.measuring.conditions import EAGER, GRAPH
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.operators.whitelist import Selection
from opcost.summing.summation import Measurements, sum_operators

MODEL = model_operator("resnet18", None, (32, 64))
GAP_S, IDLE_W, BUSY_W = 1e-6, 100.0, 500.0
LAUNCHES_S = {"Conv2d": 15e-6, "ReLU": 6e-6, "MaxPool2d": 9e-6}


def operator(name, size):
    return OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((size,), "float32"),))


def row(case, time_s, energy_j, execution):
    conditions = replace(SIMULATED_CONDITIONS, execution=execution)
    return declared_row(case, conditions, time_s=time_s, energy_j=energy_j, executed_as=execution)


def rows_of(kind, size, device_s):
    """Return an operator's rows: the graph's, and that of an eager loop, which waits for the device or for launches."""
    eager_s = max(device_s + GAP_S, LAUNCHES_S[kind])
    device_j = BUSY_W * device_s
    return (
        row(operator(kind, size), device_s, device_j, GRAPH),
        row(operator(kind, size), eager_s, device_j + IDLE_W * (eager_s - device_s), EAGER),
    )


def counts_of(calls):
    counts = tuple(OperatorCount(operator(kind, size), number, 1, 1) for (kind, size), number in calls.items())
    return OperatorCounts(MODEL, counts, 10, 10, 1, "2.11.0", "cuda")


def eager_of(device_times_s, calls):
    rows = [row for (kind, size), device_s in device_times_s.items() for row in rows_of(kind, size, device_s)]
    measurements = Measurements(rows)
    conditions = replace(SIMULATED_CONDITIONS, execution=EAGER)
    return eager_cost(sum_operators(counts_of(calls), measurements, conditions, "normal"), measurements)


def test_a_model_of_long_and_short_kernels_waits_for_its_device_and_not_for_each_launch():
    """Loops of the short ones wait for launches, which the long ones hide in the model: the sum would be too large."""
    times_s = {("Conv2d", 8): 100e-6, ("Conv2d", 1): 5e-6, ("ReLU", 8): 50e-6, ("ReLU", 1): 2e-6}
    calls = {("Conv2d", 8): 10, ("Conv2d", 1): 10, ("ReLU", 8): 5, ("ReLU", 1): 15}
    found = eager_of(times_s, calls)
    assert not found.is_launch_bound
    device_s = sum(number * (times_s[one] + GAP_S) for one, number in calls.items())
    assert found.time_s == found.device_time_s == pytest.approx(device_s)
    assert found.launch_time_s == pytest.approx(20 * 15e-6 + 20 * 6e-6)
    work_s = device_s - 40 * GAP_S
    assert found.energy_j == pytest.approx(BUSY_W * work_s + IDLE_W * 40 * GAP_S)


def test_a_model_of_short_kernels_waits_for_its_launches():
    times_s = {("Conv2d", 8): 100e-6, ("Conv2d", 1): 5e-6, ("ReLU", 1): 2e-6}
    found = eager_of(times_s, {("Conv2d", 8): 1, ("Conv2d", 1): 50, ("ReLU", 1): 50})
    assert found.is_launch_bound
    launches_s = 51 * 15e-6 + 50 * 6e-6
    assert found.time_s == found.launch_time_s == pytest.approx(launches_s)
    work_s = 100e-6 + 50 * 5e-6 + 50 * 2e-6
    assert found.energy_j == pytest.approx(BUSY_W * work_s + IDLE_W * (launches_s - work_s))


def test_a_launch_that_no_loop_waits_for_takes_what_others_take_and_no_longer_than_its_loop():
    short, long = ("ReLU", 1), ("MaxPool2d", 8)
    assert eager_of({short: 2e-6, long: 99e-6}, {short: 1, long: 1}).launch_time_s == pytest.approx(12e-6)
    assert eager_of({short: 2e-6, long: 99e-6}, {short: 3, long: 1}).assumed_ratio == pytest.approx(0.25)
    other = ("Conv2d", 1)
    quick = eager_of({other: 2e-6, ("MaxPool2d", 1): 8.5e-6}, {other: 1, ("MaxPool2d", 1): 1})
    assert quick.launch_time_s == pytest.approx(15e-6 + 9.5e-6)


@pytest.mark.parametrize("device_s", [6e-6, 9e-6, 10.5e-6, 13e-6, 14.5e-6, 20e-6])
def test_kernels_about_as_long_as_a_launch_are_distinguished_from_it(device_s):
    """They wait for both by turns; what the device needs is known by the graph."""
    short, about, long = ("Conv2d", 1), ("Conv2d", 2), ("Conv2d", 8)
    found = eager_of({short: 4e-6, about: device_s, long: 2e-3}, {short: 1, about: 200, long: 1})
    assert found.device_time_s == pytest.approx(200 * (device_s + GAP_S) + 2e-3 + 4e-6 + 2 * GAP_S)
    assert found.launch_time_s == pytest.approx(202 * 15e-6)


def test_loops_that_wait_for_long_gaps_only_show_no_launch():
    times_s = {("ReLU", size): 50e-6 + size * 1e-6 for size in range(3)}
    assert eager_of(times_s, dict.fromkeys(times_s, 1)) is None


@pytest.mark.parametrize("left_out", ["a graph", "an eager loop that waits", "eager"])
def test_what_is_not_known_is_none(left_out):
    graph, eager = rows_of("ReLU", 1, 2e-6)
    other = rows_of("ReLU", 8, 50e-6)
    rows = {"a graph": [graph, eager, other[1]], "an eager loop that waits": [*other], "eager": [graph, other[0]]}[
        left_out
    ]
    calls = {("ReLU", 8): 1} if left_out == "an eager loop that waits" else {("ReLU", 1): 1, ("ReLU", 8): 1}
    conditions = replace(SIMULATED_CONDITIONS, execution=GRAPH if left_out == "eager" else EAGER)
    measurements = Measurements(rows)
    assert eager_cost(sum_operators(counts_of(calls), measurements, conditions, "normal"), measurements) is None


def test_an_energy_on_other_values_is_none():
    graph, eager = rows_of("ReLU", 1, 2e-6)
    elsewhere = replace(graph, input_data="zeros")
    measurements = Measurements([elsewhere, eager])
    conditions = replace(SIMULATED_CONDITIONS, execution=EAGER)
    found = eager_cost(sum_operators(counts_of({("ReLU", 1): 1}), measurements, conditions, "normal"), measurements)
    assert found == EagerCost(pytest.approx(2e-6), pytest.approx(6e-6), None, 0.0)


def test_the_comparison_says_what_an_eager_run_waits_for():
    graph, eager = rows_of("ReLU", 1, 2e-6)
    whole = row(MODEL, 65e-6, 0.01, EAGER)
    counts = counts_of({("ReLU", 1): 10})
    selection = Selection(counts, replace(counts, counts=()))
    found = compare(selection, whole, Evidence(Measurements([graph, eager])))
    assert found.eager.is_launch_bound
    figures = {"launch_time_s": 60e-6, "device_time_s": 20e-6, "of_whole_ratio": 60 / 65}
    assert found.remarks == (
        Remark(RemarkKind.LAUNCH_BOUND, {name: pytest.approx(value) for name, value in figures.items()}),
    )
    assert compare(selection, row(MODEL, 65e-6, 0.01, GRAPH), Evidence(Measurements([graph]))).eager is None
