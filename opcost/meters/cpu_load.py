"""Detection of other processes' load on the processors of this process."""

from __future__ import annotations

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")

FULL_RATIO = 0.9
"""Busy share of the processors' time from which processes wait for each other."""

OTHERS_RATIO = 0.05
"""The smallest share of other processes that is reported. An idle system takes one or two percent."""

TICKS_PER_S = os.sysconf("SC_CLK_TCK")

IDLE_COLUMNS = (3, 4)
"""The columns of ``/proc/stat`` with idle time and time waiting for a disk (proc(5))."""

GUEST_COLUMNS = 2
"""The number of last columns, which are included in others."""


class OtherLoad:
    """Watches other processes on the processors that this process may run on."""

    def __init__(self, stat: Path = STAT) -> None:
        self._stat = stat
        self._last = self._reading()

    def disturbance(self) -> str:
        """Return a note if other processes competed for the processors since the last call; else an empty text."""
        before, self._last = self._last, self._reading()
        if before is None or self._last is None:
            return ""
        all_s, busy_s, own_s = (now - then for now, then in zip(self._last, before, strict=True))
        if all_s <= 0 or busy_s < FULL_RATIO * all_s or busy_s - own_s < OTHERS_RATIO * all_s:
            return ""
        return f"other processes used {(busy_s - own_s) / all_s:.0%} of the processors"

    def _reading(self) -> tuple[float, float, float] | None:
        """Return processor time so far in s: total, of all processes, of this process; None if unknown."""
        try:
            lines = self._stat.read_text(encoding="ascii").splitlines()
        except OSError:
            return None
        mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        rows = [[int(text) for text in line.split()[1:]] for line in lines if line.split(" ", 1)[0] in mine]
        if not rows:
            return None
        columns = [sum(column) / TICKS_PER_S for column in zip(*rows, strict=True)][:-GUEST_COLUMNS]
        idle_s = sum(columns[column] for column in IDLE_COLUMNS)
        return sum(columns), sum(columns) - idle_s, time.process_time()
