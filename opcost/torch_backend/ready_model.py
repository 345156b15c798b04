"""A model with the arguments of its runs, the form of its weights, and the observation of its runs.

A user's model is borrowed.

Runs are observed without hooks: some modules change their path if they have any. A copy of an observed model, as for a
moving average of its weights, is not observed. The modes of torch belong to a thread, so that threads which a
``forward`` starts see none of a run's.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import wraps
from multiprocessing.pool import ThreadPool
from typing import Any, TypeAlias, TypeVar
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map

from opcost.errors import CannotBuildError, KeyRemedy
from opcost.measuring.precisions import DTYPES
from opcost.operators.counts import CalledModule, at_level, levels_of
from opcost.operators.texts import joined_sizes
from opcost.operators.tuples import (
    FLOAT32,
    OperatorTuple,
    TensorSpec,
    channels_last_strides,
    contiguous_strides,
    storage_form,
)
from opcost.torch_backend.cost_counter import Work, tensors_of
from opcost.torch_backend.meta_device import CHANNELS_LAST
from opcost.torch_backend.passes import gradients_allowed
from opcost.torch_backend.run_state import (
    MOST_LIGHT_BYTES,
    NOTHING_CARRIED,
    CarriedState,
    Keys,
    State,
    changes_since,
    held_tensors,
    kept_state,
    state_of,
)
from opcost.torch_backend.values import is_dense, own_tensors, packed_tensors
from opcost.units import some_of

Result = TypeVar("Result")

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
"""Exceptions that torch and torchvision raise for unsupported arguments; most are RuntimeError."""

WITHOUT_STATE = (Tensor, int, float, complex, str, bytes, type(None))
"""Arguments that no call can change, but for a tensor's values."""


@dataclass(frozen=True)
class FirstRun:
    """The work of a model's first run, the states before and after it, and the changed keys of each changed part."""

    work: Work
    before: State
    after: State
    changed: Mapping[int, Keys]


@dataclass(frozen=True)
class ReadyModel:
    """A model on a device, with its positional arguments and those by keyword.

    ``fingerprint`` is the hash of the user's code that built it (``UserCode``), None for models of libraries. A model
    that ``computes_gradients`` in its ``forward``, such as forces from an energy, runs outside of inference mode.
    One that ``is_training`` changes its weights as it should: nothing is put back. ``first`` is its first run, None if
    it has not run. ``carried`` is put back before each run.
    """

    model: nn.Module
    inputs: tuple[Any, ...] = ()
    keyword_inputs: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str | None = None
    computes_gradients: bool = False
    is_training: bool = False
    first: FirstRun | None = None
    carried: CarriedState = NOTHING_CARRIED

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

    @property
    def held(self) -> list[Tensor]:
        """The tensors that are there before a run: inputs, weights, and a step's gradients and optimiser's state."""
        given = held_tensors((self.inputs, dict(self.keyword_inputs)))
        attributes = (value for part in self.model.modules() for value in vars(part).values())
        own = [*own_tensors(self.model), *(value for value in attributes if isinstance(value, Tensor))]
        optimizer = getattr(self.model, "optimizer", None) if self.is_training else None
        states = [] if optimizer is None else tensors_of(list(optimizer.state.values()))
        gradients = (one.grad for one in self.model.parameters() if one.grad is not None)
        return list({id(one): one for one in (*given, *own, *states, *gradients)}.values())

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
        """Run the model once and return its result. An argument with a state, such as a cache, is new in each run.

        Raises CannotMeasureError: what the run before has changed cannot be put back.
        """
        self.carried.put_back()
        found = self.inputs, dict(self.keyword_inputs)
        # The same tensors, in new copies of objects that a run may change.
        if not all(isinstance(value, WITHOUT_STATE) for value in (*found[0], *found[1].values())):
            found = deepcopy(found, {id(tensor): tensor for tensor in held_tensors(found)})
        inputs, keyword_inputs = found
        with gradients_allowed() if self.computes_gradients else nullcontext():
            return self.model(*inputs, **keyword_inputs)

    @property
    def state(self) -> State:
        return state_of(self.model, (self.inputs, dict(self.keyword_inputs)))

    @property
    def device_type(self) -> str:
        tensors = self.tensors or [*self.model.parameters()]
        return tensors[0].device.type if tensors else "cpu"


