"""Detection of other processes: on a GPU, and on the processors that this process may run on."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from opcost.errors import UserError
from opcost.meters.nvml import NvmlError, NvmlGpu

BUSY_RATIO = 0.05
"""Utilisation from which a GPU is in use before this process starts. An idle GPU reports 0."""

CALM_DEADLINE_S = 2.0
"""The longest time that a process that has ended may show in the utilisation, which covers the last second at most
(NVML reference)."""

POLL_INTERVAL_S = 0.1

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


class OtherProcesses:
    """Watches processes that appear on a GPU after this object was created.

    In a container the driver may list processes by other ids than their own. The first new process is then taken to be
    this one.
    """

    def __init__(self, gpu: NvmlGpu, own_id: int) -> None:
        self._gpu = gpu
        self._own_id = own_id
        self._known = self._ids() | {own_id}
        self._has_alias = self._has_warned = False

    def refuse_if_busy(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Raise UserError if another process is using the GPU now."""
        for _ in range(round(CALM_DEADLINE_S / POLL_INTERVAL_S)):
            try:
                busy_ratio = self._gpu.busy_ratio()
            except NvmlError:
                return
            if busy_ratio <= BUSY_RATIO:
                return
            pause(POLL_INTERVAL_S)
        ids = ", ".join(map(str, sorted(self._known - {self._own_id}))) or "unknown to the driver"
        raise UserError(
            f"the GPU is in use {busy_ratio:.0%} of the time (processes: {ids}); wait until they have ended, or name "
            "another --device"
        )

    def disturbance(self) -> str:
        """Return a note on new processes on the GPU, empty if there are none; log a warning the first time."""
        ids = self._ids()
        newcomers = sorted(ids - self._known)
        if len(newcomers) == 1 and self._own_id not in ids and not self._has_alias:
            self._has_alias = True
            self._known |= ids
            return ""
        if not newcomers:
            return ""
        note = f"another process used the GPU: {' or '.join(map(str, newcomers))}"
        if not self._has_warned:
            logging.getLogger(__name__).warning("%s; affected measurements are flagged and repeated", note)
            self._has_warned = True
        return note

    def _ids(self) -> set[int]:
        try:
            return set(self._gpu.process_ids())
        except NvmlError:
            return set()


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
