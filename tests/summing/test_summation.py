"""Sums of operators: which row stands for which calls, and the figures of the sum."""

import math
import random
import re
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np
import pytest
from committed_tables import committed
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
from opcost.measuring.conditions import Conditions
from opcost.measuring.flags import Flag
from opcost.measuring.record import MeasurementRow, time_of
from opcost.operators.counts import Case, OperatorCount, OperatorCounts
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import OperatorTuple, Phase, TensorSpec, model_operator
from opcost.operators.values import NORMAL_DATA, ZEROS_DATA, InputData, InputStatistics, InputValues
from opcost.running.shipped_counts import counts_in
from opcost.summing.summation import (
    EnergyBasis,
    Measurements,
    ModelCost,
    best_of_each_board,
    best_rows,
    sum_beside,
    sum_operators,
)

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
    return OperatorCounts(model, counts, total_flop, 1000, 1, "2.11", "cuda")


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


def test_a_row_stands_for_calls_of_its_phase_only():
    rows = [row_of(RELU), declared_row(RELU, SIMULATED_CONDITIONS, phase=Phase.BACKWARD, time_s=3.0)]
    of_rows = Measurements(rows)
    assert [
        of_rows.find(Case(RELU, phase=phase), SIMULATED_CONDITIONS) for phase in (Phase.INFERENCE, Phase.BACKWARD)
    ] == rows
    on_zeros = Case(RELU, ZEROS_DATA, Phase.BACKWARD)
    assert (of_rows.find(on_zeros, SIMULATED_CONDITIONS), of_rows.nearest(on_zeros, SIMULATED_CONDITIONS)) == (
        None,
        rows[1],
    )
    assert of_rows.nearest(Case(RELU, phase=Phase.FORWARD), SIMULATED_CONDITIONS) is None
    counts = [
        OperatorCount(RELU, calls, 0, 1, phase=phase) for calls, phase in ((2, Phase.INFERENCE), (5, Phase.BACKWARD))
    ]
    cost = summed(counts_of(*counts), rows)
    assert cost.time_s is not None
    assert cost.time_s.value == 2 * 1.0 + 5 * 3.0
    assert best_of_each_board(rows) == rows[:1]
    forward = summed(counts_of(replace(counts[0], phase=Phase.FORWARD)), rows)
    assert [count.phase for count in forward.missing] == [Phase.FORWARD]


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


# Rows of several conditions never mix in a sum, except those of operators that the difference cannot touch


IN_PRECISIONS = ("fp32", "tf32", "bf16", "amp-bf16")
SWITCHES = {"fp32": (False, False), "tf32": (True, True)}
TF32, BF16, FP16 = (
    {"precision", "matmul_tf32", "cudnn_tf32"},
    {"matmul_bf16_reduction"},
    {"matmul_fp16_reduction", "matmul_fp16_accumulation"},
)


@dataclass(frozen=True)
class Declared:
    """An operator, and the conditions in which its rows may differ without autocast: the truth of these tests."""

    operator: OperatorTuple
    may_differ: frozenset[str]


def declared(name: str, parameters: str, inputs: str, may_differ: set[str]) -> Declared:
    mode = "eval" if name.startswith("torch.nn.") and name[9].isupper() else None
    return Declared(parse_operator(name, parameters, inputs, mode), frozenset(may_differ))


SIZES = "in_channels=8, out_channels=8, kernel_size=3"
IMAGE = "[2, 8, 8, 8]"
OPERATORS = (
    declared("torch.nn.Conv2d", SIZES, f"float32{IMAGE}", BF16 | FP16),
    declared("torch.nn.Conv2d", f"{SIZES}, memory_format='channels_last'", f"float32{IMAGE}", BF16 | FP16),
    declared("torch.nn.Conv2d", SIZES, f"float32{IMAGE}:channels_last", BF16 | FP16),
    declared("torch.nn.Conv2d", f"{SIZES}, dtype='bfloat16'", f"bfloat16{IMAGE}", TF32 | FP16),
    declared(
        "torch.nn.Conv2d",
        f"{SIZES}, dtype='bfloat16', memory_format='channels_last'",
        f"bfloat16{IMAGE}:channels_last",
        TF32 | FP16,
    ),
    declared("torch.nn.Conv2d", f"{SIZES}, dtype='float16'", f"float16{IMAGE}", TF32 | BF16),
    declared("torch.Tensor.add", "", f"bfloat16{IMAGE}, float32{IMAGE}", FP16),
    declared("torch.Tensor.__getitem__", "", "int64[8], int64[2]", TF32 | BF16 | FP16),
    declared("torch.nn.MultiheadAttention", "embed_dim=8, num_heads=2, dtype='bfloat16'", "bfloat16[2, 8]", set()),
)

