"""Marks at the ends of each layer's forward and backward in one iteration of a user's loop.

Each mark ends a span of one owner and begins that of the next: a module's forward, its backward, or none. A module owns
what it does itself, without the modules inside it.

A node of autograd belongs to the module in whose forward it was made, by its sequence number: the numbers at each
change of owner are noted (``docs/layers_of_a_loop.md``). As a backward begins, nodes at which the owner may change get
a hook. Each thread has its own numbers, and a node does not show its thread: a number of several threads, or of a time
before the iteration, is of an unknown layer.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import _ImperativeEngine as ImperativeEngine
from torch.autograd import Variable
from torch.utils._python_dispatch import _disable_current_modes

from opcost.errors import UserError
from opcost.measuring.conditions import is_gpu
from opcost.metering.layers import (
    NO_LAYER,
    UNKNOWN_LAYER,
    MarkedSpans,
    backward_slot,
    forward_slot,
    is_forward,
    slots_of,
)
from opcost.operators.tuples import OperatorTuple
from opcost.torch_backend.capture import operator_modules
from opcost.torch_backend.cost_counter import Operations, is_free, unwatched
from opcost.torch_backend.cuda_graph import elapsed_s
from opcost.torch_backend.operators import function_of, function_tuple, module_tuple
from opcost.torch_backend.ready_model import Forward, ObservedForward
from opcost.torch_backend.switches import autocast_dtypes

Moment: TypeAlias = Any


class HostStopwatch:
    """Marks moments in the order of a device's work: on a CPU work is done when its call returns."""

    @property
    def can_mark(self) -> bool:
        return True

    def mark(self) -> Moment:
        """Mark the moment at which the device has done all work up to now."""
        return time.perf_counter()

    def is_over(self, moment: Moment) -> bool:
        """Return whether the device has come to a moment."""
        return True

    def elapsed_s(self, begin: Moment, end: Moment) -> float:
        return float(end - begin)

    def release(self, moments: Iterable[Moment]) -> None:
        """Take back moments that are not read any more."""


