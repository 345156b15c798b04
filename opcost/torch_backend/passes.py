"""Kinds of passes of a model or an operator; so far only inference."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

Context: TypeAlias = Callable[[], AbstractContextManager[Any]]
"""Returns a new context manager for a call."""


@dataclass(frozen=True)
class Pass:
    """A kind of pass. ``name`` is the ``mode`` of the conditions; ``context`` returns a context manager for calls."""

    name: str
    context: Context

    def run_once(self, call: Callable[[], object]) -> None:
        with self.context():
            call()


@contextmanager
def _inference() -> Iterator[None]:
    """While active, code that ``torch.compile`` has compiled runs as eager: its fused kernels are no operators.

    torch's compiler is imported only where something is compiled: importing it takes a second.
    """
    stance = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with torch.inference_mode(), stance:
        yield


INFERENCE = Pass("inference", _inference)


@contextmanager
def gradients_allowed() -> Iterator[None]:
    """While active, code may compute gradients where it enables them, inside of an inference pass."""
    with torch.inference_mode(False), torch.no_grad():
        yield
