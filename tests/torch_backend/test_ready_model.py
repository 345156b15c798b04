"""Example inputs as users give them become the arguments of a run, by one rule."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import pytest
import torch
from torch import nn

from opcost.operators.tuples import OperatorTuple
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.ready_model import ReadyModel

X, Y = torch.ones(2, 3), torch.zeros(4)
Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize(
    ("examples", "positional", "keyword"),
    [
        (X, (X,), {}),
        ((X, 2), (X, 2), {}),
        ([X, 2], (X, 2), {}),
        (Pair(X, Y), (X, Y), {}),
        (([X, Y],), ([X, Y],), {}),
        ((), (), {}),
        ({"x": X, "scale": 2.0}, (), {"x": X, "scale": 2.0}),
        (OrderedDict(x=X), (), {"x": X}),
        (UserDict(x=X), (), {"x": X}),
        ({0: X}, ({0: X},), {}),
        (({"x": X},), ({"x": X},), {}),
    ],
)
def test_examples_are_arguments(examples: Any, positional: tuple[Any, ...], keyword: dict[str, Any]) -> None:
    ready = ReadyModel.of(nn.Identity(), examples)
    assert type(ready.keyword_inputs) is dict
    assert str((ready.inputs, ready.keyword_inputs)) == str((positional, keyword))


def test_the_encoding_of_a_tokenizer_has_arguments_by_keyword() -> None:
    encoding = pytest.importorskip("transformers").BatchEncoding({"input_ids": X, "attention_mask": X})
    ready = ReadyModel.of(nn.Identity(), encoding)
    assert list(ready.keyword_inputs) == ["input_ids", "attention_mask"]
    assert ready.tensors == [X, X]


def test_a_tensor_that_is_there_twice_stays_one() -> None:
    ready = ReadyModel.of(nn.Identity(), ([X, X], {"more": Y}, 3)).with_tensors(torch.clone)
    (first, second), more, number = ready.inputs
    assert first is second
    assert first is not X
    assert (more["more"].shape, number) == (Y.shape, 3)


class Forces(nn.Module):
    """The gradient of an energy, computed in the forward, as in models of molecules."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Linear(3, 1)

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            positions = positions.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.energy(positions).sum(), positions)
        return -gradient


def test_a_model_that_computes_gradients_runs_outside_of_inference_mode() -> None:
    ready = run_first(ReadyModel(Forces(), (X,)))
    assert ready.computes_gradients
    with torch.inference_mode():
        assert torch.equal(ready.run(), -ready.model.energy.weight.expand(2, 3))
    counts = capture(ready, OperatorTuple("test.forces"))
    names = [count.operator.short_name for count in counts.counts]
    assert names == ["Linear", "sum", "ones_like", "mm", "neg"]
    # The gradient is one product of the output's with the weights.
    assert [count.flop for count in counts.counts] == [2 * 2 * 3, 0, 0, 2 * 2 * 3, 0]
    assert (counts.flop, counts.outside) == (counts.total_flop, ())


def test_other_models_run_in_inference_mode() -> None:
    class Asking(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert torch.is_inference_mode_enabled()
            return x

    assert not run_first(ReadyModel(Asking(), (X,))).computes_gradients


def test_an_error_in_both_ways_of_running_is_that_in_inference_mode() -> None:
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("inference" if torch.is_inference_mode_enabled() else "gradients")

    with pytest.raises(RuntimeError, match="inference"):
        run_first(ReadyModel(Failing(), (X,)))
