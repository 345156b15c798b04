"""The cache at repeated calls: which copies run in which order, and that each does what the operator does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from opcost.measuring.workload import Calls
from opcost.torch_backend.cost_counter import tensors_of
from opcost.torch_backend.repeated_calls import (
    Layer,
    repeated,
)

WEIGHTS_BYTES = 4 * (5 * 5 + 5)
"""Those of ``linear()``."""

FREE = 10**9
X = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))


class Recorded(nn.Linear):
    """Notes which module was called, by the place of its weights in memory, and on what."""

    calls: list[tuple[int, torch.Tensor]]

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        Recorded.calls.append((self.weight.data_ptr(), input))
        return super().forward(input)


@pytest.fixture(autouse=True)
def calls() -> list[tuple[int, torch.Tensor]]:
    Recorded.calls = []
    return Recorded.calls


def linear() -> nn.Linear:
    return Recorded(5, 5).eval()


def made(function: Callable[..., object], *args: object, **kwargs: object) -> Calls:
    """Return calls of a function on some arguments."""
    made_calls = repeated(Layer(function, args, kwargs))
    if isinstance(function, Recorded):
        # A look at what is called has called it.
        Recorded.calls.clear()
    return made_calls


def run(made_calls: Calls) -> Any:
    with torch.inference_mode():
        return made_calls.cycle()


# Warm


def test_warm_is_one_call_on_one_set_of_weights(calls: list[tuple[int, torch.Tensor]]) -> None:
    warm = made(linear(), X)
    run(warm)
    run(warm)
    assert (warm.period, warm.notes, warm.overhead) == (1, "", None)
    assert len({place for place, _ in calls}) == 1


def test_a_layer_in_other_memory_is_the_same_layer() -> None:
    shared = torch.randn(4, 6).t()
    gaps = torch.randn(4, 12)[:, 1:8:2]
    layer = Layer(nn.Linear(5, 5), (shared, [gaps, shared[1:]], 3), {"keyword": shared.expand(2, 6, 4)})
    moved = layer.relocated()
    before, after = tensors_of((layer.args, layer.kwargs)), tensors_of((moved.args, moved.kwargs))
    assert [(tensor.shape, tensor.stride(), tensor.storage_offset()) for tensor in before] == [
        (tensor.shape, tensor.stride(), tensor.storage_offset()) for tensor in after
    ]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    places = [[tensor.untyped_storage().data_ptr() for tensor in tensors] for tensors in (before, after)]
    assert not set(places[0]) & set(places[1])
    assert [places[0].index(place) for place in places[0]] == [places[1].index(place) for place in places[1]]
    assert {tensor.data_ptr() for tensor in layer.weights}.isdisjoint(tensor.data_ptr() for tensor in moved.weights)
    assert torch.equal(layer.weights[0], moved.weights[0])
    assert moved.args[2] == 3


def test_a_relocated_call_reads_other_memory_than_the_first_and_than_any_other(
    calls: list[tuple[int, torch.Tensor]],
) -> None:
    warm = made(linear(), X)
    assert warm.relocated is not None
    # Kept while all are compared: memory that is given back is used again.
    cycles = [warm.cycle, *(warm.relocated() for _ in range(3))]
    calls.clear()
    with torch.inference_mode():
        outputs = [cycle() for cycle in cycles]
    assert len({place for place, _ in calls}) == 4
    assert len({value.data_ptr() for _, value in calls}) == 4
    assert all(torch.equal(output, outputs[0]) for output in outputs)  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [torch.relu, torch.Tensor.add, F.relu, torch.ops.aten.relu, nn.ReLU(inplace=True)])
def test_functions_of_all_kinds_run_elsewhere(function: Callable[..., object]) -> None:
    args = (X, X) if function is torch.Tensor.add else (X,)
    relocated = made(function, *args).relocated
    assert relocated is not None
    with torch.inference_mode():
        assert torch.equal(relocated()(), function(*(each.clone() for each in args)))  # type: ignore[arg-type]
