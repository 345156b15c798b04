"""Who accompanies a measurement: what keeps the device at work, says that it goes on, or sees who else is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opcost.measuring.flags import Flag, Flags


@dataclass(frozen=True)
class Finding:
    """What an observer has to say of a loop."""

    flags: Flags = ()
    notes: str = ""


NOTHING = Finding()


class Observer:
    """Accompanies the measurements of a device. The procedure calls each method of all observers, in their order."""

    def before_build(self) -> None:
        """Act before a workload is built; one build may be run in several loops."""

    def before_start(self) -> None:
        """Act before the meter starts, the workload being built."""

    def during(self) -> None:
        """Act when a first call has ended, and after each chunk of a warm-up or a loop."""

    def after_finish(self) -> Finding:
        """Act as soon as a loop has ended, or has failed; the meter still logs."""
        return NOTHING


class ProcessWatch(Observer):
    """Flags loops beside which another process used the device.

    Args:
        disturbance: says who has used it since the last call; empty if nobody has.
    """

    def __init__(self, disturbance: Callable[[], str]) -> None:
        self._disturbance = disturbance

    def before_build(self) -> None:
        """Forget what was before."""
        self._disturbance()

    def after_finish(self) -> Finding:
        """Tell of who was there."""
        remark = self._disturbance()
        return Finding((Flag.OTHER_PROCESS,), remark) if remark else NOTHING
