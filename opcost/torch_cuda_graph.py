"""Something that runs on a GPU, captured into a CUDA graph: run again and again without Python's launches.

A loop of short kernels in Python measures Python. A graph of several calls is launched at once, and its kernels follow
each other as closely as in a model that launches ahead of the device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import torch

REPLAY_S = 0.01
"""How long one replay is to last: the gap between two replays, some 10 us, is then a thousandth of it."""

MAXIMUM_CALLS = 4096
"""Of an operator, in one graph. Capturing one takes some 10 us, and a replay of as many 2 us kernels lasts 8 ms."""

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
    """A CUDA graph that makes a number of calls, one after the other, when it is replayed."""

    graph: torch.cuda.CUDAGraph
    calls: int
    stream: torch.cuda.Stream

    def replay(self, times: int) -> None:
        """Launch the graph as often; the device may still be at it when this returns."""
        with torch.cuda.stream(self.stream):
            for _ in range(times):
                self.graph.replay()


def capture_calls(call: Callable[[], object], device: str, period: int = 1) -> CapturedCalls:
    """Capture a call as often as one replay of the graph lasts about ``REPLAY_S``, but at least once.

    Args:
        call: what is captured as a whole; it may make several calls of an operator, which differ.
        device: the GPU.
        period: how many calls of an operator a call makes.

    Raises:
        CaptureRefusal: the call waits for the device, or does what a graph cannot hold.
        torch.OutOfMemoryError: there is not enough memory, not even after what torch keeps was given back.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream), torch.inference_mode():
        # Many calls of an operator may be long only since Python holds up each of them.
        is_long = _warm_up(call, stream) >= period * REPLAY_S / 2
        calls = 1 if is_long else _calls_per_replay(call, stream, period)
        return _captured_in_cleared_memory(call, calls, stream)


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


def _calls_per_replay(call: Callable[[], object], stream: torch.cuda.Stream, period: int) -> int:
    """Return how many calls take ``REPLAY_S`` in a graph, where Python does not hold them up."""
    probe = _captured_in_cleared_memory(call, max(PROBE_CALLS // period, 1), stream)
    probe.replay(1)
    per_call_s = _device_time_s(partial(probe.replay, PROBE_REPLAYS), stream) / (PROBE_REPLAYS * probe.calls)
    return max(min(round(REPLAY_S / per_call_s), MAXIMUM_CALLS // period), 1)


def _captured_in_cleared_memory(call: Callable[[], object], calls: int, stream: torch.cuda.Stream) -> CapturedCalls:
    """Capture; where memory runs out, once more after torch has given back what it keeps.

    Torch does so by itself everywhere but in a capture, for which it takes new memory each time.
    """
    try:
        return _captured(call, calls, stream)
    except torch.OutOfMemoryError:
        torch.cuda.synchronize(stream.device)
        torch.cuda.empty_cache()
        return _captured(call, calls, stream)


def _captured(call: Callable[[], object], calls: int, stream: torch.cuda.Stream) -> CapturedCalls:
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    # torch.cuda.graph() would wait for the device and empty its cache: the GPU would idle and cool at every capture.
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        for _ in range(calls):
            call()
        graph.capture_end()
    except BaseException as error:
        _abandon(graph, pool, stream)
        if isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError):
            reason = str(error).partition("\n")[0]
            raise CaptureRefusal(f"a CUDA graph cannot hold it: {reason}") from error
        raise
    return CapturedCalls(graph, calls, stream)


def _abandon(graph: torch.cuda.CUDAGraph, pool: tuple[int, int], stream: torch.cuda.Stream) -> None:
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
