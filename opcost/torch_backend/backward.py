"""The operations of a backward pass that a model runs in its own forward, each as an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch.utils._python_dispatch import TorchDispatchMode

GRADIENTS = (torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward)
"""Functions that run a backward pass. They read a graph that no arguments hold, so that none runs again alone."""

Run: TypeAlias = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Runs an operation with positional and keyword arguments, and returns its result."""


class EachOperation(TorchDispatchMode):
    """Has each operation that torch dispatches run by a function.

    Autograd runs the operations of a GPU in a thread of its own, which takes over this mode.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ) -> Any:
        return self._run(func, args, kwargs or {})
