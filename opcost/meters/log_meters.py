"""Meters whose traces are logs with the state of a GPU or the power of a CPU: rows that a thread asks for again and
again for one measurement, and the power fields of nvidia-smi's log.

Rise, averaging and update times of the **power fields** are from arXiv 2312.02741 ("Part-time Power Measurements"),
where no card has an update period above 0.1 s, and from measurements on an H200 with driver 580.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from opcost.estimates import FloatArray
from opcost.meters.nvidia_smi import AVERAGE, INSTANT, LAST_ROW_DEADLINE_S, LogFollower, LogRow, NvidiaSmiLogger, cut
from opcost.power.log_rows import COLUMNS, PowerRow, csv_line, is_power_capped, is_thermal_slowdown
from opcost.power.ports import Gpu, GpuError, PowerSource
from opcost.power.trace import PowerTrace, no_trace

INTERVAL_S = 0.1
"""Time between samples. RAPL's counters are updated every millisecond, which is an error of 1 % of this interval."""


class PolledMeter:
    """Asks for rows from ``start`` to ``stop``; ``log_path`` gets them (``power.log_rows``)."""

    def __init__(self, log_path: Path | None) -> None:
        self._log_path = log_path
        self._rows: list[PowerRow] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def _start(self, sample: Callable[[], PowerRow], name: str) -> None:
        self._stopping.clear()
        self._rows = []
        self._thread = threading.Thread(target=self._run, args=(sample,), name=name, daemon=True)
        self._thread.start()

    def _end(self) -> None:
        """End the thread and write the rows; this waits for the last sample, up to ``INTERVAL_S``."""
        if self._thread is not None:
            self._stopping.set()
            self._thread.join()
            if self._log_path is not None:
                self._log_path.parent.mkdir(parents=True, exist_ok=True)
                lines = [",".join(COLUMNS), *map(csv_line, self._rows)]
                self._log_path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _trace(self, source: PowerSource, missing_reason: str | None) -> PowerTrace:
        rows = list(self._rows)
        power_w = column_of(rows, lambda row: row.power_average_w)
        log_name = None if self._log_path is None else self._log_path.name
        return trace_of_rows(source, rows, power_w, missing_reason, log_name)

    def _run(self, sample: Callable[[], PowerRow]) -> None:
        next_s = time.monotonic()
        stopping = False
        while not stopping:
            # This check precedes the sleep, so that the last sample covers a whole interval and is later than the stop.
            stopping = self._stopping.is_set()
            time.sleep(max(0.0, next_s - time.monotonic()))
            self._rows.append(sample())
            next_s = max(next_s, time.monotonic() - INTERVAL_S) + INTERVAL_S


class StateMeter(PolledMeter):
    """The state of a GPU during one measurement. Its power is that of its samples: a sensor counts once."""

    def __init__(self, gpu: Gpu, log_path: Path) -> None:
        super().__init__(log_path)
        self._gpu = gpu

    def start(self) -> None:
        self._start(self._gpu.state, "GPU state")

    def log(self) -> PowerTrace:
        trace = self._trace(PowerSource(f"{self._gpu.library} state", 0.0, 0.0), "the state has no power of its own")
        return replace(trace, power_w=np.full(len(trace.power_w), math.nan))

    def stop(self) -> PowerTrace:
        self._end()
        return self.log()


def column_of(rows: Sequence[PowerRow], value: Callable[[PowerRow], float | None]) -> FloatArray:
    """Return a value of each row, NaN where it is unknown; shape (n,)."""
    values = (value(row) for row in rows)
    return np.array([math.nan if number is None else float(number) for number in values], dtype=np.float64)


def trace_of_rows(
    source: PowerSource, rows: Sequence[PowerRow], power_w: FloatArray, missing_reason: str | None, log_name: str | None
) -> PowerTrace:
    """Return the trace of a log with the state of a GPU; ``power_w`` has shape (n,), one power for each row."""
    return PowerTrace(
        source=source,
        epoch_s=column_of(rows, lambda row: row.epoch_s),
        power_w=power_w,
        temperature_c=column_of(rows, lambda row: row.temperature_c),
        memory_temperature_c=column_of(rows, lambda row: row.memory_temperature_c),
        sm_clock_hz=column_of(rows, lambda row: row.sm_clock_hz),
        power_capped=column_of(rows, lambda row: is_power_capped(row.event_reasons)),
        thermal_slowdown=column_of(rows, lambda row: is_thermal_slowdown(row.event_reasons)),
        busy_ratio=column_of(rows, lambda row: row.utilisation_ratio),
        missing_reason=missing_reason,
        log_name=log_name,
    )


# The power fields of nvidia-smi as meters

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
