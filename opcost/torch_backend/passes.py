"""Passes of a model or an operator; so far only inference."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias

import torch

Context: TypeAlias = Callable[[], AbstractContextManager[Any]]
"""Returns a new context manager for a call."""


@contextmanager
def inference() -> Iterator[None]:
    """While active, code that ``torch.compile`` has compiled runs as eager: its fused kernels are no operators.

    torch's compiler is imported only where something is compiled: importing it takes a second.
    """
    stance = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with torch.inference_mode(), stance:
        yield


@contextmanager
def gradients_allowed() -> Iterator[None]:
    """While active, code may compute gradients where it enables them, inside of an inference pass."""
    with torch.inference_mode(False), torch.no_grad():
        yield
