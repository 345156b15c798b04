"""Counting a model's operators: what is an operator, how often it is called, and what it costs."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
import torchvision
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import flop_registry, register_flop_formula
from torchvision.models import get_model

from opcost.errors import CannotBuildError, CannotMeasureError, DescriptionError
from opcost.operators.counts import OperationWithoutFormula, OperatorCount, OperatorCounts
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import OperatorTuple, Structure, TensorSpec, model_operator
from opcost.operators.values import CONSTANT, NORMAL, InputStatistics, InputValues, kind_of
from opcost.sources.models import resolve
from opcost.storage.database import Database
from opcost.torch_backend.alone import difference
from opcost.torch_backend.capture import capture, run_first, steady
from opcost.torch_backend.cost_counter import CostCounter, OperationCost, total
from opcost.torch_backend.operators import can_be_rebuilt, function_name
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.switches import autocast
from opcost.torch_backend.workload import operator_workload
from tests.small_model import SmallModel, of_class

ROOT = Path(__file__).parents[2]
MODEL = model_operator("resnet18", None, (2, 3, 8, 8))


def counts_of(model: nn.Module, *inputs: torch.Tensor, composites: Collection[str] = ()) -> OperatorCounts:
    return capture(ReadyModel(model.eval(), inputs), MODEL, composites)


def only(counts: OperatorCounts) -> OperatorCount:
    (count,) = counts.counts
    return count


def function_texts(counts: OperatorCounts) -> list[str]:
    return [str(count.operator) for count in counts.counts if count.operator.is_function]


def occurrences(counts: OperatorCounts) -> dict[str, int]:
    return {
        f"{count.operator.short_name}({count.operator.parameters_text})": count.occurrences for count in counts.counts
    }


class Thrice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = self.relu(self.linear(x))
        return x


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def run_fails(self: Any, x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("this leaf always fails")


class Forgetful(nn.Module):
    """Keeps neither of its arguments, only weights of that size."""

    def __init__(self, width: int, gain: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((width,), gain))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


# Occurrences


def test_a_module_that_is_called_three_times_counts_three_times() -> None:
    counts = counts_of(Thrice(), torch.randn(2, 4))
    assert occurrences(counts) == {"Linear(in_features=4, out_features=4)": 3, "ReLU(inplace=True)": 3}
    assert counts.operator_calls == 6
    assert counts.flop == 3 * 2 * 2 * 4 * 4


def test_leaves_are_found_however_deep_and_those_of_one_kind_are_one_tuple() -> None:
    model = nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(4, 3)), nn.GELU()), nn.Sequential(nn.Linear(3, 2)))
    counts = counts_of(model, torch.randn(2, 4))
    assert [count.operator.short_name for count in counts.counts] == ["Linear", "GELU", "Linear"]
    assert only(counts_of(nn.Linear(4, 3), torch.randn(2, 4))).operator.operator == "torch.nn.Linear"
    counts = counts_of(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), torch.randn(2, 4))
    assert only(counts).occurrences == 2


def test_one_module_with_two_input_sizes_is_two_tuples() -> None:
    counts = counts_of(
        SmallModel(lambda self, x: (self.linear(x)[:1], self.linear(x[:1])), linear=nn.Linear(4, 4)), torch.randn(3, 4)
    )
    assert [count.operator.inputs for count in counts.counts] == [
        (TensorSpec((3, 4), "float32"),),
        (TensorSpec((1, 4), "float32"),),
    ]


def test_models_with_the_same_layer_and_other_weights_have_equal_tuples() -> None:
    first, second = nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 4)
    with torch.no_grad():
        second.weight.zero_()
    one, other = (only(counts_of(model, torch.randn(2, 4))).operator for model in (first, second))
    assert one == other
    assert one.key == other.key


def test_keyword_arguments_are_inputs_too() -> None:
    count = only(counts_of(SmallModel(lambda self, x: self.linear(input=x), linear=nn.Linear(4, 3)), torch.randn(2, 4)))
    assert count.operator.inputs == ()
    assert count.operator.keyword_inputs == (("input", TensorSpec((2, 4), "float32")),)
    assert count.flop == 2 * 2 * 4 * 3


def test_the_mode_is_part_of_the_tuple() -> None:
    norm = nn.BatchNorm1d(4)
    modes = [
        only(capture(ReadyModel(norm.train(train), (torch.randn(2, 4),)), MODEL)).operator.mode
        for train in (True, False)
    ]
    assert modes == ["train", "eval"]


# What is one operator


def test_an_operator_that_calls_another_is_one_operator() -> None:
    class Wrapper(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.hidden = [inner]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.hidden[0](x) + 1

    inner = nn.Linear(4, 3)
    model = nn.Sequential(Wrapper(inner), nn.Linear(3, 4), inner).eval()
    counts = counts_of(model, torch.randn(2, 4), composites=["Wrapper"])
    assert [count.operator.short_name for count in counts.counts] == ["Wrapper", "Linear", "Linear"]
    assert [count.occurrences for count in counts.counts] == [1, 1, 1]
    assert counts.counts[0].flop == 2 * 2 * 4 * 3
    assert counts.flop == counts.total_flop


def test_attention_is_one_operator_with_one_tensor_on_its_native_path() -> None:
    operations: list[OperationCost] = []
    model, x = SelfAttention(), torch.randn(3, 5, 8)
    with CostCounter(operations.append):
        count = only(counts_of(model, x))
    spec = TensorSpec((3, 5, 8), "float32", identity=0)
    assert count.operator.operator == "torch.nn.MultiheadAttention"
    assert count.operator.inputs == (spec, spec, spec)
    assert count.operator.inputs_text.count("#0") == 3
    assert [cost.operation for cost in operations] == ["_native_multi_head_attention"]
    assert count.flop == 2 * 3 * 5 * 4 * 8 * 8 + 2 * 2 * 3 * 5 * 5 * 8


def test_attention_to_another_tensor_is_another_tuple() -> None:
    class CrossAttention(SelfAttention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            memory = x.clone()
            return self.attention(x, memory, memory, need_weights=False)[0]

    _, crossed = (count.operator for count in counts_of(CrossAttention(), torch.randn(3, 5, 8)).counts)
    assert [spec.identity for spec in crossed.inputs if isinstance(spec, TensorSpec)] == [0, 1, 1]
    assert crossed.key != only(counts_of(SelfAttention(), torch.randn(3, 5, 8))).operator.key


def test_an_argument_that_a_module_does_not_keep_is_unknown_and_its_weights_keep_it_apart() -> None:
    x, models = torch.randn(1, 1, 1), (Forgetful(3, 1.0).eval(), Forgetful(4, 1.0).eval())
    three, four = (only(counts_of(model, x, composites=["Forgetful"])).operator for model in models)
    assert "unknown" in three.parameters_text
    assert three != four
    assert three.inputs == four.inputs


# Modules of other packages


class Leaf(nn.Module):
    """A user's module without children; both of its arguments decide what it computes."""

    def __init__(self, weight: nn.Parameter, dim: int = 0) -> None:
        super().__init__()
        self.weight, self.dim = weight, dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ self.weight, self.dim)


class RMSNorm(nn.Module):
    """A norm as libraries of models write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Doubling(nn.Linear):
    """A subclass with a ``forward`` of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


