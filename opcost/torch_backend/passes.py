"""Passes of a model or an operator: how calls run in each phase, and modes that see their operations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opcost.operators.tuples import Phase

Context: TypeAlias = Callable[[], AbstractContextManager[Any]]
"""Returns a new context manager for a call."""


@contextmanager
def gradients_allowed() -> Iterator[None]:
    """While active, code may compute gradients where it enables them, inside of an inference pass."""
    with torch.inference_mode(False), torch.no_grad():
        yield


@contextmanager
def gradients_recorded() -> Iterator[None]:
    with torch.inference_mode(False), torch.enable_grad():
        yield


MODES: Mapping[Phase, Context] = MappingProxyType(
    {
        Phase.INFERENCE: torch.inference_mode,
        Phase.STEP: gradients_recorded,
        Phase.FORWARD: gradients_recorded,
        Phase.BACKWARD: gradients_allowed,
        Phase.OPTIMIZER: gradients_allowed,
    }
)
"""The mode of torch that calls of a phase run in."""

# Not an argument: calls run at a dozen places, some inside of others' contexts. Other threads begin with the default.
_PRESENT: ContextVar[Phase] = ContextVar("phase", default=Phase.INFERENCE)


@contextmanager
def in_phase(phase: Phase) -> Iterator[None]:
    """While active, calls of this thread run in a phase."""
    before = _PRESENT.set(phase)
    try:
        yield
    finally:
        _PRESENT.reset(before)


def present_phase() -> Phase:
    """Return the phase that calls of this thread run in."""
    return _PRESENT.get()


@contextmanager
def running_calls() -> Iterator[None]:
    """While active, torch is in the mode of the present phase.

    Code that ``torch.compile`` has compiled runs as eager: its fused kernels are no operators. torch's compiler is
    imported only where something is compiled: importing it takes a second.
    """
    stance = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with MODES[present_phase()](), stance:
        yield


class DispatchMode(TorchDispatchMode):
    """A mode whose handler torch does not hide from its compiler. It would import the compiler: that takes seconds."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
