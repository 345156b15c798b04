"""Observation of a model's run without hooks: forwards, threads, and the modules that call operators.

Some modules change their path if they have hooks. A copy of an observed model, as for a moving average of its weights,
is not observed. The modes of torch belong to a thread, so that threads which a ``forward`` starts see none of a run's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from multiprocessing.pool import ThreadPool
from typing import Any, TypeAlias
from unittest.mock import patch

import torch
from torch import nn

from opcost.operators.counts import CalledModule, at_level, levels_of
from opcost.operators.texts import joined_sizes
from opcost.operators.tuples import TensorSpec
from opcost.torch_backend.cost_counter import tensors_of
from opcost.torch_backend.values import packed_tensors

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
    model: nn.Module, callers: Collection[str], sizes: Mapping[str, tuple[str, str]]
) -> Mapping[str, CalledModule]:
    """Return the modules with these paths, and the modules around them, by path in the order of ``named_modules``.

    ``sizes`` are those of the inputs and outputs of the first call of each module that is no operator, by path.
    """
    wanted = {"", *callers}
    for path in callers:
        wanted.update(at_level(path, level) for level in range(1, levels_of(path)))
    modules = dict(model.named_modules())
    # A name that has a dot stands for modules that are not there.
    modules |= dict.fromkeys(sorted(wanted - modules.keys()), nn.Module())
    return {
        path: CalledModule(
            _shown(path), _shown(type(module).__name__), number_of_weights(module), *sizes.get(path, (None, None))
        )
        for path, module in modules.items()
        if path in wanted
    }


def _shown(name: str) -> str:
    """Return a module's path, or its class's name, as counts take it: names may have any characters."""
    return "".join(character if character.isprintable() else "?" for character in name[:LONGEST_PATH])