def test_leaves_of_a_user_that_differ_in_a_parameter_or_an_attribute_are_other_tuples() -> None:
    x = torch.randn(2, 4)
    (narrow, _), (wide, _) = (counts_of(Leaf(nn.Parameter(torch.ones(4, n))), x).counts for n in (32, 64))
    assert str(narrow.operator) == "torch.Tensor.matmul on (float32[2, 4], float32[4, 32])"
    assert (narrow.flop, wide.flop) == (2 * 2 * 4 * 32, 2 * 2 * 4 * 64)
    x, weight = torch.randn(2, 4), nn.Parameter(torch.ones(4, 4))
    counts = counts_of(nn.Sequential(Leaf(weight, 0), Leaf(weight, 1)), x)
    assert [count.occurrences for count in counts.counts if count.operator.short_name == "softmax"] == [1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_norm_of_a_user_is_rebuilt_wholly_and_all_in_tuples(dtype: torch.dtype) -> None:
    counts = counts_of(nn.Sequential(RMSNorm(4).to(dtype)), torch.randn(2, 3, 4, dtype=dtype))
    assert [difference(count, "cpu") for count in counts.counts] == [None] * len(counts.counts)
    assert {count.operator.is_function for count in counts.counts} == {True}
    assert (counts.flop, counts.memory_bytes) == (counts.total_flop, counts.total_memory_bytes)
    assert counts.outside == ()


def test_functions_of_parameters_run_as_repeatable_loads() -> None:
    counts = counts_of(nn.Sequential(RMSNorm(4), Leaf(nn.Parameter(torch.ones(4, 8)))), torch.randn(2, 4)).counts
    assert len(counts) > 5
    for count in counts:
        operator_workload(count.operator, "cpu").run(2)


def test_the_children_of_a_users_attention_are_operators() -> None:
    model = of_class(
        "MultiheadAttention",
        lambda self, x: nn.functional.scaled_dot_product_attention(x, self.project(x), x),
        project=nn.Linear(4, 4),
    )
    counts = counts_of(model, torch.randn(2, 3, 4))
    assert [count.operator.short_name for count in counts.counts] == ["Linear", "scaled_dot_product_attention"]


def test_a_leaf_with_a_forward_of_its_own_is_the_functions_that_it_calls() -> None:
    patched = nn.Linear(4, 4)
    patched.forward = lambda x: x + 1  # type: ignore[method-assign]
    counts = counts_of(nn.Sequential(patched, Doubling(4, 4)), torch.randn(2, 4))
    names = [count.operator.operator for count in counts.counts]
    assert names == ["torch.Tensor.add", "torch.nn.functional.linear", "torch.Tensor.mul"]


def test_a_class_that_torch_makes_at_run_time_is_no_operator() -> None:
    traced = torch.fx.symbolic_trace(RMSNorm(4))
    names = {count.operator.operator for count in counts_of(traced, torch.randn(2, 4)).counts}
    assert "torch.rsqrt" in names
    assert not any("GraphModule" in name for name in names)


def test_a_module_whose_part_was_removed_is_the_functions_that_it_calls() -> None:
    norm = nn.BatchNorm2d(3)
    norm.running_mean = norm.running_var = None
    assert not can_be_rebuilt(norm)
    counts = counts_of(nn.Sequential(nn.Conv2d(3, 3, 1), norm), torch.randn(2, 3, 4, 4)).counts
    assert [count.operator.short_name for count in counts] == ["Conv2d", "batch_norm"]


@pytest.mark.second_tier
@pytest.mark.parametrize("name", ["resnet18", "swin_t", "vit_b_16"])
def test_models_of_torchvision_have_the_committed_tuples(name: str) -> None:
    operator = model_operator(name, None, (32, 3, 224, 224))
    found = capture(resolve(operator).with_inputs("meta"), operator)
    rows = [row for row in Database(ROOT / "database").model_operators.rows() if row.model_key == operator.key]
    calls: Counter[OperatorTuple] = Counter()
    for row in rows[1:]:
        calls[parse_operator(row.operator, row.parameters, row.inputs, row.training_mode)] += row.calls
    assert {one.operator: one.occurrences for one in found.counts} == calls
    assert found.total_flop == rows[0].flop


# Values


def test_what_each_call_saw_is_kept() -> None:
    (x,) = (torch.tensor([-3.0, -1.0, 1.0, 3.0]),)
    relu, add = counts_of(
        SmallModel(lambda self, x: self.relu(self.relu(x) + 0.0), relu=nn.ReLU(inplace=True)), x
    ).counts
    seen, after = InputStatistics(0.0, 0.0, 5.0**0.5), InputStatistics(0.5, 1.0, 1.5**0.5)
    assert [(call.zeros_ratio, call.mean) for (call,) in relu.statistics] == [(0.0, 0.0), (0.5, 1.0)]
    assert [call.spread for (call,) in relu.statistics] == pytest.approx([seen.spread, after.spread])
    assert [(call.zeros_ratio, call.mean) for (call,) in add.statistics] == [(0.5, 1.0)]


def test_floating_inputs_are_looked_at_in_the_order_of_the_tuple_and_each_once() -> None:
    def mixed(self: Any, ones: torch.Tensor) -> torch.Tensor:
        twos, index = ones + 1, torch.zeros(4, dtype=torch.int64)
        return torch.where(index == 0, torch.addcmul(twos, value=2, tensor2=ones, tensor1=twos), ones)

    model = nn.Sequential(of_class("Mixed", mixed))
    model[0].add_module("child", nn.Identity())
    counts = {count.operator.short_name: count for count in counts_of(model, torch.ones(4)).counts}
    for name, means in {"addcmul": [2.0, 1.0], "where": [6.0, 1.0], "__eq__": [], "add": [1.0]}.items():
        (call,) = counts[name].statistics
        assert [seen.mean for seen in call] == means
        assert len(call) == len(counts[name].operator.floating_inputs)


def test_looking_at_values_is_no_part_of_what_runs() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), torch.randn(2, 3, 8, 8)
    unobserved: list[OperationCost] = []
    with torch.inference_mode(), CostCounter(unobserved.append):
        model(x)
    captured: list[OperationCost] = []
    capture(ReadyModel(model, (x,)), MODEL, record=captured.append)
    assert captured == unobserved


def test_no_values_are_seen_on_shapes_or_of_an_empty_input() -> None:
    relu = only(counts_of(nn.ReLU(), torch.empty(3, device="meta")))
    assert (relu.occurrences, relu.statistics) == (1, ())
    ((seen,),) = only(counts_of(nn.ReLU(), torch.zeros(0, 3))).statistics
    assert kind_of(seen) == NORMAL


@pytest.mark.parametrize(
    ("value", "kind"),
    [(1e25, CONSTANT), (torch.randn(300, 3) * 1e-25, NORMAL), (torch.randn(300, 3) * 1e25, InputValues(spread=64.0))],
    ids=["huge constant", "tiny", "huge"],
)
def test_values_of_any_magnitude_are_seen(value: float | torch.Tensor, kind: InputValues) -> None:
    ((seen,),) = only(counts_of(nn.ReLU(), torch.zeros(300, 3) + value)).statistics
    assert kind_of(seen) == kind


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("side", [4, 700])
def test_floating_inputs_of_any_kind_are_seen(dtype: torch.dtype, side: int) -> None:
    x = torch.linspace(-1, 1, side * side).reshape(side, side).relu().to(dtype)
    ((seen,),) = next(
        count
        for count in counts_of(SmallModel(lambda self, x: x.to(torch.float16), child=nn.Identity()), x).counts
        if count.operator.is_function
    ).statistics
    assert seen.zeros_ratio == pytest.approx(0.5, abs=0.02)
    assert seen.mean == pytest.approx(0.25, abs=0.03)


