"""The backwards of all graphs, observed for a while at the engine that runs them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from torch._C import _ImperativeEngine as ImperativeEngine
from torch.autograd import Variable

Backward: TypeAlias = Callable[..., Any]
"""Runs a backward; its first argument are the roots."""

Around: TypeAlias = Callable[..., Any]
"""Calls a backward, its first argument, with the others, and returns its result."""


class _ObservedEngine(ImperativeEngine):
    def __init__(self, plain: ImperativeEngine) -> None:
        self.plain = plain
        self.arounds: list[Around] = []

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        run: Backward = self.plain.run_backward
        for around in self.arounds:
            run = partial(around, run)
        return run(*args, **kwargs)


class ObservedBackward:
    """Stands around each backward from ``install`` to ``remove``. Several may be removed in any order."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._engine: _ObservedEngine | None = None

    def install(self) -> None:
        """Begin to observe."""
        engine = Variable._execution_engine
        if not isinstance(engine, _ObservedEngine):
            engine = Variable._execution_engine = _ObservedEngine(engine)
        engine.arounds.append(self._around)
        self._engine = engine

    def remove(self) -> None:
        """Put back what was there once no one is left, unless someone else has replaced it meanwhile."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        engine.arounds.remove(self._around)
        if not engine.arounds and Variable._execution_engine is engine:
            Variable._execution_engine = engine.plain
