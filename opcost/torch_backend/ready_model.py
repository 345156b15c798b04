"""A model with the arguments of its runs, its state, and models of a user's program that are borrowed.

The state are modes, weights, gradients, buffers and attributes of modules.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map

from opcost.torch_backend.cost_counter import Work, tensors_of
from opcost.torch_backend.passes import gradients_allowed
from opcost.units import some_of

CONTAINERS = (dict, list, set, deque)
"""The mutable containers among attributes whose contents are kept."""

MOST_KEPT_BYTES = 2**26
"""The largest tensors among attributes whose values are kept: larger ones are weights of some kind."""

OWN_OF_TORCH = frozenset(vars(nn.Module()))
"""The attributes that every module has: torch's own containers of weights, buffers, modules and hooks."""


@dataclass(frozen=True)
class ModelState:
    """The state of a model: the name of each part, and what puts it back.

    Weights keep their values: a ``forward`` that changes them in place changes them.
    """

    parts: tuple[tuple[str, Callable[[], object]], ...]

    @staticmethod
    def of(model: nn.Module) -> ModelState:
        weights = ((name, _weight(weight)) for name, weight in model.named_parameters() if not is_lazy(weight))
        buffers = ((name, _values(buffer)) for name, buffer in model.named_buffers() if not is_lazy(buffer))
        return ModelState((*_modules(model), *weights, *buffers))

    def put_back(self) -> tuple[str, ...]:
        """Put all parts back, and return the names of those that cannot be."""
        failed = []
        for name, put_back in self.parts:
            try:
                put_back()
            except Exception:
                failed.append(name)
        return tuple(failed)


def _modules(model: nn.Module) -> Iterator[tuple[str, Callable[[], object]]]:
    for name, module in model.named_modules():
        yield f"the mode of {name or 'the model'}", partial(setattr, module, "training", module.training)
        # Those of a scripted module are views of C++ objects, which no forward replaces.
        if isinstance(module, torch.jit.ScriptModule):
            continue
        for kind in ("_parameters", "_buffers", "_modules"):
            yield f"{name}.{kind}", _contents(getattr(module, kind))
        yield f"attributes of {name or 'the model'}", _attributes(module)


def _contents(container: Any) -> Callable[[], None]:
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


def _weight(weight: nn.Parameter) -> Callable[[], None]:
    data, requires_grad, grad = weight.data, weight.requires_grad, weight.grad
    grad_data = None if grad is None else grad.data

    def put_back() -> None:
        # Those that were made in inference mode take nothing; to another device, others take their place.
        if not weight.is_inference():
            weight.data = data
        if weight.requires_grad != requires_grad:
            weight.requires_grad_(requires_grad)
        # A weight takes a gradient of its own device only.
        if grad is not None and grad_data is not None:
            grad.data = grad_data
        if weight.grad is not grad:
            weight.grad = grad

    return put_back


def _values(tensor: Tensor) -> Callable[[], None]:
    """Return what gives a tensor its present memory with the present values."""
    data = tensor.data
    memory: Any
    values: Any
    try:
        # A tensor may show a part of its memory several times, which cannot be copied to.
        memory = data.untyped_storage()
        values = memory.clone() if data.device.type != "meta" else None
    except (NotImplementedError, RuntimeError):
        # One without a memory of its own, such as a sparse one.
        memory, values = None, tensor.detach().clone()

    def put_back() -> None:
        tensor.data = data
        if values is not None:
            (tensor.detach() if memory is None else memory).copy_(values)

    return put_back


WITHOUT_STATE = (Tensor, int, float, complex, str, bytes, type(None))
"""Arguments that no call can change, but for a tensor's values."""


@dataclass(frozen=True)
class FirstRun:
    """The work of a model's first run, and its state before."""

    work: Work
    state: ModelState


