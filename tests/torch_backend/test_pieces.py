"""Captures in pieces, with a simulated capture on the CPU: what is captured, what runs between, in which order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from opcost.measuring.workload import Call
from opcost.torch_backend.cost_counter import tensors_of
from opcost.torch_backend.cuda_graph import (
    CaptureRefusal,
    Pieces,
    SynchronisationRefusal,
    captured_in_pieces,
    may_launch_on,
)
from opcost.torch_backend.passes import running_calls
from opcost.torch_backend.repeated_calls import Operation

WAITING = frozenset({"item", "index", "nonzero"})
"""Operations that wait for the simulated device."""


class FakeGraph(TorchDispatchMode):
    """Captures operations without running them: until a replay, their outputs are NaN or -1."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.replays = 0
        self._operations: list[Call] = []

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ) -> Any:
        kwargs = kwargs or {}
        self.names.append(func._overloadpacket.__name__)
        if not may_launch_on("cpu", Operation(func, args, kwargs)):
            return func(*args, **kwargs)
        assert func._overloadpacket.__name__ not in WAITING
        before = [tensor.clone() for tensor in tensors_of((args, kwargs))]
        output = func(*args, **kwargs)
        for tensor, value in zip(tensors_of((args, kwargs)), before, strict=True):
            tensor.copy_(value)
        memory = {tensor.untyped_storage().data_ptr() for tensor in tensors_of((args, kwargs))}
        for tensor in tensors_of(output):
            if tensor.untyped_storage().data_ptr() not in memory:
                tensor.fill_(float("nan") if tensor.is_floating_point() else -1)

        def again() -> None:
            values = func(*args, **kwargs)
            for tensor, value in zip(tensors_of(output), tensors_of(values), strict=True):
                tensor.copy_(value)

        self._operations.append(again)
        return output

    def replay(self) -> None:
        self.replays += 1
        for operation in self._operations:
            operation()


class FakeRecorder:
    device_type = "cpu"

    def __init__(self, waiting: frozenset[str] = WAITING) -> None:
        self.graphs: list[FakeGraph] = []
        self.is_capturing = False
        self._waiting = waiting

    def run_without_waiting(self, call: Call) -> object:
        assert not self.is_capturing
        operation = getattr(call, "__self__", None)
        if isinstance(operation, Operation) and operation.name in self._waiting:
            raise SynchronisationRefusal("it synchronises with the GPU")
        return call()

    def run_waiting(self, call: Call) -> object:
        return call()

    def begin(self) -> None:
        assert not self.is_capturing
        self.is_capturing = True
        self.graphs.append(FakeGraph())
        self.graphs[-1].__enter__()  # type: ignore[no-untyped-call]

    def end(self) -> FakeGraph:
        assert self.is_capturing
        self.is_capturing = False
        self.graphs[-1].__exit__(None, None, None)  # type: ignore[no-untyped-call]
        return self.graphs[-1]


@dataclass(frozen=True)
class Captured:
    pieces: Pieces
    graphs: list[FakeGraph]
    output: torch.Tensor

    @property
    def names(self) -> list[list[str]]:
        """The operations of each graph."""
        return [graph.names for graph in self.graphs]


def captured(call: Callable[[], torch.Tensor]) -> Captured:
    outputs: list[torch.Tensor] = []

    def keeping() -> None:
        outputs[:] = [call()]

    recorder = FakeRecorder()
    with running_calls():
        pieces = captured_in_pieces(keeping, recorder)
    assert pieces.graphs == len(recorder.graphs)
    assert {graph.replays for graph in recorder.graphs} <= {1}
    return Captured(pieces, recorder.graphs, outputs[0])


def test_a_call_is_captured_between_its_waits() -> None:
    x, table, index = torch.randn(4, 4), torch.randn(8, 4), torch.tensor([1, 2, 3, 7])

    def call() -> torch.Tensor:
        y = torch.relu(x) + 1
        y = y * table[index]
        scale = float(y.abs().max())
        return torch.exp(y / scale)

    found = captured(call)
    assert found.names == [["relu", "add"], ["mul", "abs", "max"], ["div", "exp"]]
    assert found.pieces.waits == 2
    assert torch.equal(found.output, call())


def test_waits_in_a_row_have_no_graph_between_and_a_copy_has_one() -> None:
    x, index = torch.randn(8, 4), torch.tensor([1, 0])
    found = captured(lambda: x[index][index])
    assert (found.pieces.waits, found.names) == (2, [])
    x, index = torch.randn(2, 8, 4), torch.tensor([1, 0])
    found = captured(lambda: x[index].transpose(0, 1).reshape(16, 4))
    assert found.names == [["reshape"]]


def test_a_replay_repeats_graphs_and_waits_in_their_order() -> None:
    x, index = torch.ones(4), torch.tensor([3, 2, 1, 0])

    def call() -> torch.Tensor:
        x.add_(1)
        y = (x * 2)[index]
        x.mul_(3)
        return y + x

    found = captured(call)
    x.fill_(1.0)
    found.pieces.replay()
    assert torch.equal(x, torch.full((4,), 6.0))
    # The output of an operation that waits is that of the capture, because inputs do not change.
    assert found.output.isfinite().all()


def test_an_output_of_a_wait_that_a_graph_modifies_is_written_again() -> None:
    x, index = torch.ones(4), torch.tensor([3, 2, 1, 0])
    found = captured(lambda: x[index].view(2, 2).add_(1).clone())
    for _ in range(3):
        found.pieces.replay()
    assert torch.equal(found.output, torch.full((2, 2), 2.0))


def test_tensors_that_operations_between_graphs_read_and_make_are_kept() -> None:
    made: list[ref[torch.Tensor]] = []
    index = torch.tensor([1, 0])

    def call() -> torch.Tensor:
        read = torch.ones(2, 2) * 2
        chosen = read[index]
        made.extend([ref(read), ref(chosen)])
        return chosen + 1

    found = captured(call)
    read, chosen = made[-2:]
    assert read() is not None
    assert chosen() is not None
    del found
    assert read() is None
    assert chosen() is None


def test_a_call_whose_operations_change_is_refused() -> None:
    calls: list[int] = []
    x = torch.ones(3)

    def call() -> torch.Tensor:
        calls.append(0)
        return x * float(x.sum().item()) if len(calls) < 2 else torch.relu(x)

    with pytest.raises(CaptureRefusal, match="its operations differ from call to call"):
        captured(call)


STEPS: Sequence[Callable[[torch.Tensor], torch.Tensor]] = (
    torch.relu,
    lambda x: x.add_(0.5),
    lambda x: x.t(),
    lambda x: x.t().reshape(4, 4),
    lambda x: x[torch.tensor([3, 0, 2, 1])],
    lambda x: x / (1 + abs(float(x.sum()))),
    lambda x: torch.softmax(x, 0) @ x,
    lambda x: x[torch.nonzero(x[:, 0] < 9)[:, 0]],
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=8))
def test_what_is_captured_in_pieces_computes_the_same(steps: list[Callable[[torch.Tensor], torch.Tensor]]) -> None:
    x = torch.linspace(-1, 1, 16).reshape(4, 4)

    def call() -> torch.Tensor:
        y = x * 1
        for step in steps:
            y = step(y)
        return y

    found = captured(call)
    with running_calls():
        assert torch.equal(found.output, call())
        found.pieces.replay()
        assert torch.equal(found.output, call())
