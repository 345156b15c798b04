"""The time that a campaign spends on measurements, and on each of their steps."""

from __future__ import annotations

import logging
import time
from types import TracebackType

from opcost.running.bench import Bench


class SpentTime:
    """Adds up the durations of its contexts, and the time of each step of a bench in them, in s.

    Names of steps have underscores for spaces, as the keys of JSON have.
    """

    def __init__(self, bench: Bench) -> None:
        self.total_s = 0.0
        self.steps_s: dict[str, float] = {}
        self._bench = bench
        self._begin_s = 0.0
        self._steps_before_s: dict[str, float] = {}

    def __enter__(self) -> None:
        self._begin_s = time.monotonic()
        self._steps_before_s = dict(self._bench.step_times_s)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        before_s = self._steps_before_s
        spent_s = {step: time_s - before_s.get(step, 0.0) for step, time_s in self._bench.step_times_s.items()}
        total_s = time.monotonic() - self._begin_s
        self.total_s += total_s
        for step, time_s in spent_s.items():
            name = step.replace(" ", "_")
            self.steps_s[name] = self.steps_s.get(name, 0.0) + time_s
        if any(spent_s.values()):
            parts = ", ".join(f"{step} {time_s:.3f} s" for step, time_s in spent_s.items())
            logging.getLogger(__name__).info("took %.3f s: %s", total_s, parts)