def test_a_large_input_is_seen_by_a_sample_of_all_of_it() -> None:
    x = torch.cat([torch.zeros(500, 1000), torch.ones(500, 1000)]).t()
    ((seen,),) = only(counts_of(nn.ReLU(), x)).statistics
    assert seen.zeros_ratio == pytest.approx(0.5, abs=0.005)
    assert only(counts_of(nn.ReLU(), x)).statistics == ((seen,),)


def test_looking_leaves_random_numbers_alone() -> None:
    torch.manual_seed(3)
    counts_of(nn.ReLU(), torch.zeros(500, 1000))
    first = torch.rand(1)
    torch.manual_seed(3)
    assert torch.rand(1) == first


# Functions


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + x


def test_a_function_outside_modules_is_a_tuple_with_all_its_arguments_as_inputs() -> None:
    linear, add = counts_of(Residual(), torch.randn(2, 4)).counts
    spec = TensorSpec((2, 4), "float32")
    assert linear.operator.short_name == "Linear"
    assert (add.operator.operator, add.operator.mode) == ("torch.Tensor.add", None)
    assert add.operator.inputs == (spec, TensorSpec((2, 4), "float32", identity=1))
    assert (add.operator.parameters, add.operator.keyword_inputs) == ((), ())
    assert (add.flop, add.memory_bytes, add.occurrences) == (0, 4 * 3 * 2 * 4, 1)


def test_modules_and_functions_carry_the_whole_run() -> None:
    counts = counts_of(
        SmallModel(lambda self, x: torch.softmax(self.linear(x) @ x.t(), -1), linear=nn.Linear(4, 4)), torch.randn(2, 4)
    )
    assert [count.operator.short_name for count in counts.counts] == ["Linear", "matmul", "softmax"]
    assert [count.flop for count in counts.counts] == [2 * 2 * 4 * 4, 2 * 2 * 4 * 2, 0]
    assert (counts.flop, counts.memory_bytes) == (counts.total_flop, counts.total_memory_bytes)
    assert counts.function_calls == 2
    assert counts.outside == ()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x + x, "torch.Tensor.add on (float32[2, 3, 4, 4]#0, float32[2, 3, 4, 4]#0)"),
        (lambda x: x.mul_(2.5), "torch.Tensor.mul_ on (float32[2, 3, 4, 4], 2.5)"),
        (lambda x: torch.cat([x, x[:1]], dim=0), "torch.cat on ((float32[2, 3, 4, 4], float32[1, 3, 4, 4]), dim=0)"),
        (lambda x: x.mean((2, 3)), "torch.Tensor.mean on (float32[2, 3, 4, 4], (2, 3))"),
        (
            lambda x: nn.functional.interpolate(x, scale_factor=2, mode="nearest"),
            "torch.nn.functional.interpolate on (float32[2, 3, 4, 4], scale_factor=2)",
        ),
        (
            lambda x: nn.functional.scaled_dot_product_attention(x, x, x),
            "torch.nn.functional.scaled_dot_product_attention on "
            "(float32[2, 3, 4, 4]#0, float32[2, 3, 4, 4]#0, float32[2, 3, 4, 4]#0)",
        ),
        (lambda x: x.roll(1, 0), "torch.Tensor.roll on (float32[2, 3, 4, 4], 1, 0)"),
        (
            lambda x: x.permute(0, 2, 3, 1).contiguous(),
            "torch.Tensor.contiguous on (float32[2, 4, 4, 3]:strides(48, 4, 1, 16))",
        ),
        (
            lambda x: x.transpose(0, 1).reshape(3, 32),
            "torch.Tensor.reshape on (float32[3, 2, 4, 4]:strides(16, 48, 4, 1), 3, 32)",
        ),
        (
            lambda x: x.contiguous(memory_format=torch.channels_last),
            "torch.Tensor.contiguous on (float32[2, 3, 4, 4], memory_format=torch.channels_last)",
        ),
        (lambda x: x.to(torch.float64), "torch.Tensor.to on (float32[2, 3, 4, 4], torch.float64)"),
        (lambda x: torch.zeros(3, device=x.device), "torch.zeros on (3, device=device)"),
        (
            lambda x: x[:, torch.tensor([0, 2])],
            "torch.Tensor.__getitem__ on (float32[2, 3, 4, 4], (slice(start=None, stop=None, step=None), int64[2]))",
        ),
        (lambda x: x[..., 0].exp(), "torch.Tensor.exp on (float32[2, 3, 4]:strides(48, 16, 4))"),
        (
            lambda x: torch._grouped_mm(x[0, 0], x[0, :2], offs=torch.tensor([2, 4], dtype=torch.int32)),
            "torch.ops.aten._grouped_mm on (float32[4, 4], float32[2, 4, 4], offs=int32[2])",
        ),
        # A size in a tensor is a number, but not an operand or an index.
        (lambda x: x.new_zeros((2, torch.tensor(3))), "torch.Tensor.new_zeros on (float32[2, 3, 4, 4], (2, 3))"),
        (lambda x: torch.arange(torch.tensor(3), device=x.device), "torch.arange on (3, device=device)"),
        (
            lambda x: nn.functional.pad(x, (0, torch.tensor(1))),
            "torch.nn.functional.pad on (float32[2, 3, 4, 4], (0, 1))",
        ),
        (
            lambda x: nn.functional.interpolate(x, size=(torch.tensor(8), torch.tensor(8))),
            "torch.nn.functional.interpolate on (float32[2, 3, 4, 4], size=(8, 8))",
        ),
        (lambda x: torch.stack([torch.tensor(1), torch.tensor(2)]), "torch.stack on ((int64[], int64[]))"),
        (lambda x: x[0, torch.tensor([1])], "torch.Tensor.__getitem__ on (float32[2, 3, 4, 4], (0, int64[1]))"),
        (
            lambda x: torchvision.ops.nms(x[0, 0], x[0, 0, 0], 0.5),
            "torch.ops.torchvision.nms on (float32[4, 4], float32[4], 0.5)",
        ),
        (
            lambda x: torchvision.ops.roi_align(x, [x[0, 0, :1]], 2),
            "torch.ops.torchvision.roi_align on (float32[2, 3, 4, 4], float32[1, 5], 1.0, 2, 2, -1, False)",
        ),
    ],
)
def test_a_function_goes_by_its_qualified_name_and_plain_arguments(
    call: Callable[[torch.Tensor], object], text: str
) -> None:
    counts = counts_of_call(call, torch.randn(2, 3, 4, 4))
    assert function_texts(counts)[-1] == text
    assert counts.memory_bytes == counts.total_memory_bytes > 0


def test_views_are_left_out() -> None:
    def views(self: Any, x: torch.Tensor) -> torch.Tensor:
        first, second = x.contiguous().flatten(1).chunk(2, dim=1)
        shape = torch.Size([first.shape[0], 1, 4])
        return self.linear(second.view(shape).transpose(1, 2).squeeze(2))

    assert (
        only(counts_of(SmallModel(views, linear=nn.Linear(4, 4)), torch.randn(2, 2, 4))).operator.short_name == "Linear"
    )


def test_a_parameter_that_is_used_functionally_is_an_input() -> None:
    model = SmallModel(
        lambda self, x: nn.functional.linear(self.scale * x, self.linear.weight),
        linear=nn.Linear(4, 4),
        scale=nn.Parameter(torch.ones(4)),
    )
    multiply, linear = counts_of(model, torch.randn(2, 4)).counts
    assert str(multiply.operator) == "torch.Tensor.mul on (float32[4], float32[2, 4])"
    assert str(linear.operator) == "torch.nn.functional.linear on (float32[2, 4], float32[4, 4])"
    assert linear.flop == 2 * 2 * 4 * 4


