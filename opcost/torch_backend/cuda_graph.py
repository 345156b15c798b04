"""Capture of repeated calls into CUDA graphs, which replay without launches from Python (``docs/method.md``).

A short call is captured in several memory placements, one graph for each, because its time depends on the placement of
its tensors (``docs/log/repeatability.md``). A call with operations that wait for the device, such as ``item()`` or an
index that is on the host, is captured in pieces: the capture ends before such an operation, which runs outside, and the
next capture begins after it.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves

from opcost.errors import CannotMeasureError
from opcost.measuring.flags import Flag, Flags
from opcost.measuring.workload import Call, Calls
from opcost.torch_backend.cost_counter import tensors_of
from opcost.torch_backend.passes import running_calls
from opcost.torch_backend.repeated_calls import ObservingMode, Operation, storage_of

REPLAY_S = 0.01
MAXIMUM_CALLS = 4096
"""The most calls in all graphs of a workload. Capturing a call takes about 10 us; a replay of this many kernels of 2 us
takes 8 ms."""

PLACEMENTS = 10
"""Number of memory placements: the number of chunks of the shortest precise loop."""

REPLAY_PER_PLACEMENT_S = 2e-3
"""Length of a replay with several placements. The gap between two replays, about 2 us, is 0.1 % of it, or up to 0.4 %
if ``MAXIMUM_CALLS`` limits the replay."""

LONGEST_RELOCATED_S = 0.5e-3
"""Longest time of a call that is captured in several placements; few longer calls fit into a replay."""

PROBE_CALLS = 8
PROBE_REPLAYS = 3
WARM_UP_CALLS = 2
"""Calls before a capture. The first one loads libraries, allocates workspaces and chooses algorithms."""

BESIDE_S = 2.5e-3
MOST_CYCLES_BESIDE = 8
"""Length of a graph of calls with their overhead, and the most calls in it: each has some 30 kernels."""

GAP_LOOP_S, MOST_CALLS_OF_GAP, GAP_REPLAYS = 5e-4, 100, 5
"""Length of a graph of a call alone, the most calls in it, and its replays, with a trace and without."""

FREE_SHARE = 0.5
"""Share of the device's memory that should be free before a capture, more than ten placements of a call of
``LONGEST_RELOCATED_S`` need."""

UNUSED_SHARE = 0.1
"""Smallest share of the device's memory, reserved by torch but unused, that is worth releasing."""

FREE_PLACEMENTS = 2
"""Memory that must be free for another placement, as a multiple of the first placement's."""

SHORTEST_BETWEEN_WAITS_S = 1e-4
"""Smallest mean time between two waits of a call that is captured in pieces. With more waits it is practically eager:
each wait takes 50 us (H100, ``docs/log/sums.md``)."""

T = TypeVar("T")


ALLOW_SYNCHRONISATION, RAISE_ON_SYNCHRONISATION = 0, 2
"""Modes of ``torch.cuda.set_sync_debug_mode``."""


class CaptureRefusal(Exception):  # noqa: N818 (nothing is wrong: the call is made in a loop instead)
    """A call cannot be captured; the message is the reason."""


class SynchronisationRefusal(CaptureRefusal):
    """A call cannot be captured because it waits for the device."""


@dataclass(frozen=True)
class Pieces:
    """The steps of a call in order: replays of ``graphs`` graphs, and ``waits`` operations that wait for the device."""

    steps: tuple[Call, ...]
    graphs: int
    waits: int

    def replay(self) -> None:
        with running_calls():
            for step in self.steps:
                step()


@dataclass(frozen=True)
class CapturedCalls:
    """CUDA graphs of the same number of cycles of calls, each in its own memory placement.

    ``kept`` are the calls, which keep the memory that they read alive. ``waits`` is the number of synchronisations with
    the device in a cycle that is captured in pieces. ``notes`` give the reason for missing placements.
    """

    graphs: tuple[torch.cuda.CUDAGraph | Pieces, ...]
    cycles: int
    stream: torch.cuda.Stream
    kept: tuple[Call, ...]
    waits: int | None = None
    flags: Flags = ()
    notes: str = ""

    def replay(self, times: int, placement: int = 0) -> None:
        """Launch the graph of a placement, modulo their number, and return while the device may still run it."""
        graph = self.graphs[placement % len(self.graphs)]
        with torch.cuda.stream(self.stream):
            for _ in range(times):
                graph.replay()


