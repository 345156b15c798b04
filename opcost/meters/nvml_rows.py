"""Readings of NVML with their times, shared between threads and saved as the evidence of a measurement."""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from opcost.meters.nvml import NvmlError

CLOCK_SLACK_S = 1.0
"""The largest time of a row after now. A later row means that the clock was set back."""


class TimedRows:
    """Rows of epoch seconds and a value, oldest first, or the reason why there are none. Thread-safe."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, float]] = []
        self._failure: NvmlError | None = None
        self._lock = threading.Lock()

    def extend(self, rows: Iterable[tuple[float, float]]) -> None:
        """Add rows that are later than the present ones, and clear an earlier failure."""
        with self._lock:
            self._rows.extend(rows)
            self._failure = None

    def fail(self, failure: NvmlError) -> None:
        """Store a failure, which ``since`` raises until rows are added."""
        with self._lock:
            self._failure = failure

    @property
    def newest_s(self) -> float:
        """The time of the last row, 0 if there is none."""
        with self._lock:
            return self._rows[-1][0] if self._rows else 0.0

    def since(self, begin_s: float) -> list[tuple[float, float]]:
        """Return the rows from a moment (epoch) until now.

        Raises:
            NvmlError: the last attempt to read failed.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            return [row for row in self._rows if row[0] >= begin_s]

    def forget_before(self, epoch_s: float) -> None:
        """Drop the rows before a moment, and rows after now, which come from a clock that was set back."""
        latest_s = time.time() + CLOCK_SLACK_S
        with self._lock:
            self._rows = [row for row in self._rows if epoch_s <= row[0] <= latest_s]


def keep_rows(path: Path, columns: tuple[str, str], rows: Iterable[tuple[float, float]]) -> None:
    """Write rows as CSV: epoch seconds, and a value in the unit of its column."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        table.writerows((f"{epoch_s:.6f}", f"{value:.3f}") for epoch_s, value in rows)
