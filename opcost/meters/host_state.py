"""Load, power, temperature and memory of the host, from ``/proc`` and ``/sys``; None where it reports nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from opcost.meters.cpu_load import IDLE_COLUMNS
from opcost.meters.rapl import RaplSampler, rapl_unavailable_reason
from opcost.power.log_rows import HostRow, PowerRow

PROC = Path("/proc")
HARDWARE_MONITORS = Path("/sys/class/hwmon")
THERMAL_ZONES = Path("/sys/class/thermal")

CPU_SENSORS = frozenset({"coretemp", "k10temp", "zenpower", "cpu_thermal"})
"""Names of the monitors of processors in Linux: Intel, AMD, AMD, ARM."""

CPU_ZONES = frozenset({"x86_pkg_temp", "cpu-thermal", "cpu_thermal"})

COUNTED_COLUMNS = 8
"""The columns of ``/proc/stat`` that make up all time; later ones are included in them (proc(5))."""

_READ_ERRORS = (OSError, ValueError, IndexError)


class HostState:
    """Reads the host's state; load and power are means since the last reading."""

    def __init__(
        self, proc: Path = PROC, monitors: Path = HARDWARE_MONITORS, zones: Path = THERMAL_ZONES, has_power: bool = True
    ) -> None:
        self._proc = proc
        self._sensors = _sensors(monitors, zones)
        self._power = _power_sampler() if has_power else None
        self._last = self._processor_time()

    def read(self) -> HostRow:
        return HostRow(self._load_ratio(), self._power_w(), self._temperature_c(), self._memory_used_bytes())

    def _load_ratio(self) -> float | None:
        before, self._last = self._last, self._processor_time()
        if before is None or self._last is None or self._last[0] <= before[0]:
            return None
        return min(1.0, max(0.0, (self._last[1] - before[1]) / (self._last[0] - before[0])))

    def _processor_time(self) -> tuple[int, int] | None:
        """Return the time of all processors so far, and the busy part of it, in the kernel's ticks."""
        try:
            words = (self._proc / "stat").read_text(encoding="ascii").splitlines()[0].split()[1 : COUNTED_COLUMNS + 1]
            columns = [int(word) for word in words]
            return sum(columns), sum(columns) - sum(columns[column] for column in IDLE_COLUMNS)
        except _READ_ERRORS:
            return None

    def _power_w(self) -> float | None:
        return None if self._power is None else self._power().power_average_w

    def _temperature_c(self) -> float | None:
        """Return the temperature of the hottest sensor of a processor."""
        found = []
        for sensor in self._sensors:
            with suppress(*_READ_ERRORS):
                found.append(int(sensor.read_text(encoding="ascii")) * 1e-3)
        return max(found, default=None)

    def _memory_used_bytes(self) -> int | None:
        try:
            lines = (self._proc / "meminfo").read_text(encoding="ascii").splitlines()
            sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
            return (sizes["MemTotal"] - sizes["MemAvailable"]) * 1024
        except (*_READ_ERRORS, KeyError):
            return None


def _sensors(monitors: Path, zones: Path) -> tuple[Path, ...]:
    """Return the files with temperatures of processors: of monitors, else of thermal zones."""
    of_monitors = [
        sensor
        for name in sorted(monitors.glob("*/name"))
        if _text(name) in CPU_SENSORS
        for sensor in sorted(name.parent.glob("temp*_input"))
    ]
    return tuple(of_monitors or [kind.parent / "temp" for kind in zones.glob("*/type") if _text(kind) in CPU_ZONES])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _power_sampler() -> Callable[[], PowerRow] | None:
    """Return a function that samples the CPU's power, None where it has no readable counter."""
    return None if rapl_unavailable_reason() is not None else RaplSampler().sample
