"""A long-running nvidia-smi that logs a GPU, and followers that read its rows as they arrive.

The raw log is an unnamed temporary file, which vanishes with the program. It is no pipe, so that nothing has to be read
during a measurement and nvidia-smi never blocks.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO

from opcost.meters.nvidia_smi import (
    POLL_INTERVAL_S,
    NvidiaSmiError,
    end_process,
    quote,
    start_process,
    supported_fields,
)
from opcost.meters.nvidia_smi_log import LogRow, is_header, parse_columns, parse_log, parse_row
from opcost.power.log_rows import PowerRow

INTERVAL_S = 0.02
"""A fifth of the update period of 0.1 s (H200), so that no value is missed at little cost."""

START_DEADLINE_S = 30.0
TAIL_BYTES = 4096
"""About 40 rows, including the row before a measurement; also the size of a block-buffered nvidia-smi's buffer."""

LAST_ROW_DEADLINE_S = 2.0
"""The longest delay of a row. Driver 580 writes each row at once; a buffer of 4 kB fills in about a second."""

BATCH_INTERVAL_S = 0.2


class NvidiaSmiLogger:
    """Logs one GPU from ``__enter__`` to ``__exit__``, for one measurement at a time.

    Args:
        gpu: UUID, or nvidia-smi's own index.
        logs_directory: an existing or new folder; the unnamed raw log takes space there (16 MB an hour).
        interval_s: time between two rows, at least 0.001.
        start_deadline_s: longest time to the first row.
    """

    def __init__(
        self,
        gpu: str,
        logs_directory: Path,
        interval_s: float = INTERVAL_S,
        start_deadline_s: float = START_DEADLINE_S,
    ) -> None:
        self.logs_directory = logs_directory
        self._gpu = gpu
        self._interval_s = interval_s
        self._start_deadline_s = start_deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._raw: IO[bytes] | None = None
        self._header = ""
        self._rows_offset = 0

    def __enter__(self) -> NvidiaSmiLogger:
        """Start logging and return when the first row has arrived.

        Raises NvidiaSmiError: nvidia-smi is missing, reports an error, or prints no row in time.
        """
        self.logs_directory.mkdir(parents=True, exist_ok=True)
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def process_id(self) -> int | None:
        """The process id of the running nvidia-smi, if there is one."""
        return None if self._process is None else self._process.pid

    def is_running(self) -> bool:
        """Return whether the nvidia-smi process exists; it may still print nothing."""
        return self._process is not None and self._process.poll() is None

    def ensure_running(self) -> None:
        """Start nvidia-smi again if it has ended. Raises NvidiaSmiError: it does not start."""
        if not self.is_running():
            self.end()
            self._start()

    def end(self) -> None:
        """End nvidia-smi and delete its log."""
        if self._process is not None:
            end_process(self._process)
        if self._raw is not None:
            self._raw.close()
        self._process = self._raw = None

    def follow(self) -> LogFollower:
        """Return a reader of the rows from shortly before now."""
        tail_begin = self._size() - TAIL_BYTES
        return LogFollower(self, max(self._rows_offset, tail_begin))

    def follow_from_begin(self) -> LogFollower:
        """Return a reader of all rows since nvidia-smi's start."""
        return LogFollower(self, self._rows_offset)

    @property
    def header(self) -> str:
        return self._header

    @property
    def rows_offset(self) -> int:
        return self._rows_offset

    def read(self, offset: int) -> bytes:
        """Return the raw log from an offset; empty after the logger has ended."""
        return b"" if self._raw is None else os.pread(self._raw.fileno(), max(0, self._size() - offset), offset)

    def last_line(self) -> str:
        """Return the last line of the raw log, shortened: nvidia-smi's error message if it failed."""
        return quote(self.read(max(0, self._size() - TAIL_BYTES)).decode("utf-8", errors="replace"))

    def _size(self) -> int:
        return 0 if self._raw is None else os.fstat(self._raw.fileno()).st_size

    def _start(self) -> None:
        fields = supported_fields(self._gpu, self._start_deadline_s)
        milliseconds = max(1, round(self._interval_s * 1e3))
        arguments = ["-i", self._gpu, f"--query-gpu={','.join(fields)}", "--format=csv,nounits", f"-lms={milliseconds}"]
        self._raw = tempfile.TemporaryFile(dir=self.logs_directory)  # noqa: SIM115 (end() closes it)
        try:
            self._process = start_process(arguments, self._raw)
            self._await_first_row()
        except BaseException:
            self.end()
            raise

    def _await_first_row(self) -> None:
        end_s = time.monotonic() + self._start_deadline_s
        while not self._has_row():
            if not self.is_running():
                raise NvidiaSmiError(
                    f"nvidia-smi ended at once and printed: {self.last_line()}: run `nvidia-smi` in a shell"
                )
            if time.monotonic() > end_s:
                raise NvidiaSmiError(
                    f"nvidia-smi printed no row within {self._start_deadline_s:g} s: run `nvidia-smi` in a shell; "
                    "if it hangs there, too, restart the machine, because the driver hangs"
                )
            time.sleep(POLL_INTERVAL_S)

    def _has_row(self) -> bool:
        """Return whether header and first row have arrived; store the offset of the first row."""
        complete = self.read(0).rpartition(b"\n")[0]
        lines = complete.split(b"\n")
        for index, line in enumerate(lines):
            text = line.decode("utf-8", errors="replace")
            if is_header(text):
                self._header = text.rstrip("\r")
                self._rows_offset = sum(len(earlier) + 1 for earlier in lines[: index + 1])
                columns = parse_columns(self._header)
                later = (row.decode("utf-8", errors="replace") for row in lines[index + 1 :])
                return any(parse_row(columns, row.rstrip("\r")) is not None for row in later)
        return False


