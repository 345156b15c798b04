"""Rows of several conditions never mix in a sum, except those of operators that the difference cannot touch."""

import random
import re
from dataclasses import dataclass, fields, replace
from functools import cache

import pytest
from committed_tables import committed
from hypothesis import given
from hypothesis import strategies as st
from simulated_machine import SIMULATED_CONDITIONS, declared_row

from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import OperatorTuple, model_operator
from opcost.running.shipped_counts import counts_in
from opcost.summing.summation import Measurements, sum_operators

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
