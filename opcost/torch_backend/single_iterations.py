"""Single iterations of a model, each timed by itself: between two events on a GPU, by the clock on a CPU."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import torch

from opcost.measuring.conditions import is_gpu
from opcost.measuring.ports import Workload
from opcost.torch_backend.cuda_graph import elapsed_s
from opcost.torch_backend.passes import INFERENCE
from opcost.torch_backend.workload import EagerWorkload, GraphWorkload, refused_calls, synchronize


def single_iteration_times_s(workload: Workload, device: str, number: int) -> list[float]:
    """Return the times of successive iterations in s; none if the workload has no single iterations.

    On a GPU events are recorded between iterations that are launched ahead, so the host does not slow the device.
    A graph of several iterations is replaced by one of a single iteration.

    Raises:
        CannotMeasureError: an iteration failed.
    """
    if isinstance(workload, GraphWorkload):
        return _replayed(workload, device, number)
    if not isinstance(workload, EagerWorkload) or workload.iterations_per_round != 1:
        return []
    with refused_calls(device), INFERENCE.context(), workload.context():
        if is_gpu(device):
            return _between_events(workload.calls.cycle, torch.cuda.current_stream(device), number)
        return [_timed(workload.calls.cycle) for _ in range(number)]


def _replayed(workload: GraphWorkload, device: str, number: int) -> list[float]:
    with refused_calls(device):
        single = workload.single()
        # The first replay uploads the graph.
        single.replay(1)
        synchronize(device)
        with torch.cuda.stream(single.stream):
            return _between_events(single.graphs[0].replay, single.stream, number)


def _between_events(iteration: Callable[[], object], stream: torch.cuda.Stream, number: int) -> list[float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(number + 1)]
    events[0].record(stream)
    for event in events[1:]:
        iteration()
        event.record(stream)
    events[-1].synchronize()
    return [max(elapsed_s(begin, end), 1e-9) for begin, end in itertools.pairwise(events)]


def _timed(iteration: Callable[[], object]) -> float:
    begin_s = time.perf_counter()
    iteration()
    return max(time.perf_counter() - begin_s, 1e-9)
