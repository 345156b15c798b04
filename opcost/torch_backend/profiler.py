"""Kernel times of a run on a GPU by torch's profiler, with the marks under which kernels were launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

MARK = "opcost mark "
FIRST = "first"

Mark = Callable[[str], AbstractContextManager[Any]]
"""Returns a context; kernels that are launched inside have this mark."""


@dataclass(frozen=True)
class Kernel:
    """A kernel or copy that ran on the GPU, and the mark under which it was launched, if any."""

    name: str
    time_s: float
    mark: str | None


def profiled(run: Callable[[Mark], None]) -> list[Kernel]:
    """Return the kernels that a run launches, in order of launch.

    Args:
        run: called with a ``Mark``. Marks must not be nested.
    """
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        # The profiler reports the first kernel twice.
        with record_function(f"{MARK}{FIRST}"):
            torch.zeros(1, device="cuda")
        run(lambda mark: record_function(f"{MARK}{mark}"))
        torch.cuda.synchronize()
    return [kernel for kernel in _kernels(profiler.events()) if kernel.mark != FIRST]


def _kernels(events: Any) -> Iterator[Kernel]:
    for event in events:
        if event.kernels:
            mark = _mark_of(event)
            for kernel in event.kernels:
                yield Kernel(kernel.name, kernel.duration * 1e-6, mark)


def _mark_of(event: Any) -> str | None:
    """Return the mark around an event on the host's time line."""
    while event is not None:
        if event.name.startswith(MARK):
            return str(event.name.removeprefix(MARK))
        event = event.cpu_parent
    return None
