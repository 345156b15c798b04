"""The heartbeat of a measuring process, so that a process that hangs is noticed."""

from __future__ import annotations

import time
from collections.abc import Callable

from opcost.measuring.observers import Observer
from opcost.running.worker_process import ReportStep

BUILDING = "building"
RUNNING = "running"
"""The steps of a measurement: until its first call has ended, and from then on, loop after loop."""

INTERVAL_S = 5.0
"""The time between two reports of one step. A report takes 20 us, between two chunks of a loop."""


class Heartbeat(Observer):
    """Reports each step of a measurement when it begins, and every ``INTERVAL_S`` while it goes on."""

    def __init__(self, report_step: ReportStep, now: Callable[[], float] = time.monotonic) -> None:
        self._report_step = report_step
        self._now = now
        self._last = ("", 0.0)

    def before_build(self) -> None:
        """Report that something is built."""
        self._beat(BUILDING)

    def during(self) -> None:
        """Report that calls end."""
        self._beat(RUNNING)

    def _beat(self, step: str) -> None:
        last_step, last_s = self._last
        now_s = self._now()
        if step != last_step or now_s - last_s >= INTERVAL_S:
            self._last = step, now_s
            self._report_step(step)