def carrying(ready: ReadyModel, run: Callable[[ReadyModel], Result]) -> tuple[ReadyModel, Result]:
    """Return a model that has run once, now with the state that its runs carry, and the result of a further ``run``.

    Tensors that may be positions are put back before it, because a kernel that writes behind the end of a cache ends
    the process. If it fails all the same, all that the first run changed is put back. Large tensors are put back only
    if they change although all else is as before: a cache takes the same values again at the same position.
    """
    if ready.first is None or ready.is_training:
        return ready, run(ready)
    before, state = ready.first.before, ready.first.after
    of_first = {one: keys for one, keys in ready.first.changed.items() if one in state}

    def putting_back(changed: Mapping[int, Keys]) -> ReadyModel:
        parts = tuple((before.get(one, state[one]), keys) for one, keys in changed.items())
        return replace(ready, carried=CarriedState(parts))

    positions = {one: keys for one, keys in of_first.items() if before[one].may_be_position}
    repeated = putting_back(positions)
    try:
        result = run(repeated)
    except REFUSALS:
        if not of_first:
            raise
        found = of_first
    else:
        found = positions | changes_since(state)
    if found == positions:
        return repeated, result
    carried = {one: keys for one, keys in found.items() if state[one].nbytes <= MOST_LIGHT_BYTES}
    if len(carried) < len(found):
        light = putting_back(carried)
        run(light)
        heavy = {one: part for one, part in light.state.items() if one in found and one not in carried}
        run(light)
        carried |= changes_since(heavy)
    repeated = putting_back(carried)
    return repeated, run(repeated)


@contextmanager
def borrowed(model: nn.Module, inputs: Any, device: str | None = None) -> Iterator[ReadyModel]:
    """Yield a user's model in eval mode on a device; afterwards all is as before, also after an exception.

    ``inputs`` are examples, as ``ReadyModel.of`` reads them, and are copied. Without a ``device`` it is the model's
    own, or that of its inputs if it has no weights. Raises ValueError: there is no tensor among the inputs.
    """
    given = ReadyModel.of(model, inputs)
    if not given.tensors:
        raise ValueError("inputs has no tensor; pass a tensor, a tuple of arguments, or a dict of keyword arguments")
    own = device_of(given)
    place = device or own
    put_back = kept_state(model)
    try:
        if own != place:
            model.to(place)
        model.eval()
        yield given.with_tensors(lambda tensor: tensor.detach().to(place, copy=True))
    finally:
        left = put_back()
        if left:
            text = "%s: not as before, because torch does not let it be put back: %s"
            logging.getLogger(__name__).warning(text, type(model).__name__, some_of(left))


def device_of(ready: ReadyModel) -> str:
    """Return the device of a model's first weight or buffer, of its inputs if it has none: ``cpu`` or ``cuda:N``."""
    held = (tensor for source in (ready.model.parameters(), ready.model.buffers()) for tensor in source)
    device = next(held, *ready.tensors[:1]).device
    return f"{device.type}:{device.index or 0}" if device.type == "cuda" else device.type


# The dtype and memory format in which a module stores its weights. Buffers count as weights, as in frozen norms.


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
            if weight.dim() in CHANNELS_LAST:
                weight.data = weight.data.to(memory_format=CHANNELS_LAST[weight.dim()])
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
    if is_channels_last and tensor.dim() in CHANNELS_LAST:
        tensor = tensor.to(memory_format=CHANNELS_LAST[tensor.dim()])
    return tensor


def check_form(ready: ReadyModel, operator: OperatorTuple, name: str) -> None:
    """Raise a CannotBuildError for 16 bits where the tuple says float32, and if nothing can be channels last."""
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
    if is_channels_last and not any(tensor.dim() in CHANNELS_LAST for tensor in tensors):
        text = f"{name} has no weights and no inputs of 4 or 5 dimensions, which channels_last is for"
        raise CannotBuildError(text, KeyRemedy("memory_format"))


def _weights(module: nn.Module) -> Iterator[torch.Tensor]:
    """Yield the dense weights that are not integers."""
    weights = filter(is_dense, own_tensors(module))
    return (weight for weight in weights if weight.is_floating_point() or weight.is_complex())


# Observation: forwards, threads, and the modules that call operators

Forward: TypeAlias = Callable[..., Any]
Around: TypeAlias = Callable[[Forward, tuple[Any, ...], dict[str, Any]], Any]
"""Calls a forward with its arguments, and returns its result."""