class LogFollower:
    """Reads a log from an offset; ``skipped_lines`` counts the lines so far that were no rows."""

    def __init__(self, logger: NvidiaSmiLogger, offset: int) -> None:
        self.skipped_lines = 0
        self._logger = logger
        self._offset = offset
        # If the offset is in the middle of a line, that line is skipped.
        self._at_line_begin = offset == logger.rows_offset

    def read(self) -> tuple[LogRow, ...]:
        """Return the complete rows that have arrived since the last call."""
        complete, newline, _ = self._logger.read(self._offset).rpartition(b"\n")
        if not newline:
            return ()
        self._offset += len(complete) + 1
        lines = complete.decode("utf-8", errors="replace").split("\n")
        if not self._at_line_begin:
            lines, self._at_line_begin = lines[1:], True
        parsed = parse_log([self._logger.header, *lines])
        self.skipped_lines += parsed.skipped_lines
        return parsed.rows

    def read_until(self, epoch_s: float, deadline_s: float) -> tuple[LogRow, ...]:
        """Read until a row later than a moment has arrived, the deadline has passed, or nvidia-smi has ended.

        Rows may be late, because nvidia-smi may buffer about 4 kB.
        """
        end_s = time.monotonic() + deadline_s
        rows: list[LogRow] = []
        while True:
            # This check precedes the read, so that the last rows of a process that ended are read.
            may_come = self._logger.is_running() and time.monotonic() < end_s
            new_rows = self.read()
            rows.extend(new_rows)
            if not may_come or any(row.values.epoch_s > epoch_s for row in new_rows):
                return tuple(rows)
            time.sleep(POLL_INTERVAL_S)


def log_batches(
    gpu: str, folder: Path, interval_s: float, stopping: threading.Event
) -> Generator[tuple[PowerRow, ...], None, None]:
    """Log a GPU until ``stopping`` is set; yield its rows as they arrive, and those that arrive after the stop.

    Raises NvidiaSmiError: nvidia-smi does not start, or has ended before the stop.
    """
    with NvidiaSmiLogger(gpu, folder, interval_s) as logger:
        follower = logger.follow_from_begin()
        while not stopping.wait(BATCH_INTERVAL_S):
            is_running = logger.is_running()
            yield tuple(row.values for row in follower.read())
            if not is_running:
                raise NvidiaSmiError(f"nvidia-smi has ended; its last line: {logger.last_line()}")
        yield tuple(row.values for row in follower.read_until(time.time(), LAST_ROW_DEADLINE_S))