def test_a_model_may_return_a_dict_and_leave_children_uncalled() -> None:
    model = SmallModel(
        lambda self, x: {"out": self.used(x), "aux": x * 2}, used=nn.Linear(4, 3), unused=nn.Linear(4, 7)
    )
    counts = counts_of(model, torch.randn(2, 4))
    assert [count.operator.short_name for count in counts.counts] == ["Linear", "mul"]
    assert counts.parameters == 4 * 3 + 3 + 4 * 7 + 7


def test_inputs_that_are_dicts_and_lists_keep_their_tensors() -> None:
    model = SmallModel(
        lambda self, x: self.takes({"0": x, "pool": x[:1]}, [(1, 2)]),
        takes=of_class("Takes", lambda self, maps, sizes: maps["0"] + 1),
    )
    operator = only(counts_of(model, torch.randn(2, 4), composites=["Takes"])).operator
    maps = Structure("dict", (("0", TensorSpec((2, 4), "float32")), ("pool", TensorSpec((1, 4), "float32", None, 1))))
    assert operator.inputs == (maps, ((1, 2),))
    assert operator.inputs_text == "dict(0=float32[2, 4], pool=float32[1, 4]), ((1, 2),)"


def test_a_module_that_counts_its_calls_stays_one_tuple() -> None:
    def run_counting(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2

    model = SmallModel(
        lambda self, x: self.counting(self.counting(x)), counting=of_class("Counting", run_counting, calls=0)
    )
    assert only(counts_of(model, torch.randn(2, 4))).occurrences == 2
    assert only(counts_of(model, torch.randn(2, 4))).occurrences == 2
    assert model.counting.calls == 4


def test_an_operation_that_has_no_formula_has_bytes_and_unknown_flop() -> None:
    counts = counts_of(SmallModel(lambda self, x: torch._standard_gamma(x) @ torch._standard_gamma(x)), torch.eye(3))
    unknown, product = counts.counts
    assert (unknown.flop, unknown.without_formula) == (None, ("aten::_standard_gamma",))
    assert (product.flop, product.without_formula) == (2 * 3**3, ())
    assert unknown.memory_bytes >= 2 * 9 * 4
    (operation,) = counts.without_formula
    assert (operation.operation, operation.calls) == ("aten::_standard_gamma", 2)
    assert 0 < operation.memory_bytes <= 2 * unknown.memory_bytes
    assert (counts.total_flop, counts.flop) == (2 * 3**3, None)
    assert counts.memory_bytes == counts.total_memory_bytes
    assert counts.flop_missing_reason == "no formula for the FLOPs of aten::_standard_gamma"


def test_a_composite_with_an_operation_without_a_formula_has_unknown_flop() -> None:
    model = of_class("Mixed", lambda self, x: torch._standard_gamma(self.linear(x)), linear=nn.Linear(3, 3))
    counts = counts_of(nn.Sequential(model), torch.eye(3), composites=["Mixed"])
    assert (only(counts).flop, only(counts).without_formula) == (None, ("aten::_standard_gamma",))
    assert counts.total_flop == 2 * 3**3


def counts_of_call(call: Callable[[torch.Tensor], object], x: torch.Tensor) -> OperatorCounts:
    return counts_of(SmallModel(lambda self, x: call(x), child=nn.Identity()), x)


def test_arguments_are_distinguished_by_their_type_and_numbers_of_numpy_are_plain() -> None:
    assert function_texts(counts_of_call(lambda x: x**2, torch.ones(3))) == ["torch.Tensor.__pow__ on (float32[3], 2)"]
    counts = counts_of_call(lambda x: (x * 2, x * 2.0, x * True), torch.ones(4, dtype=torch.int64))
    assert [count.occurrences for count in counts.counts] == [1, 1, 1]
    assert [str(count.outputs) for count in counts.counts] == ["int64[4]", "float32[4]", "int64[4]"]
    nan = counts_of_call(lambda x: (x * float("nan"), x * float("nan")), torch.ones(4))
    assert only(nan).occurrences == 2
    counts = counts_of_call(lambda x: (x / numpy.sqrt(4.0), x.sum(numpy.int64(0))), torch.ones(4))
    assert function_texts(counts) == ["torch.Tensor.div on (float32[4], 2.0)", "torch.Tensor.sum on (float32[4], 0)"]
    assert all(type(count.operator.inputs[1]) in (int, float) for count in counts.counts)
    counts = counts_of_call(lambda x: (x.type(torch.HalfTensor), x.type(torch.LongTensor)), torch.ones(4))
    assert len(counts.counts) == 2


def test_in_place_views_cost_nothing_and_out_is_not_read() -> None:
    views = counts_of_call(lambda x: x.unsqueeze_(0).transpose_(0, 1).squeeze_().detach_(), torch.ones(3, 4))
    assert (views.counts, views.total_memory_bytes) == ((), 0)
    out = torch.empty(4)
    assert only(counts_of_call(lambda x: torch.add(x, x, out=out), torch.ones(4))).memory_bytes == 2 * 4 * 4


def test_a_bug_in_describing_a_call_does_not_reach_the_model_and_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[str] = []

    def catches(self: Any, x: torch.Tensor) -> torch.Tensor:
        try:
            return x + 1
        except TypeError:
            reached.append("the model")
            return x

    def broken(*_: object, **__: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr("opcost.torch_backend.capture.function_tuple", broken)
    with pytest.raises(DescriptionError):
        counts_of(SmallModel(catches, child=nn.Identity()), torch.ones(3))
    assert reached == []


@pytest.mark.parametrize("composites", [(), ("Makes",)])
def test_other_function_modes_and_subclasses_work_inside_operators_as_ever(composites: tuple[str, ...]) -> None:
    def makes(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.device("meta"):
            return torch.ones(3)

    outputs: list[torch.Tensor] = []
    model = nn.Sequential(of_class("Makes", makes))
    model.register_forward_hook(lambda _module, _args, output: outputs.append(output))
    counts_of(model, torch.ones(3), composites=composites)
    assert outputs[0].is_meta


class Named(TorchFunctionMode):
    """Writes its name down whenever something is added or multiplied."""

    def __init__(self, name: str, seen: list[str]) -> None:
        super().__init__()
        self.name, self.seen = name, seen

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if function in (torch.Tensor.add, torch.Tensor.mul):
            self.seen.append(self.name)
        return function(*args, **(kwargs or {}))


def test_function_modes_of_the_model_keep_their_order_within_operators_and_after_them() -> None:
    seen: list[str] = []

    def uses_modes(self: Any, x: torch.Tensor) -> torch.Tensor:
        with Named("outer", seen), Named("middle", seen), Named("inner", seen):
            return self.adds(x) * 2

    model = SmallModel(uses_modes, adds=of_class("Adds", lambda self, x: x + 1))
    counts = counts_of(model, torch.ones(3), composites=["Adds"])
    assert [count.operator.short_name for count in counts.counts] == ["Adds", "mul"]
    assert seen == ["inner", "middle", "outer"] * 2


# Tensors that are not dense

EYE = torch.eye(4)
UNIT = 4 * 4
"""Bytes of four numbers in float32."""


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("make", "text", "memory_bytes"),
    [
        (lambda x: x.to_sparse_csr(), "<torch.sparse_csr float32[4, 4] of 4 values>", UNIT + (5 + 4) * 8),
        (lambda x: x.to_sparse_csc(), "<torch.sparse_csc float32[4, 4] of 4 values>", UNIT + (5 + 4) * 8),
        (lambda x: x.to_sparse_bsr((2, 2)), "<torch.sparse_bsr float32[4, 4] of 8 values>", 2 * UNIT + (3 + 2) * 8),
        (lambda x: x.to_sparse(), "<torch.sparse_coo float32[4, 4] of 4 values>", UNIT + 2 * 4 * 8),
        (lambda x: x.to_mkldnn(), "<torch._mkldnn float32[4, 4] of 16 values>", 4 * UNIT),
    ],
)
def test_a_tensor_that_is_not_dense_is_counted_and_named_as_what_cannot_be_recreated(
    make: Callable[[torch.Tensor], torch.Tensor], text: str, memory_bytes: int
) -> None:
    other = make(EYE)
    call = torch.relu if "mkldnn" in text else torch.neg
    count = only(counts_of_call(lambda _: call(other), EYE))
    assert (count.operator.inputs, count.outputs) == ((text,), text)
    assert (count.memory_bytes, count.flop) == (2 * memory_bytes, 0)
    with pytest.raises(CannotMeasureError, match="cannot be recreated"):
        operator_workload(count.operator, "cpu")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_recreated() -> None:
    weight, other = torch.ones(3, 4), torch.nested.nested_tensor([EYE, EYE[:2]])
    linear, relu = counts_of_call(lambda _: nn.functional.linear(other, weight).relu(), EYE).counts
    assert (linear.without_formula, linear.memory_bytes) == (("aten::linear",), 4 * (6 * 4 + 3 * 4 + 6 * 3))
    assert [difference(count, "cpu") for count in (linear, relu)] == [None, None]


@pytest.mark.filterwarnings("ignore:Sparse")
def test_products_of_a_sparse_matrix_have_unknown_flops_as_they_depend_on_its_values() -> None:
    sparse = EYE.to_sparse_csr()
    count = only(counts_of_call(lambda x: sparse @ x, EYE))
    assert (count.flop, count.without_formula) == (None, ("aten::mm",))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_layer_with_sparse_weights_is_counted_and_not_taken_for_a_dense_one() -> None:
    layer = nn.Linear(4, 4, bias=False)
    layer.weight = nn.Parameter(layer.weight.detach().to_sparse_csr())
    count = only(counts_of(nn.Sequential(layer).eval(), EYE))
    assert count.flop is None
    with pytest.raises(CannotMeasureError, match="sparse_csr .* cannot be recreated"):
        operator_workload(count.operator, "cpu")


# Functions of one sample


class PerSample(nn.Module):
    def __init__(self, call: Callable[[torch.Tensor, nn.Module], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(lambda sample: self.call(sample, self.linear))(x).neg()


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda sample, _: sample.softmax(0), ["_softmax"]),
        (lambda sample, linear: linear(sample), ["matmul", "add"]),
        (lambda sample, linear: torch.sin(sample @ linear.weight), ["matmul", "sin"]),
        (lambda sample, _: torch.func.vmap(torch.sin)(sample), ["sin"]),
        (lambda sample, _: torch.where(sample > 0, sample, 0), ["gt", "scalar_tensor", "where"]),
        (lambda sample, linear: sample + linear.weight.sin(), ["sin", "add"]),
        (lambda sample, _: sample + torch.ones(4), ["ones", "add"]),
        (lambda sample, _: torch.func.grad(lambda x: x.sin().sum())(sample), ["sin", "sum", "ones_like", "cos", "mul"]),
    ],
)
def test_what_vmap_shows_one_sample_is_the_operations_on_all(
    call: Callable[[torch.Tensor, nn.Module], torch.Tensor], names: list[str]
) -> None:
    counts = counts_of(PerSample(call).eval(), torch.ones(32, 4))
    assert [count.operator.short_name for count in counts.counts] == [*names, "neg"]
    assert [difference(count, "cpu") for count in counts.counts] == [None] * len(counts.counts)
    assert (counts.memory_bytes, counts.flop) == (counts.total_memory_bytes, counts.total_flop)
    assert counts.outside == ()


def test_outputs_are_those_of_the_first_call() -> None:
    one, two = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 0.0])
    count = only(counts_of_call(lambda _: (one.nonzero(), two.nonzero()), one))
    assert (count.occurrences, str(count.outputs)) == (2, "int64[1, 1]")


