"""Passes: what one run of a model or an operator is. Inference is the only pass yet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Pass:
    """One kind of run: ``name`` is the ``mode`` of the conditions, ``context`` makes torch's state for its calls."""

    name: str
    context: Callable[[], AbstractContextManager[Any]]

    def run_once(self, call: Callable[..., object], inputs: tuple[Any, ...]) -> None:
        """Call something once as this pass does."""
        with self.context():
            call(*inputs)


INFERENCE = Pass("inference", torch.inference_mode)
