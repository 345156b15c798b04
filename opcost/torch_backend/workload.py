"""Operator tuples and models as something that runs n times."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import torch

from opcost.errors import CannotMeasureError
from opcost.estimates import total_if_known
from opcost.measuring.calls import Calls
from opcost.measuring.conditions import EAGER, GRAPH, WARM, is_gpu
from opcost.measuring.flags import Flags, joined_notes
from opcost.operators.tuples import OperatorTuple
from opcost.operators.values import NORMAL_DATA, InputData
from opcost.torch_backend.cuda_graph import CapturedCalls, CaptureRefusal, capture_calls, elapsed_s
from opcost.torch_backend.finite import flags_of_output
from opcost.torch_backend.flops import ALLOCATIONS
from opcost.torch_backend.inputs import operator_inputs
from opcost.torch_backend.operators import build_operator
from opcost.torch_backend.passes import INFERENCE
from opcost.torch_backend.relocation import Layer, device_memory, repeated

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
"""What torch and torchvision raise where they are given what they don't support: most of it is RuntimeError."""


Span: TypeAlias = tuple[torch.cuda.Event, torch.cuda.Event]
"""Two events of a GPU, one after the other."""


@dataclass(frozen=True)
class Batch:
    """Rounds that were started on a GPU, from the end of those before (None where nothing came before) to their own.

    What ran in the span ``uncounted`` does not count in their time; a wait of the GPU for Python does.
    """

    rounds: int
    before: torch.cuda.Event | None
    end: torch.cuda.Event
    uncounted: Span | None

    @property
    def elapsed_s(self) -> float | None:
        if self.before is None:
            return None
        uncounted_s = 0.0 if self.uncounted is None else elapsed_s(*self.uncounted)
        return elapsed_s(self.before, self.end) - uncounted_s


class DeviceQueue:
    """Starts rounds of work on a device one batch ahead, so that a GPU never waits for Python between two batches.

    ``ended_s`` is how long the rounds that ended last took by the GPU's clock; None on a CPU, and after a pause.
    """

    def __init__(self, device: str) -> None:
        self.ended_s: float | None = None
        self._device = device
        self._ahead: list[Batch] = []
        self._last: torch.cuda.Event | None = None

    def started(self, rounds: int, stream: torch.cuda.Stream | None = None, uncounted: Span | None = None) -> int:
        """Tell that rounds were started (on a stream); wait for those before them and return how many these were.

        What ran in the span ``uncounted`` before them does not count in their time. On a CPU they have ended already.
        """
        if not is_gpu(self._device):
            return rounds
        end = _now(stream or torch.cuda.current_stream(self._device))
        self._ahead.append(Batch(rounds, self._last, end, uncounted))
        self._last = end
        return self._wait_for(len(self._ahead) - 1)

    def finish(self) -> None:
        """Wait until the device is idle.

        Raises:
            CannotMeasureError: what was started failed on the device.
        """
        with refused_calls(self._device):
            self._wait_for(len(self._ahead))
            synchronize(self._device)
        self._last = None

    def _wait_for(self, batches: int) -> int:
        ended = self._ahead[:batches]
        del self._ahead[:batches]
        if ended:
            ended[-1].end.synchronize()
            self.ended_s = total_if_known([batch.elapsed_s for batch in ended])
        return sum(batch.rounds for batch in ended)


