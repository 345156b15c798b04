"""Meters for which a thread asks for a row again and again, for one measurement; the trace of such rows."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from opcost.estimates import FloatArray
from opcost.power.log_rows import COLUMNS, PowerRow, csv_line, is_power_capped, is_thermal_slowdown
from opcost.power.ports import Gpu, PowerSource
from opcost.power.trace import PowerTrace

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
