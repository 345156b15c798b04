"""Counting a model's operators: what is an operator, how often it is called, and what it costs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torchvision.models import get_model, get_model_weights

from opcost.operators import OperatorCount, OperatorCounts, TensorSpec, model_operator
from opcost.torch_capture import capture
from opcost.torch_flops import CostCounter, OperationCost

MODEL = model_operator("resnet18", None, (2, 3, 8, 8))


def counts_of(model: nn.Module, *inputs: torch.Tensor) -> OperatorCounts:
    return capture(model.eval(), inputs, MODEL)


def only(counts: OperatorCounts) -> OperatorCount:
    (count,) = counts.counts
    return count


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


class Fails(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
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


def test_leaves_are_found_however_deep_they_are_nested() -> None:
    model = nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(4, 3)), nn.GELU()), nn.Sequential(nn.Linear(3, 2)))
    counts = counts_of(model, torch.randn(2, 4))
    assert [count.operator.short_name for count in counts.counts] == ["Linear", "GELU", "Linear"]


def test_a_model_that_is_a_leaf_itself_is_its_only_operator() -> None:
    assert only(counts_of(nn.Linear(4, 3), torch.randn(2, 4))).operator.operator == "torch.nn.Linear"


def test_two_modules_of_one_kind_are_one_tuple() -> None:
    counts = counts_of(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), torch.randn(2, 4))
    assert only(counts).occurrences == 2


def test_one_module_with_two_input_sizes_is_two_tuples() -> None:
    class TwoSizes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x)[:1] + self.linear(x[:1])

    counts = counts_of(TwoSizes(), torch.randn(3, 4))
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


def test_layouts_of_inputs_are_kept_apart() -> None:
    image = torch.randn(2, 3, 8, 8)
    pool = nn.MaxPool2d(2)
    keys = {only(counts_of(pool, x)).operator.key for x in (image, image.contiguous(memory_format=torch.channels_last))}
    assert len(keys) == 2


def test_keyword_arguments_are_inputs_too() -> None:
    class ByKeyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(input=x)

    count = only(counts_of(ByKeyword(), torch.randn(2, 4)))
    assert count.operator.inputs == ()
    assert count.operator.keyword_inputs == (("input", TensorSpec((2, 4), "float32")),)
    assert count.flop == 2 * 2 * 4 * 3


def test_the_mode_is_part_of_the_tuple() -> None:
    norm = nn.BatchNorm1d(4)
    modes = [only(capture(norm.train(train), (torch.randn(2, 4),), MODEL)).operator.mode for train in (True, False)]
    assert modes == ["train", "eval"]


# What is one operator


def test_a_leaf_that_calls_another_leaf_is_one_operator() -> None:
    class Wrapper(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.hidden = [inner]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.hidden[0](x) + 1

    inner = nn.Linear(4, 3)
    counts = counts_of(nn.Sequential(Wrapper(inner), nn.Linear(3, 4), inner), torch.randn(2, 4))
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

    crossed = only(counts_of(CrossAttention(), torch.randn(3, 5, 8))).operator
    assert [spec.identity for spec in crossed.inputs if isinstance(spec, TensorSpec)] == [0, 1, 1]
    assert crossed.key != only(counts_of(SelfAttention(), torch.randn(3, 5, 8))).operator.key


def test_what_runs_outside_operators_is_in_the_totals_only() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) @ x.t()

    counts = counts_of(Product(), torch.randn(2, 4))
    assert counts.flop == 2 * 2 * 4 * 4
    assert counts.total_flop == counts.flop + 2 * 2 * 4 * 2
    assert counts.total_memory_bytes == counts.memory_bytes + 4 * (2 * 4 + 4 * 2 + 2 * 2)


def test_an_argument_that_a_module_does_not_keep_is_unknown_and_its_weights_keep_it_apart() -> None:
    three, four = (only(counts_of(Forgetful(width, 1.0), torch.randn(1, 1, 1))).operator for width in (3, 4))
    assert "unknown" in three.parameters_text
    assert three != four
    assert three.inputs == four.inputs


# Capturing leaves no trace


def hooks_on(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_hooks_are_gone_afterwards() -> None:
    model = Thrice()
    counts_of(model, torch.randn(2, 4))
    assert hooks_on(model) == 0


def test_hooks_and_counting_are_gone_after_an_error() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Fails())
    with pytest.raises(RuntimeError, match="always fails"):
        counts_of(model, torch.randn(2, 4))
    assert hooks_on(model) == 0
    assert not torch.is_inference_mode_enabled()
    assert only(counts_of(model[0], torch.randn(2, 4))).occurrences == 1


def test_a_failing_leaf_whose_model_goes_on_does_not_take_the_costs_of_the_next() -> None:
    class Forgiving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fails, self.linear = Fails(), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.fails(x)
            except RuntimeError:
                return self.linear(x)

    counts = counts_of(Forgiving(), torch.randn(2, 4))
    assert {count.operator.short_name: count.flop for count in counts.counts} == {"Fails": 0, "Linear": 2 * 2 * 4 * 3}


def test_counts_do_not_depend_on_being_observed() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(SelfAttention(), Thrice8()), torch.randn(3, 5, 8)
    alone = counts_of(model, x)
    with CostCounter(lambda _: None):
        assert counts_of(model, x) == alone
    handles = [module.register_forward_hook(lambda *_: None) for module in model.modules()]
    assert counts_of(model, x) == alone
    assert hooks_on(model) == len(handles)


def test_the_model_computes_the_same_while_it_is_captured() -> None:
    outputs: list[torch.Tensor] = []
    model, x = nn.Sequential(SelfAttention(), Thrice8()).eval(), torch.randn(3, 5, 8)
    model.register_forward_hook(lambda _module, _args, output: outputs.append(output))
    capture(model, (x,), MODEL)
    with torch.inference_mode():
        model(x)
    assert torch.equal(outputs[0], outputs[1])


class Thrice8(Thrice):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)


# Real models


def captured(name: str) -> OperatorCounts:
    size = (1, 3, 224, 224)
    model = get_model(name, weights=None).eval()
    return capture(model, (torch.zeros(size),), model_operator(name, None, size))


def test_resnet50_has_158_calls_of_50_tuples() -> None:
    counts = captured("resnet50")
    assert (counts.operator_calls, len(counts.counts), counts.parameters) == (158, 50, 25557032)
    assert counts.total_flop / 2e9 == pytest.approx(4.089, abs=5e-4)


@pytest.mark.parametrize(
    "name", ["resnet18", "vit_b_16", "swin_t", "mobilenet_v3_large", "convnext_tiny", "densenet121"]
)
def test_multiply_adds_and_parameters_are_those_that_torchvision_states(name: str) -> None:
    counts = captured(name)
    stated = get_model_weights(name).DEFAULT.meta
    assert counts.total_flop / 2e9 == pytest.approx(stated["_ops"], rel=5e-3)
    assert counts.parameters == stated["num_params"]
