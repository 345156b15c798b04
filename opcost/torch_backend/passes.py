"""Kinds of passes of a model or an operator; so far only inference."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
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
        """Call something once in this pass's context."""
        with self.context():
            call()


INFERENCE = Pass("inference", torch.inference_mode)
