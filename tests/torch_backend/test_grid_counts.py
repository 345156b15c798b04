"""Counts of grids: the tuples are those that models have, and combinations that torch refuses are left out."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from opcost.operators.counts import Case, OperatorCounts, cases_of
from opcost.operators.grids import Grid, GridTensor, TupleList
from opcost.operators.texts import parse_tuple
from opcost.operators.tuples import META
from opcost.torch_backend.alone import count_grid
from opcost.torch_backend.capture import capture
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.workload import operator_call

CONV = Grid(
    operator="torch.nn.Conv2d",
    inputs=(GridTensor((2, "in_channels", 8, 8)),),
    parameters=(
        ("out_channels", (16,)),
        ("in_channels", (8,)),
        ("kernel_size", ((3, 3),)),
        ("bias", (False,)),
        ("stride", (1,)),
    ),
)
LINEAR = Grid(
    operator="torch.nn.functional.linear",
    inputs=(GridTensor((8, 64)), GridTensor((32, 64))),
    input_zeros=(0.0, 0.5),
    weight_zeros=(0.0, 0.9),
)


def texts(counts: OperatorCounts) -> list[str]:
    return [str(case.input_data) for case in cases_of(counts.counts, "captured")]


def refusals(grid: Grid) -> list[str]:
    counts, refused = count_grid(grid, "cpu")
    assert counts.counts == ()
    return refused


def test_a_tuple_of_a_grid_is_that_of_a_model() -> None:
    model = nn.Sequential(nn.Conv2d(8, 16, 3, bias=False)).eval()
    of_model = capture(ReadyModel(model, (torch.randn(2, 8, 8, 8),)), CONV.model)
    counts, refused = count_grid(CONV, "cpu")
    assert refused == []
    assert cases_of(counts.counts, "captured") == cases_of(of_model.counts, "captured")
    (own,), (other,) = counts.counts, of_model.counts
    assert (own.flop, own.memory_bytes, own.operations) == (other.flop, other.memory_bytes, other.operations)
    assert (counts.total_flop, counts.total_memory_bytes) == (own.flop, own.memory_bytes)
    assert (counts.model, counts.parameters, counts.device_type, counts.outside) == (CONV.model, 0, "cpu", ())


def test_a_function_is_counted_as_in_a_model() -> None:
    grid = Grid("torch.nn.functional.softmax", (GridTensor((4, 8)),), (("dim", (-1,)),))
    counts, _ = count_grid(grid, "cpu")
    assert [str(one.operator) for one in counts.counts] == ["torch.nn.functional.softmax on (float32[4, 8], dim=-1)"]


def test_each_kind_of_values_is_a_call_of_one_tuple() -> None:
    grid = replace(CONV, input_zeros=(0.0, 0.5, 1.0), weight_zeros=(0.0, 0.9))
    counts, _ = count_grid(grid, "cpu")
    (count,) = counts.counts
    assert count.occurrences == 6
    assert texts(counts) == [
        "normal",
        "captured: normal; weights 0.9 zeros",
        "captured: 0.5 zeros",
        "captured: 0.5 zeros; weights 0.9 zeros",
        "zeros",
        "captured: zeros; weights 0.9 zeros",
    ]
    assert counts.total_flop == 6 * (count.flop or 0)


def test_weights_among_a_functions_arguments_have_zeros_of_their_own() -> None:
    counts, _ = count_grid(LINEAR, "cpu")
    assert texts(counts) == [
        "normal",
        "captured: normal; weights 0.9 zeros",
        "captured: 0.5 zeros, normal",
        "captured: 0.5 zeros, normal; weights 0.9 zeros",
    ]
    *_, last = cases_of(counts.counts, "captured")
    _, (value, weights), _ = operator_call(last.operator, "cpu", last.input_data)
    assert isinstance(value, torch.Tensor)
    assert isinstance(weights, torch.Tensor)
    shares = [float((one == 0).float().mean()) for one in (value, weights)]
    assert shares == pytest.approx([0.5, 0.9], abs=0.1)


def test_dtypes_are_those_of_weights_and_inputs_and_integers_keep_theirs() -> None:
    counts, _ = count_grid(replace(CONV, dtypes=("float32", "bfloat16")), "cpu")
    assert [one.operator.inputs_text for one in counts.counts] == ["float32[2, 8, 8, 8]", "bfloat16[2, 8, 8, 8]"]
    assert dict(counts.counts[1].operator.parameters)["dtype"] == "bfloat16"
    parameters = (("num_embeddings", (100,)), ("embedding_dim", (16,)))
    grid = Grid("torch.nn.Embedding", (GridTensor((2, 3), "int64"),), parameters, dtypes=("float16",))
    counts, refused = count_grid(grid, "cpu")
    assert refused == []
    assert [one.operator.inputs_text for one in counts.counts] == ["int64[2, 3]"]


def test_shapes_alone_give_the_same_counts() -> None:
    grid = replace(CONV, input_zeros=(0.0, 0.5), weight_zeros=(0.0, 0.9))
    (on_cpu, _), (on_meta, _) = count_grid(grid, "cpu"), count_grid(grid, META)
    assert on_meta == replace(on_cpu, device_type=META)
    assert on_meta.has_values


def test_parameters_without_effect_give_one_case() -> None:
    parameters = (("num_features", (8,)), ("momentum", (0.1, 0.2)))
    counts, refused = count_grid(Grid("torch.nn.BatchNorm2d", (GridTensor((2, 8, 4, 4)),), parameters), "cpu")
    assert (len(counts.counts), refused) == (1, [])
    assert cases_of(counts.counts, "captured") == {Case(counts.counts[0].operator): 1}


def test_refused_combinations_are_left_out_with_the_reason() -> None:
    grid = replace(CONV, parameters=(*CONV.parameters, ("groups", (1, 3, 8))), dtypes=("float32", "bfloat16"))
    counts, (refusal,) = count_grid(grid, "cpu")
    assert [dict(one.operator.parameters).get("groups", 1) for one in counts.counts] == [1, 1, 8, 8]
    assert re.fullmatch(r"2 combinations left out \(.*divisible by groups.*\), such as .*groups=3.*", refusal)


@pytest.mark.parametrize(
    ("grid", "reason"),
    [
        (replace(CONV, inputs=(GridTensor((2, 4, 8, 8)),)), "to have 8 channels"),
        (replace(CONV, parameters=CONV.parameters[1:]), "out_channels"),
        (replace(CONV, parameters=(*CONV.parameters, ("colour", (1,)))), "colour"),
        (replace(CONV, inputs=()), "input"),
        (Grid("torch.nn.ReLU", (GridTensor((8,)),), weight_zeros=(0.5,)), "no weights"),
        (Grid("torch.nn.functional.relu", (GridTensor((8,)),), weight_zeros=(0.5,)), "no weights"),
        (Grid("torch.isnan", (GridTensor((8,), "int64"),), input_zeros=(0.5,)), "no floating-point input"),
        (Grid("torch.reshape", (GridTensor((8,)),), (("shape", ((2, 4),)),)), "no operation"),
        (
            Grid("torchvision.ops.Conv2dNormActivation", CONV.inputs, CONV.parameters[:2]),
            r"more than one operator.*BatchNorm2d",
        ),
        (Grid("torch.nn.Conv2dd", (GridTensor((8,)),)), "no module class"),
        (Grid("torch.os.getcwd", (GridTensor((8,)),)), "not in this version"),
    ],
)
def test_an_operator_that_torch_does_not_run_has_no_tuple(grid: Grid, reason: str) -> None:
    (refusal,) = refusals(grid)
    assert re.fullmatch(rf"1 combination left out \(.*{reason}.*\), such as .*", refusal), refusal


LISTED = (
    "torch.nn.Conv2d(in_channels=8, out_channels=16, kernel_size=3, dtype='bfloat16', memory_format='channels_last') "
    "on (bfloat16[2, 8, 9, 9]:channels_last) eval",
    "torch.nn.BatchNorm2d(num_features=8) on (float32[2, 8, 9, 9]) eval",
    "torch.nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True) on (float32[2, 5, 8]#0, "
    "float32[2, 5, 8]#0, float32[2, 5, 8]#0, need_weights=False) eval",
    "torch.Tensor.add on (float32[8, 64], float32[8, 64]:strides(1, 8))",
    "torch.Tensor.__getitem__ on (float32[8, 64], (slice(start=None, stop=4, step=None), int64[5]))",
    "torch.nn.functional.softmax on (float32[8, 64], dim=-1)",
    "torch.cat on ((float32[8, 64], float32[8, 32]), 1)",
)


@pytest.mark.parametrize("device", ["cpu", META])
@pytest.mark.parametrize("text", LISTED)
def test_a_listed_tuple_is_counted_as_it_is_on_normal_values(text: str, device: str) -> None:
    asked = parse_tuple(text)
    counts, refused = count_grid(TupleList((asked,)), device)
    assert refused == []
    (count,) = counts.counts
    assert (str(count.operator), count.occurrences, texts(counts)) == (text, 1, ["normal"])
    assert counts.model == TupleList((asked,)).model
    assert counts.has_values


def test_tuples_that_torch_refuses_are_left_out_with_the_reason() -> None:
    good, wrong, no_module, two = map(
        parse_tuple,
        (
            "torch.nn.ReLU() on (float32[8]) eval",
            "torch.nn.Conv2d(in_channels=8, out_channels=16, kernel_size=3) on (float32[2, 9, 8, 8]) eval",
            "torch.nn.ReLU on (float32[8])",
            "torchvision.ops.SqueezeExcitation(input_channels=8, squeeze_channels=2) on (float32[2, 8, 4, 4]) eval",
        ),
    )
    counts, refused = count_grid(TupleList((good, wrong, no_module, two)), "cpu")
    assert [count.operator for count in counts.counts] == [good]
    assert [line.rpartition(", such as ")[2] for line in refused] == [
        str(one).removesuffix(" eval") for one in (wrong, no_module, two)
    ]
    assert all(line.startswith("1 operator tuple left out (") for line in refused)
    assert refused[0].startswith("1 operator tuple left out (RuntimeError: ")
