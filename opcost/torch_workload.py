"""Operator tuples and models as something that runs n times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from opcost.conditions import EAGER, GRAPH
from opcost.errors import CannotMeasureError
from opcost.input_values import NORMAL_DATA, InputData
from opcost.operators import OperatorTuple
from opcost.torch_cuda_graph import CapturedCalls, CaptureRefusal, capture_calls
from opcost.torch_flops import tensors_of
from opcost.torch_in_place import repeatable
from opcost.torch_inputs import operator_inputs
from opcost.torch_operators import build_operator

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
"""What torch and torchvision raise where they are given what they don't support: most of it is RuntimeError."""


@dataclass(frozen=True)
class EagerWorkload:
    """Calls something in a Python loop, in inference mode, as a user's program would."""

    call: Callable[[], object]
    device: str
    notes: str = ""
    execution = EAGER
    iterations_per_round = 1

    def run(self, rounds: int) -> None:
        """Call it that many times and wait for the device.

        Raises:
            CannotMeasureError: torch refused the call (out of memory, unsupported).
        """
        try:
            with torch.inference_mode():
                for _ in range(rounds):
                    self.call()
            synchronize(self.device)
        except REFUSALS as error:
            # After a CUDA fault every further call fails too; then this raises, and the run ends.
            synchronize(self.device)
            raise CannotMeasureError(one_line(error)) from error


@dataclass(frozen=True)
class GraphWorkload:
    """Replays a CUDA graph of some calls; keeps what they need."""

    captured: CapturedCalls
    call: Callable[[], object]
    device: str
    notes: str = ""
    execution = GRAPH

    @property
    def iterations_per_round(self) -> int:
        """The number of calls in the graph."""
        return self.captured.calls

    def run(self, rounds: int) -> None:
        """Replay the graph that many times and wait for the device.

        Raises:
            CannotMeasureError: the device refused it.
        """
        try:
            self.captured.replay(rounds)
            synchronize(self.device)
        except RuntimeError as error:
            synchronize(self.device)
            raise CannotMeasureError(one_line(error)) from error


def as_graph(workload: EagerWorkload) -> GraphWorkload | EagerWorkload:
    """Return the same calls in a CUDA graph; where they cannot be captured, as they are, with a note that says why.

    Raises:
        CannotMeasureError: torch refused the call (out of memory, unsupported).
    """
    try:
        captured = capture_calls(workload.call, workload.device)
        return GraphWorkload(captured, workload.call, workload.device, workload.notes)
    except CaptureRefusal as refusal:
        return replace(workload, notes=_joined(workload.notes, f"eager, since {refusal}"))
    except REFUSALS as error:
        synchronize(workload.device)
        raise CannotMeasureError(one_line(error)) from error


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def operator_workload(operator: OperatorTuple, device: str, data: InputData = NORMAL_DATA) -> EagerWorkload:
    """Return an operator tuple with fresh weights and drawn inputs, ready to run on a device again and again.

    An in-place operator writes elsewhere: in a loop it would change its own input, and with it the power.

    Raises:
        CannotMeasureError: it cannot be built or repeated here.
    """
    try:
        function, args, kwargs = operator_call(operator, device, data)
        call, notes = repeatable(partial(function, *args, **kwargs), tensors_of((args, kwargs)))
        return EagerWorkload(call, device, notes)
    except REFUSALS as error:
        synchronize(device)
        raise CannotMeasureError(one_line(error)) from error


def operator_call(
    operator: OperatorTuple, device: str, data: InputData = NORMAL_DATA
) -> tuple[Callable[..., object], tuple[object, ...], dict[str, object]]:
    """Return an operator tuple with fresh weights, and drawn inputs for a call as its model makes it.

    Raises:
        CannotMeasureError: it cannot be built here.
    """
    return (build_operator(operator, device), *operator_inputs(operator, device, data))


def synchronize(device: str) -> None:
    """Wait until the device is idle."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def one_line(error: Exception) -> str:
    """Return an error's first line with its type."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