def capture_calls(calls: Calls, device: str, replay_s: float = REPLAY_S) -> CapturedCalls:
    """Capture as many cycles of calls as take about ``replay_s``, but at least one.

    Short calls that can be relocated are captured in ``PLACEMENTS`` memory placements of ``REPLAY_PER_PLACEMENT_S``
    each, or in fewer if memory is short. One cycle of calls that synchronise with the device, and have no overhead, is
    captured in pieces. Raises CaptureRefusal: a graph cannot capture a call, or it waits too often, or has an overhead
    and waits. torch.OutOfMemoryError: there is not enough memory, even after torch has released its cache.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    shortages = _make_room(device)
    with torch.cuda.stream(stream), running_calls():
        try:
            captured = _in_placements(calls, stream, replay_s)
        except SynchronisationRefusal:
            if calls.overhead is not None:
                # A pause is no operation of torch: a replay in pieces would leave it out.
                raise
            pieces = _in_cleared_memory(partial(captured_in_pieces, calls.cycle), stream)
            if pieces.waits * SHORTEST_BETWEEN_WAITS_S > device_time_s(pieces.replay, stream) or not pieces.graphs:
                raise
            captured = CapturedCalls((pieces,), 1, stream, (calls.cycle,), pieces.waits)
    return replace(captured, flags=_flags_since(shortages, device))


def _make_room(device: str) -> int:
    """Release memory before a capture if little is free; return the number of failed allocations so far.

    These include those that a library recovered from.
    """
    # During a capture torch allocates new memory and releases none. With too little memory, cuDNN does not always fail:
    # it may choose another algorithm, and keep it (a convolution took 3.4 times as long, ``docs/log/sums.md``).
    free, total = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if free < FREE_SHARE * total and unused > UNUSED_SHARE * total:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
    return int(torch.cuda.memory_stats(device).get("num_ooms", 0))


def _flags_since(shortages: int, device: str) -> Flags:
    has_failed = torch.cuda.memory_stats(device).get("num_ooms", 0) > shortages
    return (Flag.OUT_OF_MEMORY_IN_CAPTURE,) if has_failed else ()


def capture_again(call: Call, calls: int, stream: torch.cuda.Stream) -> CapturedCalls:
    """Capture calls that have been made before, on a stream."""
    with torch.cuda.stream(stream), running_calls():
        graph = _in_cleared_memory(partial(GraphRecorder.captured, call=call, calls=calls), stream)
    return CapturedCalls((graph,), calls, stream, (call,))


def capture_beside(calls: Calls, device: str) -> tuple[CapturedCalls, CapturedCalls]:
    """Return calls and their overhead alone, each captured for as many cycles as take about ``BESIDE_S`` with both.

    Raises CaptureRefusal: a graph cannot capture a call.
    """
    assert calls.overhead is not None
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    shortages = _make_room(device)
    with torch.cuda.stream(stream), running_calls():
        _warm_up(calls.cycle, stream)
        cycle_s = _replayed_s(calls.cycle, 1, stream)
        cycles = max(min(round(BESIDE_S / cycle_s), MOST_CYCLES_BESIDE), 1)
        both_calls = calls.cycle, calls.overhead

        def captured(recorder: GraphRecorder) -> list[torch.cuda.CUDAGraph]:
            # In the same memory, whose place changes times.
            return [recorder.captured(call, cycles) for call in both_calls]

        graphs = _in_cleared_memory(captured, stream)
        for graph in graphs:
            graph.replay()
    flags = _flags_since(shortages, device)
    both, alone = (CapturedCalls((graph,), cycles, stream, both_calls, flags=flags) for graph in graphs)
    return both, alone


def _in_placements(calls: Calls, stream: torch.cuda.Stream, replay_s: float) -> CapturedCalls:
    device = str(stream.device)
    free = torch.cuda.mem_get_info(device)[0]
    cycles, placements = _division(calls, stream, replay_s)
    kept, graphs = [], []

    def capture(call: Call) -> None:
        graph = _in_cleared_memory(partial(GraphRecorder.captured, call=call, calls=cycles), stream)
        # The first launch uploads a graph to the device, which takes 1 us for each of its kernels. Meanwhile the next
        # one is captured.
        graph.replay()
        kept.append(call)
        graphs.append(graph)

    capture(calls.cycle)
    taken = free - torch.cuda.mem_get_info(device)[0]
    missing_reason = ""
    try:
        while calls.relocated is not None and len(graphs) < placements:
            if torch.cuda.mem_get_info(device)[0] < FREE_PLACEMENTS * taken:
                missing_reason = "not enough free memory"
                break
            capture(calls.relocated())
    except Exception as error:
        reason = str(error).partition("\n")[0]
        missing_reason = f"{type(error).__name__}: {reason}"
    notes = f"in {len(graphs)} of {placements} memory placements: {missing_reason}" if missing_reason else ""
    return CapturedCalls(tuple(graphs), cycles, stream, tuple(kept), notes=notes)


def _division(calls: Calls, stream: torch.cuda.Stream, replay_s: float) -> tuple[int, int]:
    """Return the number of cycles to capture in each placement, and the number of placements."""
    # A call that is long outside a graph may be launch-bound, so it is timed in a graph, too.
    if _warm_up(calls.cycle, stream) >= calls.period * replay_s / 2:
        return 1, 1
    cycles = max(PROBE_CALLS // calls.period, 1)
    cycle_s = _replayed_s(calls.cycle, cycles, stream) / cycles
    has_placements = calls.relocated is not None and cycle_s <= calls.period * LONGEST_RELOCATED_S
    placements, replay_s = (PLACEMENTS, REPLAY_PER_PLACEMENT_S) if has_placements else (1, replay_s)
    return max(min(round(replay_s / cycle_s), MAXIMUM_CALLS // (placements * calls.period)), 1), placements


def _warm_up(call: Call, stream: torch.cuda.Stream) -> float:
    """Make a few calls, then one that is timed (s) and must not synchronise, which would break a capture."""
    for _ in range(WARM_UP_CALLS):
        call()
    return device_time_s(partial(GraphRecorder(stream).run_without_waiting, call), stream)


def time_in_graph_s(call: Call, calls: int, device: str) -> float:
    """Return the time in s of a number of calls in a graph; ``CaptureRefusal`` if a call cannot be captured."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream), running_calls():
        _warm_up(call, stream)
        return _replayed_s(call, calls, stream)


