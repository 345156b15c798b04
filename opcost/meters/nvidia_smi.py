"""nvidia-smi: facts of a GPU, a long-running log of it, and followers that read the log's rows as they arrive.

A driver that hangs also hangs nvidia-smi, so that no signal can end it. All waits have a deadline: a process that does
not end in time is killed, and abandoned if it survives that.

The raw log is an unnamed temporary file, which vanishes with the program. It is no pipe, so that nothing has to be read
during a measurement and nvidia-smi never blocks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO

from opcost.measuring.conditions import DeviceFacts
from opcost.meters.nvidia_smi_log import (
    LogRow,
    is_header,
    parse_columns,
    parse_log,
    parse_number,
    parse_row,
    parse_text,
)
from opcost.power.log_rows import PowerRow

COMMAND_DEADLINE_S = 30.0
"""The longest time for an answer. Without persistence mode a driver takes several seconds to wake each GPU."""

TERMINATE_DEADLINE_S = 1.0
KILL_DEADLINE_S = 2.0
POLL_INTERVAL_S = 0.01

INTERVAL_S = 0.02
"""Of the log: a fifth of the update period of 0.1 s (H200), so that no value is missed at little cost."""

START_DEADLINE_S = 30.0
TAIL_BYTES = 4096
"""About 40 rows, including the row before a measurement; also the size of a block-buffered nvidia-smi's buffer."""

LAST_ROW_DEADLINE_S = 2.0
"""The longest delay of a row. Driver 580 writes each row at once; a buffer of 4 kB fills in about a second."""

BATCH_INTERVAL_S = 0.2

FACT_FIELDS = ("uuid", "name", "memory.total", "power.limit", "driver_version", "mig.mode.current")

LOG_FIELDS = (
    "timestamp",
    "power.draw.instant",
    "power.draw.average",
    "power.draw",
    "utilization.gpu",
    "clocks.sm",
    "temperature.gpu",
    "temperature.memory",
    "clocks_event_reasons.active",
    "memory.used",
    "pstate",
)
"""The fields to log. ``power.draw`` is queried besides its average because older cards report only the former."""

OLDER_NAMES = {"clocks_event_reasons.active": "clocks_throttle_reasons.active", "clocks.sm": "clocks.current.sm"}

# The child is killed with its parent; it sets this up and then becomes nvidia-smi. A fresh interpreter is safe in a
# process with threads (torch has many), subprocess's preexec_fn is not. 1 is PR_SET_PDEATHSIG of <sys/prctl.h>.
_LAUNCHER = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent process has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""
_REFUSED_FIELD = re.compile(r'Field "([^"]*)" is not a valid field')
_LONGEST_QUOTE = 200


class NvidiaSmiError(Exception):
    """nvidia-smi is missing, hangs or reports an error. The message is one line with the remedy."""


def gpu_facts(uuid_or_index: str, deadline_s: float = COMMAND_DEADLINE_S) -> DeviceFacts:
    """Return the properties of one GPU; memory of 0 is unknown. An index is in the order of the PCI bus, not CUDA's.

    Raises NvidiaSmiError: nvidia-smi is missing, did not answer in time, or knows no such GPU.
    """
    fields, output = _query_known(uuid_or_index, FACT_FIELDS, deadline_s)
    for header, row in pairwise(line for line in output.splitlines() if line.strip()):
        columns = parse_columns(header)
        cells = columns.cells(row) if columns.names == fields else None
        if cells is not None and parse_text(cells["uuid"]) is not None:
            return DeviceFacts(
                uuid=cells["uuid"],
                product=cells["name"],
                memory_bytes=round((parse_number(cells["memory.total"]) or 0.0) * 2**20),
                power_limit_w=parse_number(cells["power.limit"]),
                driver_version=cells["driver_version"],
                is_mig=cells.get("mig.mode.current", "").casefold() == "enabled",
            )
    raise _refusal(uuid_or_index, output)


def supported_fields(uuid_or_index: str, deadline_s: float = COMMAND_DEADLINE_S) -> tuple[str, ...]:
    """Return the fields of ``LOG_FIELDS`` that this driver knows, some by their older names.

    Raises NvidiaSmiError: see ``gpu_facts``.
    """
    fields, output = _query_known(uuid_or_index, LOG_FIELDS, deadline_s)
    if not any(line.startswith("timestamp") for line in output.splitlines()):
        raise _refusal(uuid_or_index, output)
    return fields


def _query_known(uuid_or_index: str, fields: tuple[str, ...], deadline_s: float) -> tuple[tuple[str, ...], str]:
    while True:
        arguments = ["-i", uuid_or_index, f"--query-gpu={','.join(fields)}", "--format=csv,nounits"]
        with tempfile.TemporaryFile() as file:
            process = start_process(arguments, file)
            try:
                in_time = _ends_within(process, deadline_s)
            finally:
                end_process(process)
            if not in_time:
                raise NvidiaSmiError(
                    f"nvidia-smi did not answer within {deadline_s:g} s: "
                    "run `nvidia-smi` in a shell; if it hangs there, too, restart the machine, because the driver hangs"
                )
            file.seek(0)
            output = file.read().decode("utf-8", errors="replace")
        refused = set(_REFUSED_FIELD.findall(output)) & set(fields)
        if not refused:
            return fields, output
        renamed = (OLDER_NAMES.get(field) if field in refused else field for field in fields)
        fields = tuple(field for field in renamed if field is not None)


