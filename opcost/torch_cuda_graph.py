"""Something that runs on a GPU, captured into CUDA graphs: run again and again without Python's launches.

A loop of short kernels in Python measures Python. A graph of several calls is launched at once, and its kernels follow
each other as closely as in a model that launches ahead of the device.

Where tensors fit into the cache a call's time depends on where in memory they lie (H200: standard deviation 0.3 % to
1.8 %, ``docs/results.md``), which differs from run to run, and from call to call in a model. So such a call is captured
in several places, a graph for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch

from opcost.torch_calls import Calls

REPLAY_S = 0.01
"""How long one replay is to last where there is one graph."""

MAXIMUM_CALLS = 4096
"""Of an operator, in all graphs. Capturing one takes some 10 us, and a replay of as many 2 us kernels lasts 8 ms."""

PLACES = 10
"""As many as a precise loop has chunks: their spread is then that of places, and it is in the error of the time."""

REPLAY_IN_A_PLACE_S = 2e-3
"""The gap between two replays, some 2 us, is a thousandth of it."""

LONGEST_IN_PLACES_S = 0.5e-3
"""Of a call: longer ones repeat within 0.1 %, and only a few of them fit into a replay."""

PROBE_CALLS = 8
PROBE_REPLAYS = 3
WARM_UP_CALLS = 2
"""Before a capture: libraries load, workspaces are allocated and algorithms chosen in the first call."""

RAISE_ON_SYNCHRONISATION = 2
"""torch.cuda.set_sync_debug_mode: any wait of Python for the device is an error."""


class CaptureRefusal(Exception):  # noqa: N818 (nothing is wrong: the call is made in a loop instead)
    """A call cannot be captured, and why."""


@dataclass(frozen=True)
class CapturedCalls:
    """CUDA graphs of the same number of cycles of calls, each in a place of its own in memory.

    ``kept`` is what they read and write.
    """

    graphs: tuple[torch.cuda.CUDAGraph, ...]
    cycles: int
    stream: torch.cuda.Stream
    kept: tuple[object, ...]

    def replay(self, times: int, place: int = 0) -> None:
        """Launch the graph of a place as often (there may be fewer places: they are counted in a circle).

        The device may still be at it when this returns.
        """
        graph = self.graphs[place % len(self.graphs)]
        with torch.cuda.stream(self.stream):
            for _ in range(times):
                graph.replay()


def capture_calls(calls: Calls, device: str) -> CapturedCalls:
    """Capture as many cycles of calls as one replay lasts about ``REPLAY_S``, but at least one.

    Short ones that can be made on other memory are captured in ``PLACES`` places, or as many as there is room for.

    Raises:
        CaptureRefusal: a call waits for the device, or does what a graph cannot hold.
        torch.OutOfMemoryError: there is not enough memory, not even after what torch keeps was given back.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream), torch.inference_mode():
        cycles, places = _division(calls, stream)
        pool = torch.cuda.graph_pool_handle()
        captured = [_captured_in_cleared_memory(calls.cycle, cycles, stream, pool)]
        kept = [calls.cycle]
        with suppress(torch.OutOfMemoryError):
            while calls.relocated is not None and len(captured) < places:
                kept.append(calls.relocated())
                captured.append(_captured(kept[-1], cycles, stream, pool))
    graphs, outputs = zip(*captured, strict=True)
    calls_in_places = CapturedCalls(graphs, cycles, stream, (*kept, *outputs))
    for place in range(len(graphs)):
        # The first launch brings a graph onto the device, which takes 1 us for each of its kernels.
        calls_in_places.replay(1, place)
    return calls_in_places


