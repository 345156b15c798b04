"""The meter of nvidia-smi's power fields; it extracts one measurement from nvidia-smi's log.

Rise, averaging and update times are from arXiv 2312.02741 ("Part-time Power Measurements"), where no card has an update
period above 0.1 s, and from measurements on an H200 with driver 580.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from opcost.estimates import FloatArray
from opcost.meters.nvidia_smi import LAST_ROW_DEADLINE_S, LogFollower, NvidiaSmiError, NvidiaSmiLogger
from opcost.meters.nvidia_smi_log import LogRow, cut
from opcost.power.log_rows import PowerRow
from opcost.power.ports import AVERAGE, INSTANT
from opcost.power.trace import PowerSource, PowerTrace, no_trace

INSTANT_SOURCE = PowerSource(INSTANT, rise_time_s=0.2, averaging_time_s=0.025, update_period_s=0.1)
"""A reading averages over about 25 ms of every 100 ms. The first 0.2 s after a step overshoot."""

AVERAGE_SOURCE = PowerSource(AVERAGE, rise_time_s=1.2, averaging_time_s=1.0, update_period_s=0.1)
"""A moving average over one second on Hopper, Ada and GA10x. It is assumed for every card; if a card averages over a
shorter time, errors are overestimated."""

LONGEST_SILENCE_S = 0.5
"""The longest time without a row at the end of a measurement: five update periods."""

# Bits of nvmlClocksEventReasons, NVML API reference.
SOFTWARE_POWER_CAP = 0x4
HARDWARE_SLOWDOWN = 0x8
SOFTWARE_THERMAL_SLOWDOWN = 0x20
HARDWARE_THERMAL_SLOWDOWN = 0x40
HARDWARE_POWER_BRAKE = 0x80


class NvidiaSmiMeter:
    """One measurement with a running logger: ``start``, then ``stop``, once.

    Its part of the log is saved as ``<logs_directory>/<log_name>.csv``, as printed by nvidia-smi, with times in UTC.
    """

    def __init__(self, logger: NvidiaSmiLogger, log_name: str, stop_deadline_s: float = LAST_ROW_DEADLINE_S) -> None:
        self._logger = logger
        self._path = logger.logs_directory / f"{log_name}.csv"
        self._stop_deadline_s = stop_deadline_s
        self._begin_s = math.nan
        self._follower: LogFollower | None = None
        self._rows: list[LogRow] = []
        self._start_failure = "the meter was not started"

    @property
    def skipped_lines(self) -> int:
        """The number of lines since the start that were no rows: cut or joined lines, or messages."""
        return 0 if self._follower is None else self._follower.skipped_lines

    def start(self) -> None:
        """Begin a measurement; nvidia-smi is started again if it has ended."""
        self._follower, self._rows = None, []
        try:
            self._logger.ensure_running()
        except NvidiaSmiError as error:
            self._start_failure = str(error)
            return
        self._begin_s = time.time()
        self._follower = self._logger.follow()

    def log(self) -> PowerTrace:
        if self._follower is None:
            return no_trace(self._start_failure, INSTANT_SOURCE)
        self._rows.extend(self._follower.read())
        return power_trace([row.values for row in self._rows], None)

    def stop(self) -> PowerTrace:
        """End the measurement, save its part of the log, and return its rows."""
        if self._follower is None:
            return no_trace(self._start_failure, INSTANT_SOURCE)
        end_s = time.time()
        self._rows.extend(self._follower.read_until(end_s, self._stop_deadline_s))
        rows = cut(self._rows, self._begin_s, end_s)
        missing_reason = self._why_incomplete(rows, end_s)
        lines = [self._logger.header, *(row.line for row in rows)]
        self._path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return power_trace([row.values for row in rows], self._path.name, missing_reason)

    def _why_incomplete(self, rows: Sequence[LogRow], end_s: float) -> str | None:
        newest_s = rows[-1].values.epoch_s if rows else self._begin_s
        if newest_s > end_s:
            return None
        if not self._logger.is_running():
            return f"nvidia-smi ended during the measurement; its last line: {self._logger.last_line()}"
        silent_s = end_s - newest_s
        if rows and silent_s <= LONGEST_SILENCE_S:
            return None
        # The next measurement starts it again.
        self._logger.end()
        return f"nvidia-smi printed nothing in the last {silent_s:.1f} s of the measurement"


def sources_of(logger: NvidiaSmiLogger) -> tuple[str, ...]:
    """Return the names of the power fields in a running log, the better one first."""
    trace = power_trace([row.values for row in logger.follow(from_begin=True).read()], None)
    return tuple(logged.source.name for logged in (trace, *trace.checks) if logged.missing_reason is None)


def power_trace(rows: Sequence[PowerRow], log_name: str | None, missing_reason: str | None = None) -> PowerTrace:
    """Return rows of nvidia-smi as a power trace of the better power field that most rows have.

    If they have both fields, the other one is its check.
    """

    def column(value: Callable[[PowerRow], float | None]) -> FloatArray:
        values = (value(row) for row in rows)
        return np.array([math.nan if number is None else float(number) for number in values], dtype=np.float64)

    instant_w, average_w = column(lambda row: row.power_instant_w), column(lambda row: row.power_average_w)
    has_instant, has_average = (len(rows) > 0 and np.mean(~np.isnan(one)) >= 0.5 for one in (instant_w, average_w))
    if missing_reason is None and np.isnan(instant_w).all() and np.isnan(average_w).all():
        missing_reason = "nvidia-smi reports no power for this GPU" if rows else "nvidia-smi logged no row in time"
    average = PowerTrace(
        source=AVERAGE_SOURCE,
        epoch_s=column(lambda row: row.epoch_s),
        power_w=average_w,
        temperature_c=column(lambda row: row.temperature_c),
        memory_temperature_c=column(lambda row: row.memory_temperature_c),
        sm_clock_hz=column(lambda row: row.sm_clock_hz),
        power_capped=column(lambda row: is_power_capped(row.event_reasons)),
        thermal_slowdown=column(lambda row: is_thermal_slowdown(row.event_reasons)),
        busy_ratio=column(lambda row: row.utilisation_ratio),
        missing_reason=missing_reason,
        log_name=log_name,
    )
    if not has_instant:
        return average
    checks = (average,) if has_average and missing_reason is None else ()
    return replace(average, source=INSTANT_SOURCE, power_w=instant_w, checks=checks)


def is_power_capped(event_reasons: int | None) -> bool | None:
    """Return whether the device is throttled by the power limit or the power brake; None if unknown."""
    return None if event_reasons is None else bool(event_reasons & (SOFTWARE_POWER_CAP | HARDWARE_POWER_BRAKE))


def is_thermal_slowdown(event_reasons: int | None) -> bool | None:
    """Return whether the device is throttled by its temperature; None if unknown.

    The general hardware slowdown is reported with the bit of its cause, thermal or brake. On cards that do not report
    a cause it counts as thermal.
    """
    if event_reasons is None:
        return None
    causes = HARDWARE_THERMAL_SLOWDOWN | HARDWARE_POWER_BRAKE
    unexplained = bool(event_reasons & HARDWARE_SLOWDOWN) and not event_reasons & causes
    return unexplained or bool(event_reasons & (SOFTWARE_THERMAL_SLOWDOWN | HARDWARE_THERMAL_SLOWDOWN))