conditions_strategy = st.builds(
    lambda precision, bf16, fp16, accumulation, execution, other: replace(
        SIMULATED_CONDITIONS,
        precision=precision,
        matmul_tf32=SWITCHES.get(precision, (False, True))[0],
        cudnn_tf32=SWITCHES.get(precision, (False, True))[1],
        matmul_bf16_reduction=bf16,
        matmul_fp16_reduction=fp16,
        matmul_fp16_accumulation=accumulation,
        execution=execution,
        other_switches=other,
    ),
    st.sampled_from(["torch-default", "fp32", "tf32", "bf16", "fp16", "amp-bf16"]),
    *(st.sampled_from([None, value]) for value in (False, False, True)),
    st.sampled_from(["graph", "eager"]),
    st.sampled_from([None, None, None, "torch.backends.cudnn.enabled = False"]),
)


def differing(one: Conditions, other: Conditions) -> set[str]:
    return {field.name for field in fields(Conditions) if getattr(one, field.name) != getattr(other, field.name)}


def may_stand_for(declared: Declared, measured: Conditions, wanted: Conditions) -> bool:
    is_under_autocast = "amp-bf16" in (measured.precision, wanted.precision)
    return differing(measured, wanted) <= (set() if is_under_autocast else declared.may_differ)


def counts(operators: list[OperatorTuple]) -> OperatorCounts:
    model = model_operator("resnet18", None, (1, 3, 32, 32))
    found = tuple(OperatorCount(operator, 1, 1, 1) for operator in operators)
    return OperatorCounts(model, found, 9, total_memory_bytes=9, parameters=1, torch_version="2.11", device_type="cuda")


@given(conditions_strategy, st.lists(st.tuples(st.sampled_from(OPERATORS), conditions_strategy), max_size=30))
def test_random_rows_never_mix_except_where_they_stand_for_each_other(
    wanted: Conditions, measured: list[tuple[Declared, Conditions]]
) -> None:
    # Times of powers of two: the sum shows which rows it consists of.
    rows = [declared_row(one.operator, under, time_s=2.0**number) for number, (one, under) in enumerate(measured)]
    cost = sum_operators(counts([one.operator for one in OPERATORS]), Measurements(rows), wanted)
    for part in cost.parts:
        (one,) = (one for one in OPERATORS if one.operator == part.case.operator)
        assert part.row.key.startswith(one.operator.key)
        assert may_stand_for(one, part.row.conditions, wanted)
        if any(under == wanted for other, under in measured if other == one):
            assert part.row.conditions == wanted
    has_row = {one.operator for one, under in measured if may_stand_for(one, under, wanted)}
    assert {count.operator for count in cost.summed} == has_row
    total_s = sum(part.row.measurement.time_s for part in cost.parts)
    assert (cost.time_s.value if cost.time_s else 0) == total_s


# Rows that were measured


@cache
def rows_and_models() -> tuple[list[MeasurementRow], list[OperatorCounts]]:
    """Return the rows of H200s that were measured in several precisions, and the models that they are of."""
    found = committed()
    rows = [
        row
        for row in found.operator_measurements.rows()
        if row.conditions.precision in IN_PRECISIONS and row.conditions.device_product == "NVIDIA H200"
    ]
    names = re.compile("(resnet50|vit_b_16|swin_t|convnext_tiny|densenet121|efficientnet_b0)_32x3x224x224")
    keys = {row.model_key for row in found.model_operators.rows() if names.match(row.model)}
    return rows, [one.counts for one in counts_in(found.model_operators, keys.__contains__).values()]


@cache
def mixed_parts(seed: int) -> list[tuple[MeasurementRow, Conditions]]:
    """Return the parts under other conditions in the sums of all models, of some rows under some conditions."""
    rows, models = rows_and_models()
    drawn = random.Random(seed)
    measurements = Measurements(drawn.sample(rows, drawn.randint(1, len(rows))))
    conditions = drawn.choice(rows).conditions
    parts = (part for model in models for part in sum_operators(model, measurements, conditions).parts)
    return [(part.row, conditions) for part in parts if part.row.conditions != conditions]


@pytest.mark.parametrize("seed", range(20))
def test_random_subsets_of_committed_rows_never_mix(seed: int) -> None:
    for row, conditions in mixed_parts(seed):
        assert differing(row.conditions, conditions) <= TF32
        assert "amp-bf16" not in (conditions.precision, row.conditions.precision)
        assert row.operator.startswith("torch.")
        assert "Attention" not in row.operator
        assert "float32" not in row.inputs
        # Modules without named weights have float32.
        assert row.training_mode is None or "float" in row.parameters + row.inputs


def test_committed_rows_in_bf16_stand_for_those_at_other_settings_of_tf32() -> None:
    found = {(row.operator, under.precision) for seed in range(20) for row, under in mixed_parts(seed)}
    assert {("torch.nn.Linear", "tf32"), ("torch.nn.LayerNorm", "fp32")} <= found
