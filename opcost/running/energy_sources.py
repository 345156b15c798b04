"""The devices whose energy an ``EnergyMeter`` meters, and waiting for their work; without torch unless it is there."""

from __future__ import annotations

import inspect
import logging
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from opcost.errors import UserError
from opcost.metering.result import DeviceEnergy, WindowResult, device_energy
from opcost.metering.window_energy import EnergySource, WindowEnergy, window_energy
from opcost.meters.energy import CPU, MEMORY, GpuEnergy, NoEnergy, open_rapl
from opcost.meters.nvml import NvmlError, names_mig, visible_gpus
from opcost.power.ports import ClockReading
from opcost.power.trace import Window

__all__ = ["CPU", "NoEnergy", "open_sources", "result_of", "synchronise"]

LARGEST_CLOCK_STEP_S = 0.01
"""Beyond that the wall clock was set during a window, so readings cannot be placed in it."""


NONE_THERE = "none; leave devices out to get times alone"

_NAME = re.compile(rf"{CPU}|{MEMORY}|cuda:(0|[1-9][0-9]*)", re.ASCII)


class NoDeviceError(UserError):
    """A named device has no meter. ``reason`` is the mistake without its remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason


def result_of(
    sources: Sequence[EnergySource], label: str, begin: ClockReading, end: ClockReading, above_idle: bool = False
) -> WindowResult:
    """Return the cost of a window on all devices; wait for their last readings."""
    duration_s = end.monotonic_s - begin.monotonic_s
    window = Window(begin.epoch_s, end.epoch_s)
    is_placed = abs(window.duration_s - duration_s) <= LARGEST_CLOCK_STEP_S

    def energy_of(source: EnergySource) -> DeviceEnergy:
        clock_set = WindowEnergy(None, "", 0.0, "the clock was set during the window")
        energy = window_energy(source.readings(window), window) if is_placed else clock_set
        return device_energy(source.device, energy, duration_s, source.idle_power_w if above_idle else None)

    return WindowResult(label, window.begin_s, duration_s, tuple(map(energy_of, sources)))


def names_of(devices: str | int | Sequence[str | int]) -> tuple[str, ...]:
    """Return each device once by its name; the number of a GPU is one.

    Raises UserError: no device is named, or one that no machine has.
    """
    if inspect.isroutine(devices) or inspect.isclass(devices):
        name = getattr(devices, "__name__", devices)
        raise UserError(f"EnergyMeter: devices is the function or class {name}; write @EnergyMeter() above it")
    each = devices if isinstance(devices, Iterable) and not isinstance(devices, str) else (devices,)
    texts = [str(device).strip() for device in each]
    if not texts:
        raise UserError("EnergyMeter: devices names none; leave it out to meter all")
    names = [f"cuda:{text}" if text.isdecimal() else "cuda:0" if text == "cuda" else text for text in texts]
    for name in names:
        if not _NAME.fullmatch(name):
            raise UserError(f"EnergyMeter: no device {name!r}; use cuda:0, {CPU} or {MEMORY}, or leave devices out")
    return tuple(dict.fromkeys(names))


def open_sources(names: Sequence[str] | None) -> list[EnergySource]:
    """Open the meters of devices; with None those of all that have any. Where there is none, log why.

    Raises NoDeviceError: there is no such device.
    """
    gpus, no_gpu = _gpus()
    wanted = None if names is None else names_of(names)
    cpus, no_cpu = open_rapl() if wanted is None or {CPU, MEMORY} & {*wanted} else ([], None)
    there: dict[str, EnergySource] = {cpu.device: cpu for cpu in cpus}
    if wanted is not None:
        unknown = next((name for name in wanted if name not in gpus and name not in there), None)
        for cpu in cpus:
            if unknown is not None or cpu.device not in wanted:
                cpu.close()
        if unknown is not None:
            of_cpu = no_cpu or f"this CPU has no counter of {unknown}"
            reason = of_cpu if unknown in (CPU, MEMORY) else str(no_gpu or "unknown name")
            metered = ", ".join([*gpus, *there]) or NONE_THERE
            raise NoDeviceError(f"EnergyMeter: no device {unknown}: {reason}", f"devices with a meter: {metered}")
        return [there[name] if name in there else GpuEnergy(name, gpus[name]) for name in wanted]
    log = logging.getLogger(__name__)
    if cpus and no_gpu is not None and no_gpu.hides_gpu:
        log.warning("no GPU is metered: %s", no_gpu)
    if gpus or cpus:
        return [*(GpuEnergy(name, uuid) for name, uuid in gpus.items()), *cpus]
    reason = f"{no_gpu}; {no_cpu}"
    log.warning("no energy is metered: %s", reason)
    return [NoEnergy(reason)]


def synchronise(devices: Sequence[str]) -> None:
    """Wait until GPUs have done their work, where torch is imported and uses them.

    A GPU that torch does not use is left alone: waiting for it would make a CUDA context on it.
    """
    torch = _torch_on_gpus()
    if torch is None:
        return
    current = torch.cuda.current_device()
    for name in devices:
        index = int(name.partition(":")[2]) if name.startswith("cuda:") else None
        if index is not None and (index == current or torch.cuda.memory_reserved(index) > 0):
            torch.cuda.synchronize(index)


def gpu_named(device: str | None) -> tuple[str, str]:
    """Return the name ``cuda:N`` and the UUID of an NVIDIA GPU; the first one for ``cuda`` and None.

    Raises UserError: there is no such GPU.
    """
    gpus, reason = _gpus()
    name = "cuda:0" if device in (None, "cuda") else str(device)
    if name not in gpus:
        why = reason or f"there are {', '.join(gpus)}"
        raise UserError(f"{name}: no NVIDIA GPU of this name ({why})")
    return name, gpus[name]


def _gpus() -> tuple[dict[str, str], NvmlError | None]:
    """Return the UUIDs of the GPUs by their names: as torch numbers them, where it has done so already."""
    torch = _torch_on_gpus()
    # NVML does not know the UUID that torch has of a MIG instance.
    if torch is None or names_mig():
        return visible_gpus()
    count = torch.cuda.device_count()
    return {f"cuda:{index}": f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(count)}, None


def _torch_on_gpus() -> Any | None:
    """Return the module torch if it is imported and uses GPUs already, else None."""
    torch: Any = sys.modules.get("torch")
    # It may still be being imported.
    return torch if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized() else None
