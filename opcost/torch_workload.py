"""Operator tuples and models as something that runs n times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from opcost.errors import CannotMeasureError
from opcost.operators import OperatorTuple
from opcost.torch_inputs import NormalInputs
from opcost.torch_operators import build_module

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
"""What torch and torchvision raise where they are given what they don't support: most of it is RuntimeError."""


@dataclass(frozen=True)
class EagerWorkload:
    """Calls something in a Python loop, in inference mode, as a user's program would."""

    call: Callable[[], object]
    device: str
    notes: str = ""

    def run(self, iterations: int) -> None:
        """Run that many iterations and wait for the device.

        Raises:
            CannotMeasureError: torch refused the call (out of memory, unsupported).
        """
        try:
            with torch.inference_mode():
                for _ in range(iterations):
                    self.call()
            synchronize(self.device)
        except REFUSALS as error:
            # After a CUDA fault every further call fails too; then this raises, and the run ends.
            synchronize(self.device)
            raise CannotMeasureError(one_line(error)) from error


def operator_workload(operator: OperatorTuple, device: str) -> EagerWorkload:
    """Return an operator tuple with fresh weights and normal inputs, ready to run on a device.

    An in-place operator runs out of place: in a loop it would change its own input, and with it the power.

    Raises:
        CannotMeasureError: it cannot be built here.
    """
    if operator.is_function:
        raise CannotMeasureError(f"{operator.operator} is a function, which cannot be run alone yet")
    in_place = ("inplace", True) in operator.parameters
    kept = tuple(item for item in operator.parameters if item != ("inplace", True))
    try:
        module = build_module(replace(operator, parameters=kept), device)
        inputs = NormalInputs(device)
        args = inputs.values(operator.inputs)
        kwargs = {name: inputs.value(value) for name, value in operator.keyword_inputs}
    except RuntimeError as error:
        synchronize(device)
        raise CannotMeasureError(one_line(error)) from error
    notes = "in-place operator run out of place" if in_place else ""
    return EagerWorkload(lambda: module(*args, **kwargs), device, notes)


def synchronize(device: str) -> None:
    """Wait until the device is idle."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def one_line(error: Exception) -> str:
    """Return an error's first line with its type."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
