"""The devices whose energy is metered in any window: GPUs, CPU packages or their memory by RAPL.

Torch is not needed. Where it is imported, GPUs are numbered as it does, and their work can be awaited.
"""

from __future__ import annotations

import inspect
import logging
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from opcost.errors import UserError
from opcost.metering.window_energy import NO_PIECES, PLACEMENT_ERROR_S, EnergySource, Readings, pieces_of_samples
from opcost.meters.gpu_meters import PAUSE_AFTER_FAILURE_S, TICK_S, CounterSampler, PowerSampler, TimedRows
from opcost.meters.gpus import gpus_in_torch, open_gpu, visible_gpus
from opcost.meters.rapl import (
    POWERCAP_FOLDER,
    RaplDomain,
    RaplJumpError,
    RaplTotal,
    rapl_domains,
    rapl_unavailable_reason,
)
from opcost.power.ports import GpuError, is_gpu_power
from opcost.power.trace import Window

CPU, MEMORY = "cpu", "dram"

GPU_BEFORE_S = 3.0
"""Readings from so long before a window on: the last tick of the counter, and a second more."""

COUNTER_RESOLUTION_S = 1.0
"""Of the counter alone: ten of its ticks."""

TICK_ERROR_S = 0.005 / math.sqrt(12)
"""A tick is known to one read, which takes up to 5 ms (``meters.gpu_meters``)."""

RAPL_UPDATE_S = 0.001
"""Time from one value of RAPL's counters to the next."""

RAPL_INTERVAL_S = 1.0
"""Time between two reads in the background, so that no wrap is missed: a counter of 262 kJ wraps every 5 minutes at
870 W. The shorter it is, the fewer counters that begin again look like one that wraps."""

RAPL_BEFORE_S = 2 * RAPL_INTERVAL_S

_NAME = re.compile(rf"{CPU}|{MEMORY}|cuda:(0|[1-9][0-9]*)", re.ASCII)


class NoEnergy(EnergySource):
    """A machine without a meter: its readings have the reason."""

    def __init__(self, reason: str, device: str = CPU) -> None:
        self._reason, self.device = reason, device

    def readings(self, window: Window) -> Readings:
        return Readings(missing_reason=self._reason)


class GpuEnergy(EnergySource):
    """A GPU, by threads that mostly sleep, so that samples and ticks come by themselves.

    Without a meter readings have the reason.
    """

    def __init__(self, device: str, uuid: str) -> None:
        self.device, self.uuid = device, uuid
        self._samples: PowerSampler | None = None
        self._counter: CounterSampler | None = None
        self._missing_reason: str | None = None
        self._stack = ExitStack()
        try:
            gpu = open_gpu(uuid)
        except GpuError as error:
            self._missing_reason = str(error)
            return
        self._stack.callback(gpu.close)
        self._missing_reason = gpu.no_energy_reason()
        if self._missing_reason is not None:
            return
        reasons = []
        try:
            self._samples = self._stack.enter_context(PowerSampler(gpu))
            # A GPU at work may be steady, too.
            self.idle_power_w = self._samples.power_before_w if gpu.state().utilisation_ratio == 0 else None
        except GpuError as error:
            reasons.append(str(error))
        try:
            self._counter = self._stack.enter_context(CounterSampler(gpu))
            self._counter.seek()
        except GpuError as error:
            reasons.append(str(error))
        if self._samples is None and self._counter is None:
            self._missing_reason = "; ".join(dict.fromkeys(reasons))

    def readings(self, window: Window) -> Readings:
        if self._missing_reason is not None:
            return Readings(missing_reason=self._missing_reason)
        ticks = self._ticks(window)
        samples, reason, averaging_time_s = NO_PIECES, "this GPU keeps no power samples", 0.0
        if self._samples is not None:
            averaging_time_s = self._samples.source.averaging_time_s
            last_s = max(window.end_s, ticks[-1][0] if ticks else 0.0)
            try:
                rows = self._samples.through(window.begin_s - GPU_BEFORE_S, last_s)
                epoch_s, power_w = np.array(rows, dtype=np.float64).reshape(-1, 2).T
                samples = pieces_of_samples(epoch_s, power_w, averaging_time_s)
            except GpuError as error:
                reason = str(error)
        has_samples = bool(len(samples.power_w))
        return Readings(
            samples=samples,
            ticks=ticks,
            sample_meter="" if self._samples is None else self._samples.source.name,
            counter_meter="" if self._counter is None else self._counter.name,
            resolution_s=2 * averaging_time_s if has_samples else COUNTER_RESOLUTION_S,
            tick_error_s=TICK_ERROR_S,
            # A sample that averages shows a change of the load by half as late.
            placement_error_s=max(PLACEMENT_ERROR_S, averaging_time_s / 2),
            missing_reason=None if has_samples or len(ticks) > 1 else reason,
        )

    def forget_before(self, epoch_s: float) -> None:
        if self._samples is not None:
            self._samples.rows.forget_before(epoch_s - GPU_BEFORE_S)
        if self._counter is not None:
            self._counter.ticks.forget_before(epoch_s - GPU_BEFORE_S)

    def close(self) -> None:
        self._stack.close()

    def _ticks(self, window: Window) -> list[tuple[float, float]]:
        """Return the ticks around a window, empty if the counter failed or shows an impossible power."""
        if self._counter is None:
            return []
        if self._counter.ticks.newest_s <= window.end_s:
            self._counter.seek()
        try:
            ticks = self._counter.ticks.since(window.begin_s - GPU_BEFORE_S)
        except GpuError:
            return []
        after = [index for index, (epoch_s, _) in enumerate(ticks) if epoch_s >= window.end_s]
        ticks = ticks[: after[0] + 1] if after else ticks
        epoch_s, energy_j = np.array(ticks, dtype=np.float64).reshape(-1, 2).T
        duration_s = np.diff(epoch_s)
        # Between ticks that are further apart the counter stood still for a while.
        is_possible = bool(np.all((duration_s > TICK_S / 2) & (duration_s < PAUSE_AFTER_FAILURE_S)))
        return ticks if is_possible and all(map(is_gpu_power, (np.diff(energy_j) / duration_s).tolist())) else []


