"""The time that a campaign spends on measurements, and on each of their steps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

    def __enter__(self) -> SpentTime:
        self._begin_s = time.monotonic()
        self._steps_before_s = dict(self._bench.step_times_s)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.total_s += time.monotonic() - self._begin_s
        for step, time_s in self._bench.step_times_s.items():
            name = step.replace(" ", "_")
            spent_s = time_s - self._steps_before_s.get(step, 0.0)
            self.steps_s[name] = self.steps_s.get(name, 0.0) + spent_s
