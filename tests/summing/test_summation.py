import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seeds import Seeds
from simulated_machine import (
    SIMULATED_CIRCUMSTANCES,
    SIMULATED_CONDITIONS,
    Load,
    MeterModel,
    SimulatedMachine,
    declared_row,
    simulated_row,
)

from opcost.estimates import Estimate
from opcost.measuring.flags import Flag
from opcost.measuring.record import time_of
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.operators.values import NORMAL_DATA, ZEROS_DATA, InputData, InputStatistics, InputValues
from opcost.summing.summation import EnergyBasis, Measurements, ModelCost, best_rows, sum_beside, sum_operators

OTHER_CONDITIONS = replace(SIMULATED_CONDITIONS, precision="fp32")
IN_GRAPHS = replace(SIMULATED_CONDITIONS, execution="graph")
CONVOLUTION, RELU, LINEAR = (
    OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((32, 64), "float32"),))
    for name in ["Conv2d", "ReLU", "Linear"]
)


def row_of(operator, time_s=1.0, time_error_s=0.1, energy_j=2.0, energy_error_j=0.2, **changes):
    """Return a row with the figures that a test declares."""
    figures = {
        "time_s": time_s,
        "time_standard_error_s": time_error_s,
        "energy_j": energy_j,
        "energy_standard_error_j": energy_error_j,
        "energy_at_reference_j": changes.pop("at_reference_j", None),
        "energy_at_reference_standard_error_j": 0.3,
    }
    if "loop_s" in changes:
        figures["loop_time_s"] = changes["loop_s"]
    conditions, data = changes.pop("conditions", SIMULATED_CONDITIONS), changes.pop("data", NORMAL_DATA)
    return declared_row(operator, conditions, data, changes, **figures)


def counts_of(*counts, total_flop=1000):
    model = model_operator("resnet18", None, (1, 3, 32, 32))
    return OperatorCounts(
        model,
        tuple(counts),
        total_flop,
        total_memory_bytes=1000,
        parameters=1,
        torch_version="2.11",
        device_type="cuda",
    )


def summed(counts, rows):
    return sum_operators(counts, Measurements(rows), SIMULATED_CONDITIONS)


def test_each_occurrence_counts_and_calls_of_one_tuple_share_their_error():
    counts = counts_of(OperatorCount(CONVOLUTION, 3, 100, 20), OperatorCount(RELU, 4, 10, 5))
    cost = summed(counts, [row_of(CONVOLUTION), row_of(RELU, 10.0, 0.1, 20.0, 0.2)])
    # 3 calls that share an error of 0.1 and 4 that share another: 0.3 and 0.4, independent of each other.
    assert cost == ModelCost(
        time_s=Estimate(pytest.approx(43.0), pytest.approx(0.5)),
        energy_j=Estimate(pytest.approx(86.0), pytest.approx(1.0)),
        energy_missing_reason=None,
        basis=EnergyBasis.MEASURED,
        summed=counts.counts,
        missing=(),
        parts=cost.parts,
        flop_ratio=0.34,
        memory_bytes_ratio=0.08,
    )


HALF, NINE_TENTHS = (InputData((InputValues(zeros_ratio=ratio),)) for ratio in (0.5, 0.9))
SEEN_HALF, SEEN_NORMAL, SEEN_NINE_TENTHS = (
    (InputStatistics(zeros_ratio, mean=0.0, spread=1.0),) for zeros_ratio in (0.5, 0.0, 0.9)
)


def test_calls_stand_on_the_row_of_their_values():
    counts = counts_of(OperatorCount(RELU, 3, 1, 1, statistics=(SEEN_HALF, SEEN_NORMAL, SEEN_HALF)))
    rows = [row_of(RELU, 1.0, 0.1), row_of(RELU, 10.0, 0.2, data=HALF)]
    cost = summed(counts, rows)
    assert cost.time_s == Estimate(pytest.approx(21.0), pytest.approx(math.hypot(0.1, 2 * 0.2)))
    assert not any(part.is_on_other_values for part in cost.parts)


def test_values_that_were_not_measured_take_the_most_similar_ones_and_share_their_error():
    counts = counts_of(OperatorCount(RELU, 3, 1, 1, statistics=(SEEN_HALF, SEEN_NORMAL, SEEN_NINE_TENTHS)))
    cost = summed(counts, [row_of(RELU, 1.0, 0.1), row_of(RELU, 10.0, 0.2, data=NINE_TENTHS)])
    assert cost.time_s == Estimate(pytest.approx(21.0), pytest.approx(math.hypot(0.1, 2 * 0.2)))
    assert [(part.occurrences, part.is_on_other_values) for part in cost.parts] == [(1, True), (1, False), (1, False)]
    assert cost.missing == ()


@pytest.mark.parametrize(("input_data", "time_s"), [("normal", 3.0), ("zeros", 30.0), ("captured", 210.0)])
def test_values_asked_for_by_name_are_those_of_all_calls(input_data, time_s):
    counts = counts_of(OperatorCount(RELU, 3, 1, 1, statistics=(SEEN_HALF, SEEN_NORMAL, SEEN_HALF)))
    rows = [row_of(RELU, 1.0), row_of(RELU, 10.0, data=ZEROS_DATA), row_of(RELU, 104.5, data=HALF)]
    assert sum_operators(counts, Measurements(rows), SIMULATED_CONDITIONS, input_data).time_s.value == time_s


