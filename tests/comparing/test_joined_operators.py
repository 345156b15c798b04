"""Calls under two conditions: only calls of the same operator, parameters and sizes match, each with at most one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_machine import Load, simulated_row

from opcost.comparing.conditions_side_by_side import Calls, Pair, Standing, matched, sides_of
from opcost.operators.tuples import Constant, OperatorTuple, PlainValue, TensorSpec, channels_last_strides, tensor_specs
from opcost.summing.energy import EnergyBasis

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
            costs = sides_of([Pair(one, None) for one in known], EnergyBasis.MEASURED, samples=2)
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
