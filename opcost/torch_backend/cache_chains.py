"""Chains of operators after a stream of other data, which evicts their weights and a part of their code from caches."""

from __future__ import annotations

import torch
from torch import nn

from opcost.operators.cache_chains import ADDITION, BRANCH, CALLS_IN_BLOCK, FORMS, block

GAIN = 1.1
"""The norm of a filter or of a matrix's row. A norm of 1 keeps the spread of values; padding and other operators reduce
it."""

BRANCH_WIDTH = 4
"""How much wider a branch is inside: as the multilayer perceptron of a transformer."""

GAIN_IF_NOT_ADDED, GAIN_IF_ADDED = 0.98, 1.98
"""Factors of a branch, which changes the sign: added to its input or not, values stay within a factor of two."""


class StreamThenCopy(nn.Module):
    """Reads a stream and returns a copy of images, which is in the cache like a previous operator's output."""

    def forward(self, stream: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        return _copied_after(stream, images)


class ChainBehindAStream(nn.Module):
    """The blocks of an ``opcost.operators.cache_chains.Chain``, on a copy that is made after a stream."""

    def __init__(self, blocks: int, kind: str) -> None:
        super().__init__()
        if kind not in FORMS:
            raise ValueError(f"{kind!r} is no kind of chain")
        self.chain = nn.Sequential(*(module for _ in range(blocks) for module in _modules(kind)))

    def forward(self, stream: torch.Tensor, images: torch.Tensor) -> object:
        return self.chain(_copied_after(stream, images))


class Branch(nn.Module):
    """Calls on wider tensors, as between two additions of a transformer, and perhaps an addition."""

    def __init__(self, is_added: bool) -> None:
        super().__init__()
        self.is_added = is_added
        self.gain = GAIN_IF_ADDED if is_added else GAIN_IF_NOT_ADDED

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        wide = torch.neg(torch.cat(BRANCH_WIDTH * [tokens], dim=-1))
        narrow = torch.mul(wide[..., : tokens.shape[-1]], self.gain)
        return narrow + tokens if self.is_added else narrow


def _copied_after(stream: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    torch.sum(stream)
    return images.clone()


def _modules(kind: str) -> list[nn.Module]:
    if kind in (BRANCH, ADDITION):
        return [Branch(kind == ADDITION) for _ in range(CALLS_IN_BLOCK)]
    modules = [getattr(nn, name)(**parameters) for name, parameters in block(kind)]
    for module in modules:
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            # Values keep their spread within a factor of five, on which power does not depend. With torch's
            # initialisation each product makes values three times smaller (``operators.values``).
            weight = nn.init.normal_(module.weight)
            with torch.no_grad():
                norms = weight.flatten(1).norm(dim=1)
                weight *= GAIN / norms.reshape(-1, *(1 for _ in weight.shape[1:]))
    return modules
