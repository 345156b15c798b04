"""Moments of a loop, by the clock of the device that runs it: marked without waiting, read when they are over."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

import torch

from opcost.measuring.conditions import is_gpu
from opcost.torch_backend.cuda_graph import elapsed_s

Moment: TypeAlias = Any
"""A moment that a stopwatch has marked."""


class Stopwatch(Protocol):
    """Marks moments in the order of a device's work."""

    def mark(self) -> Moment:
        """Mark the moment at which the device has done all work up to now."""

    def is_over(self, moment: Moment) -> bool:
        """Return whether the device has come to a moment."""

    def elapsed_s(self, begin: Moment, end: Moment) -> float:
        """Return the time between two moments that are over, in s."""

    def release(self, moments: Iterable[Moment]) -> None:
        """Take back moments that are not read any more."""

    @property
    def can_mark(self) -> bool:
        """Whether moments can be marked now."""


class HostStopwatch:
    """A CPU: work is done when its call returns."""

    can_mark = True

    def mark(self) -> Moment:
        return time.perf_counter()

    def is_over(self, moment: Moment) -> bool:
        return True

    def elapsed_s(self, begin: Moment, end: Moment) -> float:
        """Return the difference in s."""
        return float(end - begin)

    def release(self, moments: Iterable[Moment]) -> None:
        """Do nothing."""


class EventStopwatch:
    """A GPU: CUDA events in the current stream. Used events are used again, because making one takes longer."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._free: list[torch.cuda.Event] = []

    @property
    def can_mark(self) -> bool:
        """Whether no CUDA graph is being captured, in which events have no time."""
        return not torch.cuda.is_current_stream_capturing()

    def mark(self) -> Moment:
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def is_over(self, moment: Moment) -> bool:
        return bool(moment.query())

    def elapsed_s(self, begin: Moment, end: Moment) -> float:
        """Return the time between two events in s, 0 where streams ran out of order."""
        return max(0.0, elapsed_s(begin, end))

    def release(self, moments: Iterable[Moment]) -> None:
        self._free.extend(moments)


def stopwatch_of(device: str) -> Stopwatch:
    """Return the stopwatch of a torch device."""
    return EventStopwatch(device) if is_gpu(device) else HostStopwatch()
