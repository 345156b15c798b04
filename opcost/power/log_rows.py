"""One row of a power log in SI units, its CSV text, and what a whole log amounts to.

A value that the device did not give is None and an empty cell, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from opcost.units import watts

COLUMNS = (
    "timestamp",
    "power_instant_w",
    "power_average_w",
    "utilisation_ratio",
    "sm_clock_hz",
    "temperature_c",
    "memory_temperature_c",
    "event_reasons",
    "memory_used_bytes",
)


@dataclass(frozen=True)
class PowerRow:
    """What a device said of itself at one moment.

    ``power_average_w`` is averaged over a time of the meter's own, ``power_instant_w`` is not (or far less).
    ``event_reasons`` holds the bits that say why the clocks are where they are (see ``nvidia_smi_meter``).
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


def csv_header() -> str:
    """Return the header line without its newline."""
    return ",".join(COLUMNS)


def csv_line(row: PowerRow) -> str:
    """Return a row as CSV text without its newline; the timestamp is ISO 8601 in UTC, event reasons hexadecimal."""
    moment = datetime.fromtimestamp(row.epoch_s, tz=timezone.utc).isoformat(timespec="milliseconds")
    reasons = "" if row.event_reasons is None else f"0x{row.event_reasons:016x}"
    powers, temperatures = (row.power_instant_w, row.power_average_w), (row.temperature_c, row.memory_temperature_c)
    numbers = [*powers, row.utilisation_ratio, row.sm_clock_hz, *temperatures]
    memory = "" if row.memory_used_bytes is None else str(row.memory_used_bytes)
    return ",".join([moment, *map(_number, numbers), reasons, memory])


def power_of(row: PowerRow) -> float | None:
    """Return the power of a row in W: the instant one where it has one, else the average."""
    return row.power_average_w if row.power_instant_w is None else row.power_instant_w


class PowerSummary:
    """Counts the rows of a log and averages their power; takes no more memory the longer the log is.

    The instant power is used where a row has it, else the average one. Rows come at equal intervals and weigh the
    same, so each value counts for as long as it was shown. This is a glance at a log: energies come from
    ``power.mean_power``.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.value_changes = 0
        self._known_rows = 0
        self._sum_w = 0.0
        self._previous_w: float | None = None

    def add_all(self, rows: Iterable[PowerRow]) -> None:
        """Count the next rows of the log."""
        for row in rows:
            self._add(row)

    @property
    def mean_power_w(self) -> float | None:
        """The mean over the rows that have a power, in W; None without any."""
        return self._sum_w / self._known_rows if self._known_rows else None

    def __str__(self) -> str:
        mean = "unknown" if self.mean_power_w is None else watts(self.mean_power_w)
        return f"{self.rows} rows, {self.value_changes} value changes, mean power {mean}"

    def _add(self, row: PowerRow) -> None:
        self.rows += 1
        power_w = power_of(row)
        if power_w is None:
            return
        self._known_rows += 1
        self._sum_w += power_w
        if self._previous_w is not None and power_w != self._previous_w:
            self.value_changes += 1
        self._previous_w = power_w


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.12g}"
