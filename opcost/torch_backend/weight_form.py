"""The dtype and memory format in which a module stores its weights. Buffers count as weights, as in frozen norms."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from opcost.errors import CannotBuildError, KeyRemedy
from opcost.measuring.precisions import DTYPES
from opcost.operators.tuples import FLOAT32, OperatorTuple, channels_last_strides, contiguous_strides, storage_form
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.values import is_dense

CHANNELS_LAST_FORMATS = {4: "channels_last", 5: "channels_last_3d"}
"""torch's names of the memory format, by the number of dimensions."""


def weight_dtype(module: nn.Module) -> torch.dtype:
    """Return the dtype of a module's real or complex weights, float32 if it has none."""
    return next((weight.dtype for weight in _weights(module)), torch.float32)


def _channels_last(module: nn.Module) -> Iterator[torch.Tensor]:
    return (weight for weight in _weights(module) if weight.stride() == channels_last_strides(weight.shape))


def has_channels_last(module: nn.Module) -> bool:
    """Return whether any weight is stored channels last and not also contiguous."""
    return any(not weight.is_contiguous() for weight in _channels_last(module))


def has_strides_of_channels_last(module: nn.Module) -> bool:
    """Return whether any weight has the strides of channels last.

    Filters of one value or of one channel are in the same order in both formats. Yet their strides choose the kernel,
    and the layout of its output, if the input is not channels last: an image of one point, a part of the channels.
    """
    return any(weight.stride() != contiguous_strides(weight.shape) for weight in _channels_last(module))


def store_weights(module: nn.Module, dtype: torch.dtype, is_channels_last: bool) -> nn.Module:
    """Convert a module's floating-point weights in place and return it; in float32 they stay as they were built.

    ``nn.Module.to`` makes complex weights real, and refuses modules that have weights of both four and five dimensions.
    """
    if dtype != torch.float32:
        module = module._apply(lambda weight: weight.to(dtype) if weight.is_floating_point() else weight)
    if is_channels_last:
        for weight in _weights(module):
            if weight.dim() in CHANNELS_LAST_FORMATS:
                memory_format = getattr(torch, CHANNELS_LAST_FORMATS[weight.dim()])
                weight.data = weight.data.to(memory_format=memory_format)
    return module


def stored_like(module: nn.Module, operator: OperatorTuple) -> nn.Module:
    """Store a whole model's weights in place as its tuple says."""
    dtype, is_channels_last = storage_form(operator)
    return store_weights(module, getattr(torch, dtype), is_channels_last)


def tensor_stored_like(tensor: torch.Tensor, operator: OperatorTuple) -> torch.Tensor:
    """Return an input of a whole model in the memory format of the weights, and in their dtype if it is in float32."""
    dtype, is_channels_last = storage_form(operator)
    if tensor.dtype == torch.float32:
        tensor = tensor.to(getattr(torch, dtype))
    if is_channels_last and tensor.dim() in CHANNELS_LAST_FORMATS:
        tensor = tensor.to(memory_format=getattr(torch, CHANNELS_LAST_FORMATS[tensor.dim()]))
    return tensor


def check_form(ready: ReadyModel, operator: OperatorTuple, name: str) -> None:
    """Check that a whole model is stored as its tuple says.

    Raises CannotBuildError: its tuple says float32, and it was built in 16 bits; or its tuple says channels last, and
    no weight or input can be stored so.
    """
    dtype, is_channels_last = storage_form(operator)
    precisions = {dtype: precision for precision, dtype in DTYPES.items()}
    weights = (weight for weight in ready.model.parameters() if weight.is_floating_point())
    found = sorted({str(weight.dtype).removeprefix("torch.") for weight in weights})
    # A model that has float32, too, is meant to be a mixture.
    if dtype == FLOAT32 and found and precisions.keys() >= {*found}:
        text = f"{name} has weights in {' and '.join(found)} and none in {FLOAT32}"
        known = tuple(precisions[dtype] for dtype in found)
        raise CannotBuildError(text, KeyRemedy("precision", known, f"return a model in {FLOAT32}"))
    tensors = [*_weights(ready.model), *ready.tensors]
    if is_channels_last and not any(tensor.dim() in CHANNELS_LAST_FORMATS for tensor in tensors):
        text = f"{name} has no weights and no inputs of 4 or 5 dimensions, which channels_last is for"
        raise CannotBuildError(text, KeyRemedy("memory_format"))


def _weights(module: nn.Module) -> Iterator[torch.Tensor]:
    """Yield the dense weights that are not integers."""
    weights = filter(is_dense, (*module.parameters(), *module.buffers()))
    return (weight for weight in weights if weight.is_floating_point() or weight.is_complex())
