"""The state of a model and of its inputs: how a run's changes of it are found and put back.

A run may carry a state to the next one: the position in a cache, a hidden state, a counter. A loop measures one run
again and again, so it puts back all that runs after the first one change. A table that the first run sets up is
changed by no later run, and stays.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from threading import Condition
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from opcost.errors import CannotMeasureError

CONTAINERS = (dict, list, set, deque)
"""The mutable containers whose contents are kept."""

WITHOUT_ATTRIBUTES = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType, torch.ScriptObject, Condition)
"""Objects whose attributes no run is expected to change, those of C++, and whose list of waiting threads nothing else
may change: a thread that is taken off it, as that of a queue, waits for ever."""

MOST_KEPT_BYTES = 2**26
"""The largest tensors, but for buffers, whose values are kept: larger ones are weights of some kind."""

MOST_LIGHT_BYTES = 2**16
"""The largest tensors that are put back before it is asked whether others still change: positions and counters, by
which a run chooses its place in a cache."""


Keys: TypeAlias = Collection[Any] | None
"""The changed keys of a dict or of attributes; None for all of a part."""


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


UNCHANGED: Keys = ()

State: TypeAlias = Mapping[int, Part]
"""The parts of a state by the identity of the object that each keeps."""


def state_of(model: nn.Module, inputs: Any = ()) -> State:
    """Return what a model holds, but for the values of its weights, and the values of the tensors of its inputs."""
    buffers = {id(buffer) for buffer in model.buffers()}
    parts: dict[int, Part] = {}
    pending: deque[tuple[str, Any]] = deque([("", model), *(("inputs", tensor) for tensor in held_tensors(inputs))])
    seen: dict[int, Any] = {}
    while pending:
        name, one = pending.popleft()
        if id(one) in seen:
            continue
        # Kept alive, so that no other object gets its identity.
        seen[id(one)] = one
        if isinstance(one, Tensor):
            is_kept = id(one) in buffers or one.nbytes <= MOST_KEPT_BYTES
            if is_kept and not isinstance(one, nn.Parameter) and not is_lazy(one):
                parts[id(one)] = _values(name, one)
        elif isinstance(one, torch.jit.ScriptModule):
            # Its attributes are views of C++ objects, which no forward replaces.
            parts[id(one)] = _mode(name, one)
            pending.extend((_path(name, buffer), tensor) for buffer, tensor in one.named_buffers())
        elif isinstance(one, CONTAINERS):
            parts[id(one)] = _contents(name, one)
            named = one.items() if isinstance(one, dict) else enumerate(one)
            pending.extend((_path(name, key), value) for key, value in named)
        elif isinstance(one, tuple):
            pending.extend((name, value) for value in one)
        elif not isinstance(one, WITHOUT_ATTRIBUTES) and isinstance(attributes := getattr(one, "__dict__", None), dict):
            pending.append((name, attributes))
    return parts


def _path(name: str, key: object) -> str:
    return name if key in ("_buffers", "_modules", "_parameters") else ".".join(filter(None, [name, str(key)]))


def _mode(name: str, module: nn.Module) -> Part:
    mode = module.training
    return Part(
        name,
        lambda: UNCHANGED if module.training == mode else None,
        lambda _: setattr(module, "training", mode),
    )


def _contents(name: str, container: Any) -> Part:
    kept = copy.copy(container)

    def changes() -> Keys:
        if isinstance(container, dict):
            both = kept.keys() & container.keys()
            changed = {key for key in both if not _is_same(kept[key], container[key])}
            return changed.union(kept.keys() ^ container.keys())
        is_same = len(kept) == len(container) and all(map(_is_same, kept, container))
        is_same = kept == container if isinstance(kept, set) else is_same
        return UNCHANGED if is_same else None

    def put_back(keys: Keys) -> None:
        if keys is None or not isinstance(kept, dict):
            container.clear()
            (container.extend if isinstance(container, (list, deque)) else container.update)(kept)
            return
        for key in keys:
            if key in kept:
                container[key] = kept[key]
            else:
                container.pop(key, None)

    return Part(name, changes, put_back)


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, (bool, int, float, str)) and one == other)


def _values(name: str, tensor: Tensor) -> Part:
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

    def changes() -> Keys:
        now = tensor.data
        if now.device != data.device or (memory is not None and now.data_ptr() != data.data_ptr()):
            return None
        if values is None:
            return UNCHANGED
        # By bytes, because NaN is not equal to itself.
        both = (now, values) if memory is None else (_bytes_of(memory), _bytes_of(values))
        return UNCHANGED if torch.equal(*both) else None

    def put_back(_: Keys) -> None:
        # One that was made in inference mode takes no other memory.
        if tensor.device != data.device or memory is None or tensor.data_ptr() != data.data_ptr():
            tensor.data = data
        if memory is None:
            tensor.detach().copy_(values)
        elif values is not None:
            memory.copy_(values, non_blocking=True)

    is_integer = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    return Part(name, changes, put_back, tensor.nbytes, is_integer and tensor.nbytes <= MOST_LIGHT_BYTES)


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
        """Put all parts back. Raises CannotMeasureError: torch does not let one be put back."""
        for part, keys in self.parts:
            try:
                part.put_back(keys)
            except Exception as error:
                what = f"{part.name or 'the model'} changes from call to call"
                raise CannotMeasureError(f"{what} and cannot be put back ({error}); let each call leave it") from error


NOTHING_CARRIED = CarriedState()


def changes_since(state: State) -> dict[int, Keys]:
    """Return the changed keys of the parts that have changed, by the identity of each."""
    found = {identity: part.changes() for identity, part in state.items()}
    return {identity: keys for identity, keys in found.items() if keys is None or keys}


def put_back(state: State) -> tuple[str, ...]:
    """Put all parts back that have changed; return the names of those that torch does not let be put back."""
    failed = []
    for part in state.values():
        try:
            keys = part.changes()
            if keys is None or keys:
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
