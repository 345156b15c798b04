"""Detection of outputs with NaN or infinity, for which a call may draw another power than for finite values."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from opcost.measuring.flags import Flag, Flags
from opcost.torch_backend.flops import tensors_of


def flags_of_output(output: object, arguments: object) -> Flags:
    """Return a flag if a call's output is not finite although its arguments are, such as the root of negative values.

    A mask that is filled with -inf is not flagged, because an argument is infinite. The check takes one or two kernels
    for each tensor and hardly any memory.
    """
    is_flagged = not all(map(_is_finite, tensors_of(output))) and all(map(_is_finite, tree_leaves(arguments)))
    return (Flag.NOT_FINITE,) if is_flagged else ()


def _is_finite(value: Any) -> bool:
    """Return whether a number or all numbers of a tensor are finite; True for all other values."""
    if isinstance(value, float):
        return math.isfinite(value)
    if not isinstance(value, torch.Tensor) or not value.numel():
        return True
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    if not value.is_floating_point():
        return True
    try:
        # Both are NaN if any value is.
        return all(math.isfinite(end.item()) for end in torch.aminmax(value))
    except RuntimeError:
        # Some tensors (4-bit floats, sparse tensors) do not support this function; they are not flagged.
        return True
