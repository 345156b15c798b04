"""None"""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from simulated_machine import SIMULATED_CONDITIONS, declared_row

from opcost.comparing.comparison import Remark, RemarkKind
from opcost.comparing.corrections import OTHERS, PRODUCTS, Load, at_limit, correction_of, limit_of
from opcost.comparing.model_result import EagerCost, Evidence, eager_cost, kernel_errors, kernel_key
from opcost.estimates import Estimate
from opcost.measuring.conditions import COLD, EAGER, GRAPH
from opcost.measuring.record import Excess, KernelTimeRow
from opcost.operators.counts import OperatorCount, OperatorCounts, Selection
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.summing.summation import Measurements, sum_operators

LIMIT_W = 700.0
GPU = replace(SIMULATED_CONDITIONS, device_product="NVIDIA H200", execution="graph", device_power_limit_w=LIMIT_W)
LINEAR, GELU = (
    OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((32, 64), "float32"),)) for name in ("Linear", "GELU")
)

loads = st.builds(
    Load,
    time_s=st.floats(1e-6, 1e-2),
    energy_j=st.floats(1e-4, 10.0),
    exponent=st.sampled_from((PRODUCTS, OTHERS)),
)


def load(power_w: float, exponent: float = PRODUCTS) -> Load:
    return Load(0.001, 0.001 * power_w, exponent)


@given(st.lists(loads, min_size=1, max_size=5), st.floats(1.0, 1.3))
def test_a_model_at_the_limit_draws_the_limit(found: list[Load], ratio: float) -> None:
    time_s, energy_j = (sum(getattr(one, name) for one in found) for name in ("time_s", "energy_j"))
    limit_w = energy_j / time_s / ratio
    added = at_limit(found, limit_w)
    # Far more powerful products among others need a larger ratio than any that was measured.
    assume(added is not None)
    assert added.time_s.value >= 0
    assert added.energy_j.value <= 1e-5 * energy_j
    assert (energy_j + added.energy_j.value) / (time_s + added.time_s.value) == pytest.approx(limit_w, rel=1e-4)


def test_a_model_below_the_limit_is_not_changed() -> None:
    added = at_limit([load(690.0), load(705.0)], LIMIT_W)
    assert (added.time_s.value, added.energy_j.value) == (0, 0)


def test_products_take_longer_and_others_do_not() -> None:
    products, others = (at_limit([load(800.0, exponent)], LIMIT_W) for exponent in (PRODUCTS, OTHERS))
    assert products.time_s == Estimate(pytest.approx(5e-5, rel=0.05), pytest.approx(8.4e-6, rel=0.05))
    assert others.time_s.value == 0
    assert others.energy_j.value == pytest.approx(-0.1, rel=0.05)


def test_far_above_the_limit_nothing_is_known() -> None:
    assert at_limit([load(1000.0)], LIMIT_W) is not None
    assert at_limit([load(2000.0)], LIMIT_W) is None


@pytest.mark.parametrize(
    "changes", [{"device_product": "NVIDIA L4"}, {"execution": "eager"}, {"device_power_limit_w": None}]
)
def test_other_cards_and_eager_runs_are_unknown(changes: dict[str, str | None]) -> None:
    assert limit_of(GPU) == LIMIT_W
    assert limit_of(replace(GPU, **changes)) is None


def compared(
    linear_w: float,
    whole_s: float,
    whole_w: float,
    *,
    flop: int | None = 100,
    energy: bool = True,
    capped_ratio: float | None = 1.0,
    loop_s: float = 3.0,
    rows_capped: float = 0.0,
):
    """Compare a model of ten linear layers and one GELU of 1 ms each."""
    model = model_operator("a_model", None, (32, 64))
    calls = OperatorCount(LINEAR, 10, flop, 1), OperatorCount(GELU, 1, 0, 1)
    counts = OperatorCounts(model, calls, 1000, 11, 1, "2.11.0", "cuda")

    def row(operator, time_s, power_w, power_capped_ratio):
        figures = {"time_s": time_s, "energy_j": time_s * power_w if energy else None, "executed_as": "graph"}
        return declared_row(operator, GPU, power_capped_ratio=power_capped_ratio, loop_time_s=loop_s, **figures)

    rows = Measurements([row(LINEAR, 0.001, linear_w, rows_capped), row(GELU, 0.001, 500.0, rows_capped)])
    selection = Selection(counts, replace(counts, counts=()))
    return Evidence(rows).result(selection, [row(model, whole_s, whole_w, capped_ratio)])


