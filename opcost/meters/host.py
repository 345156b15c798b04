"""The host: its clock and facts, and its load, power, temperature and memory from ``/proc`` and ``/sys``."""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from pathlib import Path

from opcost.meters.other_work import IDLE_COLUMNS
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

_READ_ERRORS = (OSError, ValueError, IndexError)


class SystemClock:
    """Reads monotonic and epoch time as a pair.

    The monotonic clock is read before and after the epoch clock and the middle is taken, so that the two belong to
    one moment even if reading takes long.
    """

    def read(self) -> ClockReading:
        before_s = time.perf_counter()
        epoch_s = time.time()
        after_s = time.perf_counter()
        return ClockReading(monotonic_s=(before_s + after_s) / 2, epoch_s=epoch_s)


def cpu_product(cpu_info: Path = PROC / "cpuinfo") -> str:
    """Return the processor's product name as reported by the kernel, else its architecture."""
    try:
        lines = cpu_info.read_text().splitlines()
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
        self._last = self._processor_time()

    def read(self) -> HostRow:
        before, self._last = self._last, self._processor_time()
        load_ratio = None
        if before is not None and self._last is not None and self._last[0] > before[0]:
            load_ratio = min(1.0, max(0.0, (self._last[1] - before[1]) / (self._last[0] - before[0])))
        temperatures_c = []
        for sensor in self._sensors:
            with suppress(*_READ_ERRORS):
                temperatures_c.append(int(sensor.read_text(encoding="ascii")) * 1e-3)
        power_w = None if self._power is None else self._power.sample().power_average_w
        return HostRow(load_ratio, power_w, max(temperatures_c, default=None), self._memory_used_bytes())

    def _processor_time(self) -> tuple[int, int] | None:
        """Return the time of all processors so far, and the busy part of it, in the kernel's ticks."""
        try:
            words = (self._proc / "stat").read_text(encoding="ascii").splitlines()[0].split()[1 : COUNTED_COLUMNS + 1]
            columns = [int(word) for word in words]
            return sum(columns), sum(columns) - sum(columns[column] for column in IDLE_COLUMNS)
        except _READ_ERRORS:
            return None

    def _memory_used_bytes(self) -> int | None:
        try:
            lines = (self._proc / "meminfo").read_text(encoding="ascii").splitlines()
            sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
            return (sizes["MemTotal"] - sizes["MemAvailable"]) * 1024
        except (*_READ_ERRORS, KeyError):
            return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
