"""A model under two conditions: what is saved with its error, what costs more, and remarks."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_machine import SIMULATED_CONDITIONS, Load, declared_row, simulated_row

from opcost.comparing.comparison import Remark, RemarkKind
from opcost.comparing.conditions_side_by_side import (
    Calls,
    Pair,
    SideBySide,
    Standing,
    calls_of,
    matched,
    side_by_side,
    sides_of,
)
from opcost.comparing.model_result import ModelResult
from opcost.measuring.conditions import Conditions
from opcost.measuring.flags import Flag
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import ChosenConditions
from opcost.operators.counts import Case, OperatorCount, OperatorCounts, Selection
from opcost.operators.model_inputs import Units
from opcost.operators.tuples import (
    Constant,
    OperatorTuple,
    Phase,
    PlainValue,
    TensorSpec,
    channels_last_strides,
    model_operator,
    tensor_specs,
)
from opcost.summing.summation import NOTHING_SUMMED, EnergyBasis, Measurements, Part, sum_operators

BF16 = replace(SIMULATED_CONDITIONS, precision="bf16")
FP32 = replace(SIMULATED_CONDITIONS, precision="fp32")


def operator(name: str, dtype: str) -> OperatorTuple:
    return OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((8, 4), dtype),))


CONVOLUTION, NORM = operator("Conv2d", "bfloat16"), operator("BatchNorm2d", "bfloat16")
FULL_CONVOLUTION, FULL_NORM = operator("Conv2d", "float32"), operator("BatchNorm2d", "float32")
CAST = OperatorTuple("torch.Tensor.to", inputs=(TensorSpec((8, 4), "float32"),), mode=None)
MODEL = model_operator("resnet18", None, (8, 4))


def row_of(
    of: OperatorTuple, time_s: float, energy_j: float | None, conditions: Conditions, **changes: object
) -> MeasurementRow:
    """Return a row with a standard error of 1 % of both figures."""
    circumstances = {"device_uuid": changes.pop("device_uuid")} if "device_uuid" in changes else {}
    figures = {
        "time_s": time_s,
        "time_standard_error_s": 0.01 * time_s,
        "energy_j": energy_j,
        "energy_standard_error_j": None if energy_j is None else 0.01 * energy_j,
    }
    return declared_row(of, conditions, circumstances=circumstances, **figures, **changes)


def side(
    conditions: Conditions,
    calls: Mapping[OperatorTuple, int],
    rows: list[MeasurementRow],
    whole: MeasurementRow | None = None,
) -> ModelResult:
    counts = OperatorCounts(
        MODEL, tuple(OperatorCount(one, number, 1, 1) for one, number in calls.items()), 9, 9, 1, "2.11.0", "cuda"
    )
    cost = sum_operators(counts, Measurements(rows), conditions)
    return ModelResult(
        conditions, whole, cost, Selection(counts, replace(counts, counts=())), input_size=(8, 4), units=Units(8)
    )


THESE = {CONVOLUTION: 3, NORM: 2, CAST: 1}
OTHERS = {FULL_CONVOLUTION: 3, FULL_NORM: 2}
ROWS = [row_of(CONVOLUTION, 0.001, 0.1, BF16), row_of(NORM, 0.001, 0.3, BF16), row_of(CAST, 0.002, 0.5, BF16)]
OTHER_ROWS = [row_of(FULL_CONVOLUTION, 0.004, 1.0, FP32), row_of(FULL_NORM, 0.001, 0.2, FP32)]
WHOLE, OTHER_WHOLE = row_of(MODEL, 0.01, 2.0, BF16), row_of(MODEL, 0.02, 5.0, FP32)


def found(
    rows: list[MeasurementRow] = ROWS,
    other_rows: list[MeasurementRow] = OTHER_ROWS,
    whole: MeasurementRow | None = WHOLE,
    other_whole: MeasurementRow | None = OTHER_WHOLE,
    limit_w: float | None = None,
) -> SideBySide:
    these, others = side(BF16, THESE, rows, whole), side(FP32, OTHERS, other_rows, other_whole)
    if limit_w is not None:
        these = replace(these, conditions=replace(BF16, device_power_limit_w=limit_w))
    return side_by_side((these, others), (ChosenConditions("bf16"), ChosenConditions("fp32")))


# What is saved


def test_the_whole_is_saved_in_joules_as_a_share_and_per_sample() -> None:
    whole = found().whole
    assert (whole.time_s, whole.other_time_s, whole.energy_j, whole.other_energy_j) == (0.01, 0.02, 2.0, 5.0)
    assert (whole.power_w, whole.other_power_w) == (200.0, 250.0)
    assert whole.saved_energy_j == 3.0
    assert whole.saved_energy_ratio == 0.6
    assert whole.saved_energy_per_sample_j == 3.0 / 8
    assert whole.saved_energy_standard_error_j == pytest.approx(math.hypot(0.02, 0.05))
    assert whole.saved_time_ratio == 0.5


def test_operators_that_cost_more_come_first_the_largest_first_and_calls_of_one_side_are_a_kind_of_their_own() -> None:
    report = found()
    shown = [(kind.operator, kind.standing, kind.costs.saved_energy_j, kind.costs.costs_more) for kind in report.kinds]
    assert shown == [
        ("to", "only these", -0.5, True),
        ("BatchNorm2d", "both", pytest.approx(-0.2), True),
        ("Conv2d", "both", pytest.approx(2.7), False),
    ]
    assert [one.operator for one in report.operators] == ["torch.Tensor.to", "torch.nn.BatchNorm2d", "torch.nn.Conv2d"]
    assert report.kinds[0].costs.other_energy_j == 0
    assert report.kinds[0].costs.saved_energy_ratio is None
    assert report.operators[0].other_key is None


def test_calls_of_one_row_share_its_error_and_a_row_of_both_sides_saves_exactly_nothing() -> None:
    row = row_of(NORM, 0.001, 0.3, BF16)
    calls = [Calls(NORM, 2, row), Calls(NORM, 3, row)]
    alone = sides_of([Pair(one, None) for one in calls], EnergyBasis.MEASURED, 1)
    assert alone.saved_energy_standard_error_j == pytest.approx(5 * 0.003)
    same = sides_of([Pair(one, one) for one in calls], EnergyBasis.MEASURED, 1)
    assert (same.saved_energy_j, same.saved_energy_standard_error_j, same.costs_more) == (0.0, 0.0, False)


def test_a_difference_within_its_interval_is_not_more() -> None:
    def more(ratio: float) -> bool:
        pair = Pair(Calls(NORM, 1, row_of(NORM, 0.001, 0.3 * ratio, BF16)), Calls(NORM, 1, other))
        return sides_of([pair], EnergyBasis.MEASURED, 1).costs_more

    other = row_of(NORM, 0.001, 0.3, FP32)
    assert not more(1.027)
    assert more(1.029)


def test_without_energies_times_decide() -> None:
    report = found(rows=[row_of(CONVOLUTION, 0.005, None, BF16), *ROWS[1:]])
    costs = {kind.operator: kind.costs for kind in report.kinds}
    assert costs["Conv2d"].saved_energy_j is None
    assert costs["Conv2d"].costs_more_energy is None
    assert costs["Conv2d"].costs_more
    assert (report.sum.energy_j, report.sum.saved_energy_per_sample_j) == (None, None)


def test_energies_of_both_sides_are_normalised_only_if_all_can_be() -> None:
    def normalised(row: MeasurementRow, celsius: float) -> MeasurementRow:
        known = {"energy_at_reference_j": 1.0, "energy_at_reference_standard_error_j": 0.0, "temperature_c": celsius}
        return replace(row, measurement=replace(row.measurement, **known))

    ours, theirs = [normalised(row, 60.0) for row in ROWS], [normalised(row, 50.0) for row in OTHER_ROWS]
    whole, other = normalised(WHOLE, 60.0), normalised(OTHER_WHOLE, 60.0)
    report = found(ours, theirs, whole, other)
    assert report.reference_temperature_c == 50.0
    assert report.whole.saved_energy_j == 0.0
    # The errors of both wholes at the same temperature cancel; those of measured energies do not.
    assert report.whole.saved_energy_standard_error_j == pytest.approx(math.hypot(0.02, 0.05))
    (cast,) = [one.costs for one in report.kinds if one.operator == "to"]
    # One of these calls: 10 K at 0.1 % (board) and 0.15 % (operator) per kelvin.
    assert cast.saved_energy_standard_error_j == pytest.approx(math.hypot(0.005, 0.01, 0.015))
    assert found(ours, OTHER_ROWS, whole, other).reference_temperature_c is None


# What is not measured


def test_calls_without_a_row_are_in_no_total_and_named() -> None:
    report = found(rows=ROWS[1:])
    assert report.sum.calls == report.sum.other_calls + 1 == 3
    assert report.sum.other_energy_j == pytest.approx(0.4)
    (left_out,) = [kind for kind in report.kinds if kind.standing == "not measured"]
    assert (left_out.operator, left_out.costs.energy_j, left_out.costs.other_energy_j) == ("Conv2d", None, 3.0)
    assert left_out.costs.saved_energy_j is None
    (remark,) = report.remarks
    assert (remark.kind, remark.figures) == (RemarkKind.NOT_MEASURED, {"calls": 3, "operators": ("Conv2d",)})
    assert report.operators[-1].standing == "not measured"


def test_without_any_row_there_is_no_total_and_a_whole_of_one_side_alone_is_not_compared() -> None:
    assert found(rows=[], other_rows=[]).sum is None
    report = found(whole=None)
    assert report.whole is None
    assert report.remarks == (Remark(RemarkKind.WHOLE_NOT_MEASURED, {"conditions": "bf16"}),)


# Remarks


def test_operators_of_two_boards_are_a_remark_with_their_share_of_the_time() -> None:
    apart = [OTHER_ROWS[0], row_of(FULL_NORM, 0.001, 0.2, FP32, device_uuid="another")]
    (remark,) = found(other_rows=apart).remarks
    # Two calls of 1 ms on each side, of 3 x (1 + 4) + 2 x (1 + 1) ms.
    assert remark == Remark(RemarkKind.OPERATORS_OF_TWO_BOARDS, {"time_ratio": pytest.approx(4 / 19)})


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, []),
        ({"other_whole": row_of(MODEL, 0.02, 5.0, FP32, device_uuid="another")}, [RemarkKind.WHOLES_OF_TWO_BOARDS]),
        ({"whole": row_of(MODEL, 0.01, 2.0, BF16, executed_as="graph")}, [RemarkKind.TWO_EXECUTIONS]),
        ({"other_whole": row_of(MODEL, 0.02, 5.0, FP32, power_capped_ratio=0.5)}, [RemarkKind.THROTTLED]),
    ],
)
def test_what_differs_between_both_sides_is_a_remark(changes: dict[str, MeasurementRow], kinds: list) -> None:
    assert [remark.kind for remark in found(**changes).remarks] == kinds


@pytest.mark.parametrize(
    ("flag", "kind"), [(Flag.UNEVEN, RemarkKind.FLAGGED_OPERATORS), (Flag.NOT_AS_COUNTED, RemarkKind.OTHER_WORK)]
)
def test_flags_are_remarks_with_their_conditions(flag: Flag, kind: RemarkKind) -> None:
    rows = [row_of(CONVOLUTION, 0.001, 0.1, BF16, flags=(flag,)), *ROWS[1:]]
    (remark,) = found(rows=rows).remarks
    figures = {"time_ratio": pytest.approx(3 / 7), "operator": CONVOLUTION.operator, "flags": (flag.value,)}
    assert remark == Remark(kind, {"conditions": "bf16", **figures})
    assert str(remark).startswith("in bf16: ")
    (remark,) = found(whole=row_of(MODEL, 0.01, 2.0, BF16, flags=(Flag.UNEVEN,))).remarks
    assert remark == Remark(RemarkKind.FLAGGED_WHOLE, {"conditions": "bf16", "flags": (Flag.UNEVEN.value,)})


def test_a_sum_above_the_power_limit_is_a_remark() -> None:
    (remark,) = found(limit_w=0.9 * found().sum.power_w).remarks
    assert remark.kind is RemarkKind.ABOVE_LIMIT


# Calls under two conditions: only calls of the same operator, parameters and sizes match, each with at most one


ROW = simulated_row(OperatorTuple("torch.nn.ReLU", inputs=(TensorSpec((4,), "float32"),)), Load())

FLOATING = ("float32", "bfloat16")
SHAPES = st.sampled_from([(2, 3, 4, 4), (2, 3, 4, 8), (2, 3)])


@st.composite
def tensors(draw: st.DrawFn) -> TensorSpec:
    shape, dtype = draw(SHAPES), draw(st.sampled_from([*FLOATING, "int64"]))
    return TensorSpec(shape, dtype, draw(st.sampled_from([None, channels_last_strides(shape)])))


@st.composite
def operators(draw: st.DrawFn) -> OperatorTuple:
    if draw(st.booleans()):
        given = [("kernel_size", draw(st.sampled_from([1, 3])))]
        given += draw(st.sampled_from([[], [("dtype", "bfloat16")], [("memory_format", "channels_last")]]))
        name = draw(st.sampled_from(["torch.nn.Conv2d", "torch.nn.MaxPool2d"]))
        return OperatorTuple(name, tuple(given), (draw(tensors()),))
    cast = draw(st.sampled_from([(), (Constant("torch.float32"),), (Constant("torch.bfloat16"),), (1,)]))
    second = draw(st.sampled_from([(), (TensorSpec((2, 3), "float32", identity=1),)]))
    return OperatorTuple("torch.Tensor.to", inputs=(draw(tensors()), *second, *cast), mode=None)


@st.composite
def calls(draw: st.DrawFn) -> list[Calls]:
    """The calls of a run, some of which are not measured, each operator with costs of its own."""
    found = []
    for operator in draw(st.lists(operators(), max_size=8, unique_by=str)):
        costs = draw(st.none() | st.tuples(st.integers(1, 50), st.integers(1, 50)))
        row = None
        if costs is not None:
            measurement = replace(
                ROW.measurement, time_s=1e-3 * costs[0], energy_j=float(costs[1]), energy_standard_error_j=0.1
            )
            row = replace(ROW, key=f"{operator.key}-{costs}", measurement=measurement)
        found.append(Calls(operator, draw(st.integers(1, 5)), row))
    return found


def numbers(found: list[Calls]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for one in found:
        counted[str(one.operator)] += one.number
    return counted


def identity(operator: OperatorTuple) -> object:
    """Return all of an operator that no conditions may change, by rules of this test's own."""
    parameters = [(name, value) for name, value in operator.parameters if name not in ("dtype", "memory_format")]

    def fixed(value: PlainValue) -> object:
        if isinstance(value, TensorSpec):
            return value.shape, value.dtype if value.dtype not in FLOATING else "any"
        return "any" if isinstance(value, Constant) else value

    return operator.operator, operator.mode, parameters, [fixed(value) for value in operator.inputs]


