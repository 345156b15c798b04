"""Models that belong to a user's program: borrowed for measurements, and given back as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from opcost.torch_backend.passes import INFERENCE
from opcost.torch_backend.ready_model import ReadyModel


@contextmanager
def borrowed(model: nn.Module, inputs: Any, device: str | None = None) -> Iterator[ReadyModel]:
    """Yield a user's model in eval mode on a device; afterwards all is as before, also after an exception.

    This holds for the modes of all modules, the device, parameters and gradients, and buffers with their contents. A
    ``forward`` that changes its weights in place changes them. The inputs are copied.

    Args:
        model: the user's.
        inputs: examples, as ``ReadyModel.of`` reads them.
        device: None for the model's own, or that of its inputs if it has no weights.

    Raises:
        ValueError: there is no tensor among the inputs.
    """
    given = ReadyModel.of(model, inputs)
    if not given.tensors:
        raise ValueError("inputs has no tensor; pass a tensor, a tuple of arguments, or a dict of keyword arguments")
    own = device_of(given)
    place = device or own
    with _restored(model):
        if own != place:
            model.to(place)
        model.eval()
        yield given.with_tensors(lambda tensor: tensor.detach().to(place, copy=True))


def device_of(ready: ReadyModel) -> str:
    """Return the device of a model's first weight or buffer, of its inputs if it has none: ``cpu`` or ``cuda:N``."""
    held = (tensor for source in (ready.model.parameters(), ready.model.buffers()) for tensor in source)
    device = next(held, *ready.tensors[:1]).device
    return f"{device.type}:{device.index or 0}" if device.type == "cuda" else device.type


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Put back the state of all modules afterwards."""
    modules = [(module, module.training, dict(module._parameters), dict(module._buffers)) for module in model.modules()]
    weights = [(weight, weight.data, weight.requires_grad, weight.grad) for weight in model.parameters()]
    gradients = [(grad, grad.data) for _, _, _, grad in weights if grad is not None]
    buffers = [(buffer, buffer.data, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for module, is_training, own_weights, own_buffers in modules:
            module.training = is_training
            module._parameters.update(own_weights)
            module._buffers.update(own_buffers)
        for weight, data, requires_grad, grad in weights:
            weight.data, weight.grad = data, grad
            weight.requires_grad_(requires_grad)
        for grad, data in gradients:
            grad.data = data
        for buffer, data, content in buffers:
            buffer.data = data
            # A buffer that was made in inference mode can be changed in it only.
            with INFERENCE.context():
                buffer.copy_(content)
