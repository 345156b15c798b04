"""The heartbeat of a measuring process, so that a process that hangs is noticed."""

from __future__ import annotations

import time
from collections.abc import Callable

from opcost.measuring.observers import NOTHING, Finding, Observer
from opcost.running.worker_process import ReportStep

BUILDING = "building"
WARMING_UP = "warming up"
LOOPING = "looping"
READING_METERS = "reading meters"
STEPS = (BUILDING, WARMING_UP, LOOPING, READING_METERS)
"""The steps of a measurement. Building includes the first call, which may load libraries and choose algorithms."""

INTERVAL_S = 5.0
"""The time between two reports of one step. A report takes 20 us, between two chunks of a loop."""


class Heartbeat(Observer):
    """Reports each step of a measurement when it begins, and every ``INTERVAL_S`` while it goes on."""

    def __init__(self, report_step: ReportStep, now: Callable[[], float] = time.monotonic) -> None:
        self._report_step = report_step
        self._now = now
        self._last = (BUILDING, -INTERVAL_S)

    def before_build(self) -> None:
        self._beat(BUILDING)

    def before_start(self) -> None:
        self._beat(BUILDING)

    def during(self) -> None:
        step, _ = self._last
        self._beat(WARMING_UP if step == BUILDING else step)

    def before_loop(self) -> None:
        self._beat(LOOPING)

    def after_finish(self) -> Finding:
        self._beat(READING_METERS)
        return NOTHING

    def _beat(self, step: str) -> None:
        last_step, last_s = self._last
        now_s = self._now()
        if step != last_step or now_s - last_s >= INTERVAL_S:
            self._last = step, now_s
            self._report_step(step)
