"""Who else computes on a GPU: what was measured beside another program is no measurement."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from opcost.errors import UserError
from opcost.meters.nvml import NvmlError, NvmlGpu

BUSY_RATIO = 0.05
"""Share of the time from which a GPU is in use before we have started: at rest it tells 0."""

CALM_DEADLINE_S = 2.0
"""How long what ended just now may still show: the share is that of the last second at most (NVML reference)."""

POLL_INTERVAL_S = 0.1


class OtherProcesses:
    """Watches who computes on a GPU beside this process, from its making on.

    In a container, processes may go by other numbers than those that they know of themselves: then the first one that
    comes after the making is taken to be this one.
    """

    def __init__(self, gpu: NvmlGpu, own_id: int) -> None:
        self._gpu = gpu
        self._own_id = own_id
        self._known = self._ids() | {own_id}
        self._has_alias = self._is_told = False

    def refuse_if_busy(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Refuse a GPU that somebody else is using now.

        Raises:
            UserError: it is in use.
        """
        for _ in range(round(CALM_DEADLINE_S / POLL_INTERVAL_S)):
            busy_ratio = self._busy_ratio()
            if busy_ratio <= BUSY_RATIO:
                return
            pause(POLL_INTERVAL_S)
        ids = ", ".join(map(str, sorted(self._known - {self._own_id}))) or "that the driver does not name"
        raise UserError(
            f"the GPU is in use {busy_ratio:.0%} of the time, by processes {ids}: wait until they have ended, or name "
            "another --device"
        )

    def disturbance(self) -> str:
        """Return a remark on processes that have come and are there, empty if there are none; warn of the first."""
        ids = self._ids()
        newcomers = sorted(ids - self._known)
        if len(newcomers) == 1 and self._own_id not in ids and not self._has_alias:
            self._has_alias = True
            self._known |= ids
            return ""
        if not newcomers:
            return ""
        remark = f"another process came to the GPU meanwhile, one of {', '.join(map(str, newcomers))}"
        if not self._is_told:
            logging.getLogger(__name__).warning("%s: what is measured beside it is measured again and marked", remark)
            self._is_told = True
        return remark

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