class RaplEnergy(EnergySource):
    """The packages or the memory of all CPUs: counters are read at both ends."""

    def __init__(self, device: str, domains: Sequence[RaplDomain]) -> None:
        self.device = device
        self._ticks = TimedRows()
        self._total = RaplTotal(domains)
        self._failure: str | None = None
        self._jumps: list[tuple[Window, str]] = []
        self._reading = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"RAPL {device}", daemon=True)
        self.edge()
        self._thread.start()

    def edge(self) -> None:
        with self._reading:
            epoch_s = time.time()
            try:
                self._total.read(time.monotonic())
            except RaplJumpError as error:
                self._jumps.append((Window(self._ticks.newest_s, epoch_s), str(error)))
            except (OSError, ValueError) as error:
                self._failure = f"RAPL cannot be read: {error}"
                return
            if epoch_s > self._ticks.newest_s:
                self._ticks.extend([(epoch_s, self._total.energy_uj * 1e-6)])

    def readings(self, window: Window) -> Readings:
        self.edge()
        inside = (reason for jump, reason in self._jumps if jump.begin_s < window.end_s and jump.end_s > window.begin_s)
        return Readings(
            ticks=self._ticks.since(window.begin_s - RAPL_BEFORE_S),
            counter_meter=f"rapl {'package' if self.device == CPU else self.device}",
            resolution_s=10 * RAPL_UPDATE_S,
            tick_error_s=RAPL_UPDATE_S / math.sqrt(12),
            missing_reason=self._failure or next(inside, None),
        )

    def forget_before(self, epoch_s: float) -> None:
        self._ticks.forget_before(epoch_s - RAPL_BEFORE_S)
        self._jumps = [(jump, reason) for jump, reason in self._jumps if jump.end_s > epoch_s]

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(RAPL_INTERVAL_S):
            self.edge()


def open_rapl(root: Path = POWERCAP_FOLDER) -> tuple[list[RaplEnergy], str | None]:
    """Return the packages and their memory as devices, and why there are none."""
    reason = rapl_unavailable_reason(root)
    if reason is not None:
        return [], reason
    domains = rapl_domains(root)
    packages = [domain for domain in domains if domain.is_package]
    memory = [domain for domain in domains if domain.name == "dram" and domain.read_or_none_uj() is not None]
    return [RaplEnergy(name, part) for name, part in ((CPU, packages), (MEMORY, memory)) if part], None


class NoDeviceError(UserError):
    """A named device has no meter. ``reason`` is the mistake without its remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason


def names_of(devices: str | int | Sequence[str | int]) -> tuple[str, ...]:
    """Return each device once by its name. Raises UserError: none is named, or one that no machine has."""
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
    """Open the meters of devices, for None of all; log why there is none. Raises NoDeviceError: no such device."""
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
            metered = ", ".join([*gpus, *there]) or "none; leave devices out to get times alone"
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
    """Wait for the work of GPUs that torch uses. Waiting for another one would make a CUDA context on it."""
    torch = _torch_on_gpus()
    if torch is None:
        return
    current = torch.cuda.current_device()
    for name in devices:
        index = int(name.partition(":")[2]) if name.startswith("cuda:") else None
        if index is not None and (index == current or torch.cuda.memory_reserved(index) > 0):
            torch.cuda.synchronize(index)


def gpu_named(device: str | None) -> tuple[str, str]:
    """Return the name and UUID of a GPU, of the first for ``cuda`` and None. Raises UserError: there is no such GPU."""
    gpus, reason = _gpus()
    name = "cuda:0" if device in (None, "cuda") else str(device)
    if name not in gpus:
        why = reason or f"there are {', '.join(gpus)}"
        raise UserError(f"{name}: no GPU of this name ({why})")
    return name, gpus[name]


def _gpus() -> tuple[dict[str, str], GpuError | None]:
    """Return the UUIDs of the GPUs by their names, as torch numbers them if it has done so already, or why not."""
    torch = _torch_on_gpus()
    try:
        return visible_gpus(os.environ) if torch is None else gpus_in_torch(torch), None
    except GpuError as error:
        return {}, error


def _torch_on_gpus() -> Any | None:
    """Return the module torch if it is imported and uses GPUs already, else None."""
    torch: Any = sys.modules.get("torch")
    # It may still be being imported.
    return torch if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized() else None
