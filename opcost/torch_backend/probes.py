"""Measurements beside the loop of a workload: times of single iterations, memory, and kernel times on a GPU."""

from __future__ import annotations

import gc
import itertools
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from opcost.measuring.conditions import is_gpu
from opcost.measuring.sweep_record import MemoryUse
from opcost.measuring.workload import Calls, Workload
from opcost.torch_backend.cuda_graph import elapsed_s
from opcost.torch_backend.passes import running_calls
from opcost.torch_backend.repeated_calls import memory_peak_bytes
from opcost.torch_backend.workload import EagerWorkload, GraphWorkload, refused_calls, synchronize


def single_iteration_times_s(workload: Workload, device: str, number: int) -> list[float]:
    """Return times of successive iterations in s, if there are single ones; a CannotMeasureError if one failed.

    On a GPU events are recorded between iterations that are launched ahead, so the host does not slow the device.
    """
    if isinstance(workload, GraphWorkload):
        with refused_calls(device):
            single = workload.single()
            # The first replay uploads the graph.
            single.replay(1)
            synchronize(device)
            with torch.cuda.stream(single.stream):
                return _between_events(single.graphs[0].replay, single.stream, number)
    if not isinstance(workload, EagerWorkload) or workload.iterations_per_round != 1:
        return []
    with refused_calls(device), running_calls(), workload.context():
        if is_gpu(device):
            return _between_events(workload.calls.cycle, torch.cuda.current_stream(device), number)
        times_s = []
        for _ in range(number):
            begin_s = time.perf_counter()
            workload.calls.cycle()
            times_s.append(max(time.perf_counter() - begin_s, 1e-9))
        return times_s


def _between_events(iteration: Callable[[], object], stream: torch.cuda.Stream, number: int) -> list[float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(number + 1)]
    events[0].record(stream)
    for event in events[1:]:
        iteration()
        event.record(stream)
    events[-1].synchronize()
    return [max(elapsed_s(begin, end), 1e-9) for begin, end in itertools.pairwise(events)]


PROCESS = Path("/proc/self")

RESET_PEAK = "5"
"""The text that resets the peak of a process when it is written to ``clear_refs`` (proc(5))."""


class MemoryWatch:
    """Reads a device's memory: torch's since the begin on a GPU, the process's (in ``/proc``) on a CPU."""

    def __init__(self, device: str, process: Path = PROCESS) -> None:
        self._device = device
        self._process = process
        self._has_begun = False
        self._before_bytes = 0

    def begin(self) -> None:
        if is_gpu(self._device):
            # A build that failed may be part of a cycle, and torch keeps what the build before has freed.
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before_bytes = torch.cuda.memory_allocated(self._device)
            self._has_begun = True
            return
        self._has_begun = False
        with suppress(OSError):
            (self._process / "clear_refs").write_text(RESET_PEAK)
            self._has_begun = True

    @property
    def use(self) -> MemoryUse:
        if is_gpu(self._device):
            used = torch.cuda.memory_allocated(self._device) - self._before_bytes
            peak = torch.cuda.max_memory_allocated(self._device) - self._before_bytes
            cache = int(torch.cuda.get_device_properties(self._device).L2_cache_size)
            return MemoryUse(max(used, 0), max(peak, 0), None, cache)
        used_bytes, peak_bytes = self._status_bytes("VmRSS"), self._status_bytes("VmHWM")
        if peak_bytes is None:
            return MemoryUse(used_bytes, None, f"{self._process}/status does not say it")
        if not self._has_begun:
            return MemoryUse(used_bytes, None, f"{self._process}/clear_refs cannot be written, so the peak is older")
        return MemoryUse(used_bytes, peak_bytes, None)

    def _status_bytes(self, name: str) -> int | None:
        # The status gives sizes in kB of 1024 bytes.
        with suppress(OSError, ValueError, IndexError):
            found = re.search(rf"^{name}:\s*(\d+)", (self._process / "status").read_text(), re.MULTILINE)
            return None if found is None else int(found[1]) * 1024
        return None


def with_memory_peak(calls: Calls, held: Callable[[], Sequence[torch.Tensor]], device: str) -> Calls:
    """Return calls with the most memory that one holds, of which ``held`` is there before; as they are on a CPU.

    A graph has its memory for good, so that this is that of a call outside of it.
    """
    if not is_gpu(device):
        return calls
    with running_calls():
        # The first call may release what others left.
        calls.cycle()
        # A build that failed may be part of a cycle, which is not freed meanwhile.
        gc.collect()
        peak_bytes = memory_peak_bytes(calls.cycle, held())
    synchronize(device)
    return replace(calls, call_memory_peak_bytes=peak_bytes)


MARK, FIRST = "opcost mark ", "first"

Mark = Callable[[str], AbstractContextManager[Any]]
"""Returns a context; kernels that are launched inside have this mark."""


@dataclass(frozen=True)
class Kernel:
    """A kernel or copy that ran on the GPU, and the mark under which it was launched, if any."""

    name: str
    time_s: float
    mark: str | None


def profiled(run: Callable[[Mark], None]) -> list[Kernel]:
    """Return the kernels that a run launches under marks that are not nested, in order of launch."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        # The profiler reports the first kernel twice.
        with record_function(f"{MARK}{FIRST}"):
            torch.zeros(1, device="cuda")
        run(lambda mark: record_function(f"{MARK}{mark}"))
        torch.cuda.synchronize()
    kernels: list[Kernel] = []
    for event in profiler.events():
        # The mark is around the event on the host's time line.
        around = event
        while event.kernels and around is not None and not around.name.startswith(MARK):
            around = around.cpu_parent
        mark = None if around is None else str(around.name.removeprefix(MARK))
        kernels += [Kernel(kernel.name, kernel.duration * 1e-6, mark) for kernel in event.kernels if mark != FIRST]
    return kernels
