"""Readings of NVML with their times, shared between threads and saved as the evidence of a measurement."""

from __future__ import annotations

import csv
import math
import threading
import time
from array import array
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from opcost.meters.nvml import NvmlError

CLOCK_SLACK_S = 1.0
"""The largest time of a row after now. A later row means that the clock was set back."""


class TimedRows:
    """Rows of epoch seconds and a value, oldest first, or the reason why there are none. Thread-safe."""

    def __init__(self) -> None:
        # Arrays, because a meter of a user's code may run for days: 3 MB an hour, and not 20.
        self._epoch_s, self._values = array("d"), array("d")
        self._failure: NvmlError | None = None
        self._lock = threading.Lock()

    def extend(self, rows: Iterable[tuple[float, float]]) -> None:
        """Add rows that are later than the present ones, and clear an earlier failure."""
        with self._lock:
            for epoch_s, value in rows:
                self._epoch_s.append(epoch_s)
                self._values.append(value)
            self._failure = None

    def fail(self, failure: NvmlError) -> None:
        """Store a failure, which ``since`` raises until rows are added."""
        with self._lock:
            self._failure = failure

    @property
    def newest_s(self) -> float:
        """The time of the last row, 0 if there is none."""
        with self._lock:
            return self._epoch_s[-1] if self._epoch_s else 0.0

    def since(self, begin_s: float) -> list[tuple[float, float]]:
        """Return the rows from a moment (epoch) until now. Raises NvmlError: the last attempt to read failed."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            return list(zip(*self._between(begin_s, math.inf), strict=True))

    def forget_before(self, epoch_s: float) -> None:
        """Drop the rows before a moment, and rows after now, which come from a clock that was set back."""
        latest_s = time.time() + CLOCK_SLACK_S
        with self._lock:
            kept_s, values = self._between(epoch_s, latest_s)
            self._epoch_s, self._values = array("d", kept_s), array("d", values)

    def _between(self, begin_s: float, end_s: float) -> tuple[list[float], list[float]]:
        epoch_s, values = np.array(self._epoch_s), np.array(self._values)
        inside = (epoch_s >= begin_s) & (epoch_s <= end_s)
        return epoch_s[inside].tolist(), values[inside].tolist()


def keep_rows(path: Path, columns: tuple[str, str], rows: Iterable[tuple[float, float]]) -> None:
    """Write rows as CSV: epoch seconds, and a value in the unit of its column."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        table.writerows((f"{epoch_s:.6f}", f"{value:.3f}") for epoch_s, value in rows)