def test_of_two_good_rows_that_of_the_board_asked_for_counts():
    ours, theirs = row_of(RELU, 1.0, device_uuid="ours"), row_of(RELU, 2.0, device_uuid="theirs", loop_s=40.0)
    doubtful = row_of(RELU, 3.0, device_uuid="third")
    doubtful = replace(doubtful, measurement=replace(doubtful.measurement, flags=(Flag.UNEVEN,)))
    measurements = Measurements([ours, theirs, doubtful])
    counts = counts_of(OperatorCount(RELU, 1, 1, 1))
    for board, time_s in (("ours", 1.0), ("theirs", 2.0), ("third", 2.0), ("fourth", 2.0), (None, 2.0)):
        cost = sum_operators(counts, measurements.preferring(board), SIMULATED_CONDITIONS)
        assert cost.time_s.value == time_s
    assert measurements.preferring("ours") is measurements.preferring("ours")


@pytest.mark.parametrize(("data", "input_data"), [("normal", "zeros"), ("captured: purple", "captured")])
def test_values_asked_for_by_name_or_unknown_to_this_version_have_no_substitute(data, input_data):
    counts = counts_of(OperatorCount(RELU, 1, 1, 1, statistics=(SEEN_HALF,)))
    rows = Measurements([replace(row_of(RELU), input_data=data)])
    assert sum_operators(counts, rows, SIMULATED_CONDITIONS, input_data).missing == counts.counts


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        # Not flagged, before a longer loop.
        ({"loop_s": 1.0}, {"loop_s": 30.0, "flags": (Flag.UNEVEN,)}),
        # With energy, before a longer or later one without.
        ({"loop_s": 1.0}, {"loop_s": 30.0, "energy_j": None, "energy_error_j": None}),
        # A whole of three builds, before a longer loop of one.
        ({"loop_s": 1.0, "builds": 3}, {"loop_s": 30.0}),
        # As requested, before a longer one that ran eagerly.
        ({"loop_s": 3.0, "executed_as": "graph", "conditions": IN_GRAPHS}, {"loop_s": 30.0, "conditions": IN_GRAPHS}),
    ],
)
def test_the_quality_of_a_row_counts_before_the_length_of_its_loop(better, worse):
    def made(changes):
        measured = {name: changes[name] for name in ("flags", "builds", "executed_as") if name in changes}
        row = row_of(RELU, **{name: value for name, value in changes.items() if name not in measured})
        return replace(row, measurement=replace(row.measurement, **measured))

    good, other = made(better), made(worse)
    assert best_rows([other, good, other]) == {good.key: good}


def test_what_is_not_measured_under_these_conditions_is_named_and_left_out():
    counts = counts_of(OperatorCount(CONVOLUTION, 3, 100, 1), OperatorCount(RELU, 4, 10, 1))
    cost = summed(counts, [row_of(RELU), row_of(LINEAR), row_of(CONVOLUTION, conditions=OTHER_CONDITIONS)])
    assert (cost.missing, cost.summed) == (counts.counts[:1], counts.counts[1:])
    assert (cost.time_s, cost.energy_j) == (Estimate(4.0, pytest.approx(0.4)), Estimate(8.0, pytest.approx(0.8)))
    assert cost.flop_ratio == pytest.approx(0.04)


def test_energies_are_at_the_reference_temperature_if_all_are():
    counts = counts_of(OperatorCount(CONVOLUTION, 1, 1, 1), OperatorCount(RELU, 2, 1, 1))
    all_known = Measurements([row_of(CONVOLUTION, at_reference_j=5.0), row_of(RELU, at_reference_j=7.0)])
    whole = row_of(LINEAR, at_reference_j=20.0)
    cost = sum_beside(whole, counts, all_known, SIMULATED_CONDITIONS)
    # The errors are those of the measurements; 2 J were measured of each.
    assert (cost.energy_j, cost.basis) == (Estimate(19.0, pytest.approx(0.2 * math.sqrt(5))), EnergyBasis.NORMALISED)
    assert [part.energy_j for part in cost.parts] == [5.0, 14.0]
    one_lacks = Measurements([row_of(CONVOLUTION, at_reference_j=5.0), row_of(RELU)])
    for beside, rows in ((whole, one_lacks), (row_of(LINEAR), all_known)):
        cost = sum_beside(beside, counts, rows, SIMULATED_CONDITIONS)
        assert (cost.energy_j.value, cost.basis) == (6.0, EnergyBasis.MEASURED)
        assert [part.energy_j for part in cost.parts] == [2.0, 4.0]


