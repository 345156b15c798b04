"""Observers of measurements: callbacks before, during and after a loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opcost.measuring.flags import Flag, Flags


@dataclass(frozen=True)
class Finding:
    """The flags and notes that an observer adds to a loop."""

    flags: Flags = ()
    notes: str = ""


NOTHING = Finding()


class Observer:
    """Callbacks of a measurement. The procedure calls each method of all observers, in their order."""

    def before_build(self) -> None:
        """Called before a workload is built; one build may run in several loops."""

    def before_start(self) -> None:
        """Called after the workload is built and before the meter starts."""

    def during(self) -> None:
        """Called after the first call, and after each chunk of warm-up and loop."""

    def before_loop(self) -> None:
        """Called when the warm-up has ended."""

    def after_finish(self) -> Finding:
        """Called when a loop has ended or failed, while the meter still logs."""
        return NOTHING


class ProcessWatch(Observer):
    """Flags loops during which another process used the device.

    Args:
        disturbance: describes other processes since its last call; empty if there were none.
    """

    def __init__(self, disturbance: Callable[[], str]) -> None:
        self._disturbance = disturbance

    def before_build(self) -> None:
        self._disturbance()

    def after_finish(self) -> Finding:
        """Return a flag with a note if another process used the device."""
        note = self._disturbance()
        return Finding((Flag.OTHER_PROCESS,), note) if note else NOTHING