class ObservedForward:
    """Stands for a module's ``forward`` from ``install`` to ``remove``."""

    def __init__(self, module: nn.Module, around: Around) -> None:
        self._module = module
        self._around = around
        self._own = vars(module).get("forward")
        self._forward: Forward = module.forward
        # inspect.signature looks through it: some callers look at the arguments.
        self.__wrapped__ = self._forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._around(self._forward, args, kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Make copies and pickles of the module hold the plain ``forward`` of the copy."""
        return (getattr, (self._module, "forward")) if self._own is None else (_same, (self._own,))

    @contextmanager
    def installed(self) -> Iterator[None]:
        self.install()
        try:
            yield
        finally:
            self.remove()

    def install(self) -> None:
        """Begin to observe, unless someone else has replaced the forward meanwhile: theirs has to run."""
        attributes = vars(self._module)
        if attributes.get("forward") is self._own:
            attributes["forward"] = self

    def remove(self) -> None:
        """Put back what was there, unless someone else has replaced it meanwhile."""
        attributes = vars(self._module)
        if attributes.get("forward") is not self:
            return
        del attributes["forward"]
        if self._own is not None:
            attributes["forward"] = self._own


def _same(forward: Forward) -> Forward:
    return forward


POOLS = ("concurrent.futures.thread", "multiprocessing.pool")
"""Modules whose threads outlive a call: the work that they get is inside of the context, not they."""

GIVES_WORK = (
    (ThreadPoolExecutor, "submit"),
    *((ThreadPool, name) for name in ("apply_async", "_map_async", "imap", "imap_unordered")),
)
"""The methods of pools that get a function as their first argument; others call these."""


@contextmanager
def inside_of(context: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Let all that other threads begin to do meanwhile run inside of contexts, each in its own."""
    start = threading.Thread.start

    def within(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with context():
                return function(*args, **kwargs)

        return called

    def started(thread: threading.Thread) -> None:
        if getattr(getattr(thread, "_target", None), "__module__", None) not in POOLS:
            thread.run = within(thread.run)  # type: ignore[method-assign]
        start(thread)

    def given(give: Callable[..., Any]) -> Callable[..., Any]:
        return lambda pool, function, /, *args, **kwargs: give(pool, within(function), *args, **kwargs)

    with ExitStack() as stack:
        stack.enter_context(patch.object(threading.Thread, "start", started))
        for pool, name in GIVES_WORK:
            stack.enter_context(patch.object(pool, name, given(getattr(pool, name))))
        yield


LONGEST_PATH = 1000
"""The most characters of a path in a file of counts."""

MOST_SIZES = 4
"""The most sizes of a module's tensors; a model may hand on a list of many."""


def number_of_weights(module: nn.Module) -> int:
    """Return the number of a module's parameters and packed weights, those of its children included."""
    attributes = (value for part in module.modules() for value in vars(part).values())
    weights = {id(value): value for value in attributes if isinstance(value, torch.ScriptObject)}
    packed = (tensor for value in weights.values() for tensor in packed_tensors(value))
    return sum(weight.numel() for weight in (*module.parameters(), *packed))


def sizes_of(values: Any) -> str:
    """Return the sizes of the first tensors among nested values, each tensor once, as ``texts`` has them."""
    tensors = list({id(tensor): tensor for tensor in tensors_of(values)}.values())
    sized = (one for one in tensors[:MOST_SIZES] if not one.is_nested)
    specs = [TensorSpec(tuple(one.shape), str(one.dtype).removeprefix("torch.")) for one in sized]
    more = ["..."] if len(tensors) > MOST_SIZES else []
    return ", ".join([*filter(None, [joined_sizes(specs)]), *more])


def called_modules(
    model: nn.Module,
    callers: Collection[str],
    sizes: Mapping[str, tuple[str, str]],
    saved: Mapping[str, int] | None = None,
) -> Mapping[str, CalledModule]:
    """Return the modules with these paths, and the modules around them, by path in the order of ``named_modules``.

    ``sizes`` are those of the inputs and outputs of the first call of each module that is no operator, by path.
    ``saved`` has the bytes that each saves for the backward of a training step; those of a module inside of an operator
    are the operator's.
    """
    wanted = {"", *callers}
    for path in callers:
        wanted.update(at_level(path, level) for level in range(1, levels_of(path)))
    saved_in = Counter[str]()
    for path, size in (saved or {}).items():
        around = (at_level(path, level) for level in range(levels_of(path), -1, -1))
        saved_in[next(one for one in around if one in wanted)] += size
    modules = dict(model.named_modules())
    # A name that has a dot stands for modules that are not there.
    modules |= dict.fromkeys(sorted(wanted - modules.keys()), nn.Module())
    found = {}
    for path, module in modules.items():
        if path in wanted:
            input_sizes, output_sizes = sizes.get(path, (None, None))
            found[path] = CalledModule(
                *(_shown(path), _shown(type(module).__name__), number_of_weights(module), input_sizes, output_sizes),
                saved_bytes=None if saved is None else saved_in[path],
            )
    return found


def _shown(name: str) -> str:
    """Return a module's path, or its class's name, as counts take it: names may have any characters."""
    return "".join(character if character.isprintable() else "?" for character in name[:LONGEST_PATH])
