"""The state of a model and of its inputs: how a run's changes of it are found and put back.

A run may carry a state to the next one: the position in a cache, a hidden state, a counter. A loop measures one run
again and again, so it puts back all that runs after the first one change. A table that the first run sets up is
changed by no later run, and stays.

The state is that of modules: their attributes, the containers among these, buffers and small tensors; and the values of
the tensors of the inputs, whose other parts are new in each run. Objects that attributes hold are not looked into:
threads and loggers may use them meanwhile.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import _disable_current_modes

from opcost.errors import CannotMeasureError

CONTAINERS = (dict, list, set, deque)
"""The mutable containers whose contents are kept."""

OWN_OF_TORCH = frozenset(vars(nn.Module()))
"""The attributes that every module has: torch's own containers of weights, buffers, modules and hooks."""

OF_MODULES = ("_parameters", "_buffers", "_modules")

MOST_KEPT_BYTES = 2**26
"""The largest tensors, but for buffers, whose values are kept: larger ones are weights of some kind."""

MOST_LIGHT_BYTES = 2**16
"""The largest tensors that are put back before it is asked whether others still change: positions and counters, by
which a run chooses its place in a cache."""

POSITIONS = (torch.int32, torch.int64)
"""The dtypes of positions. Smaller integers are flags."""

Keys: TypeAlias = Collection[Any] | None
"""The changed names of attributes or keys of a dict; None for all of a part."""

UNCHANGED: Keys = ()


@dataclass(frozen=True)
class Part:
    """A part of a state with its name, such as ``attention.cache``.

    ``changes`` returns the keys that have changed since, none if nothing has; ``put_back`` takes them. ``nbytes`` is 0
    for what no kernel puts back. A part that ``may_be_position`` is a small tensor of integers.
    """

    name: str
    changes: Callable[[], Keys]
    put_back: Callable[[Keys], object]
    nbytes: int = 0
    may_be_position: bool = False


State: TypeAlias = Mapping[int, Part]
"""The parts of a state by the identity of the object that each keeps."""


def state_of(model: nn.Module, inputs: Any = ()) -> State:
    """Return what the modules of a model hold, but for the values of weights, and the values of the inputs' tensors."""
    parts: dict[int, Part] = {}
    memories: dict[int, Any] = {}

    def add(name: str, one: Any, is_buffer: bool = False) -> None:
        if id(one) in parts:
            return
        if isinstance(one, Tensor):
            is_weight = isinstance(one, nn.Parameter) or is_lazy(one)
            if not is_weight and (is_buffer or _bytes_in(one) <= MOST_KEPT_BYTES):
                parts[id(one)] = _values(name, one, memories)
        elif isinstance(one, CONTAINERS):
            parts[id(one)] = _contents(name, one)

    for path, module in model.named_modules():
        attributes = vars(module)
        if isinstance(module, torch.jit.ScriptModule):
            # Its attributes are views of C++ objects, which no forward replaces.
            parts[id(module)] = _mode(path, module)
        else:
            # Without torch's own containers: a lazy module changes its hooks for good.
            parts[id(module)] = _named(path, attributes, OWN_OF_TORCH - {"training"})
            containers = (attributes[name] for name in OF_MODULES if name in attributes)
            parts |= {id(one): _named(path, one) for one in containers}
            for name in attributes.keys() - OWN_OF_TORCH:
                add(_joined(path, name), attributes[name])
        for name, buffer in module.named_buffers(recurse=False):
            add(_joined(path, name), buffer, is_buffer=True)
    for tensor in held_tensors(inputs):
        add("inputs", tensor)
    return parts


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _mode(name: str, module: nn.Module) -> Part:
    mode = module.training
    return Part(
        name,
        lambda: UNCHANGED if module.training == mode else None,
        lambda _: setattr(module, "training", mode),
    )


def _named(name: str, held: dict[str, Any], without: Collection[str] = ()) -> Part:
    """Return the values of a dict of names, each put back by itself: what the first run sets up stays."""
    kept = {key: value for key, value in held.items() if key not in without}

    def changes() -> Keys:
        names = kept.keys() | (held.keys() - without)
        return {key for key in names if not (key in kept and key in held and _is_same(kept[key], held[key]))}

    def put_back(keys: Keys) -> None:
        for key in kept.keys() | (held.keys() - without) if keys is None else keys:
            if key in kept:
                held[key] = kept[key]
            else:
                held.pop(key, None)
        if keys is None and [key for key in held if key in kept] != list(kept):
            # In their order, which is that of modules that run.
            for key in kept:
                held[key] = held.pop(key)

    return Part(name, changes, put_back)