def sides(pairs: list[Pair]) -> tuple[list[Calls], list[Calls]]:
    return [pair.these for pair in pairs if pair.these], [pair.others for pair in pairs if pair.others]


@given(calls(), calls())
def test_operators_with_other_parameters_or_sizes_are_never_paired(these: list[Calls], others: list[Calls]) -> None:
    for pair in matched(these, others):
        if pair.these is not None and pair.others is not None:
            assert identity(pair.these.operator) == identity(pair.others.operator)
            assert pair.these.number == pair.others.number > 0


@given(calls(), calls())
def test_each_call_is_in_one_pair_and_none_is_left_alone_without_need(these: list[Calls], others: list[Calls]) -> None:
    pairs = list(matched(these, others))
    ours, theirs = sides(pairs)
    assert (numbers(ours), numbers(theirs)) == (numbers(these), numbers(others))
    alone = [[str(identity(one.operator)) for one in side] for side in sides([p for p in pairs if not all_of(p)])]
    assert set(alone[0]).isdisjoint(alone[1])


def all_of(pair: Pair) -> bool:
    return pair.these is not None and pair.others is not None


@given(calls(), calls())
def test_pairs_and_unpaired_calls_sum_to_the_totals_of_both_runs(these: list[Calls], others: list[Calls]) -> None:
    pairs = list(matched(these, others))
    for index, run in enumerate((these, others)):
        total_s = sum(one.number * one.row.measurement.time_s for one in run if one.row is not None)
        total_j = sum(one.number * (one.row.measurement.energy_j or 0.0) for one in run if one.row is not None)
        found_s, found_j = [], []
        for standing in Standing:
            of_standing = [pair for pair in pairs if pair.standing is standing]
            known = [one for one in sides(of_standing)[index] if one.row is not None]
            costs = sides_of([Pair(one, None) for one in known], EnergyBasis.MEASURED, units=2)
            found_s.append(costs.time_s or 0.0)
            found_j.append(costs.energy_j or 0.0)
        assert sum(found_s) == pytest.approx(total_s)
        assert sum(found_j) == pytest.approx(total_j)


