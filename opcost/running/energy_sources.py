"""The devices whose energy an ``EnergyMeter`` meters, and waiting for their work; without torch unless it is there."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

from opcost.errors import UserError
from opcost.metering.readings import EnergySource, Readings
from opcost.meters.gpu_energy import GpuEnergy
from opcost.meters.rapl_energy import CPU, MEMORY, RaplEnergy, open_rapl
from opcost.meters.visible_gpus import visible_gpus
from opcost.power.trace import Window


class NoEnergy:
    """Implements ``EnergySource`` for a machine without a meter: its readings have the reason."""

    device = CPU
    idle_power_w = None

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def edge(self) -> None:
        """Do nothing."""

    def readings(self, window: Window) -> Readings:
        """Return the reason."""
        return Readings(missing_reason=self._reason)

    def forget_before(self, epoch_s: float) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def open_sources(names: Sequence[str] | None) -> list[EnergySource]:
    """Open the meters of devices; with None those of all that have any. Where there is none, log why.

    Raises:
        UserError: there is no such device.
    """
    gpus, no_gpu = _gpus()
    wants_cpu = names is None or CPU in names or MEMORY in names
    cpus, no_cpu = open_rapl() if wants_cpu else ([], None)
    if names is not None:
        return _chosen(["cuda:0" if name == "cuda" else name for name in names], gpus, cpus, no_gpu, no_cpu)
    if gpus or cpus:
        return [*(GpuEnergy.open(name, uuid) for name, uuid in gpus.items()), *cpus]
    reason = f"{no_gpu}; {no_cpu}"
    logging.getLogger(__name__).warning("no energy is metered: %s", reason)
    return [NoEnergy(reason)]


def _chosen(
    names: Sequence[str], gpus: dict[str, str], cpus: Sequence[RaplEnergy], no_gpu: str | None, no_cpu: str | None
) -> list[EnergySource]:
    """Open the named devices, and close the others.

    Raises:
        UserError: there is no such device.
    """
    there = {cpu.device: cpu for cpu in cpus}
    unknown = next((name for name in names if name not in gpus and name not in there), None)
    for cpu in cpus:
        if unknown or cpu.device not in names:
            cpu.close()
    if unknown:
        is_cpu = unknown in (CPU, MEMORY)
        reason = (no_cpu or f"this CPU has no counter of {unknown}") if is_cpu else no_gpu or "unknown name"
        raise UserError(
            f"EnergyMeter: no device {unknown}: {reason}; devices with a meter: {', '.join([*gpus, *there]) or 'none'}"
        )
    return [there[name] if name in there else GpuEnergy.open(name, gpus[name]) for name in names]


def synchronise(devices: Sequence[str]) -> None:
    """Wait until GPUs have done their work, where torch is imported and uses them.

    A GPU that torch does not use is left alone: waiting for it would make a CUDA context on it.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return
    current = torch.cuda.current_device()
    for name in devices:
        index = int(name.partition(":")[2]) if name.startswith("cuda:") else None
        if index is not None and (index == current or torch.cuda.memory_reserved(index) > 0):
            torch.cuda.synchronize(index)


def _gpus() -> tuple[dict[str, str], str | None]:
    """Return the UUIDs of the GPUs by their names: as torch numbers them, where it has done so already."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return visible_gpus()
    count = torch.cuda.device_count()
    return {f"cuda:{index}": f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(count)}, None
