"""Capture of repeated calls into CUDA graphs, which replay without launches from Python.

A loop of short kernels in Python is launch-bound. A graph of several calls is launched at once, and its kernels follow
each other as closely as in a model that launches ahead of the device.

The time of a call depends on the placement of its tensors in memory (H200, for tensors that fit into the cache:
standard deviation 0.3 % to 1.8 %, ``docs/log/repeatability.md``), which differs between runs and between calls in a
model. A short call is therefore captured in several memory placements, one graph for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import torch

from opcost.measuring.calls import Call, Calls
from opcost.measuring.flags import Flag, Flags
from opcost.torch_backend.passes import INFERENCE

REPLAY_S = 0.01
"""Length of a replay with one graph."""

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

FREE_SHARE = 0.5
"""Share of the device's memory that should be free before a capture, more than ten placements of a call of
``LONGEST_RELOCATED_S`` need."""

UNUSED_SHARE = 0.1
"""Smallest share of the device's memory, reserved by torch but unused, that is worth releasing."""

FREE_PLACEMENTS = 2
"""Memory that must be free for another placement, as a multiple of the first placement's."""

RAISE_ON_SYNCHRONISATION = 2
"""Mode of ``torch.cuda.set_sync_debug_mode`` in which a synchronisation with the device raises an error."""


class CaptureRefusal(Exception):  # noqa: N818 (nothing is wrong: the call is made in a loop instead)
    """A call cannot be captured; the message is the reason."""


@dataclass(frozen=True)
class CapturedCalls:
    """CUDA graphs of the same number of cycles of calls, each in its own memory placement.

    ``kept`` are the calls, which keep the memory that they read alive. ``notes`` give the reason for missing
    placements.
    """

    graphs: tuple[torch.cuda.CUDAGraph, ...]
    cycles: int
    stream: torch.cuda.Stream
    kept: tuple[Call, ...]
    flags: Flags = ()
    notes: str = ""

    def replay(self, times: int, placement: int = 0) -> None:
        """Launch the graph of a placement (modulo the number of placements) a number of times.

        The device may still run it when this returns.
        """
        graph = self.graphs[placement % len(self.graphs)]
        with torch.cuda.stream(self.stream):
            for _ in range(times):
                graph.replay()


