"""A model whose ``forward`` and parts a test writes where it needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


class SmallModel(nn.Module):
    """Calls a function with itself and its inputs; ``parts`` are its modules, weights and other attributes."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self, *args, **kwargs)
