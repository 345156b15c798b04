"""Rows of a power log in SI units, their CSV text, and a log's summary.

A value that the device did not report is None and an empty cell, never zero.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime, timezone

from opcost.units import watts

# Bits of the reasons for a GPU's clocks: those of nvmlClocksEventReasons (NVML API reference), for all vendors.
SOFTWARE_POWER_CAP = 0x4
HARDWARE_SLOWDOWN = 0x8
SOFTWARE_THERMAL_SLOWDOWN = 0x20
HARDWARE_THERMAL_SLOWDOWN = 0x40
HARDWARE_POWER_BRAKE = 0x80


@dataclass(frozen=True)
class PowerRow:
    """The readings of a device at one moment.

    ``power_average_w`` is averaged over the meter's averaging time, ``power_instant_w`` not at all or over a much
    shorter time. ``event_reasons`` holds the bits of the reasons for the present clocks.
    """

    epoch_s: float
    power_instant_w: float | None = None
    power_average_w: float | None = None
    utilisation_ratio: float | None = None
    sm_clock_hz: float | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    event_reasons: int | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True)
class HostRow:
    """The readings of the host at one moment; ``cpu_load_ratio`` is the busy share of its processors since the last."""

    cpu_load_ratio: float | None = None
    cpu_power_w: float | None = None
    cpu_temperature_c: float | None = None
    host_memory_used_bytes: int | None = None


COLUMNS = ("timestamp", *(field.name for field in fields(PowerRow)[1:]))

FOLLOWED_COLUMNS = (*COLUMNS, "device", *(field.name for field in fields(HostRow)), "mark")
"""The columns of a log of a followed program."""


def is_power_capped(event_reasons: int | None) -> bool | None:
    """Return whether the device is throttled by the power limit or the power brake; None if unknown."""
    return None if event_reasons is None else bool(event_reasons & (SOFTWARE_POWER_CAP | HARDWARE_POWER_BRAKE))


def is_thermal_slowdown(event_reasons: int | None) -> bool | None:
    """Return whether temperature throttles the device. The general slowdown without a cause counts as thermal."""
    if event_reasons is None:
        return None
    causes = HARDWARE_THERMAL_SLOWDOWN | HARDWARE_POWER_BRAKE
    unexplained = bool(event_reasons & HARDWARE_SLOWDOWN) and not event_reasons & causes
    return unexplained or bool(event_reasons & (SOFTWARE_THERMAL_SLOWDOWN | HARDWARE_THERMAL_SLOWDOWN))


def followed_line(row: PowerRow, device: str, host: HostRow, mark: str) -> str:
    """Return a row of a followed program as CSV text without its newline: device, host and last mark beside the row."""
    memory = "" if host.host_memory_used_bytes is None else str(host.host_memory_used_bytes)
    numbers = map(_number, (host.cpu_load_ratio, host.cpu_power_w, host.cpu_temperature_c))
    quoted = '"' + mark.replace('"', '""') + '"' if mark else ""
    return ",".join([csv_line(row), device, *numbers, memory, quoted])


def csv_line(row: PowerRow) -> str:
    """Return a row as CSV text without its newline: timestamp in ISO 8601 and UTC, event reasons hexadecimal."""
    moment = datetime.fromtimestamp(row.epoch_s, tz=timezone.utc).isoformat(timespec="milliseconds")
    reasons = "" if row.event_reasons is None else f"0x{row.event_reasons:016x}"
    powers, temperatures = (row.power_instant_w, row.power_average_w), (row.temperature_c, row.memory_temperature_c)
    numbers = [*powers, row.utilisation_ratio, row.sm_clock_hz, *temperatures]
    memory = "" if row.memory_used_bytes is None else str(row.memory_used_bytes)
    return ",".join([moment, *map(_number, numbers), reasons, memory])


def power_of(row: PowerRow) -> float | None:
    """Return the power of a row in W: the instant power if known, else the average."""
    return row.power_average_w if row.power_instant_w is None else row.power_instant_w


class PowerSummary:
    """Counts the rows of a log and averages their power, in constant memory.

    Rows come at equal intervals and have equal weights. Mean and energy are an overview of a log; energies of
    measurements are calculated by ``power.trace``. Powers are in W, None if no row has a power.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.value_changes = 0
        self.minimum_power_w: float | None = None
        self.maximum_power_w: float | None = None
        self._known_rows = 0
        self._sum_w = 0.0
        self._previous_w: float | None = None
        self._begin_s = self._end_s = 0.0

    def add_all(self, rows: Iterable[PowerRow]) -> None:
        for row in rows:
            self._begin_s, self._end_s = self._begin_s if self.rows else row.epoch_s, row.epoch_s
            self.rows += 1
            power_w = power_of(row)
            if power_w is None:
                continue
            self._known_rows += 1
            self._sum_w += power_w
            self.minimum_power_w = min(power_w, math.inf if self.minimum_power_w is None else self.minimum_power_w)
            self.maximum_power_w = max(power_w, self.maximum_power_w or 0.0)
            if self._previous_w is not None and power_w != self._previous_w:
                self.value_changes += 1
            self._previous_w = power_w

    @property
    def mean_power_w(self) -> float | None:
        return self._sum_w / self._known_rows if self._known_rows else None

    @property
    def duration_s(self) -> float:
        return self._end_s - self._begin_s

    @property
    def energy_j(self) -> float | None:
        return None if self.mean_power_w is None else self.mean_power_w * self.duration_s

    @property
    def figures(self) -> dict[str, float | None]:
        powers = "mean_power_w", "minimum_power_w", "maximum_power_w"
        return {name: getattr(self, name) for name in ("rows", "value_changes", "duration_s", *powers, "energy_j")}

    def __str__(self) -> str:
        mean = "unknown" if self.mean_power_w is None else watts(self.mean_power_w)
        return f"{self.rows} rows, {self.value_changes} value changes, mean power {mean}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.12g}"


def new_log_name(key: str) -> str:
    """Return the name of a raw power log with a key, the moment and a random number: hosts may share a folder."""
    return f"{key}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{random.SystemRandom().getrandbits(32):08x}"
