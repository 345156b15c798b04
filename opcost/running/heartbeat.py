"""What a process that measures says while it does, so that one that hangs is noticed."""

from __future__ import annotations

import time
from collections.abc import Callable

from opcost.measuring.observers import Observer
from opcost.running.worker_process import Tell

BUILDING = "building"
RUNNING = "running"
"""The steps of a measurement: until its first call has ended, and from then on, loop after loop."""

SIGN_OF_LIFE_S = 5.0
"""How often a process tells that it still runs: it does so between two chunks, in some 20 us."""


class Heartbeat(Observer):
    """Tells of each step of a measurement as it begins, and every ``SIGN_OF_LIFE_S`` while it goes on."""

    def __init__(self, tell: Tell, now: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._now = now
        self._last = ("", 0.0)

    def before_build(self) -> None:
        """Tell that something is built."""
        self._goes_on(BUILDING)

    def during(self) -> None:
        """Tell that calls end."""
        self._goes_on(RUNNING)

    def _goes_on(self, step: str) -> None:
        told, told_s = self._last
        now_s = self._now()
        if step != told or now_s - told_s >= SIGN_OF_LIFE_S:
            self._last = step, now_s
            self._tell(step)
