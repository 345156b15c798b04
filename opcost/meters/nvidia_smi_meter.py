"""The power fields of nvidia-smi's log as meters.

Rise, averaging and update times of the **power fields** are from arXiv 2312.02741 ("Part-time Power Measurements"),
where no card has an update period above 0.1 s, and from measurements on an H200 with driver 580.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from opcost.meters.nvidia_smi import AVERAGE, INSTANT, LAST_ROW_DEADLINE_S, LogFollower, LogRow, NvidiaSmiLogger, cut
from opcost.meters.polled import column_of, trace_of_rows
from opcost.power.log_rows import PowerRow
from opcost.power.ports import GpuError, PowerSource
from opcost.power.trace import PowerTrace, no_trace

INSTANT_SOURCE = PowerSource(INSTANT, rise_time_s=0.2, averaging_time_s=0.025, update_period_s=0.1)
"""A reading averages over about 25 ms of every 100 ms. The first 0.2 s after a step overshoot."""

AVERAGE_SOURCE = PowerSource(AVERAGE, rise_time_s=1.2, averaging_time_s=1.0, update_period_s=0.1)
"""A moving average over one second on Hopper, Ada and GA10x. It is assumed for every card; if a card averages over a
shorter time, errors are overestimated."""

LONGEST_SILENCE_S = 0.5
"""The longest time without a row at the end of a measurement: five update periods."""


class NvidiaSmiMeter:
    """One measurement with a running logger. Its part of the log is kept as ``<log_name>.csv``, as it was printed."""

    def __init__(self, logger: NvidiaSmiLogger, log_name: str, stop_deadline_s: float = LAST_ROW_DEADLINE_S) -> None:
        self._logger = logger
        self._path = logger.logs_directory / f"{log_name}.csv"
        self._stop_deadline_s = stop_deadline_s
        self._begin_s = math.nan
        self._follower: LogFollower | None = None
        self._rows: list[LogRow] = []
        self._start_failure = "the meter was not started"

    def start(self) -> None:
        self._follower, self._rows = None, []
        try:
            self._logger.ensure_running()
        except GpuError as error:
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
        if self._follower is None:
            return no_trace(self._start_failure, INSTANT_SOURCE)
        end_s = time.time()
        self._rows.extend(self._follower.read_until(end_s, self._stop_deadline_s))
        rows = cut(self._rows, self._begin_s, end_s)
        missing_reason = None
        silent_s = end_s - (rows[-1].values.epoch_s if rows else self._begin_s)
        if silent_s >= 0 and not self._logger.is_running():
            missing_reason = f"nvidia-smi ended during the measurement; its last line: {self._logger.last_line()}"
        elif silent_s >= 0 and (not rows or silent_s > LONGEST_SILENCE_S):
            # The next measurement starts it again.
            self._logger.end()
            missing_reason = f"nvidia-smi printed nothing in the last {silent_s:.1f} s of the measurement"
        lines = [self._logger.header, *(row.line for row in rows)]
        self._path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return power_trace([row.values for row in rows], self._path.name, missing_reason)


def power_trace(rows: Sequence[PowerRow], log_name: str | None, missing_reason: str | None = None) -> PowerTrace:
    """Return rows as a trace of the better power field that most have; with both fields, the other is its check."""

    instant_w = column_of(rows, lambda row: row.power_instant_w)
    average_w = column_of(rows, lambda row: row.power_average_w)
    has_instant, has_average = (len(rows) > 0 and np.mean(~np.isnan(one)) >= 0.5 for one in (instant_w, average_w))
    if missing_reason is None and np.isnan(instant_w).all() and np.isnan(average_w).all():
        missing_reason = "nvidia-smi reports no power for this GPU" if rows else "nvidia-smi logged no row in time"
    average = trace_of_rows(AVERAGE_SOURCE, rows, average_w, missing_reason, log_name)
    if not has_instant:
        return average
    checks = (average,) if has_average and missing_reason is None else ()
    return replace(average, source=INSTANT_SOURCE, power_w=instant_w, checks=checks)