class EventStopwatch(HostStopwatch):
    """A GPU: CUDA events in the current stream. Used events are used again, because making one takes longer."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._free: list[torch.cuda.Event] = []

    @property
    def can_mark(self) -> bool:
        """Whether no CUDA graph is being captured, in which events have no time."""
        return not torch.cuda.is_current_stream_capturing()

    def mark(self) -> Moment:
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def is_over(self, moment: Moment) -> bool:
        return bool(moment.query())

    def elapsed_s(self, begin: Moment, end: Moment) -> float:
        """The time is 0 where streams ran out of order."""
        return max(0.0, elapsed_s(begin, end))

    def release(self, moments: Iterable[Moment]) -> None:
        self._free.extend(moments)


def stopwatch_of(device: str) -> HostStopwatch:
    """Return the stopwatch of a torch device."""
    return EventStopwatch(device) if is_gpu(device) else HostStopwatch()


# torch has no public names for it and for the backward; its profiler and its checkpoints use these.
_next_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr


def in_backward() -> bool:
    """Return whether this thread runs a backward."""
    return bool(torch._C._current_graph_task_id() != -1)


def refuse_unobservable(model: nn.Module) -> None:
    """Refuse a model whose layers cannot be seen or are metered already."""
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
    """Marks iterations of a model, module 0, one at a time, from ``open`` to ``close``."""

    def __init__(self, model: nn.Module, stopwatch: HostStopwatch) -> None:
        named = dict(model.named_modules())
        self.paths = tuple(named)
        self.classes = tuple(type(module).__name__ for module in named.values())
        self._described = _Described()
        self.autocasts: set[tuple[torch.dtype | None, ...]] = set()
        self._stopwatch = stopwatch
        self._operators = {id(module) for module in operator_modules(model)}
        self._modules: Sequence[nn.Module] = tuple(named.values())
        # The model's own forward is observed by who begins iterations, and calls ``around_model``.
        self._observed = [
            ObservedForward(module, partial(self._around, index)) for index, module in enumerate(self._modules) if index
        ]
        self._backward = ObservedBackward(self._around_backward)
        self._iteration: MarkedIteration | None = None
        # By thread, the sequence number at the end of the model's last call: older nodes may be of any layer.
        self._called = threading.local()

    @property
    def is_open(self) -> bool:
        return self._iteration is not None

    @property
    def calls_of_tuples(self) -> Mapping[int, Mapping[OperatorTuple, int]]:
        """By slot, the calls of operator tuples in the described iteration, if tuples describe all of them.

        Forwards of modules that called others are left out, as composites may do in training: their tuples contain
        these calls. The tuples of a backward are torch's operations.
        """
        found = self._described
        called = [self.paths[slot // 2] for slot in (*found.calls, *found.refused) if is_forward(slot)]

        def calls_others(path: str) -> bool:
            return any(one != path and one.startswith(f"{path}." if path else "") for one in called)

        return {
            slot: calls
            for slot, calls in found.calls.items()
            if slot not in found.refused and not (is_forward(slot) and calls_others(self.paths[slot // 2]))
        }

    def open(self, begin: Moment, describes: bool = False) -> None:
        """Begin to mark an iteration; ``describes`` notes the operator tuples of its calls, in ``calls_of_tuples``."""
        if describes:
            self._described = _Described()
        since = getattr(self._called, "until", _next_sequence_number())
        described = self._described if describes else None
        self._iteration = MarkedIteration(self._stopwatch, begin, len(self._modules), described, since)
        self._backward.install()
        for observed in self._observed:
            observed.install()

    def close(self, end: Moment) -> MarkedIteration:
        iteration = self._iteration
        assert iteration is not None
        self.remove()
        iteration.moments.append(end)
        return iteration

    def remove(self) -> None:
        """Put back the forwards of all modules; the iteration that is open marks nothing any more."""
        if self._iteration is not None:
            self._iteration.has_ended = True
        self._iteration = None
        self._backward.remove()
        for observed in self._observed:
            observed.remove()

    def around_model(self, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return self._around(0, forward, args, kwargs)
        finally:
            self._called.until = _next_sequence_number()

    def _around_backward(self, run: Backward, roots: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        around = run if self._iteration is None else partial(self._iteration.run_backward, run)
        return around(roots, *args, **kwargs)

    def _around(self, index: int, forward: Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        iteration = self._iteration
        if iteration is None:
            return forward(*args, **kwargs)
        if iteration.is_described:
            self._describe(index, args, kwargs)
        before = iteration.enter(index)
        try:
            return forward(*args, **kwargs)
        finally:
            iteration.switch(before)

    def _describe(self, index: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if in_backward():
            return
        module, is_operator = self._modules[index], id(self._modules[index]) in self._operators
        describe = partial(module_tuple, module, args, kwargs) if is_operator else None
        if self._described.note(forward_slot(index), describe):
            self.autocasts.add(autocast_dtypes())


class _Described:
    """The calls of operator tuples by slot, and the slots with a call that no tuple describes."""

    def __init__(self) -> None:
        self.calls: dict[int, Counter[OperatorTuple]] = {}
        self.refused: set[int] = set()

    def note(self, slot: int, describe: Callable[[], OperatorTuple] | None) -> bool:
        """Note a call, and return whether a tuple describes it."""
        try:
            found = None if describe is None else describe()
        except Exception:
            # Its cost is unknown; the user's loop runs on.
            found = None
        if found is None:
            self.refused.add(slot)
            return False
        self.calls.setdefault(slot, Counter())[found] += 1
        return True


class MarkedIteration:
    """The marks of one iteration; ``is_whole`` says whether each backward has ended; one that failed has not.

    From the sequence number ``since`` on no layer has made nodes in this thread.
    """

    def __init__(
        self, stopwatch: HostStopwatch, begin: Moment, layers: int, described: _Described | None, since: int
    ) -> None:
        self.moments: list[Moment] = [begin]
        self.slots: list[int] = [NO_LAYER]
        self.calls = np.zeros(layers)
        self._described = described
        self.own_s = np.zeros(slots_of(layers))
        self.is_whole = True
        self.has_ended = False
        self._stopwatch = stopwatch
        self._threads: list[_Made] = []
        self._thread = _Thread(self._threads)
        self._thread.made.note(min(since, _next_sequence_number()), NO_LAYER)

    @property
    def is_described(self) -> bool:
        return self._described is not None

    def spans(self) -> MarkedSpans:
        elapsed_s, moments = self._stopwatch.elapsed_s, self.moments
        times_s = [elapsed_s(begin, end) for begin, end in pairwise(moments)]
        return MarkedSpans(self.slots, times_s, self.own_s, self.calls)

    def enter(self, index: int) -> int:
        """Give the time from now on to a module, and return the owner before."""
        before, is_again = self.slots[-1], in_backward()
        if not is_again:
            self.calls[index] += 1
        self.switch(backward_slot(index) if is_again else forward_slot(index))
        return before

    def switch(self, slot: int) -> None:
        """Give the time from now on to an owner, with the nodes that this thread makes."""
        if self.has_ended:
            return
        begin_s = time.perf_counter()
        self.moments.append(self._stopwatch.mark())
        self.slots.append(slot)
        self._note()
        self.own_s[slot] += time.perf_counter() - begin_s

    def run_backward(self, run: Backward, roots: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        begin_s, before = time.perf_counter(), self.slots[-1]
        # After the roots and their gradients: whether the graph is kept, whether one is made, the inputs.
        makes_graph, inputs = (*args[2:4], False, ())[:2]
        begins = self._begins(roots, is_ordered=not makes_graph and not inputs)
        handles = [node.register_prehook(partial(self._come_to, slot)) for _, slot, node in begins]
        if makes_graph:
            # A thread of the engine ends with a node, and only there it shows how many it has made.
            handles += [node.register_hook(self._note) for _, _, node in begins]
        self.own_s[before] += time.perf_counter() - begin_s
        self.is_whole, was_whole = False, self.is_whole
        try:
            # Operations of a backward that makes a graph have a backward themselves.
            is_plain = self.is_described and not makes_graph and not in_backward()
            with Operations(self._run_described) if is_plain else nullcontext():
                found = run(roots, *args, **kwargs)
            self.is_whole = was_whole
            return found
        finally:
            for handle in handles:
                handle.remove()
            self.switch(before)

    def _run_described(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation of a backward, and note its tuple with the layer whose backward it is of."""
        slot = self.slots[-1]
        if self._described is not None and not is_free(operation) and slot >= 0 and not is_forward(slot):
            named = function_of(unwatched(operation, args))
            with _disable_current_modes():
                self._described.note(slot, partial(function_tuple, named, args, kwargs))
        return operation(*args, **kwargs)

    def _begins(self, roots: Sequence[Any], is_ordered: bool) -> list[tuple[int, int, Any]]:
        """Return the nodes below roots where the owner may change, each after its number and the owner's slot."""
        self._note()
        own = self._thread.made
        # A backward inside of another is that of modules that run again, which this thread has just done.
        threads = [
            made for made in ([own] if in_backward() else self._threads) if made.numbers[:1] != made.numbers[-1:]
        ]
        owned = []
        for node in _nodes(roots):
            number = node._sequence_nr()
            slots = {slot for made in threads if (slot := made.owner(number)) is not None}
            owned.append((number, slots.pop() if len(slots) == 1 else UNKNOWN_LAYER, node))
        if not is_ordered or len(threads) != 1 or any(slot == UNKNOWN_LAYER for _, slot, _ in owned):
            return owned
        # The engine comes to all nodes, the newest first.
        owned.sort(key=itemgetter(0), reverse=True)
        return [next(run) for _, run in groupby(owned, itemgetter(1))]

    def _note(self, *_gradients: Any) -> None:
        """Note whose are the nodes that this thread makes from now on."""
        self._thread.made.note(_next_sequence_number(), self.slots[-1])

    def _come_to(self, slot: int, _gradients: Any) -> None:
        if slot != self.slots[-1]:
            self.switch(slot)


class _Made:
    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._slots: list[int] = []

    def note(self, number: int, slot: int) -> None:
        self.numbers.append(number)
        self._slots.append(slot if slot < 0 else backward_slot(slot // 2))

    def owner(self, number: int) -> int | None:
        """Return the slot of a node's backward; None if it is not between the first and the last number noted."""
        index = bisect_right(self.numbers, number)
        return self._slots[index - 1] if 0 < index < len(self.numbers) else None


class _Thread(threading.local):
    def __init__(self, threads: list[_Made]) -> None:
        self.made = _Made()
        threads.append(self.made)


def _nodes(roots: Sequence[Any]) -> Sequence[Any]:
    """Return the nodes below roots, tensors or edges of a graph, without those that add to a weight's gradient."""
    tops = (root.grad_fn if isinstance(root, Tensor) else root.node for root in roots)
    nodes = list(dict.fromkeys(node for node in tops if node is not None))
    seen, found = set(nodes), []
    for node in nodes:
        if following := node.next_functions:
            found.append(node)
            for one, _ in following:
                if one is not None and one not in seen:
                    seen.add(one)
                    nodes.append(one)
    return found


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
