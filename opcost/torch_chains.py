"""Chains of operators behind a stream of other data, so that they find neither their weights nor all of their code in a
GPU's caches."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from opcost.calls_in_chains import ELEMENTWISE, ELEMENTWISE_MODULES, NORM, NORM_MODULES, PRODUCT_MODULES, REPEATS


class StreamThenCopy(nn.Module):
    """Reads a stream, and returns a copy of images: just written, as by an operator before."""

    def forward(self, stream: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """Read, then copy."""
        return _copied_behind(stream, images)


class ChainBehindAStream(nn.Module):
    """The blocks of an ``opcost.calls_in_chains.Chain``, on a copy that is made behind a stream."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.chain = nn.Sequential(*(module for _ in range(REPEATS) for module in _block(kind)))

    def forward(self, stream: torch.Tensor, images: torch.Tensor) -> object:
        """Read and copy, then run the chain."""
        return self.chain(_copied_behind(stream, images))


def _copied_behind(stream: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    torch.sum(stream)
    return images.clone()


def _block(kind: str) -> list[nn.Module]:
    elementwise = _modules(ELEMENTWISE_MODULES)
    if kind == ELEMENTWISE:
        return elementwise
    own = _modules(NORM_MODULES if kind == NORM else PRODUCT_MODULES)
    return [module for pair in zip(elementwise, own, strict=True) for module in pair]


def _modules(named: tuple[tuple[str, Mapping[str, object]], ...]) -> list[nn.Module]:
    return [getattr(nn, name)(**parameters) for name, parameters in named]
