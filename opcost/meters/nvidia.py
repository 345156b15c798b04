"""NVIDIA's GPUs: NVML, and nvidia-smi as a log beside it, or alone where there is no NVML."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opcost.meters import nvidia_smi
from opcost.meters.nvidia_smi import MIG_REASON, NvidiaSmiLogger
from opcost.meters.nvml import NvmlGpu, gpu_uuids
from opcost.meters.vendor import GpuVendor
from opcost.power.log_rows import PowerRow
from opcost.power.ports import DeviceFacts, GpuError, Meter


class Nvidia(GpuVendor):
    """Implements ``GpuVendor``."""

    library, log_program = "NVML", "nvidia-smi"

    def uuids(self) -> list[str]:
        return gpu_uuids()

    def open(self, uuid_or_index: str) -> NvmlGpu:
        return NvmlGpu.open(uuid_or_index)

    def is_of(self, torch: Any) -> bool:
        return not getattr(torch.version, "hip", None)

    def uuid_of(self, properties: Any) -> str:
        return f"GPU-{properties.uuid}"

    def facts(self, uuid_or_index: str) -> DeviceFacts:
        """Return the properties of a GPU (an index is in the order of the PCI bus): by NVML, else by nvidia-smi.

        Both give the same figures, which are parts of the keys of rows: memory in whole MiB, and the power limit that
        was set. Raises GpuError: there is no NVML, and nvidia-smi is missing too, hangs, or knows no such GPU.
        """
        try:
            return super().facts(uuid_or_index)
        except GpuError:
            # Such as a board without a limit: nvidia-smi prints what there is.
            return nvidia_smi.gpu_facts(uuid_or_index)

    def uuid_named(self, uuid_or_index: str) -> str:
        # nvidia-smi has a deadline, so that a driver that hangs is named.
        return str(nvidia_smi.gpu_facts(uuid_or_index).uuid)

    def check_visible(self, environment: Mapping[str, str]) -> None:
        # CUDA shows no further device behind an instance, and NVML does not know the UUID that torch has of it.
        if environment.get("CUDA_VISIBLE_DEVICES", "").strip().startswith("MIG-"):
            raise GpuError(f"CUDA_VISIBLE_DEVICES names a MIG instance: {MIG_REASON}", hides_gpu=True)

    @contextmanager
    def log(self, uuid_or_index: str, folder: Path, interval_s: float | None = None) -> Iterator[NvidiaSmiLog]:
        with NvidiaSmiLogger(uuid_or_index, folder, interval_s or nvidia_smi.INTERVAL_S) as logger:
            yield NvidiaSmiLog(logger)


class NvidiaSmiLog:
    """Implements ``GpuLog`` by a running nvidia-smi."""

    batch_interval_s = 0.2

    def __init__(self, logger: NvidiaSmiLogger) -> None:
        self._logger, self._follower = logger, logger.follow(from_begin=True)

    def read(self) -> tuple[PowerRow, ...]:
        return tuple(row.values for row in self._follower.read())

    def finish(self) -> tuple[PowerRow, ...]:
        rows = self._follower.read_until(time.time(), nvidia_smi.LAST_ROW_DEADLINE_S)
        return tuple(row.values for row in rows)

    def failure(self) -> str | None:
        return None if self._logger.is_running() else f"nvidia-smi has ended; its last line: {self._logger.last_line()}"

    def sources(self) -> tuple[str, ...]:
        from opcost.meters.nvidia_smi_meter import sources_of

        return sources_of(self._logger)

    def meter(self, log_name: str) -> Meter:
        from opcost.meters.nvidia_smi_meter import NvidiaSmiMeter

        return NvidiaSmiMeter(self._logger, log_name)