def test_the_nth_call_is_paired_with_the_nth() -> None:
    plain = OperatorTuple("torch.nn.LayerNorm", inputs=(TensorSpec((2, 3, 4, 4), "bfloat16"),))
    strided = replace(plain, inputs=(TensorSpec((2, 3, 4, 4), "bfloat16", (1, 2, 3, 4)),))
    usual = replace(plain, inputs=(TensorSpec((2, 3, 4, 4), "float32"),))
    pairs = list(
        matched([Calls(strided, 1, None), Calls(plain, 4, None)], [Calls(usual, 3, None), Calls(strided, 1, None)])
    )
    found = [(p.these and (p.these.operator, p.these.number), p.others and p.others.operator) for p in pairs]
    assert found == [((strided, 1), usual), ((plain, 2), usual), ((plain, 1), strided), ((plain, 1), None)]


def test_a_cast_of_one_run_alone_stands_alone() -> None:
    cast = OperatorTuple(
        "torch.Tensor.to", inputs=(TensorSpec((2, 3), "float32"), Constant("torch.bfloat16")), mode=None
    )
    relu = OperatorTuple("torch.nn.ReLU", inputs=(TensorSpec((2, 3), "float32"),))
    half = replace(relu, inputs=(TensorSpec((2, 3), "bfloat16"),))
    pairs = list(matched([Calls(cast, 1, ROW), Calls(half, 2, ROW)], [Calls(relu, 2, ROW)]))
    assert [(pair.standing, pair.operator) for pair in pairs] == [(Standing.THESE_ONLY, cast), (Standing.BOTH, half)]


