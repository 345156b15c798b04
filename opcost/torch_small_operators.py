"""Small operators of many kinds in a chain, none of which finds its code or weights in a GPU's caches."""

from __future__ import annotations

import torch
from torch import nn

from opcost.cold_calls import STREAM_ELEMENTS


class SmallOperators(nn.Module):
    """Each on the output of the one before, and before all of them an addition that fills the caches with other data.

    So each finds its input in the cache (but the first, whose 0.4 MB are a 500th of the addition's), and neither its
    code nor its weights: as in a model whose run moves more than the cache holds. ``opcost.cold_calls.CALLS`` are what
    block 0 would count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.augend: torch.Tensor
        self.addend: torch.Tensor
        self.register_buffer("augend", torch.randn(STREAM_ELEMENTS))
        self.register_buffer("addend", torch.randn(STREAM_ELEMENTS))
        self.chain = nn.Sequential(
            nn.Conv2d(64, 64, 3, padding=1, bias=False),
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