def test_a_sum_of_normalised_energies_lacks_what_cannot_be_normalised():
    counts = counts_of(OperatorCount(CONVOLUTION, 1, 1, 1), OperatorCount(RELU, 2, 1, 1))
    one_lacks = Measurements([row_of(CONVOLUTION, at_reference_j=5.0), row_of(RELU)])
    cost = sum_operators(counts, one_lacks, SIMULATED_CONDITIONS, basis=EnergyBasis.NORMALISED)
    assert cost.energy_j is None
    assert "1 of 2 operators have no energy: it cannot be normalised" in cost.energy_missing_reason


def test_nothing_measured_has_no_cost():
    counts = counts_of(OperatorCount(CONVOLUTION, 3, 100, 1))
    assert summed(counts, []) == ModelCost(
        None,
        None,
        "no operator of the model is measured",
        basis=EnergyBasis.MEASURED,
        summed=(),
        missing=counts.counts,
        parts=(),
        flop_ratio=0.0,
        memory_bytes_ratio=0.0,
    )


def test_a_model_without_flops_has_no_share_of_them():
    assert summed(counts_of(OperatorCount(RELU, 1, 0, 1), total_flop=0), [row_of(RELU)]).flop_ratio is None


def test_energy_is_not_summed_if_one_operator_lacks_it():
    counts = counts_of(*(OperatorCount(operator, 2, 1, 1) for operator in [CONVOLUTION, RELU, LINEAR]))
    without = row_of(RELU, energy_j=None, energy_error_j=None)
    cost = summed(counts, [row_of(CONVOLUTION), without, row_of(LINEAR)])
    assert cost.energy_j is None
    assert cost.energy_missing_reason == "1 of 3 operators have no energy: no meter"
    assert cost.time_s == Estimate(6.0, pytest.approx(0.2 * math.sqrt(3)))


def test_energy_without_its_error_is_no_energy():
    energy_of = EnergyBasis.MEASURED.energy_of
    assert energy_of(row_of(RELU, energy_error_j=None)) is None
    assert energy_of(row_of(RELU, energy_j=None)) is None
    assert energy_of(row_of(RELU)) == Estimate(2.0, 0.2)
    assert time_of(row_of(RELU)) == Estimate(1.0, 0.1)


def test_of_several_rows_the_longest_loop_counts_and_then_the_last():
    short, first, last, other = (
        row_of(RELU, 1.0, loop_s=3.0),
        row_of(RELU, 2.0, loop_s=30.0),
        row_of(RELU, 3.0, loop_s=30.0),
        row_of(LINEAR, 4.0, loop_s=1.0),
    )
    assert best_rows([]) == {}
    assert best_rows([short, first, last, other]) == {last.key: last, other.key: other}
    assert best_rows([last, first, short]) == {first.key: first}
    assert best_rows([first, last, short]) == {last.key: last}


@given(st.permutations([CONVOLUTION, RELU, LINEAR]), st.lists(st.integers(1, 1000), min_size=3, max_size=3))
def test_a_sum_does_not_depend_on_the_order_of_rows_or_counts(order, occurrences):
    rows = [row_of(operator) for operator in order]
    number = dict(zip([CONVOLUTION, RELU, LINEAR], occurrences, strict=True))
    cost = summed(counts_of(*(OperatorCount(operator, number[operator], 1, 1) for operator in order)), rows)
    assert cost.time_s.value == pytest.approx(sum(occurrences))
    assert cost.time_s.standard_error == pytest.approx(math.hypot(*occurrences) * 0.1)


def test_the_sum_of_simulated_operators_holds_the_truth():
    """Three loads, each measured once and called several times, over 300 machines: 95 % of the intervals hold it."""
    loads = {
        CONVOLUTION: Load(time_s=0.004, power_w=600.0, jitter_ratio=0.1),
        RELU: Load(time_s=0.001, power_w=300.0, jitter_ratio=0.1),
        LINEAR: Load(time_s=0.002, power_w=450.0, jitter_ratio=0.1),
    }
    occurrences = {CONVOLUTION: 16, RELU: 17, LINEAR: 1}
    counts = counts_of(*(OperatorCount(operator, occurrences[operator], 1, 1) for operator in loads))
    true_time_s = sum(occurrences[operator] * load.time_s for operator, load in loads.items())
    true_energy_j = sum(occurrences[operator] * load.energy_j for operator, load in loads.items())
    seeds = Seeds(300)
    costs = [summed(counts, rows_of_one_machine(loads, seed)) for seed in seeds]
    of_time, of_energy = (
        np.mean([holds(getattr(cost, name), truth) for cost in costs])
        for name, truth in (("time_s", true_time_s), ("energy_j", true_energy_j))
    )
    assert seeds.at_least(0.91) <= of_time <= seeds.at_most(0.97)
    assert seeds.at_least(0.92) <= of_energy <= seeds.at_most(0.98)


def rows_of_one_machine(loads, seed):
    machine = SimulatedMachine(meter=MeterModel(averaging_time_s=0.025), seed=seed)
    short = replace(SIMULATED_CIRCUMSTANCES, warm_up_s=0.4, loop_s=3.0)
    return [simulated_row(operator, load, machine, circumstances=short) for operator, load in loads.items()]


def holds(estimate, truth):
    return abs(estimate.value - truth) <= 1.96 * estimate.standard_error