def test_tensors_that_are_passed_twice_match_only_such() -> None:
    once = OperatorTuple("torch.add", inputs=(TensorSpec((2,), "float32"), TensorSpec((2,), "float32", identity=1)))
    twice = replace(once, inputs=(TensorSpec((2,), "float32"), TensorSpec((2,), "float32")))
    assert len(tensor_specs(twice.inputs)) == 2
    assert [pair.standing for pair in matched([Calls(once, 1, ROW)], [Calls(twice, 1, ROW)])] == [
        Standing.THESE_ONLY,
        Standing.OTHERS_ONLY,
    ]


def test_each_phase_of_a_run_has_the_calls_of_its_own_rows() -> None:
    forward, backward = (OperatorCount(CAST, 1, 1, 1, phase=phase) for phase in (Phase.FORWARD, Phase.BACKWARD))
    rows = [row_of(CAST, time_s, 0.5, BF16) for time_s in (0.001, 0.002)]
    parts = tuple(
        Part(one, Case(CAST, phase=one.phase), 1, row, EnergyBasis.MEASURED)
        for one, row in zip((forward, backward), rows, strict=True)
    )
    counts = OperatorCounts(MODEL, (forward, backward), 9, 9, 1, "2.11.0", "cuda")
    selection = Selection(counts, replace(counts, counts=()))
    found = calls_of(ModelResult(BF16, None, replace(NOTHING_SUMMED, parts=parts), selection))
    assert [calls.row for calls in found] == rows