def _now(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """Return an event for the moment when a GPU has done what was started so far."""
    event = torch.cuda.Event(enable_timing=True)
    event.record(stream)
    return event


class EagerWorkload:
    """Calls something in a Python loop, in inference mode, as a user's program would.

    Args:
        calls: what is called.
        device: where it runs.
    """

    execution = EAGER
    places = 1

    def __init__(self, calls: Calls, device: str) -> None:
        self.calls = calls
        self.device = device
        self.flags = calls.flags
        self.notes = calls.notes
        self.iterations_per_round = calls.period
        self.overhead = None if calls.overhead is None else EagerWorkload(Calls(calls.overhead, calls.period), device)
        self._queue = DeviceQueue(device)

    def remarked(self, note: str = "", flags: Flags = ()) -> EagerWorkload:
        """Return the same with one more note, or more flags."""
        calls = replace(self.calls, flags=(*self.flags, *flags), notes=joined_notes(self.notes, note))
        return EagerWorkload(calls, self.device)

    @property
    def ended_s(self) -> float | None:
        """How long what ended last took by the GPU's clock, None on a CPU."""
        return self._queue.ended_s

    def run(self, rounds: int) -> int:
        """Call it that many times; return how many calls have ended since the last time.

        Raises:
            CannotMeasureError: torch refused the call (out of memory, unsupported).
        """
        with refused_calls(self.device):
            with INFERENCE.context():
                for _ in range(rounds):
                    self.calls.cycle()
            return self._queue.started(rounds)

    def finish(self) -> None:
        """Wait until the device is idle.

        Raises:
            CannotMeasureError: a call failed on the device.
        """
        self._queue.finish()


class GraphWorkload:
    """Replays a CUDA graph of some calls, each time that it runs in another place in memory; keeps what they need.

    The first replay in a place does not count: the GPU fetches the graph and its data there (on an H200 up to 0.2 us
    more for each call of less than 7 us).
    """

    execution = GRAPH

    def __init__(self, captured: CapturedCalls, eager: EagerWorkload, overhead: GraphWorkload | None) -> None:
        self.flags = (*eager.flags, *captured.flags)
        self.notes = joined_notes(eager.notes, captured.notes)
        self.places = len(captured.graphs)
        self.overhead = overhead
        self.iterations_per_round = captured.cycles * eager.iterations_per_round
        self._captured = captured
        self._eager = eager
        self._place = itertools.count()
        self._queue = DeviceQueue(eager.device)

    @property
    def ended_s(self) -> float | None:
        """How long the replays that ended last took by the GPU's clock."""
        return self._queue.ended_s

    def run(self, rounds: int) -> int:
        """Replay one graph that many times; return how many replays have ended since the last time.

        Raises:
            CannotMeasureError: the device refused it.
        """
        captured, place, first = self._captured, next(self._place), None
        with refused_calls(self._eager.device):
            if self.places > 1:
                begin = _now(captured.stream)
                captured.replay(1, place)
                first = begin, _now(captured.stream)
            captured.replay(rounds, place)
            return self._queue.started(rounds, captured.stream, first)

    def finish(self) -> None:
        """Wait until the device is idle.

        Raises:
            CannotMeasureError: a replay failed on the device.
        """
        self._queue.finish()


@contextmanager
def refused_calls(device: str) -> Iterator[None]:
    """Let what torch refuses end in a ``CannotMeasureError``."""
    try:
        yield
    except REFUSALS as error:
        # After a CUDA fault every further call fails too; then this raises, and the process ends.
        synchronize(device)
        raise CannotMeasureError(one_line(error)) from error


def as_graph(workload: EagerWorkload) -> GraphWorkload | EagerWorkload:
    """Return the same calls in CUDA graphs; where they cannot be captured, as they are, with a note that says why.

    Raises:
        CannotMeasureError: torch refused the call (out of memory, unsupported).
    """
    try:
        overhead = None if workload.overhead is None else _graph_of(workload.overhead, None)
        return _graph_of(workload, overhead)
    except CaptureRefusal as refusal:
        return workload.remarked(f"eager, since {refusal}")


def _graph_of(workload: EagerWorkload, overhead: GraphWorkload | None) -> GraphWorkload:
    with refused_calls(workload.device):
        captured = capture_calls(workload.calls, workload.device)
    return GraphWorkload(captured, workload, overhead)


def operator_workload(
    operator: OperatorTuple, device: str, data: InputData = NORMAL_DATA, cache: str = WARM
) -> EagerWorkload:
    """Return an operator tuple with fresh weights and drawn inputs, ready to run on a device again and again.

    ``cache``, one of ``CACHES``, says what each call finds in the device's cache. An in-place operator adds and
    subtracts in turn or writes elsewhere: in a loop it would change its own input, and with it the power. In a
    CUDA graph it runs in several places of the memory. What holds NaN or infinity though its inputs do not is flagged.

    Raises:
        CannotMeasureError: it cannot be built or repeated here.
    """
    with refused_calls(device):
        layer = Layer(*operator_call(operator, device, data))
        calls = repeated(layer, cache, partial(device_memory, device))
        workload = EagerWorkload(calls, device)
        # What only allocates returns what somebody else has left in the memory.
        flags = () if operator.short_name in ALLOCATIONS else _flags_of_a_cycle(layer, calls)
        return workload.remarked(flags=flags) if flags else workload


def _flags_of_a_cycle(layer: Layer, calls: Calls) -> Flags:
    read = {name: value for name, value in layer.kwargs.items() if name != "out"}
    with INFERENCE.context():
        return flags_of_output(calls.cycle(), (layer.args, read))


def operator_call(
    operator: OperatorTuple, device: str, data: InputData = NORMAL_DATA
) -> tuple[Callable[..., object], tuple[object, ...], dict[str, object]]:
    """Return an operator tuple with fresh weights, and drawn inputs for a call as its model makes it.

    Raises:
        CannotMeasureError: it cannot be built here.
    """
    return (build_operator(operator, device), *operator_inputs(operator, device, data))


def synchronize(device: str) -> None:
    """Wait until the device is idle."""
    if is_gpu(device):
        torch.cuda.synchronize(device)


def one_line(error: Exception) -> str:
    """Return an error's first line with its type."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