def _refusal(uuid_or_index: str, output: str) -> NvidiaSmiError:
    return NvidiaSmiError(f"nvidia-smi -i {uuid_or_index} printed: {_quote(output)}: `nvidia-smi -L` lists all GPUs")


def _quote(output: str) -> str:
    """Return the last line of nvidia-smi's output, shortened."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:_LONGEST_QUOTE] if lines else "nothing"


def start_process(arguments: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start nvidia-smi in its own session with stdout and stderr in a file; it ends with its parent.

    Its timestamps are in UTC. On Linux its parent is the calling thread, which must live as long as the process is
    needed. Raises NvidiaSmiError: nvidia-smi is not on the PATH.
    """
    executable = shutil.which("nvidia-smi")
    if executable is None:
        raise NvidiaSmiError("nvidia-smi was not found: install the NVIDIA driver, or add nvidia-smi's folder to PATH")
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, "TZ": "UTC", "LC_ALL": "C"},
    )


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process: terminate it, then kill it, then abandon it."""
    if process.poll() is None:
        process.terminate()
        if not _ends_within(process, TERMINATE_DEADLINE_S):
            process.kill()
            _ends_within(process, KILL_DEADLINE_S)


def _ends_within(process: subprocess.Popen[bytes], deadline_s: float) -> bool:
    end_s = time.monotonic() + deadline_s
    while process.poll() is None:
        if time.monotonic() > end_s:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


class NvidiaSmiLogger:
    """Logs one GPU (UUID, or nvidia-smi's own index) from ``__enter__`` to ``__exit__``, for one measurement at a time.

    It has a row every ``interval_s``, at least 0.001. The unnamed raw log takes space in ``logs_directory``, 16 MB an
    hour. ``header`` is its header line, and ``rows_offset`` the place of the first row in it.
    """

    def __init__(
        self,
        gpu: str,
        logs_directory: Path,
        interval_s: float = INTERVAL_S,
        start_deadline_s: float = START_DEADLINE_S,
    ) -> None:
        self.logs_directory = logs_directory
        self.header = ""
        self.rows_offset = 0
        self._gpu = gpu
        self._interval_s = interval_s
        self._start_deadline_s = start_deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._raw: IO[bytes] | None = None

    def __enter__(self) -> NvidiaSmiLogger:
        """Start logging and return when the first row has arrived.

        Raises NvidiaSmiError: nvidia-smi is missing, reports an error, or prints no row in time.
        """
        self.logs_directory.mkdir(parents=True, exist_ok=True)
        self.ensure_running()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def is_running(self) -> bool:
        """Return whether the nvidia-smi process exists; it may still print nothing."""
        return self._process is not None and self._process.poll() is None

    def ensure_running(self) -> None:
        """Start nvidia-smi again if it has ended. Raises NvidiaSmiError: it does not start."""
        if self.is_running():
            return
        self.end()
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

    def end(self) -> None:
        if self._process is not None:
            end_process(self._process)
        if self._raw is not None:
            self._raw.close()
        self._process = self._raw = None

    def follow(self, from_begin: bool = False) -> LogFollower:
        """Return a reader of the rows from shortly before now, or of all rows since nvidia-smi's start."""
        return LogFollower(self, self.rows_offset if from_begin else max(self.rows_offset, self._size() - TAIL_BYTES))

    def read(self, offset: int) -> bytes:
        """Return the raw log from an offset; empty after the logger has ended."""
        return b"" if self._raw is None else os.pread(self._raw.fileno(), max(0, self._size() - offset), offset)

    def last_line(self) -> str:
        """Return the last line of the raw log, shortened: nvidia-smi's error message if it failed."""
        return _quote(self.read(max(0, self._size() - TAIL_BYTES)).decode("utf-8", errors="replace"))

    def _size(self) -> int:
        return 0 if self._raw is None else os.fstat(self._raw.fileno()).st_size

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
        complete = self.read(0).rpartition(b"\n")[0]
        lines = complete.split(b"\n")
        for index, line in enumerate(lines):
            text = line.decode("utf-8", errors="replace")
            if is_header(text):
                self.header = text.rstrip("\r")
                self.rows_offset = sum(len(earlier) + 1 for earlier in lines[: index + 1])
                columns = parse_columns(self.header)
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
        follower = logger.follow(from_begin=True)
        while not stopping.wait(BATCH_INTERVAL_S):
            is_running = logger.is_running()
            yield tuple(row.values for row in follower.read())
            if not is_running:
                raise NvidiaSmiError(f"nvidia-smi has ended; its last line: {logger.last_line()}")
        yield tuple(row.values for row in follower.read_until(time.time(), LAST_ROW_DEADLINE_S))
