"""Models that belong to a user's program: borrowed for measurements, and given back as they were."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from opcost.torch_backend.model_state import ModelState
from opcost.torch_backend.ready_model import ReadyModel
from opcost.units import some_of


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
    """Put back the state of all modules afterwards, and warn of what cannot be."""
    state = ModelState.of(model)
    try:
        yield
    finally:
        left = state.put_back()
        if left:
            text = "%s: not as before, because torch does not let it be put back: %s"
            logging.getLogger(__name__).warning(text, type(model).__name__, some_of(left))