def _division(calls: Calls, stream: torch.cuda.Stream) -> tuple[int, int]:
    """Return how many cycles to capture in each place, and in how many places."""
    # Many calls of an operator may be long only since Python holds up each of them.
    if _warm_up(calls.cycle, stream) >= calls.period * REPLAY_S / 2:
        return 1, 1
    cycle_s = _probed_s(calls, stream)
    has_places = calls.relocated is not None and cycle_s <= LONGEST_IN_PLACES_S
    places, replay_s = (PLACES, REPLAY_IN_A_PLACE_S) if has_places else (1, REPLAY_S)
    return max(min(round(replay_s / cycle_s), MAXIMUM_CALLS // (places * calls.period)), 1), places


def _warm_up(call: Callable[[], object], stream: torch.cuda.Stream) -> float:
    """Make a few calls, the last one timed (s) and watched: one that waits for the device would break a capture."""
    for _ in range(WARM_UP_CALLS):
        call()
    return _device_time_s(partial(_make_watched, call), stream)


def _make_watched(call: Callable[[], object]) -> None:
    try:
        with _synchronisation_is_an_error():
            call()
    except RuntimeError as error:
        if "synchronizing CUDA operation" not in str(error):
            raise
        raise CaptureRefusal("it waits for the GPU in the midst of its work") from error


@contextmanager
def _synchronisation_is_an_error() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # torch warns that it does not see every wait: those that it misses make the capture fail.
        warnings.simplefilter("ignore", UserWarning)
        torch.cuda.set_sync_debug_mode(RAISE_ON_SYNCHRONISATION)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _probed_s(calls: Calls, stream: torch.cuda.Stream) -> float:
    """Return what a cycle takes in a graph, where Python does not hold it up."""
    cycles = max(PROBE_CALLS // calls.period, 1)
    graph, _ = _captured_in_cleared_memory(calls.cycle, cycles, stream, torch.cuda.graph_pool_handle())
    graph.replay()

    def replay() -> None:
        for _ in range(PROBE_REPLAYS):
            graph.replay()

    return _device_time_s(replay, stream) / (PROBE_REPLAYS * cycles)


Pool: TypeAlias = Any
"""Memory of graphs, as ``torch.cuda.graph_pool_handle`` names it: its type differs between versions of torch."""

Captured: TypeAlias = tuple[torch.cuda.CUDAGraph, object]
"""A graph, and the output of its last call: kept, it holds a place in memory that no other graph's outputs take."""


def _captured_in_cleared_memory(
    call: Callable[[], object], calls: int, stream: torch.cuda.Stream, pool: Pool
) -> Captured:
    """Capture; where memory runs out, once more after torch has given back what it keeps.

    Torch does so by itself everywhere but in a capture, for which it takes new memory each time.
    """
    try:
        return _captured(call, calls, stream, pool)
    except torch.OutOfMemoryError:
        torch.cuda.synchronize(stream.device)
        torch.cuda.empty_cache()
        return _captured(call, calls, stream, pool)


def _captured(call: Callable[[], object], calls: int, stream: torch.cuda.Stream, pool: Pool) -> Captured:
    graph = torch.cuda.CUDAGraph()
    # torch.cuda.graph() would wait for the device and empty its cache: the GPU would idle and cool at every capture.
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        for _ in range(calls - 1):
            call()
        output = call()
        graph.capture_end()
    except BaseException as error:
        _abandon(graph, pool, stream)
        if isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError):
            reason = str(error).partition("\n")[0]
            raise CaptureRefusal(f"a CUDA graph cannot hold it: {reason}") from error
        raise
    return graph, output


def _abandon(graph: torch.cuda.CUDAGraph, pool: Pool, stream: torch.cuda.Stream) -> None:
    """End a capture that failed, and let torch's allocator know, to which a failed end does not tell."""
    with suppress(RuntimeError):
        graph.capture_end()
    # Not in every version, and an error where the failed end did tell.
    end_allocating = getattr(torch._C, "_cuda_endAllocateToPool", None)
    if end_allocating is not None:
        with suppress(RuntimeError):
            end_allocating(stream.device_index, pool)


def _device_time_s(start: Callable[[], object], stream: torch.cuda.Stream) -> float:
    """Return how long the device takes for what is started on a stream."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(stream)
    start()
    end.record(stream)
    end.synchronize()
    elapsed_ms: float = begin.elapsed_time(end)
    return max(elapsed_ms * 1e-3, 1e-9)
