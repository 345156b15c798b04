"""A model whose ``forward`` and parts a test writes where it needs them."""

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


def of_class(name: str, run: Callable[..., Any], **parts: Any) -> SmallModel:
    """Return a small model of a class of its own, by whose name it may be a composite."""
    cls: type[SmallModel] = type(name, (SmallModel,), {})
    return cls(run, **parts)