def _contents(name: str, container: Any) -> Part:
    kept = copy.copy(container)

    def changes() -> Keys:
        if isinstance(container, dict):
            if list(map(id, kept)) != list(map(id, container)):
                return None
            return [key for key in kept if not _is_same(kept[key], container[key])]
        if isinstance(kept, set):
            return UNCHANGED if set(map(id, kept)) == set(map(id, container)) else None
        return UNCHANGED if len(kept) == len(container) and all(map(_is_same, kept, container)) else None

    def put_back(keys: Keys) -> None:
        if keys is not None:
            for key in keys:
                if key in kept:
                    container[key] = kept[key]
                else:
                    del container[key]
            return
        container.clear()
        (container.extend if isinstance(container, (list, deque)) else container.update)(kept)

    return Part(name, changes, put_back)


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, (bool, int, float, str)) and one == other)


def _bytes_in(tensor: Tensor) -> int:
    try:
        return tensor.numel() * tensor.element_size()
    except (NotImplementedError, RuntimeError):
        # One of another layout.
        return 0


def _values(name: str, tensor: Tensor, memories: dict[int, Any]) -> Part:
    """Return the values of a tensor; tensors that share a memory share its copy."""
    data = tensor.data
    memory: Any = None
    values: Any = None
    if not _has_memory(tensor):
        values = tensor.detach().clone()
    elif data.device.type != "meta":
        # A tensor may show a part of its memory several times, which cannot be copied to.
        memory = data.untyped_storage()
        values = memories.get(memory._cdata)
        values = memories.setdefault(memory._cdata, memory.clone() if values is None else values)
    form = _form_of(data)

    def changes() -> Keys:
        if _form_of(tensor.data) != form:
            return None
        if values is None:
            return UNCHANGED
        try:
            # By bytes, because NaN is not equal to itself.
            both = (tensor.data, values) if memory is None else (_bytes_of(memory), _bytes_of(values))
            return UNCHANGED if torch.equal(*both) else None
        except Exception:
            # Tensors that torch cannot compare count as unchanged.
            return UNCHANGED

    def put_back(_: Keys) -> None:
        # One that was made in inference mode takes no other memory.
        if _form_of(tensor.data) != form:
            tensor.data = data
        if memory is not None:
            memory.copy_(values, non_blocking=True)
        elif values is not None:
            tensor.detach().copy_(values)

    nbytes = _bytes_in(tensor)
    # A single number that was 0 is a flag of a set-up, or a counter in which the next run is allowed.
    is_flag = nbytes == tensor.element_size() and _is_0(values)
    may_be_position = tensor.dtype in POSITIONS and nbytes <= MOST_LIGHT_BYTES and not is_flag
    return Part(name, changes, put_back, nbytes, may_be_position)


def _is_0(memory: Any) -> bool:
    return isinstance(memory, torch.UntypedStorage) and not _bytes_of(memory).any()


def _has_memory(tensor: Tensor) -> bool:
    """Return whether a tensor is one of torch's own with a memory, unlike sparse, nested and wrapping ones."""
    return type(tensor) is Tensor and tensor.layout is torch.strided and not tensor.is_nested


def _form_of(data: Tensor) -> tuple[object, ...]:
    """Return the place of a tensor's values, and how it shows them."""
    if not _has_memory(data):
        return (data.device,)
    storage = data.untyped_storage()
    return data.device, data.dtype, data.shape, data.stride(), data.storage_offset(), storage._cdata


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


@dataclass(frozen=True)
class CarriedState:
    """The parts that runs after the first one change, each with its keys, as they were before the first run."""

    parts: tuple[tuple[Part, Keys], ...] = ()

    @property
    def needs_kernels(self) -> bool:
        return any(part.nbytes for part, _ in self.parts)

    def put_back(self) -> None:
        """Put all parts back, unseen by observers. Raises CannotMeasureError: torch does not let one be put back."""
        if not self.parts:
            return
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            for part, keys in self.parts:
                try:
                    part.put_back(keys)
                except Exception as error:
                    what = f"{part.name or 'the model'} changes from call to call and cannot be put back ({error})"
                    raise CannotMeasureError(f"{what}; let each call leave it") from error


NOTHING_CARRIED = CarriedState()


def changes_since(state: State) -> dict[int, Keys]:
    """Return the changed keys of the parts that have changed, by the identity of each."""
    found = {identity: part.changes() for identity, part in state.items()}
    return {identity: keys for identity, keys in found.items() if _are_changes(keys)}


def _are_changes(keys: Keys) -> bool:
    return keys is None or bool(keys)


def put_back(state: State) -> tuple[str, ...]:
    """Put all parts back that have changed; return the names of those that torch does not let be put back."""
    failed = []
    for part in state.values():
        try:
            if _are_changes(part.changes()):
                # All of it, in its order.
                part.put_back(None)
        except Exception:
            failed.append(part.name or "the model")
    return tuple(failed)


def kept_state(model: nn.Module) -> Callable[[], tuple[str, ...]]:
    """Return what puts the parts of a model back, but for weights that change in place, and names those that stay."""
    weights = [(name, _weight(weight)) for name, weight in model.named_parameters() if not is_lazy(weight)]
    state = state_of(model)

    def put_all_back() -> tuple[str, ...]:
        failed = []
        for name, undo in weights:
            try:
                undo()
            except Exception:
                failed.append(name)
        return (*put_back(state), *failed)

    return put_all_back


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
