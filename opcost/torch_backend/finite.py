"""Outputs that hold NaN or infinity: such a call takes its time, but may draw another power than sound values."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from opcost.measuring.flags import Flag, Flags
from opcost.torch_backend.flops import tensors_of


def flags_of_output(output: object, arguments: object) -> Flags:
    """Return a flag if a call's output is not all finite though its arguments are.

    Such an output is a root or a logarithm of values that were drawn below zero, say: another run would find the same.

    Who fills a mask with -inf gets what was asked for, as the model does. It is one look at one output, a kernel or two
    for each tensor, which takes hardly any memory.
    """
    is_told = not all(map(_is_finite, tensors_of(output))) and all(map(_is_finite, tree_leaves(arguments)))
    return (Flag.NOT_FINITE,) if is_told else ()


def _is_finite(value: Any) -> bool:
    """Return whether a number, or each in a tensor, is finite; whole numbers are, and what has no numbers."""
    if isinstance(value, float):
        return math.isfinite(value)
    if not isinstance(value, torch.Tensor) or not value.numel():
        return True
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    if not value.is_floating_point():
        return True
    try:
        # Both are NaN where any value is.
        return all(math.isfinite(end.item()) for end in torch.aminmax(value))
    except RuntimeError:
        # Some tensors (4-bit floats, sparse ones) have no such function; that is no reason not to measure.
        return True
