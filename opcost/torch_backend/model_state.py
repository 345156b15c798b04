"""The state of a model: modes, weights, gradients, buffers and attributes of its modules."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

CONTAINERS = (dict, list, set, deque)
"""The mutable containers among attributes whose contents are kept."""

MOST_KEPT_BYTES = 2**26
"""The largest tensors among attributes whose values are kept: larger ones are weights of some kind."""

OWN_OF_TORCH = frozenset(vars(nn.Module()))
"""The attributes that every module has: torch's own containers of weights, buffers, modules and hooks."""


@dataclass(frozen=True)
class Kept:
    """A part of the state: its name, and what puts it back."""

    name: str
    put_back: Callable[[], object]


@dataclass(frozen=True)
class ModelState:
    """The state of a model, part by part.

    Weights keep their values: a ``forward`` that changes them in place changes them.
    """

    parts: tuple[Kept, ...]

    @staticmethod
    def of(model: nn.Module) -> ModelState:
        return ModelState((*_modules(model), *_weights(model), *_buffers(model)))

    def put_back(self) -> tuple[str, ...]:
        """Put all parts back, and return the names of those that cannot be."""
        return tuple(part.name for part in self.parts if not _succeeds(part.put_back))


def _succeeds(call: Callable[[], object]) -> bool:
    """Call something; whatever a part raises, the others are put back."""
    try:
        call()
    except Exception:
        return False
    return True


def _modules(model: nn.Module) -> Iterator[Kept]:
    for name, module in model.named_modules():
        yield Kept(f"the mode of {name or 'the model'}", _setter(module, "training", module.training))
        # Those of a scripted module are views of C++ objects, which no forward replaces.
        if isinstance(module, torch.jit.ScriptModule):
            continue
        for kind in ("_parameters", "_buffers", "_modules"):
            yield Kept(f"{name}.{kind}", _contents(getattr(module, kind)))
        yield Kept(f"attributes of {name or 'the model'}", _attributes(module))


def _setter(owner: object, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(owner, name, value)


def _contents(container: Any) -> Callable[[], None]:
    """Return what gives a container its present contents."""
    kept = copy.copy(container)

    def put_back() -> None:
        container.clear()
        (container.extend if isinstance(container, (list, deque)) else container.update)(kept)

    return put_back


def _attributes(module: nn.Module) -> Callable[[], None]:
    """Return what gives a module its present attributes, with the contents of containers and tensors among them."""
    held = {name: value for name, value in vars(module).items() if name not in OWN_OF_TORCH}
    contents = [_contents(value) for value in held.values() if isinstance(value, CONTAINERS)]
    tensors = (value for value in held.values() if isinstance(value, Tensor))
    contents += [_values(tensor) for tensor in tensors if tensor.nbytes <= MOST_KEPT_BYTES]

    def put_back() -> None:
        attributes = vars(module)
        for name in [name for name in attributes if name not in OWN_OF_TORCH and name not in held]:
            del attributes[name]
        attributes.update(held)
        for one in contents:
            one()

    return put_back


def _weights(model: nn.Module) -> Iterator[Kept]:
    for name, weight in model.named_parameters():
        if not is_lazy(weight):
            yield Kept(name, _weight(weight))


def _weight(weight: nn.Parameter) -> Callable[[], None]:
    data, requires_grad, grad = weight.data, weight.requires_grad, weight.grad
    grad_data = None if grad is None else grad.data

    def put_back() -> None:
        # Those that were made in inference mode take nothing; to another device, others take their place.
        if not weight.is_inference():
            weight.data = data
        if weight.requires_grad != requires_grad:
            weight.requires_grad_(requires_grad)
        if weight.grad is not grad:
            weight.grad = grad
        if grad is not None and grad_data is not None:
            grad.data = grad_data

    return put_back


def _buffers(model: nn.Module) -> Iterator[Kept]:
    for name, buffer in model.named_buffers():
        if not is_lazy(buffer):
            yield Kept(name, _values(buffer))


def _values(tensor: Tensor) -> Callable[[], None]:
    """Return what gives a tensor its present memory with the present values."""
    data = tensor.data
    try:
        # A tensor may show a part of its memory several times, which cannot be copied to.
        memory = data.untyped_storage()
        values = memory.clone() if data.device.type != "meta" else None
    except (NotImplementedError, RuntimeError):
        return _opaque_values(tensor)

    def put_back() -> None:
        tensor.data = data
        if values is not None:
            memory.copy_(values)

    return put_back


def _opaque_values(tensor: Tensor) -> Callable[[], None]:
    """Return the same for a tensor without a memory of its own, such as a sparse one."""
    data, values = tensor.data, tensor.detach().clone()

    def put_back() -> None:
        tensor.data = data
        tensor.detach().copy_(values)

    return put_back
