"""Marks at the ends of each layer's forward and backward in one iteration of a user's loop.

Each mark ends a span of one owner and begins that of the next: a module's forward, its backward, or none. A module
owns what it does itself, without the modules inside it. So the spans of an iteration add up to its length.

A backward begins where autograd comes to the newest node that a module's forward has made, which is found at the
module's outputs and at the inputs of the modules that it calls. A hook on that node changes no tensor, so that
operations in place keep working, which they do not with the hooks of modules. Modules that run again in a backward, as
checkpoints do, count as backward.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Variable

from opcost.errors import UserError
from opcost.metering.layer_times import NO_LAYER, MarkedSpans, backward_slot, forward_slot
from opcost.operators.tuples import OperatorTuple
from opcost.torch_backend.capture import operator_modules
from opcost.torch_backend.flops import tensors_of
from opcost.torch_backend.layer_stopwatch import Moment, Stopwatch
from opcost.torch_backend.observed_forward import Forward, ObservedForward
from opcost.torch_backend.operators import module_tuple
from opcost.torch_backend.switches import autocast_dtypes

# torch has no public names for them; its profiler and its checkpoints use these.
_current_backward: Callable[[], int] = torch._C._current_graph_task_id
_next_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr

NO_BACKWARD = -1


def in_backward() -> bool:
    """Return whether this thread runs a backward."""
    return _current_backward() != NO_BACKWARD


def refuse_unobservable(model: nn.Module) -> None:
    """Refuse models whose layers cannot be seen, or are observed already.

    Raises:
        UserError: a part of the model is compiled or scripted, is copied to several GPUs in each call, or is metered.
    """
    for path, module in model.named_modules():
        if isinstance(vars(module).get("forward"), ObservedForward):
            raise UserError("LayerwiseEnergy: the model is metered already; end the other `with` block first")
        where = f"the module {path!r}" if path else "the model"
        if isinstance(module, torch.jit.ScriptModule):
            raise UserError(f"LayerwiseEnergy: {where} is scripted, so its layers cannot be seen; use the eager model")
        is_optimized = type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")
        if is_optimized or getattr(module, "_compiled_call_impl", None) is not None:
            raise UserError(f"LayerwiseEnergy: {where} is compiled, which fuses layers; use it before torch.compile")
        if isinstance(module, nn.DataParallel):
            raise UserError(f"LayerwiseEnergy: {where} is DataParallel, which copies it; use one GPU a process")


class LayerMarks:
    """Marks iterations of a model, one at a time, from ``open`` to ``close``.

    Args:
        model: the model; module 0 is the model itself.
        stopwatch: marks moments.
    """

    def __init__(self, model: nn.Module, stopwatch: Stopwatch) -> None:
        named = dict(model.named_modules())
        self.paths = tuple(named)
        self.classes = tuple(type(module).__name__ for module in named.values())
        self._calls_of_tuples: dict[int, dict[OperatorTuple, int]] = {}
        self._undescribed: set[int] = set()
        self.autocasts: set[tuple[torch.dtype | None, ...]] = set()
        self._stopwatch = stopwatch
        self._operators = {id(module) for module in operator_modules(model)}
        self._modules: Sequence[nn.Module] = tuple(named.values())
        # The model's own forward is observed by who begins iterations, and calls ``around_model``.
        self._observed = [
            ObservedForward(module, partial(self._around, index)) for index, module in enumerate(self._modules) if index
        ]
        self._iteration: MarkedIteration | None = None

    @property
    def is_open(self) -> bool:
        """Whether an iteration is being marked."""
        return self._iteration is not None

    @property
    def calls_of_tuples(self) -> dict[int, dict[OperatorTuple, int]]:
        """By module, the calls of operator tuples in the described iteration.

        Modules that called others are left out, as composites may do in training: their tuples contain these calls. So
        are those with a call that no tuple describes.
        """
        called = [self.paths[index] for index in (*self._calls_of_tuples, *self._undescribed)]

        def calls_others(path: str) -> bool:
            return any(one != path and one.startswith(f"{path}." if path else "") for one in called)

        return {
            index: calls
            for index, calls in self._calls_of_tuples.items()
            if index not in self._undescribed and not calls_others(self.paths[index])
        }

    def open(self, begin: Moment, describes: bool = False) -> None:
        """Begin to mark an iteration.

        Args:
            begin: its begin.
            describes: whether the operator tuples of its calls are noted, in ``calls_of_tuples``.
        """
        if describes:
            self._calls_of_tuples, self._undescribed = {}, set()
        self._iteration = MarkedIteration(self._stopwatch, begin, len(self._modules), describes)
        for observed in self._observed:
            observed.install()

    def close(self, end: Moment) -> MarkedIteration:
        """End the iteration, and return it."""
        iteration = self._iteration
        assert iteration is not None
        self.remove()
        iteration.end(end)
        return iteration

    def remove(self) -> None:
        """Put back the forwards of all modules; the iteration that is open marks nothing any more."""
        if self._iteration is not None:
            self._iteration.stop()
        self._iteration = None
        for observed in self._observed:
            observed.remove()

    def around_model(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the forward of the model itself."""
        return self._around(0, forward, args, kwargs)

    def _around(self, index: int, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        iteration = self._iteration
        if iteration is None:
            return forward(*args, **kwargs)
        if iteration.is_described:
            self._describe(index, args, kwargs)
        before = iteration.enter(index, (args, kwargs) if kwargs else args)
        result = None
        try:
            result = forward(*args, **kwargs)
            return result
        finally:
            iteration.leave(before, result)

    def _describe(self, index: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        module = self._modules[index]
        if in_backward():
            return
        if id(module) not in self._operators:
            self._undescribed.add(index)
            return
        try:
            described = module_tuple(module, args, kwargs)
        except Exception:
            # Its cost is unknown; the user's loop runs on.
            self._undescribed.add(index)
            return
        self.autocasts.add(autocast_dtypes())
        calls = self._calls_of_tuples.setdefault(index, {})
        calls[described] = calls.get(described, 0) + 1


class MarkedIteration:
    """The marks of one iteration."""

    def __init__(self, stopwatch: Stopwatch, begin: Moment, layers: int, is_described: bool) -> None:
        self.moments: list[Moment] = [begin]
        self.slots: list[int] = [NO_LAYER]
        self.calls = np.zeros(layers)
        self.is_described = is_described
        # The last one is of no layer.
        self.own_s = np.zeros(2 * layers + 1)
        self._stopwatch = stopwatch
        self._ended = False
        self._backwards: dict[int, int] = {}
        self._handles: list[Any] = []
        self._since = _next_sequence_number()

    @property
    def is_whole(self) -> bool:
        """Whether each backward has ended; one that failed has not."""
        return not self._backwards

    def end(self, end: Moment) -> None:
        """End the iteration."""
        self.stop()
        self.moments.append(end)

    def stop(self) -> None:
        """Mark nothing any more, neither in hooks on nodes that are left."""
        self._ended = True
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def spans(self) -> MarkedSpans:
        """Return the spans; all moments are over."""
        elapsed_s, moments = self._stopwatch.elapsed_s, self.moments
        times_s = [elapsed_s(begin, end) for begin, end in pairwise(moments)]
        return MarkedSpans(self.slots, times_s, self.own_s, self.calls)

    def enter(self, index: int, arguments: Any) -> int:
        """Give the time from now on to a module, and return the owner before."""
        begin_s = time.perf_counter()
        before, is_again = self.slots[-1], in_backward()
        self._follow(arguments, before, self._since)
        if not is_again:
            self.calls[index] += 1
        self.own_s[before] += time.perf_counter() - begin_s
        self._switch(backward_slot(index) if is_again else forward_slot(index))
        return before

    def leave(self, before: int, result: Any) -> None:
        """Give the time back to the owner before a module's call."""
        slot, since = self.slots[-1], self._since
        self._switch(before)
        begin_s = time.perf_counter()
        self._follow(result, slot, since)
        self.own_s[before] += time.perf_counter() - begin_s

    def _switch(self, slot: int) -> None:
        if self._ended:
            return
        self.moments.append(self._stopwatch.mark())
        self.slots.append(slot)
        self._since = _next_sequence_number()

    def _follow(self, values: Any, slot: int, since: int) -> None:
        """Mark the backward of an owner at the newest node that it has made, if that is among the values' nodes."""
        if self._ended or not torch.is_grad_enabled():
            return
        nodes = [node for tensor in _tensors(values) if (node := tensor.grad_fn) is not None]
        newest = max(nodes, key=_number_of, default=None)
        if newest is not None and _number_of(newest) >= since:
            owner = NO_LAYER if slot == NO_LAYER else backward_slot(slot // 2)
            self._handles.append(newest.register_prehook(partial(self._begin_backward, owner)))

    def _begin_backward(self, slot: int, _gradients: Any) -> None:
        """Autograd comes to a node: give the time from now on to its owner."""
        if self._ended:
            return
        begin_s = time.perf_counter()
        before, task = self.slots[-1], _current_backward()
        if task not in self._backwards:
            self._backwards[task] = before
            Variable._execution_engine.queue_callback(partial(self._end_backward, task))
        self.own_s[before] += time.perf_counter() - begin_s
        self._switch(slot)

    def _end_backward(self, task: int) -> None:
        before = self._backwards.pop(task)
        self._switch(before)


def _tensors(values: Any) -> Sequence[Tensor]:
    """Return the tensors in arguments or a result; quickly in the usual cases."""
    if isinstance(values, Tensor):
        return (values,)
    if isinstance(values, tuple) and all(isinstance(value, Tensor) for value in values):
        return values
    return tensors_of(values)


def _number_of(node: Any) -> int:
    return int(node._sequence_nr())
