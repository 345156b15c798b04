"""The memory that a build occupies on a device, and its peak."""

from __future__ import annotations

import gc
from contextlib import suppress
from pathlib import Path

import torch

from opcost.measuring.conditions import is_gpu
from opcost.measuring.sweep_record import MemoryUse

PROCESS = Path("/proc/self")

RESET_PEAK = "5"
"""The text that resets the peak of a process when it is written to ``clear_refs`` (proc(5))."""


class MemoryWatch:
    """Reads the memory of a device: torch's tensors and graphs since the begin on a GPU, the process on a CPU.

    Args:
        device: the torch device.
        process: the folder of this process in ``/proc``.
    """

    def __init__(self, device: str, process: Path = PROCESS) -> None:
        self._device = device
        self._process = process
        self._has_begun = False
        self._before_bytes = 0

    def begin(self) -> None:
        """Begin a new peak."""
        if is_gpu(self._device):
            # A build that failed may be part of a cycle, and torch keeps what the build before has freed.
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before_bytes = torch.cuda.memory_allocated(self._device)
            self._has_begun = True
            return
        self._has_begun = False
        with suppress(OSError):
            (self._process / "clear_refs").write_text(RESET_PEAK)
            self._has_begun = True

    @property
    def use(self) -> MemoryUse:
        """The memory in use now, and the peak since the last begin."""
        if is_gpu(self._device):
            used = torch.cuda.memory_allocated(self._device) - self._before_bytes
            peak = torch.cuda.max_memory_allocated(self._device) - self._before_bytes
            cache = int(torch.cuda.get_device_properties(self._device).L2_cache_size)
            return MemoryUse(max(used, 0), max(peak, 0), None, cache)
        used_bytes, peak_bytes = self._status_bytes("VmRSS"), self._status_bytes("VmHWM")
        if peak_bytes is None:
            return MemoryUse(used_bytes, None, f"{self._process}/status does not say it")
        if not self._has_begun:
            return MemoryUse(used_bytes, None, f"{self._process}/clear_refs cannot be written, so the peak is older")
        return MemoryUse(used_bytes, peak_bytes, None)

    def _status_bytes(self, name: str) -> int | None:
        """Return a size in the status of this process, which gives it in kB of 1024 bytes."""
        with suppress(OSError, ValueError, IndexError):
            for line in (self._process / "status").read_text().splitlines():
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) * 1024
        return None