def test_the_operations_of_scripted_functions_are_operators() -> None:
    @torch.jit.script
    def scripted(x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x) * x

    # TorchScript fuses on a GPU from the second or third call on.
    for _ in range(3):
        counts = counts_of_call(scripted, torch.ones(3))
    assert [count.operator.operator for count in counts.counts] == ["torch.ops.aten.sigmoid", "torch.ops.aten.mul"]
    assert counts.memory_bytes == counts.total_memory_bytes == 4 * 3 * (1 + 1 + 2 + 1)
    assert [difference(count, "cpu") for count in counts.counts] == [None, None]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_operation_of_a_scripted_leaf_module_is_an_operator() -> None:
    counts = counts_of(nn.Sequential(torch.jit.script(nn.ReLU()), nn.ReLU()), torch.ones(3))
    assert [count.operator.operator for count in counts.counts] == ["torch.ops.aten.relu", "torch.nn.ReLU"]


def never_compiles(*_: object) -> Callable[..., object]:
    raise AssertionError("it is compiled")


def test_compiled_functions_are_counted_as_eager() -> None:
    compiled = torch.compile(lambda x: torch.sigmoid(x) * x, backend=never_compiles)
    assert len(counts_of_call(compiled, torch.ones(3)).counts) == 2


# Operations of a user


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("opcost_tests", "DEF") as library:
        library.define("scale(Tensor x, Tensor weight, float gain=1.0) -> Tensor")
        library.impl("scale", lambda x, weight, gain=1.0: gain * (x @ weight), "CPU")
        library.define("store(Tensor x, str path) -> Tensor")
        library.impl("store", lambda x, path: x + len(path), "CPU")
        library.define("store.by_number(Tensor x, int number) -> Tensor")
        yield library


@pytest.fixture
def with_formula(library: torch.library.Library) -> Iterator[None]:
    operations = [torch.ops.opcost_tests.scale, torch.ops.opcost_tests.store]
    for operation in operations:
        flop_registry[operation] = lambda *_, **__: 64
    yield
    for operation in operations:
        del flop_registry[operation]
    function_name.cache_clear()


@pytest.mark.usefixtures("with_formula")
def test_an_operation_of_a_user_is_one_tuple_however_it_is_called() -> None:
    operation, weight = torch.ops.opcost_tests.scale, torch.ones(4, 4)
    calls = (operation, operation.default)
    counts = counts_of_call(lambda x: [call(x, weight, 2.0) for call in calls], torch.randn(2, 4))
    count = only(counts)
    assert str(count.operator) == "torch.ops.opcost_tests.scale on (float32[2, 4], float32[4, 4], 2.0)"
    assert (count.occurrences, count.flop, count.memory_bytes) == (2, 64, 4 * (8 + 16 + 8))
    assert (counts.total_flop, counts.total_memory_bytes, counts.outside) == (128, 2 * count.memory_bytes, ())
    assert difference(count, "cpu") is None
    operator_workload(count.operator, "cpu").run(2)


@pytest.mark.usefixtures("with_formula")
def test_an_operation_of_a_user_that_takes_a_text_is_counted_and_not_called_by_its_name() -> None:
    count = only(counts_of_call(lambda x: torch.ops.opcost_tests.store(x, "a"), torch.ones(4)))
    assert count.operator.operator == "torch.ops.opcost_tests.store"
    found = difference(count, "cpu")
    assert found is not None
    assert "no function torch.ops.opcost_tests.store, and none with tensors and numbers alone" in found.text


