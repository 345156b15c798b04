"""Zeros in the weights of an operator, for grids: models have their weights as they were initialised or loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from opcost.errors import CannotMeasureError
from opcost.operators.tuples import DEFAULT_SEED
from opcost.torch_backend.relocation import Layer

MATRIX_DIMENSIONS = 2
"""The least dimensions of weights that are multiplied as a matrix or a kernel; scales of norms and biases have one."""


def matrices_of(function: Callable[..., object], args: Sequence[object]) -> list[torch.Tensor]:
    """Return the weights of a module, or those among a function's arguments, without vectors such as biases."""
    if isinstance(function, nn.Module):
        found: list[torch.Tensor] = [
            one for name, one in function.named_parameters() if "weight" in name.rpartition(".")[2]
        ]
    else:
        found = Layer(function, tuple(args), {}).weights
    return [weight for weight in found if weight.dim() >= MATRIX_DIMENSIONS]


def set_zeros(function: Callable[..., object], args: Sequence[object], zeros_ratio: float) -> None:
    """Set a share of an operator's weights to zero in place, at random positions, the same each time.

    Raises:
        CannotMeasureError: the operator has no weights.
    """
    weights = matrices_of(function, args)
    if not weights:
        raise CannotMeasureError("the operator has no weights that can be set to zero")
    for weight in weights:
        if not weight.is_meta:
            generator = torch.Generator(weight.device).manual_seed(DEFAULT_SEED)
            chances = torch.rand(weight.shape, device=weight.device, generator=generator)
            with torch.no_grad():
                weight.masked_fill_(chances < zeros_ratio, 0.0)
