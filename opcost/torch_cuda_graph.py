"""Something that runs on a GPU, captured into a CUDA graph: run again and again without Python's launches.

A loop of short kernels in Python measures Python. A graph of several calls is launched at once, and its kernels follow
each other as closely as in a model that launches ahead of the device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

REPLAY_S = 0.01
"""How long one replay is to last: the gap between two replays, some 10 us, is then a thousandth of it."""

MAXIMUM_CALLS = 4096
"""Calls in one graph. Capturing one takes some 10 us, and a replay of as many 2 us kernels lasts 8 ms."""

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


def capture_calls(call: Callable[[], object], device: str) -> CapturedCalls:
    """Capture a call as often as one replay of the graph lasts about ``REPLAY_S``.

    Raises:
        CaptureRefusal: the call waits for the device, or does what a graph cannot hold.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream), torch.inference_mode():
        _warm_up(call)
        probe = _captured(call, PROBE_CALLS, stream)
        wanted = round(REPLAY_S / _time_per_call_s(probe))
        calls = min(max(wanted, 1), MAXIMUM_CALLS)
        return _captured(call, calls, stream)


def _warm_up(call: Callable[[], object]) -> None:
    """Make a few calls, the last one watched: one that waits for the device would break a capture."""
    for _ in range(WARM_UP_CALLS):
        call()
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


def _captured(call: Callable[[], object], calls: int, stream: torch.cuda.Stream) -> CapturedCalls:
    graph = torch.cuda.CUDAGraph()
    # torch.cuda.graph() would wait for the device and empty its cache: the GPU would idle and cool at every capture.
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        for _ in range(calls):
            call()
    except RuntimeError as error:
        _abandon(graph)
        raise CaptureRefusal(f"a CUDA graph cannot hold it: {str(error).splitlines()[0]}") from error
    graph.capture_end()
    return CapturedCalls(graph, calls, stream)


def _abandon(graph: torch.cuda.CUDAGraph) -> None:
    """End a capture that failed; that it failed is told once more."""
    try:
        graph.capture_end()
    except RuntimeError:
        return


def _time_per_call_s(captured: CapturedCalls) -> float:
    """Return how long a call takes in replays that follow each other."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    captured.replay(1)
    begin.record(captured.stream)
    captured.replay(PROBE_REPLAYS)
    end.record(captured.stream)
    end.synchronize()
    elapsed_ms: float = begin.elapsed_time(end)
    return max(elapsed_ms * 1e-3, 1e-9) / (PROBE_REPLAYS * captured.calls)