def test_an_operation_of_a_user_that_is_not_registered_here_is_named() -> None:
    operator = OperatorTuple("torch.ops.opcost_tests.gone", (), (TensorSpec((4,), "float32"),), mode=None)
    with pytest.raises(
        CannotMeasureError, match=r"^this version of torch has no function torch.ops.opcost_tests.gone, "
    ):
        operator_workload(operator, "cpu")


@pytest.mark.usefixtures("library")
def test_an_operation_of_a_user_without_a_formula_has_bytes_and_runs() -> None:
    counts = counts_of_call(lambda x: torch.ops.opcost_tests.scale(x, torch.ones(4, 4)), torch.ones(4, 4))
    count = next(count for count in counts.counts if count.operator.short_name == "scale")
    assert (count.flop, count.memory_bytes) == (None, 3 * 4 * 16)
    assert counts.without_formula == (OperationWithoutFormula("opcost_tests::scale", 1, 3 * 4 * 16),)
    assert difference(count, "cpu") is None
    operator_workload(count.operator, "cpu").run(2)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", ["mv", "cat", "_foreach_add"])
def test_a_name_of_aten_in_another_namespace_has_no_formula(name: str) -> None:
    """Of torch's operations these are a product, one without products, and one of many tensors."""
    with torch.library._scoped_library("opcost_tests", "FRAGMENT") as library:
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x * 2, "CPU")
        counts = counts_of_call(getattr(torch.ops.opcost_tests, name), torch.ones(4))
    assert (only(counts).flop, only(counts).without_formula) == (None, (f"opcost_tests::{name}",))


def fills(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x)


def test_an_operation_that_writes_its_argument_has_the_bytes_of_both() -> None:
    with torch.library._scoped_library("opcost_tests", "DEF") as library:
        library.define("fill(Tensor x, Tensor(a!) out) -> ()")
        library.impl("fill", fills, "CPU")
        for call in (torch.ops.opcost_tests.fill, lambda x, out: torch.ops.opcost_tests.fill(x, out=out)):
            counts = counts_of_call(lambda x, call=call: call(x, x.new_empty(4)), torch.ones(4))
            assert only(counts).memory_bytes == 3 * 16


