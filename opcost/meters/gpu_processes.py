"""Detection of other processes on a GPU."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from opcost.errors import UserError
from opcost.meters.nvml import NvmlError, NvmlGpu

BUSY_RATIO = 0.05
"""Utilisation from which a GPU is in use before this process starts. An idle GPU reports 0."""

CALM_DEADLINE_S = 2.0
"""The longest time that a process that has ended may show in the utilisation, which covers the last second at most
(NVML reference)."""

POLL_INTERVAL_S = 0.1


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
        """Refuse a GPU that another process is using now. Raises UserError: the GPU is in use."""
        for _ in range(round(CALM_DEADLINE_S / POLL_INTERVAL_S)):
            busy_ratio = self._busy_ratio()
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

    def _busy_ratio(self) -> float:
        try:
            return self._gpu.busy_ratio()
        except NvmlError:
            return 0.0
