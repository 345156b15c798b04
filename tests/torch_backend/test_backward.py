"""Backward passes that a model runs in its own forward are counted by their operations."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from opcost.operators.counts import OperatorCounts
from opcost.operators.tuples import model_operator
from opcost.torch_backend.alone import difference
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.inputs import operator_inputs
from opcost.torch_backend.operators import function_tuple
from opcost.torch_backend.ready_model import ReadyModel


def by_grad(outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    (gradient,) = torch.autograd.grad(outputs.sum(), inputs)
    return gradient


def by_backward(outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    outputs.sum().backward()
    assert inputs.grad is not None
    return inputs.grad


def by_function(outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    torch.autograd.backward(outputs.sum())
    assert inputs.grad is not None
    return inputs.grad


Gradient = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Slope(nn.Module):
    """The gradient of a small network by its input."""

    def __init__(self, gradient: Gradient) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 4))
        self.gradient = gradient

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            inputs = inputs.detach().requires_grad_()
            return self.gradient(self.network(inputs), inputs)


def counts_of(gradient: Gradient, device: str = "cpu") -> OperatorCounts:
    with torch.device(device):
        ready = ReadyModel(Slope(gradient).requires_grad_(False).eval(), (torch.ones(32, 8),))
    return capture(run_first(ready), model_operator("slope", None, (32, 8)))


@pytest.mark.parametrize("gradient", [by_grad, by_backward, by_function])
def test_each_operation_of_a_backward_pass_is_an_operator(gradient: Gradient) -> None:
    counts = counts_of(gradient)
    names = {count.operator.operator: count.occurrences for count in counts.counts}
    assert names["torch.ops.aten.silu_backward"] == 1
    assert sum(count.occurrences for count in counts.counts if count.operator.operator == "torch.ops.aten.mm") == 2
    assert counts.outside == ()
    assert counts.flop == counts.total_flop == 2 * 2 * 32 * (8 * 16 + 16 * 4)
    assert counts.memory_bytes == counts.total_memory_bytes
    assert [difference(count, "cpu") for count in counts.counts if difference(count, "cpu") is not None] == []


def test_shapes_alone_have_the_operations_of_a_device() -> None:
    of_values, of_shapes = counts_of(by_grad), counts_of(by_grad, "meta")
    assert [(one.operator, one.memory_bytes) for one in of_shapes.counts] == [
        (one.operator, one.memory_bytes) for one in of_values.counts
    ]


class Own(nn.Module):
    """A model that is one function of its input."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(8, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            inputs = inputs.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.function(self.layer(inputs)).square().sum(), inputs)
        return gradient


def own_counts(model: nn.Module) -> OperatorCounts:
    return capture(run_first(ReadyModel(model.eval(), (torch.ones(32, 8),))), model_operator("own", None, (32, 8)))


@pytest.mark.parametrize("function", [lambda x: x.unbind(0)[0], lambda x: x[:, :4], lambda x: x.cumprod(1)])
def test_operations_that_only_a_backward_pass_has_are_rebuilt(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    counts = own_counts(Own(function))
    assert counts.flop_missing_reason is None
    assert [difference(count, "cpu") for count in counts.counts if difference(count, "cpu") is not None] == []


def test_a_module_that_runs_again_in_the_backward_pass_is_counted_again() -> None:
    model = Own(torch.relu)
    model.function = lambda x: checkpoint(model.again, x, use_reentrant=False)
    model.again = nn.Tanh()
    counts = own_counts(model)
    assert [count.occurrences for count in counts.counts if count.operator.short_name == "Tanh"] == [2]


def test_a_backward_pass_under_autocast_is_counted() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        counts = own_counts(Own(nn.functional.silu))
    assert "silu_backward" in {count.operator.short_name for count in counts.counts}


def test_indices_of_a_backward_pass_are_within_the_table() -> None:
    words = torch.arange(300)
    operation = torch.ops.aten.embedding_dense_backward
    operator = function_tuple(operation, (torch.ones(300, 4), words, 1000, -1, False), {})
    args, _ = operator_inputs(operator, "cpu")
    assert isinstance(args[1], torch.Tensor)
    assert args[1].unique().numel() > 200