def test_one_line_gives_an_operation_of_a_user_a_formula() -> None:
    @torch.library.custom_op("opcost_tests::project", mutates_args=())
    def project(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x @ weight

    weight = torch.ones(4, 5)
    assert only(counts_of_call(lambda x: project(x, weight), torch.ones(3, 4))).flop is None
    register_flop_formula(torch.ops.opcost_tests.project)(lambda x, w, *_, **__: 2 * x[0] * x[1] * w[1])
    try:
        count = only(counts_of_call(lambda x: project(x, weight), torch.ones(3, 4)))
    finally:
        del flop_registry[torch.ops.opcost_tests.project]
    assert (count.flop, count.memory_bytes) == (2 * 3 * 4 * 5, 4 * (12 + 20 + 15))
    assert count.operator.operator == "torch.ops.opcost_tests.project"
    operator_workload(count.operator, "cpu").run(2)


# Composites


def test_composites_that_differ_inside_are_distinguished() -> None:
    class Block(nn.Module):
        def __init__(self, stride: int) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(4, 4, 3, stride=stride, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.convolution(x)

    x = torch.randn(1, 4, 8, 8)
    strided, plain = (
        only(counts_of(nn.Sequential(Block(2 - index)), x, composites=["Block"])).operator for index in range(2)
    )
    assert "unknown" in plain.parameters_text
    assert strided.inputs == plain.inputs
    assert strided != plain


def test_a_composite_of_a_config_is_one_operator() -> None:
    model, x = nn.Sequential(Residual(), nn.Linear(4, 4)), torch.randn(2, 4)
    counts = counts_of(model, x, composites=["Residual"])
    assert [count.operator.short_name for count in counts.counts] == ["Residual", "Linear"]
    assert counts.composites == ("Residual",)
    assert counts.flop == counts.total_flop == counts_of(model, x).flop


def test_calls_of_one_tuple_that_differ_in_work_have_their_mean() -> None:
    few, all_rows = torch.tensor([[1.0] * 4] * 2 + [[-1.0] * 4] * 4), torch.ones(6, 4)
    model = SmallModel(
        lambda self, x, y: (self.routed(x), self.routed(y)),
        routed=of_class("Routed", lambda self, x: self.linear(x[x[:, 0] > 0]).sum() + x, linear=nn.Linear(4, 4)),
    )
    counts = counts_of(model, few, all_rows, composites=["Routed"])
    (count,) = counts.counts
    assert (count.occurrences, count.flop) == (2, (2 + 6) // 2 * 2 * 4 * 4)
    assert 2 * count.memory_bytes == pytest.approx(counts.memory_bytes, abs=1)


def test_parameters_that_modules_share_are_one() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
    model = nn.Sequential(first, second, first)
    second.weight = first.weight
    assert counts_of(model, torch.zeros(2, 4)).parameters == 4 * 4 + 4


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_an_encoder_layer_is_one_operator_on_its_fast_path(device: str) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True).eval()
    x = torch.randn(3, 5, 8)
    operations: list[OperationCost] = []
    with CostCounter(operations.append):
        count = only(counts_of(nn.Sequential(layer.to(device)), x.to(device)))
    assert count.operator.short_name == "TransformerEncoderLayer"
    attention = 2 * 3 * 5 * 4 * 8 * 8 + 2 * 2 * 3 * 5 * 5 * 8
    assert count.flop == attention + 2 * 2 * 3 * 5 * 8 * 16
    if device == "cpu":
        assert [cost.operation for cost in operations] == ["_transformer_encoder_layer_fwd"]


# Capturing leaves no trace


def hooks_on(model: nn.Module) -> int:
    """The number of hooks, and of modules whose ``forward`` is not their class's."""
    hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
    return hooks + sum("forward" in vars(module) for module in model.modules())


def test_hooks_and_a_forward_of_its_own_are_as_before_afterwards() -> None:
    linear = nn.Linear(4, 4)
    own = linear.forward = lambda x: x + 1  # type: ignore[method-assign]
    counts_of(nn.Sequential(linear), torch.randn(2, 4), composites=["Linear"])
    assert linear.forward is own
    model = Thrice()
    counts_of(model, torch.randn(2, 4))
    assert hooks_on(model) == 0


def test_hooks_and_counting_are_gone_after_an_error() -> None:
    model = nn.Sequential(nn.Linear(4, 4), SmallModel(run_fails))
    with pytest.raises(RuntimeError, match="always fails"):
        counts_of(model, torch.randn(2, 4))
    assert hooks_on(model) == 0
    assert not torch.is_inference_mode_enabled()
    assert only(counts_of(model[0], torch.randn(2, 4))).occurrences == 1


def test_a_failing_leaf_whose_model_goes_on_does_not_take_the_costs_of_the_next() -> None:
    def forgiving(self: Any, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.fails(x)
        except RuntimeError:
            return self.linear(x)

    counts = counts_of(SmallModel(forgiving, fails=nn.Conv1d(5, 5, 1), linear=nn.Linear(4, 3)), torch.randn(2, 4))
    assert {count.operator.short_name: count.flop for count in counts.counts} == {"Conv1d": 0, "Linear": 2 * 2 * 4 * 3}


def test_counts_do_not_depend_on_being_observed() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(SelfAttention(), Thrice8()), torch.randn(3, 5, 8)
    alone = counts_of(model, x)
    with CostCounter(lambda _: None):
        assert counts_of(model, x) == alone
    handles = [module.register_forward_hook(lambda *_: None) for module in model.modules()]
    assert counts_of(model, x) == alone
    assert hooks_on(model) == len(handles)


class Thrice8(Thrice):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)


# Real models


def captured(name: str) -> OperatorCounts:
    size = (1, 3, 224, 224)
    model = get_model(name, weights=None).eval()
    return capture(ReadyModel(model, (torch.zeros(size),)), model_operator(name, None, size))


def test_resnet50_has_158_calls_of_50_module_tuples_and_16_residual_adds() -> None:
    counts = captured("resnet50")
    modules = [count for count in counts.counts if not count.operator.is_function]
    assert (counts.operator_calls - counts.function_calls, len(modules), counts.parameters) == (158, 50, 25557032)
    adds = [count for count in counts.counts if count.operator.is_function]
    assert {count.operator.operator for count in adds} == {"torch.Tensor.add_"}
    assert (sum(count.occurrences for count in adds), len(adds)) == (16, 4)
    assert counts.total_flop / 2e9 == pytest.approx(4.089, abs=5e-4)


class SwitchesAutocast(nn.Module):
    def __init__(self, is_enabled: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.is_enabled = is_enabled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_enabled):
            return self.linear(x)


@pytest.mark.parametrize(("precision", "is_enabled"), [("amp-bf16", False), ("fp32", True)])
def test_models_that_switch_autocast_are_refused_because_their_tuples_would_run_without(
    precision: str, is_enabled: bool
) -> None:
    with autocast(precision, "cpu"), pytest.raises(CannotBuildError, match="autocast itself, for torch.nn.Linear"):
        counts_of(SwitchesAutocast(is_enabled), torch.zeros(2, 8))


@pytest.mark.parametrize(("precision", "is_enabled"), [("amp-bf16", True), ("fp32", False)])
def test_models_may_set_autocast_to_what_it_is(precision: str, is_enabled: bool) -> None:
    with autocast(precision, "cpu"):
        assert only(counts_of(SwitchesAutocast(is_enabled), torch.zeros(2, 8))).occurrences == 1


def test_products_inside_a_composite_operation_are_cast_by_autocast_as_in_the_model() -> None:
    with autocast("amp-bf16", "cpu"):
        einsum = counts_of(
            SmallModel(
                lambda self, x: torch.einsum("bi,ij->bj", self.linear(x), self.weight),
                linear=nn.Linear(8, 8),
                weight=nn.Parameter(torch.zeros(8, 8)),
            ),
            torch.zeros(2, 8),
        ).counts[-1]
    assert einsum.outputs == TensorSpec((2, 8), "bfloat16")
    casts_of_the_weight, product = 6 * 8 * 8, 2 * (2 * 8 + 8 * 8 + 2 * 8)
    assert einsum.memory_bytes == casts_of_the_weight + product
    assert difference(einsum, "cpu", partial(autocast, "amp-bf16", "cpu")) is None
    assert operator_workload(einsum.operator, "cpu", context=partial(autocast, "amp-bf16", "cpu")).run(1) == 1


# Work that changes, copies, and what never runs


class Growing(nn.Module):
    """Does more work in each call, by a cache or a counter."""

    def __init__(self, has_cache: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.cache: torch.Tensor | None = None
        self.calls = 0
        self.has_cache = has_cache

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if not self.has_cache:
            for _ in range(self.calls):
                x = self.layer(x)
            return x
        new = self.layer(x)
        self.cache = new if self.cache is None else torch.cat([self.cache, new])
        return new @ self.cache.T


@pytest.mark.parametrize(("has_cache", "flop"), [(True, 2 * 4 * 8 * 8 + 2 * 4 * 8 * 4), (False, 2 * 4 * 8 * 8)])
def test_a_state_that_grows_is_put_back_so_that_a_loop_repeats_the_call_that_is_counted(
    has_cache: bool, flop: int, caplog: pytest.LogCaptureFixture
) -> None:
    model = Growing(has_cache)
    ready = run_first(ReadyModel(model, (torch.ones(4, 8),)))
    assert capture(ready, OperatorTuple("model"), name="folder").total_flop == flop
    repeated = steady(ready)
    costs: list[OperationCost] = []
    with CostCounter(costs.append), torch.inference_mode():
        for _ in range(3):
            repeated.run()
    assert total(costs).flop == 3 * flop
    assert (model.calls, caplog.text) == (1, "")
    assert not repeated.carried.needs_kernels


def test_of_random_work_the_first_call_counts_and_no_loop_measures_it(caplog: pytest.LogCaptureFixture) -> None:
    depths = iter([1, 2, 3, 4, 5, 6])

    def deeper(self: Any, x: torch.Tensor) -> torch.Tensor:
        for _ in range(next(depths)):
            x = self.layer(x)
        return x

    ready = run_first(ReadyModel(SmallModel(deeper, layer=nn.Linear(8, 8)), (torch.ones(4, 8),)))
    capture(ready, OperatorTuple("model"), name="folder")
    assert "folder: its work changes from call to call" in caplog.text
    with pytest.raises(CannotMeasureError, match=r"its work changes from call to call .*; let each call do the same"):
        steady(ready)


class StaticCache:
    """A cache of a fixed size that moves on by itself, as models of transformers take it."""

    def __init__(self, size: int, position: int) -> None:
        self.keys = torch.zeros(size, 8)
        self.position = torch.tensor([position])


def decode(self: Any, x: torch.Tensor, cache: StaticCache | None = None) -> torch.Tensor:
    keys, position = (self.keys, self.position) if cache is None else (cache.keys, cache.position)
    keys.index_copy_(0, position, x)
    position += 1
    return x @ keys.T


@pytest.mark.parametrize("is_input", [True, False])
def test_a_position_is_put_back_before_each_call_and_the_cache_behind_it_is_not_copied(is_input: bool) -> None:
    cache, x = StaticCache(2**18, 2**18 - 1), torch.ones(1, 8)
    model = SmallModel(decode)
    if not is_input:
        model.register_buffer("keys", cache.keys)
        model.register_buffer("position", cache.position)
    # A further call would write behind the end of the cache.
    ready = run_first(ReadyModel(model, (x, cache) if is_input else (x,)))
    counted = capture(ready, OperatorTuple("model"))
    repeated = steady(ready)
    for _ in range(3):
        repeated.run()
    assert cache.position.item() == 2**18
    assert cache.keys[-1].tolist() == [1.0] * 8
    assert not cache.keys[:-1].any()
    assert [part.nbytes for part, _ in repeated.carried.parts if part.nbytes] == [8]
    assert repeated.carried.needs_kernels
    # The put-back is no work of the model.
    names = [count.operator.short_name for count in counted.counts]
    assert sorted(names) == ["add_", "index_copy_", "matmul"]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_a_flag_of_a_set_up_is_no_position(dtype: torch.dtype) -> None:
    def setting_up(self: Any, x: torch.Tensor) -> torch.Tensor:
        if not self.done:
            self.table.copy_(torch.ones(8, 8) @ torch.ones(8, 8))
            self.done.fill_(1)
        return x @ self.table

    model = SmallModel(setting_up)
    model.register_buffer("done", torch.tensor(0, dtype=dtype))
    model.register_buffer("table", torch.zeros(8, 8))
    ready = run_first(ReadyModel(model, (torch.ones(2, 8),)))
    assert capture(ready, OperatorTuple("model")).total_flop == 2 * 2 * 8 * 8
    assert not steady(ready).carried.parts


def test_a_cache_that_the_first_call_makes_is_measured_as_it_is_counted() -> None:
    def growing(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.cache = torch.cat([self.cache, x]) if hasattr(self, "cache") else x
        return x @ self.cache.T

    ready = run_first(ReadyModel(SmallModel(growing), (torch.ones(2, 8),)))
    flop = capture(ready, OperatorTuple("model")).total_flop
    repeated, costs = steady(ready), list[OperationCost]()
    with CostCounter(costs.append), torch.inference_mode():
        repeated.run()
    assert total(costs).flop == flop


def test_tensors_that_torch_cannot_compare_count_as_unchanged() -> None:
    model = SmallModel(lambda self, x: torch.sparse.mm(self.a, x))
    model.register_buffer("a", torch.eye(8).to_sparse())
    ready = run_first(ReadyModel(model, (torch.randn(8, 8),)))
    assert capture(ready, OperatorTuple("model")).operator_calls == 1
    assert not steady(ready).carried.parts


def test_a_large_state_that_changes_in_each_call_is_put_back() -> None:
    def smooth(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.5).add_(x)
        return self.mean.clone()

    model = SmallModel(smooth)
    model.register_buffer("mean", torch.zeros(2**18))
    repeated = steady(run_first(ReadyModel(model, (torch.ones(2**18),))))
    assert [repeated.run()[0].item() for _ in range(3)] == [1.0] * 3


class Kept(dict[str, int]):
    """A dict whose items stay."""

    def clear(self) -> None:
        raise TypeError("items stay")


def test_a_state_that_cannot_be_put_back_is_refused_by_name() -> None:
    def counting(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.tables[f"call {len(self.tables)}"] = 1
        return x + 1

    ready = run_first(ReadyModel(SmallModel(counting, tables=Kept()), (torch.ones(4),)))
    with pytest.raises(CannotMeasureError, match=r"^tables changes from call to call and cannot be put back \(items"):
        steady(ready)


class SetUp(nn.Module):
    """Computes a table in its first call only."""

    def __init__(self) -> None:
        super().__init__()
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = x @ x.T
        return self.table @ x


def test_what_a_first_call_sets_up_is_no_change_of_work(caplog: pytest.LogCaptureFixture) -> None:
    ready = run_first(ReadyModel(SetUp(), (torch.ones(4, 8),)))
    assert capture(ready, OperatorTuple("model")).total_flop == 2 * 4 * 4 * 8
    steady(ready)
    assert caplog.text == ""


class Cache:
    """A state among the inputs, as models of transformers take it."""

    def __init__(self) -> None:
        self.layers = [SimpleNamespace(keys=torch.ones(2, 8))]


def decoder(self: Any, x: torch.Tensor, cache: Cache) -> torch.Tensor:
    layer = cache.layers[0]
    layer.keys = torch.cat([layer.keys, x])
    return x @ layer.keys.T


def test_a_state_among_the_inputs_is_new_in_each_run() -> None:
    cache = Cache()
    keys = cache.layers[0].keys
    ready = run_first(ReadyModel(SmallModel(decoder), (torch.ones(1, 8), cache)))
    steady(ready)
    assert capture(ready, OperatorTuple("model")).total_flop == 2 * 8 * 3
    assert cache.layers[0].keys is keys


def copying(self: Any, x: torch.Tensor) -> torch.Tensor:
    copied = deepcopy(self.layer)
    copied.weight = nn.Parameter(torch.zeros(64, 8))
    found: torch.Tensor = copied(x)
    return found


def test_a_copy_made_in_the_forward_runs_its_own_weights() -> None:
    ready = run_first(ReadyModel(SmallModel(copying, layer=nn.Linear(8, 8, bias=False)), (torch.ones(4, 8),)))
    assert capture(ready, OperatorTuple("model")).total_flop == 2 * 4 * 8 * 64
    assert ready.run().shape == (4, 64)


def run_threads(self: Any, x: torch.Tensor) -> torch.Tensor:
    def run(layer: nn.Module) -> torch.Tensor:
        with torch.inference_mode():
            found: torch.Tensor = layer(x)
            return found

    with ThreadPoolExecutor(2) as pool:
        return torch.stack(list(pool.map(run, self.layers))).sum(0)


def threaded(self: Any, x: torch.Tensor) -> torch.Tensor:
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(x.detach() @ self.weight.detach()))
    thread.start()
    thread.join()
    return found[0] + 1


@pytest.mark.parametrize(
    ("model", "flop", "operators"),
    [
        (
            SmallModel(run_threads, layers=nn.ModuleList(nn.Linear(8, 8) for _ in range(2))),
            2 * 2 * 4 * 8 * 8,
            ["addmm", "stack", "sum"],
        ),
        (SmallModel(threaded, weight=nn.Parameter(torch.ones(8, 8))), 512, ["mm", "add"]),
    ],
)
def test_operations_in_other_threads_are_operators(model: nn.Module, flop: int, operators: list[str]) -> None:
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit
    ready = run_first(ReadyModel(model, (torch.ones(4, 8),)))
    counts = capture(ready, OperatorTuple("model"))
    assert [count.operator.short_name for count in counts.counts] == operators
    assert (counts.total_flop, counts.flop, counts.covered_ratio, counts.outside) == (flop, flop, 1.0, ())
    assert [difference(count, "cpu") for count in counts.counts] == [None] * len(operators)
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == (start, submit)
    assert torch.equal(ready.run(), model(torch.ones(4, 8)))


class Parametrized(nn.Module):
    """Attends with a weight that is computed, so that its attention is no operator."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        nn.utils.parametrizations.weight_norm(self.attention.out_proj)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.attention(x, x, x)[0]
        return found + 1


def test_attention_that_is_parametrized_or_called_by_a_subclass_takes_its_usual_branch() -> None:
    counts = counts_of(Parametrized().eval(), torch.randn(2, 5, 16))
    assert counts.flop == counts.total_flop == 2 * 2 * (4 * 5 * 16 * 16 + 2 * 5 * 5 * 16)
    names = [count.operator.short_name for count in counts.counts]
    assert names == ["_WeightNorm", "_native_multi_head_attention", "add"]
    counts = counts_of(nn.Sequential(OfItself(16, 2, batch_first=True)).eval(), torch.randn(2, 5, 16))
    assert [count.operator.short_name for count in counts.counts] == ["_native_multi_head_attention"]


class OfItself(nn.MultiheadAttention):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x, x, x, need_weights=False)[0]


class InThread(nn.Module):
    """Runs one part in a thread while another runs."""

    def __init__(self) -> None:
        super().__init__()
        self.here, self.there = (nn.Sequential(nn.Linear(8, 8)) for _ in range(2))
        self.here.register_forward_hook(self.wait)

    def wait(self, *_: object) -> None:
        self.future.result()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(1) as pool:
            self.future = pool.submit(torch.inference_mode()(self.there), x)
            return self.here(x) + self.future.result()  # type: ignore[no-any-return]


def test_an_operation_of_another_thread_is_called_by_the_module_that_runs_there() -> None:
    counts = counts_of(InThread(), torch.ones(4, 8))
    callers = {count.operator.short_name: counts.modules[count.callers[0]].path for count in counts.counts}
    assert callers == {"Linear": "here.0", "addmm": "there.0", "add": ""}


class OwnLayer(nn.TransformerEncoderLayer):
    def forward(self, src: torch.Tensor, *masks: object, **more: object) -> torch.Tensor:
        return torch.relu(self.linear1(src)) @ self.linear2.weight.T


def test_functions_of_a_layer_within_an_encoder_are_operators() -> None:
    model = nn.TransformerEncoder(OwnLayer(16, 2, 24, batch_first=True), 1, enable_nested_tensor=False).eval()
    names = [count.operator.operator for count in counts_of(model, torch.randn(2, 3, 16)).counts]
    assert names == ["torch.nn.Linear", "torch.relu", "torch.Tensor.matmul"]