@dataclass(frozen=True)
class ReadyModel:
    """A model on a device, with its positional arguments and those by keyword.

    ``fingerprint`` is the hash of the user's code that built it (``UserCode``), None for models of libraries. A model
    that ``computes_gradients`` in its ``forward``, such as forces from an energy, runs outside of inference mode.
    ``first`` is its first run, None if it has not run.
    """

    model: nn.Module
    inputs: tuple[Any, ...] = ()
    keyword_inputs: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str | None = None
    computes_gradients: bool = False
    first: FirstRun | None = None

    @staticmethod
    def of(model: nn.Module, examples: Any) -> ReadyModel:
        """Return a model with its example inputs, as users give them.

        A tuple or a list has the positional arguments, as in a config; a mapping whose keys are texts has those by
        keyword. Anything else, such as a tensor or a named tuple (a packed sequence), is the only argument.
        """
        if isinstance(examples, Mapping) and all(isinstance(name, str) for name in examples):
            return ReadyModel(model, (), dict(examples))
        are_several = isinstance(examples, (tuple, list)) and not hasattr(examples, "_fields")
        return ReadyModel(model, tuple(examples) if are_several else (examples,))

    @property
    def tensors(self) -> list[Tensor]:
        return tensors_of((self.inputs, dict(self.keyword_inputs)))

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> ReadyModel:
        """Return the model with each tensor among its inputs changed; one that is there twice stays one."""
        changed: dict[int, Tensor] = {}

        def leaf(value: Any) -> Any:
            if isinstance(value, PackedSequence):
                # Torch reads the sizes of its batches on the CPU.
                return PackedSequence(*(one if one is value.batch_sizes else leaf(one) for one in value))
            if not isinstance(value, Tensor):
                return value
            if id(value) not in changed:
                changed[id(value)] = change(value)
            return changed[id(value)]

        found = self.inputs, dict(self.keyword_inputs)
        inputs, keyword_inputs = tree_map(leaf, found, is_leaf=lambda value: isinstance(value, PackedSequence))
        return replace(self, inputs=inputs, keyword_inputs=keyword_inputs)

    def run(self) -> Any:
        """Run the model once and return its result. An argument with a state, such as a cache, is new in each run."""
        found = self.inputs, dict(self.keyword_inputs)
        # The same tensors, in new copies of objects that a run may change.
        if not all(isinstance(value, WITHOUT_STATE) for value in (*found[0], *found[1].values())):
            found = deepcopy(found, {id(tensor): tensor for tensor in held_tensors(found)})
        inputs, keyword_inputs = found
        with gradients_allowed() if self.computes_gradients else nullcontext():
            return self.model(*inputs, **keyword_inputs)

    @property
    def device_type(self) -> str:
        tensors = self.tensors or [*self.model.parameters()]
        return tensors[0].device.type if tensors else "cpu"


def held_tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors that a value holds, also in its attributes and in those of its parts."""
    seen: set[int] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, Mapping):
            pending.extend(one.values())
        elif isinstance(one, (list, tuple, set, frozenset)):
            pending.extend(one)
        elif not isinstance(one, type):
            pending.extend(getattr(one, "__dict__", {}).values())


@contextmanager
def borrowed(model: nn.Module, inputs: Any, device: str | None = None) -> Iterator[ReadyModel]:
    """Yield a user's model in eval mode on a device; afterwards all is as before, also after an exception.

    This holds for the modes of all modules, the device, parameters and gradients, and buffers with their contents. A
    ``forward`` that changes its weights in place changes them. ``inputs`` are examples, as ``ReadyModel.of`` reads
    them, and are copied. Without a ``device`` it is the model's own, or that of its inputs if it has no weights. Raises
    ValueError: there is no tensor among the inputs.
    """
    given = ReadyModel.of(model, inputs)
    if not given.tensors:
        raise ValueError("inputs has no tensor; pass a tensor, a tuple of arguments, or a dict of keyword arguments")
    own = device_of(given)
    place = device or own
    state = ModelState.of(model)
    try:
        if own != place:
            model.to(place)
        model.eval()
        yield given.with_tensors(lambda tensor: tensor.detach().to(place, copy=True))
    finally:
        left = state.put_back()
        if left:
            text = "%s: not as before, because torch does not let it be put back: %s"
            logging.getLogger(__name__).warning(text, type(model).__name__, some_of(left))


def device_of(ready: ReadyModel) -> str:
    """Return the device of a model's first weight or buffer, of its inputs if it has none: ``cpu`` or ``cuda:N``."""
    held = (tensor for source in (ready.model.parameters(), ready.model.buffers()) for tensor in source)
    device = next(held, *ready.tensors[:1]).device
    return f"{device.type}:{device.index or 0}" if device.type == "cuda" else device.type