def test_a_sum_above_the_limit_has_a_part_that_explains_the_whole() -> None:
    found = compared(linear_w=800.0, whole_s=0.0115, whole_w=700.0)
    added, rest = found.gap.power_limit, found.gap.unexplained
    assert added.time_s.value == pytest.approx(0.0004, rel=0.2)
    assert added.time_s.standard_error > 0
    assert 0.011 + added.time_s.value + rest.time_s == pytest.approx(0.0115)
    assert found.cost.energy_j.value + added.energy_j.value == pytest.approx(700.0 * (0.011 + added.time_s.value))


@pytest.mark.parametrize("unknown", [{"energy": False}, {"linear_w": 700.0, "rows_capped": 1.0}])
def test_a_sum_without_energy_or_of_throttled_rows_has_no_known_part_of_the_limit(unknown: dict[str, float]) -> None:
    assert compared(**{"linear_w": 800.0, "whole_s": 0.0115, "whole_w": 700.0, **unknown}).gap.power_limit is None


def test_without_products_only_the_energy_changes() -> None:
    added = compared(linear_w=800.0, whole_s=0.011, whole_w=700.0, flop=0).gap.power_limit
    assert added.time_s.value == pytest.approx(0.0, abs=5e-5)


def test_the_correction_of_a_ranked_sum_has_the_part_of_the_limit() -> None:
    found = compared(linear_w=800.0, whole_s=0.0115, whole_w=700.0)
    cache = Excess(Estimate(0.0001, 0.00003), Estimate(0.01, 0.003))
    added = correction_of(cache, found.cost, GPU)
    assert added.time_s.value == pytest.approx(0.0004, rel=0.2)
    assert added.energy_j.value == pytest.approx(-0.47, rel=0.2)
    assert correction_of(cache, found.cost, replace(GPU, execution="eager")) == cache
    without_energy = replace(cache, energy_j=None)
    assert correction_of(without_energy, found.cost, GPU) == without_energy


@pytest.mark.parametrize(
    "whole", [{"capped_ratio": 0.0}, {"loop_s": 0.3}, {"whole_w": 600.0}, {"whole_s": 0.010}, {"capped_ratio": None}]
)
def test_the_part_of_a_sum_is_the_same_whatever_its_whole_did(whole: dict[str, float | None]) -> None:
    known = {"linear_w": 800.0, "whole_s": 0.0115, "whole_w": 700.0}
    assert compared(**known | whole).gap.power_limit == compared(**known).gap.power_limit


@pytest.mark.parametrize(("linear_w", "is_explained"), [(800.0, True), (650.0, False)])
def test_a_throttled_whole_has_a_bound_where_no_part_explains_it(linear_w: float, is_explained: bool) -> None:
    found = compared(linear_w=linear_w, whole_s=0.0115, whole_w=700.0)
    slower = replace(found.full, measurement=replace(found.full.measurement, sm_clock_hz=1.7e9))
    kinds = [one.kind for one in replace(found, whole=slower).remarks]
    assert (RemarkKind.LOWER_CLOCKS not in kinds) == is_explained


# Kernels alone beside those in the model, kind by kind


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


# Eager runs: a declared time on the device and for the launch of each operator, and what a model makes of them


MODEL = model_operator("resnet18", None, (32, 64))
GAP_S, IDLE_W, BUSY_W = 1e-6, 100.0, 500.0
LAUNCHES_S = {"Conv2d": 15e-6, "ReLU": 6e-6, "MaxPool2d": 9e-6}


def operator(name, size):
    return OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((size,), "float32"),))


def row_in(case, time_s, energy_j, execution):
    conditions = replace(SIMULATED_CONDITIONS, execution=execution)
    return declared_row(case, conditions, time_s=time_s, energy_j=energy_j, executed_as=execution)


def rows_of(kind, size, device_s):
    """Return an operator's rows: the graph's, and that of an eager loop, which waits for the device or for launches."""
    eager_s = max(device_s + GAP_S, LAUNCHES_S[kind])
    device_j = BUSY_W * device_s
    return (
        row_in(operator(kind, size), device_s, device_j, GRAPH),
        row_in(operator(kind, size), eager_s, device_j + IDLE_W * (eager_s - device_s), EAGER),
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
    whole = row_in(MODEL, 65e-6, 0.01, EAGER)
    counts = counts_of({("ReLU", 1): 10})
    selection = Selection(counts, replace(counts, counts=()))
    found = Evidence(Measurements([graph, eager])).result(selection, [whole])
    assert found.eager.is_launch_bound
    figures = {"launch_time_s": 60e-6, "device_time_s": 20e-6, "of_whole_ratio": 60 / 65}
    assert found.remarks == (
        Remark(RemarkKind.LAUNCH_BOUND, {name: pytest.approx(value) for name, value in figures.items()}),
    )
    in_graph = row_in(MODEL, 65e-6, 0.01, GRAPH)
    assert Evidence(Measurements([graph])).result(selection, [in_graph]).eager is None
