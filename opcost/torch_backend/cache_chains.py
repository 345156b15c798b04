"""Chains of operators behind a stream of other data, so that they find neither their weights nor all of their code in a
GPU's caches."""

from __future__ import annotations

import torch
from torch import nn

from opcost.comparing.cache_chains import block

GAIN = 1.1
"""The norm of a filter: 1 would keep the spread of values, less what padding and the operators between take."""


class StreamThenCopy(nn.Module):
    """Reads a stream, and returns a copy of images: just written, as by an operator before."""

    def forward(self, stream: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """Read, then copy."""
        return _copied_behind(stream, images)


class ChainBehindAStream(nn.Module):
    """The blocks of an ``opcost.comparing.cache_chains.Chain``, on a copy that is made behind a stream."""

    def __init__(self, blocks: int, kind: str) -> None:
        super().__init__()
        self.chain = nn.Sequential(*(module for _ in range(blocks) for module in _modules(kind)))

    def forward(self, stream: torch.Tensor, images: torch.Tensor) -> object:
        """Read and copy, then run the chain."""
        return self.chain(_copied_behind(stream, images))


def _copied_behind(stream: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    torch.sum(stream)
    return images.clone()


def _modules(kind: str) -> list[nn.Module]:
    """Return the modules of one block."""
    modules = [getattr(nn, name)(**parameters) for name, parameters in block(kind)]
    for module in modules:
        if isinstance(module, nn.Conv2d):
            # As torch initialises them each makes values three times smaller. So they stay within a factor of five,
            # which power does not depend on (``input_values``).
            nn.init.normal_(module.weight)
            with torch.no_grad():
                module.weight *= GAIN / module.weight.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)
    return modules
