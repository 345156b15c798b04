"""Small operators of many kinds in a chain, none of which finds its code or weights in a GPU's caches."""

from __future__ import annotations

import torch
from torch import nn

from opcost.operators import OperatorTuple, TensorSpec

INPUT = TensorSpec((8, 64, 28, 28), "float32")
"""Small enough for the caches, and what each operator hands on is smaller."""

STREAM_ELEMENTS = 2**24
"""Of each of two fp32 tensors that are added first, 200 MB with the sum: beyond any GPU's cache (H200: 50 MB)."""


class SmallOperators(nn.Module):
    """Each on the output of the one before, and before all of them an addition that fills the caches with other data.

    So each finds its input in the cache, and neither its code nor its weights: as in a model whose run moves more than
    the cache holds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.augend: torch.Tensor
        self.addend: torch.Tensor
        self.register_buffer("augend", torch.zeros(STREAM_ELEMENTS))
        self.register_buffer("addend", torch.zeros(STREAM_ELEMENTS))
        self.chain = nn.Sequential(
            nn.Conv2d(64, 64, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, 128, 1, bias=False),
            nn.BatchNorm2d(128),
            nn.SiLU(),
            nn.Conv2d(128, 128, 3, padding=1, groups=128, bias=False),
            nn.Hardswish(),
            nn.MaxPool2d(2),
            nn.Conv2d(128, 256, 1),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(256, 512),
            nn.LayerNorm(512),
            nn.Sigmoid(),
            nn.Linear(512, 1000),
        )

    def forward(self, values: torch.Tensor) -> object:
        """Add, then run the chain."""
        torch.add(self.augend, self.addend)
        return self.chain(values)


SMALL_OPERATORS = OperatorTuple(f"{__name__}.{SmallOperators.__name__}", inputs=(INPUT,))
"""All of them as one operator."""


def small_input(device: str) -> torch.Tensor:
    """Return an input for all of them, not yet filled with values."""
    return torch.empty(INPUT.shape, device=device)
