"""Something that runs on a GPU, captured into CUDA graphs: run again and again without Python's launches.

A loop of short kernels in Python measures Python. A graph of several calls is launched at once, and its kernels follow
each other as closely as in a model that launches ahead of the device.

A call's time depends on where in memory its tensors lie (H200, where they fit into the cache: standard deviation
0.3 % to 1.8 %, ``docs/log/repeatability.md``), which differs from run to run, and from call to call in a model. So a
short call is captured in several places, a graph for each.
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
"""How long one replay is to last where there is one graph."""

MAXIMUM_CALLS = 4096
"""Of an operator, in the graphs of one workload. Capturing one takes some 10 us, and a replay of as many 2 us kernels
lasts 8 ms."""

PLACES = 10
"""As many as the shortest precise loop has chunks."""

REPLAY_IN_A_PLACE_S = 2e-3
"""The gap between two replays, some 2 us, is a thousandth of it; up to four thousandths where kernels are so short that
``MAXIMUM_CALLS`` of them end before."""

LONGEST_IN_PLACES_S = 0.5e-3
"""Of a call: only a few longer ones fit into a replay."""

PROBE_CALLS = 8
PROBE_REPLAYS = 3
WARM_UP_CALLS = 2
"""Before a capture: libraries load, workspaces are allocated and algorithms chosen in the first call."""

FREE_SHARE = 0.5
"""Of a device's memory, to be free before a capture: ten places of a call of ``LONGEST_IN_PLACES_S`` are less."""

UNUSED_SHARE = 0.1
"""Of a device's memory, that torch keeps unused: less is not worth waiting for the device to give it back."""

PLACES_TO_SPARE = 2
"""There is another place only if so many as the first are free."""

RAISE_ON_SYNCHRONISATION = 2
"""torch.cuda.set_sync_debug_mode: any wait of Python for the device is an error."""


class CaptureRefusal(Exception):  # noqa: N818 (nothing is wrong: the call is made in a loop instead)
    """A call cannot be captured, and why."""


@dataclass(frozen=True)
class CapturedCalls:
    """CUDA graphs of the same number of cycles of calls, each in a place of its own in memory.

    ``kept`` are the calls, and with them the memory that they read. ``notes`` tell of places that are lacking.
    """

    graphs: tuple[torch.cuda.CUDAGraph, ...]
    cycles: int
    stream: torch.cuda.Stream
    kept: tuple[Call, ...]
    flags: Flags = ()
    notes: str = ""

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

    Short ones that can be made on other memory are captured in ``PLACES`` places, for ``REPLAY_IN_A_PLACE_S`` each; in
    fewer where that fails.

    Raises:
        CaptureRefusal: a call waits for the device, or does what a graph cannot hold.
        torch.OutOfMemoryError: there is not enough memory, not even after what torch keeps was given back.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    make_room(device)
    shortages, free = _shortages(device), _free_bytes(device)
    with torch.cuda.stream(stream), INFERENCE.context():
        cycles, places = _division(calls, stream)
        kept = [calls.cycle]
        graphs = [_captured_in_cleared_memory(calls.cycle, cycles, stream)]
        taken = free - _free_bytes(device)
        lacking = ""
        try:
            while calls.relocated is not None and len(graphs) < places:
                if _free_bytes(device) < PLACES_TO_SPARE * taken:
                    lacking = "too little is free"
                    break
                call = calls.relocated()
                graphs.append(_captured_in_cleared_memory(call, cycles, stream))
                kept.append(call)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            lacking = f"{type(error).__name__}: {reason}"
    flags = (Flag.OUT_OF_MEMORY_IN_CAPTURE,) if _shortages(device) > shortages else ()
    notes = f"in {len(graphs)} of {places} places in memory: {lacking}" if lacking else ""
    captured = CapturedCalls(tuple(graphs), cycles, stream, tuple(kept), flags, notes)
    for place in range(len(graphs)):
        # The first launch brings a graph onto the device, which takes 1 us for each of its kernels.
        captured.replay(1, place)
    return captured


def make_room(device: str) -> None:
    """Let torch give back the memory that it keeps unused, where little else is free.

    In a capture torch takes new memory and gives back none. What finds too little there does not always fail: cuDNN
    then runs another algorithm, and goes on doing so (a convolution took 3.4 times as long; ``docs/log/sums.md``).
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
    """Return how often memory has run out so far, also where a library could do with less."""
    return int(torch.cuda.memory_stats(device).get("num_ooms", 0))


def _division(calls: Calls, stream: torch.cuda.Stream) -> tuple[int, int]:
    """Return how many cycles to capture in each place, and in how many places."""
    # Many calls of an operator may be long only since Python holds up each of them.
    if _warm_up(calls.cycle, stream) >= calls.period * REPLAY_S / 2:
        return 1, 1
    cycle_s = _probed_s(calls, stream)
    has_places = calls.relocated is not None and cycle_s <= calls.period * LONGEST_IN_PLACES_S
    places, replay_s = (PLACES, REPLAY_IN_A_PLACE_S) if has_places else (1, REPLAY_S)
    return max(min(round(replay_s / cycle_s), MAXIMUM_CALLS // (places * calls.period)), 1), places


def _warm_up(call: Call, stream: torch.cuda.Stream) -> float:
    """Make a few calls, the last one timed (s) and watched: one that waits for the device would break a capture."""
    for _ in range(WARM_UP_CALLS):
        call()
    return device_time_s(partial(_make_watched, call), stream)


def _make_watched(call: Call) -> None:
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
    return _replayed_s(calls.cycle, cycles, stream) / cycles


def time_in_graph_s(call: Call, calls: int, device: str) -> float:
    """Return what so many calls take together, in s, in a graph that is replayed.

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
    """Capture; where memory runs out, once more after torch has given back what it keeps.

    Torch does so by itself everywhere but in a capture, for which it takes new memory each time.
    """
    try:
        return _captured(call, calls, stream)
    except torch.OutOfMemoryError:
        torch.cuda.synchronize(stream.device)
        torch.cuda.empty_cache()
        return _captured(call, calls, stream)


def _captured(call: Call, calls: int, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
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
    return graph


def _abandon(graph: torch.cuda.CUDAGraph, pool: tuple[int, int], stream: torch.cuda.Stream) -> None:
    """End a capture that failed, and let torch's allocator know, to which a failed end does not tell."""
    with suppress(RuntimeError):
        graph.capture_end()
    # Not in every version, and an error where the failed end did tell.
    end_allocating = getattr(torch._C, "_cuda_endAllocateToPool", None)
    if end_allocating is not None:
        with suppress(RuntimeError):
            end_allocating(stream.device_index, pool)


def device_time_s(start: Callable[[], object], stream: torch.cuda.Stream) -> float:
    """Return how long the device takes for what is started on a stream."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(stream)
    start()
    end.record(stream)
    end.synchronize()
    return max(elapsed_s(begin, end), 1e-9)


def elapsed_s(begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
    """Return the time between two events of a device, both of which have come."""
    elapsed_ms: float = begin.elapsed_time(end)
    return elapsed_ms * 1e-3
