"""Chains of operators after a stream of other data, which evicts their weights and a part of their code from caches."""

from __future__ import annotations

import torch
from torch import nn

from opcost.comparing.cache_chains import block

GAIN = 1.1
"""The norm of a filter. A norm of 1 keeps the spread of values; padding and other operators reduce it."""


class StreamThenCopy(nn.Module):
    """Reads a stream and returns a copy of images, which is in the cache like a previous operator's output."""

    def forward(self, stream: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """Read the stream, then copy the images."""
        return _copied_after(stream, images)


class ChainBehindAStream(nn.Module):
    """The blocks of an ``opcost.comparing.cache_chains.Chain``, on a copy that is made after a stream."""

    def __init__(self, blocks: int, kind: str) -> None:
        super().__init__()
        self.chain = nn.Sequential(*(module for _ in range(blocks) for module in _modules(kind)))

    def forward(self, stream: torch.Tensor, images: torch.Tensor) -> object:
        """Read the stream, copy the images, then run the chain."""
        return self.chain(_copied_after(stream, images))


def _copied_after(stream: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    torch.sum(stream)
    return images.clone()


def _modules(kind: str) -> list[nn.Module]:
    """Return the modules of one block."""
    modules = [getattr(nn, name)(**parameters) for name, parameters in block(kind)]
    for module in modules:
        if isinstance(module, nn.Conv2d):
            # With torch's initialisation each convolution makes values three times smaller. Here they stay within a
            # factor of five, on which power does not depend (``operators.values``).
            nn.init.normal_(module.weight)
            with torch.no_grad():
                module.weight *= GAIN / module.weight.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)
    return modules