def _replayed_s(call: Call, calls: int, stream: torch.cuda.Stream) -> float:
    probe = capture_again(call, calls, stream)
    probe.replay(1)
    return device_time_s(partial(probe.replay, PROBE_REPLAYS), stream) / PROBE_REPLAYS


def _in_cleared_memory(capture: Callable[[GraphRecorder], T], stream: torch.cuda.Stream) -> T:
    """Return a capture. If it is out of memory, release torch's cache and try again, as torch does outside captures."""

    def captured() -> T:
        recorder = GraphRecorder(stream)
        with recorder.refusing():
            return capture(recorder)

    try:
        return captured()
    except torch.OutOfMemoryError:
        torch.cuda.synchronize(stream.device)
        torch.cuda.empty_cache()
        return captured()


def device_time_s(start: Callable[[], object], stream: torch.cuda.Stream) -> float:
    """Return the device's time in s for the work that ``start`` launches on a stream."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(stream)
    start()
    end.record(stream)
    end.synchronize()
    return max(elapsed_s(begin, end), 1e-9)


def elapsed_s(begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
    """Return the time in s between two events of a device that have both occurred."""
    elapsed_ms: float = begin.elapsed_time(end)
    return elapsed_ms * 1e-3


def kernel_spans(captured: CapturedCalls, times: int) -> NDArray[np.int64]:
    """Return begin and end in ns of each kernel, copy and fill by their begins (cycles, kernels, 2).

    Raises CannotMeasureError: the trace of these replays is not whole.
    """
    with warnings.catch_warnings():
        # torch warns that each trace is of its own.
        warnings.simplefilter("ignore", UserWarning)
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            captured.replay(times)
            captured.stream.synchronize()
    events = [one for one in profiler.profiler.kineto_results.events() if one.device_type().name == "CUDA"]
    spans = sorted((one.start_ns(), one.start_ns() + one.duration_ns()) for one in events)
    cycles = times * captured.cycles
    if not spans or len(spans) % cycles:
        raise CannotMeasureError(f"a trace of {cycles} calls has {len(spans)} kernels")
    return np.array(spans, dtype=np.int64).reshape(cycles, -1, 2)


@dataclass(frozen=True)
class TracedTime:
    """The time in s that calls take in a trace, from the last kernel before them to their own last one, each.

    During ``idle_s`` of it no kernel runs.
    """

    time_s: NDArray[np.float64]
    idle_s: NDArray[np.float64]


def traced_behind(spans: NDArray[np.int64], others: int) -> TracedTime:
    """Return the time of rows of kernels behind the first ``others``; ``spans`` (rows, kernels, 2) in ns, by begins."""
    begun = spans[:, :others, 1].max(axis=1)
    own = np.maximum(spans[:, others:], begun[:, None, None])
    ends = np.maximum.accumulate(np.column_stack([begun, own[..., 1]]), axis=1)
    idle = np.maximum(own[..., 0] - ends[:, :-1], 0).sum(axis=1)
    return TracedTime(1e-9 * (ends[:, -1] - begun), 1e-9 * idle)


@dataclass(frozen=True)
class UntracedGap:
    """The time in s that a call in a loop takes beyond its time in a trace, where gaps between kernels are longer.

    During ``idle_s`` no kernel of the call runs in that trace.
    """

    time_s: float
    idle_s: float


def untraced_gap(calls: Calls, stream: torch.cuda.Stream) -> UntracedGap:
    """Measure the gap of calls that have been made before on a stream, without their overhead."""
    gap = _gap_of(calls.cycle, stream)
    overhead = UntracedGap(0.0, 0.0) if calls.overhead is None else _gap_of(calls.overhead, stream)
    time_s, idle_s = gap.time_s - overhead.time_s, gap.idle_s - overhead.idle_s
    return UntracedGap(time_s / calls.period, idle_s / calls.period)


def _gap_of(call: Call, stream: torch.cuda.Stream) -> UntracedGap:
    """Return the gap of a call: of as many calls as a second graph has more, without the pause between two replays."""
    calls = round(GAP_LOOP_S * PROBE_CALLS / _replayed_s(call, PROBE_CALLS, stream))
    fewer = min(max(calls, 1), MOST_CALLS_OF_GAP)
    graphs = [capture_again(call, number, stream) for number in (fewer, 2 * fewer)]

    def replays_s(captured: CapturedCalls) -> float:
        # The start of a first replay takes some microseconds more.
        more, one = (device_time_s(partial(captured.replay, times), stream) for times in (1 + GAP_REPLAYS, 1))
        return (more - one) / GAP_REPLAYS

    for captured in graphs:
        captured.replay(1)
    differences_s = [replays_s(graphs[1]) - replays_s(graphs[0]) for _ in range(PROBE_REPLAYS)]
    spans = kernel_spans(graphs[1], GAP_REPLAYS)
    # The first call of each replay is behind a pause.
    traced = traced_behind(spans.reshape(GAP_REPLAYS, -1, 2), spans.shape[1])
    time_s, idle_s = (float(np.median(one)) / (2 * fewer - 1) for one in (traced.time_s, traced.idle_s))
    return UntracedGap(statistics.median(differences_s) / fewer - time_s, idle_s)


class GraphRecorder:
    """Captures graphs on a stream with memory of one pool: they must be replayed in the order of their capture."""

    device_type = "cuda"

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._pool = torch.cuda.graph_pool_handle()
        self._graph: torch.cuda.CUDAGraph | None = None

    def run_without_waiting(self, call: Call) -> object:
        """Make a call outside a capture; ``SynchronisationRefusal`` if it waits, when it has not run to its end."""
        try:
            with _synchronisation_mode(RAISE_ON_SYNCHRONISATION):
                return call()
        except RuntimeError as error:
            if "synchronizing CUDA operation" not in str(error):
                raise
            raise SynchronisationRefusal("it synchronises with the GPU") from error

    def run_waiting(self, call: Call) -> object:
        with _synchronisation_mode(ALLOW_SYNCHRONISATION):
            return call()

    def captured(self, call: Call, calls: int) -> torch.cuda.CUDAGraph:
        """Capture a number of calls in one graph."""
        self.begin()
        for _ in range(calls):
            call()
        return self.end()

    def begin(self) -> None:
        # torch.cuda.graph() would synchronise and empty the cache, so that the GPU would idle and cool every time.
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")

    def end(self) -> torch.cuda.CUDAGraph:
        assert self._graph is not None
        self._graph.capture_end()
        graph, self._graph = self._graph, None
        return graph

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """End the capture in progress after an error; convert errors of captures. Calls do not notice it.

        Raises CaptureRefusal: torch raised an error other than being out of memory.
        """
        try:
            # In a capture transformers gives attention a mask that it leaves out otherwise, as in the run that was
            # counted. With it models took up to five times as long (``docs/log/other_sources.md``).
            with patch.object(torch.cuda, "is_current_stream_capturing", lambda: False):
                yield
        except BaseException as error:
            if self._graph is not None:
                with suppress(RuntimeError):
                    self._graph.capture_end()
                self._graph = None
                # A failed end does not reset torch's allocator. Some versions lack this function; in others the failed
                # end has reset the allocator, and it raises.
                end_allocating = getattr(torch._C, "_cuda_endAllocateToPool", None)
                if end_allocating is not None:
                    with suppress(RuntimeError):
                        end_allocating(self._stream.device_index, self._pool)
            if isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError):
                reason = str(error).partition("\n")[0]
                raise CaptureRefusal(f"a CUDA graph cannot capture it: {reason}") from error
            raise


@contextmanager
def _synchronisation_mode(mode: int) -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # torch warns that it may miss a synchronisation; then the capture fails.
        warnings.simplefilter("ignore", UserWarning)
        torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def captured_in_pieces(call: Call, recorder: GraphRecorder) -> Pieces:
    """Capture a call in pieces; a CaptureRefusal if its operations vary, or it waits outside of them."""
    operations: list[tuple[object, bool]] = []

    def surveyed(operation: Operation) -> Any:
        """Run an operation on the device, and note whether it waits."""
        try:
            result, waits = recorder.run_without_waiting(operation.run), False
        except SynchronisationRefusal:
            result, waits = recorder.run_waiting(operation.run), True
        operations.append((operation.function, waits))
        return result

    def on_device(run: Callable[[Operation], Any]) -> ObservingMode:
        is_seen = partial(may_launch_on, recorder.device_type)
        return ObservingMode(lambda operation: run(operation) if is_seen(operation) else operation.run())

    with on_device(surveyed):
        recorder.run_without_waiting(call)
    capture = _Capture(recorder, operations)
    with on_device(capture.observed):
        call()
    capture.end()
    return Pieces(tuple(capture.steps), len(capture.steps) - len(capture.waits), len(capture.waits))


@dataclass
class _Wait:
    """An operation that waits for the device, and its output, which later operations read.

    A repetition leaves the output as it is, because the operation's inputs are the same, unless ``is_modified``: a
    graph writes into it.
    """

    operation: Operation
    output: object
    is_modified: bool = False

    def repeat(self) -> None:
        output = self.operation.run()
        if self.is_modified:
            for kept, value in zip(tensors_of(self.output), tensors_of(output), strict=True):
                kept.copy_(value)


class _Capture:
    """Captures the operations of a call, and runs those that wait between two captures."""

    def __init__(self, recorder: GraphRecorder, operations: Iterable[tuple[object, bool]]) -> None:
        self.steps: list[Call] = []
        self.waits: list[_Wait] = []
        self._recorder = recorder
        self._expected = iter(operations)
        self._is_capturing = False

    def observed(self, operation: Operation) -> Any:
        function, waits = next(self._expected, (None, False))
        if function is not operation.function:
            raise CaptureRefusal("its operations differ from call to call")
        written = set(map(storage_of, operation.written))
        for wait in self.waits:
            wait.is_modified |= not written.isdisjoint(map(storage_of, tensors_of(wait.output)))
        if waits:
            self.end()
            wait = _Wait(operation, operation.run())
            self.waits.append(wait)
            self.steps.append(wait.repeat)
            return wait.output
        if not self._is_capturing:
            self._recorder.begin()
            self._is_capturing = True
        return operation.run()

    def end(self) -> None:
        """End the capture, if any, and run what it captured, whose values the next operation may need."""
        if not self._is_capturing:
            return
        graph = self._recorder.end()
        self._is_capturing = False
        graph.replay()
        self.steps.append(graph.replay)


def may_launch_on(device_type: str, operation: Operation) -> bool:
    """Return whether an operation may launch work on a device: it is no view, and an argument is on it or names it."""
    leaves = tree_leaves((operation.args, operation.kwargs))
    devices = (leaf.device if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    is_there = any(isinstance(device, torch.device) and device.type == device_type for device in devices)
    # A composite operation that is declared as a view may copy (reshape).
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    is_view = operation.function.is_view and not operation.function.has_kernel_for_dispatch_key(composite)
    return is_there and not is_view
