"""The host: its clock and facts, its load, power, temperature and memory from ``/proc`` and ``/sys``; other load."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from opcost.meters.rapl import RaplSampler, rapl_unavailable_reason
from opcost.power.log_rows import HostRow
from opcost.power.ports import ClockReading

PROC = Path("/proc")
HARDWARE_MONITORS = Path("/sys/class/hwmon")
THERMAL_ZONES = Path("/sys/class/thermal")

CPU_SENSORS = frozenset({"coretemp", "k10temp", "zenpower", "cpu_thermal"})
"""Names of the monitors of processors in Linux: Intel, AMD, AMD, ARM."""

CPU_ZONES = frozenset({"x86_pkg_temp", "cpu-thermal", "cpu_thermal"})

COUNTED_COLUMNS = 8
"""The columns of ``/proc/stat`` that make up all time; later ones are included in them (proc(5))."""

IDLE_COLUMNS = (3, 4)
"""The columns with idle time and time waiting for a disk."""

FULL_RATIO = 0.9
"""Busy share of the processors' time from which processes wait for each other."""

OTHERS_RATIO = 0.05
"""The smallest share of other processes that is reported. An idle system takes one or two percent."""

TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_READ_ERRORS = (OSError, ValueError, IndexError)


class SystemClock:
    """Reads epoch time, and monotonic time as the middle of before and after, so that both belong to one moment."""

    def read(self) -> ClockReading:
        before_s = time.perf_counter()
        epoch_s = time.time()
        after_s = time.perf_counter()
        return ClockReading(monotonic_s=(before_s + after_s) / 2, epoch_s=epoch_s)


def cpu_product() -> str:
    """Return the processor's product name as reported by the kernel, else its architecture."""
    try:
        lines = (PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in names if name), platform.processor() or platform.machine())


def host_memory_bytes() -> int:
    """Return the size of the host's memory in bytes, rounded to GiB because the kernel reserves a varying part."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30) * 2**30


class HostState:
    """Reads the host's state, None where it reports nothing; load and power are means since the last reading."""

    def __init__(
        self, proc: Path = PROC, monitors: Path = HARDWARE_MONITORS, zones: Path = THERMAL_ZONES, has_power: bool = True
    ) -> None:
        self._proc = proc
        of_monitors = [
            sensor
            for name in sorted(monitors.glob("*/name"))
            if _text(name) in CPU_SENSORS
            for sensor in sorted(name.parent.glob("temp*_input"))
        ]
        of_zones = (kind.parent / "temp" for kind in zones.glob("*/type") if _text(kind) in CPU_ZONES)
        self._sensors = of_monitors or list(of_zones)
        self._power = RaplSampler() if has_power and rapl_unavailable_reason() is None else None
        self._last = _processor_time(proc / "stat", {"cpu"})

    def read(self) -> HostRow:
        before, self._last = self._last, _processor_time(self._proc / "stat", {"cpu"})
        load_ratio = None
        if before is not None and self._last is not None and self._last[0] > before[0]:
            load_ratio = min(1.0, max(0.0, (self._last[1] - before[1]) / (self._last[0] - before[0])))
        temperatures_c = []
        for sensor in self._sensors:
            with suppress(*_READ_ERRORS):
                temperatures_c.append(int(sensor.read_text(encoding="ascii")) * 1e-3)
        memory_used_bytes = None
        with suppress(*_READ_ERRORS, KeyError):
            lines = (self._proc / "meminfo").read_text(encoding="ascii").splitlines()
            sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
            memory_used_bytes = (sizes["MemTotal"] - sizes["MemAvailable"]) * 1024
        power_w = None if self._power is None else self._power.sample().power_average_w
        return HostRow(load_ratio, power_w, max(temperatures_c, default=None), memory_used_bytes)


class OtherLoad:
    """Watches other processes on the processors that this process may run on."""

    def __init__(self, stat: Path = PROC / "stat") -> None:
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
        ticks = _processor_time(self._stat, {f"cpu{number}" for number in os.sched_getaffinity(0)})
        return None if ticks is None else (ticks[0] / TICKS_PER_S, ticks[1] / TICKS_PER_S, time.process_time())


def _processor_time(stat: Path, processors: Collection[str]) -> tuple[int, int] | None:
    """Return the time of processors so far, and the busy part of it, in the kernel's ticks; ``cpu`` are all of them."""
    try:
        lines = [line for line in stat.read_text(encoding="ascii").splitlines() if line.partition(" ")[0] in processors]
        rows = [[int(word) for word in line.split()[1 : COUNTED_COLUMNS + 1]] for line in lines]
        columns = [sum(column) for column in zip(*rows, strict=True)]
        return sum(columns), sum(columns) - sum(columns[column] for column in IDLE_COLUMNS)
    except _READ_ERRORS:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