def capture_calls(calls: Calls, device: str) -> CapturedCalls:
    """Capture as many cycles of calls as take about ``REPLAY_S``, but at least one.

    Short calls that can be relocated are captured in ``PLACEMENTS`` memory placements of ``REPLAY_PER_PLACEMENT_S``
    each, or in fewer if memory is short.

    Raises:
        CaptureRefusal: a call synchronises with the device, or has operations that a graph cannot capture.
        torch.OutOfMemoryError: there is not enough memory, even after torch has released its cache.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    make_room(device)
    shortages, free = _shortages(device), _free_bytes(device)
    with torch.cuda.stream(stream), INFERENCE.context():
        cycles, placements = _division(calls, stream)
        kept = [calls.cycle]
        graphs = [_captured_in_cleared_memory(calls.cycle, cycles, stream)]
        taken = free - _free_bytes(device)
        missing_reason = ""
        try:
            while calls.relocated is not None and len(graphs) < placements:
                if _free_bytes(device) < FREE_PLACEMENTS * taken:
                    missing_reason = "not enough free memory"
                    break
                call = calls.relocated()
                graphs.append(_captured_in_cleared_memory(call, cycles, stream))
                kept.append(call)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            missing_reason = f"{type(error).__name__}: {reason}"
    flags = (Flag.OUT_OF_MEMORY_IN_CAPTURE,) if _shortages(device) > shortages else ()
    notes = f"in {len(graphs)} of {placements} memory placements: {missing_reason}" if missing_reason else ""
    captured = CapturedCalls(tuple(graphs), cycles, stream, tuple(kept), flags, notes)
    for placement in range(len(graphs)):
        # The first launch uploads a graph to the device, which takes 1 us for each of its kernels.
        captured.replay(1, placement)
    return captured


def make_room(device: str) -> None:
    """Release torch's unused memory if little else is free.

    During a capture torch allocates new memory and releases none. With too little memory, cuDNN does not always fail:
    it may choose another algorithm, and keep it (a convolution took 3.4 times as long, ``docs/log/sums.md``).
    """
    free, total = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if free < FREE_SHARE * total and unused > UNUSED_SHARE * total:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def _free_bytes(device: str) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return free


def _shortages(device: str) -> int:
    """Return the number of failed allocations so far, including those that a library recovered from."""
    return int(torch.cuda.memory_stats(device).get("num_ooms", 0))


def _division(calls: Calls, stream: torch.cuda.Stream) -> tuple[int, int]:
    """Return the number of cycles to capture in each placement, and the number of placements."""
    # A call that is long outside a graph may be launch-bound, so it is timed in a graph, too.
    if _warm_up(calls.cycle, stream) >= calls.period * REPLAY_S / 2:
        return 1, 1
    cycle_s = _probed_s(calls, stream)
    has_placements = calls.relocated is not None and cycle_s <= calls.period * LONGEST_RELOCATED_S
    placements, replay_s = (PLACEMENTS, REPLAY_PER_PLACEMENT_S) if has_placements else (1, REPLAY_S)
    return max(min(round(replay_s / cycle_s), MAXIMUM_CALLS // (placements * calls.period)), 1), placements


def _warm_up(call: Call, stream: torch.cuda.Stream) -> float:
    """Make a few calls, then one that is timed (s) and must not synchronise, which would break a capture."""
    for _ in range(WARM_UP_CALLS):
        call()
    return device_time_s(partial(_call_without_synchronisation, call), stream)


def _call_without_synchronisation(call: Call) -> None:
    try:
        with _synchronisation_is_an_error():
            call()
    except RuntimeError as error:
        if "synchronizing CUDA operation" not in str(error):
            raise
        raise CaptureRefusal("it synchronises with the GPU") from error


@contextmanager
def _synchronisation_is_an_error() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # torch warns that it may miss a synchronisation; then the capture fails.
        warnings.simplefilter("ignore", UserWarning)
        torch.cuda.set_sync_debug_mode(RAISE_ON_SYNCHRONISATION)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _probed_s(calls: Calls, stream: torch.cuda.Stream) -> float:
    """Return the time of a cycle in a graph, where it is not launch-bound."""
    cycles = max(PROBE_CALLS // calls.period, 1)
    return _replayed_s(calls.cycle, cycles, stream) / cycles


def time_in_graph_s(call: Call, calls: int, device: str) -> float:
    """Return the time in s of a number of calls in a graph.

    Raises:
        CaptureRefusal: a call cannot be captured.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream), INFERENCE.context():
        _warm_up(call, stream)
        return _replayed_s(call, calls, stream)


def _replayed_s(call: Call, calls: int, stream: torch.cuda.Stream) -> float:
    probe = CapturedCalls((_captured_in_cleared_memory(call, calls, stream),), calls, stream, (call,))
    probe.replay(1)
    return device_time_s(partial(probe.replay, PROBE_REPLAYS), stream) / PROBE_REPLAYS


def _captured_in_cleared_memory(call: Call, calls: int, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """Capture calls. If that is out of memory, release torch's cache and try again.

    Outside captures torch does this by itself.
    """
    try:
        return _captured(call, calls, stream)
    except torch.OutOfMemoryError:
        torch.cuda.synchronize(stream.device)
        torch.cuda.empty_cache()
        return _captured(call, calls, stream)


def _captured(call: Call, calls: int, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    # torch.cuda.graph() would synchronise and empty the cache, so that the GPU would idle and cool at every capture.
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        for _ in range(calls):
            call()
        graph.capture_end()
    except BaseException as error:
        _abandon(graph, pool, stream)
        if isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError):
            reason = str(error).partition("\n")[0]
            raise CaptureRefusal(f"a CUDA graph cannot capture it: {reason}") from error
        raise
    return graph


def _abandon(graph: torch.cuda.CUDAGraph, pool: tuple[int, int], stream: torch.cuda.Stream) -> None:
    """End a failed capture, also in torch's allocator, which a failed end does not reset."""
    with suppress(RuntimeError):
        graph.capture_end()
    # Some versions lack this function; in others the failed end has reset the allocator, and it raises.
    end_allocating = getattr(torch._C, "_cuda_endAllocateToPool", None)
    if end_allocating is not None:
        with suppress(RuntimeError):
            end_allocating(stream.device_index, pool)


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
