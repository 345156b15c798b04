"""A module's ``forward`` that is observed for a while, without hooks: some modules change their path if they have any.

A copy of an observed model, as for a moving average of its weights, is not observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch import nn

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
        """Observe meanwhile."""
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
