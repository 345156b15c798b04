"""nvidia-smi: facts of a GPU, a long-running log of it, and its rows in SI units as they arrive. No numpy is needed.

A driver that hangs also hangs nvidia-smi, so that no signal can end it. All waits have a deadline: a process that does
not end in time is killed, and abandoned if it survives that.

The raw log is an unnamed temporary file, which vanishes with the program. It is no pipe, so that nothing has to be read
during a measurement and nvidia-smi never blocks.

Parsing never raises. Drivers rename headers, have many words for "no value", print errors between rows and lose parts
of lines. Columns are therefore found by name, numbers must match one strict pattern, and all other lines are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import IO

from opcost.power.log_rows import PowerRow
from opcost.power.ports import DeviceFacts, GpuError

INSTANT, AVERAGE = "nvidia-smi power.draw.instant", "nvidia-smi power.draw"
"""Names of the meters in rows."""

MIG_REASON = "MIG is on: the power of one instance cannot be measured"

COMMAND_DEADLINE_S = 30.0
"""The longest time for an answer. Without persistence mode a driver takes several seconds to wake each GPU."""

TERMINATE_DEADLINE_S = 1.0
KILL_DEADLINE_S = 2.0
POLL_INTERVAL_S = 0.01

INTERVAL_S = 0.02
"""Of the log: a fifth of the update period of 0.1 s (H200), so that no value is missed at little cost."""

TAIL_BYTES = 4096
"""About 40 rows, including the row before a measurement; also the size of a block-buffered nvidia-smi's buffer."""

LAST_ROW_DEADLINE_S = 2.0
"""The longest delay of a row. Driver 580 writes each row at once; a buffer of 4 kB fills in about a second."""

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

_NUMBER = re.compile(r"([+-]?[0-9]{1,15}(?:[.,][0-9]{1,15})?)(?:\s*(?:W|%|MHz|MiB|C))?")
_BITS = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_TIMESTAMP = re.compile(r"([0-9]{4})/([0-9]{1,2})/([0-9]{1,2}) ([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,6}))?")

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


def gpu_facts(uuid_or_index: str, deadline_s: float = COMMAND_DEADLINE_S) -> DeviceFacts:
    """Return the facts of a GPU (index: of the PCI bus), memory 0 if unknown. Raises GpuError: none answers."""
    fields, output = _query_known(uuid_or_index, FACT_FIELDS, deadline_s)
    for header, row in pairwise(line for line in output.splitlines() if line.strip()):
        columns = parse_columns(header)
        cells = columns.cells(row) if columns.names == fields else None
        if cells is not None and cells["uuid"].startswith("GPU-"):
            return DeviceFacts(
                uuid=cells["uuid"],
                product=cells["name"],
                memory_bytes=round((parse_number(cells["memory.total"]) or 0.0) * 2**20),
                power_limit_w=parse_number(cells["power.limit"]),
                driver_version=cells["driver_version"],
                no_energy_reason=MIG_REASON if cells.get("mig.mode.current", "").casefold() == "enabled" else None,
            )
    raise _refusal(uuid_or_index, output)


def supported_fields(uuid_or_index: str, deadline_s: float = COMMAND_DEADLINE_S) -> tuple[str, ...]:
    """Return ``LOG_FIELDS`` that this driver knows, or their older names. Raises GpuError: see ``gpu_facts``."""
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
                raise GpuError(
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


def _refusal(uuid_or_index: str, output: str) -> GpuError:
    return GpuError(f"nvidia-smi -i {uuid_or_index} printed: {_quote(output)}: `nvidia-smi -L` lists all GPUs")


def _quote(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing"


def start_process(arguments: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start nvidia-smi in its own session with stdout and stderr in a file; it ends with its parent.

    Its timestamps are in UTC. On Linux its parent is the calling thread, which must live as long as the process is
    needed. Raises GpuError: nvidia-smi is not on the PATH.
    """
    executable = shutil.which("nvidia-smi")
    if executable is None:
        raise GpuError("nvidia-smi was not found: install the NVIDIA driver, or add nvidia-smi's folder to PATH")
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
        start_deadline_s: float = COMMAND_DEADLINE_S,
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
        """Return when a row is there. Raises GpuError: nvidia-smi is missing, fails, or prints no row in time."""
        self.logs_directory.mkdir(parents=True, exist_ok=True)
        self.ensure_running()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def is_running(self) -> bool:
        """Return whether the nvidia-smi process exists; it may still print nothing."""
        return self._process is not None and self._process.poll() is None

    def ensure_running(self) -> None:
        """Start nvidia-smi again if it has ended. Raises GpuError: it does not start."""
        if self.is_running():
            return
        self.end()
        fields = supported_fields(self._gpu, self._start_deadline_s)
        milliseconds = max(1, round(self._interval_s * 1e3))
        arguments = ["-i", self._gpu, f"--query-gpu={','.join(fields)}", "--format=csv,nounits", f"-lms={milliseconds}"]
        self._raw = tempfile.TemporaryFile(dir=self.logs_directory)  # noqa: SIM115 (end() closes it)
        try:
            self._process = start_process(arguments, self._raw)
            end_s = time.monotonic() + self._start_deadline_s
            while not self._has_row():
                if not self.is_running():
                    raise GpuError(
                        f"nvidia-smi ended at once and printed: {self.last_line()}: run `nvidia-smi` in a shell"
                    )
                if time.monotonic() > end_s:
                    raise GpuError(
                        f"nvidia-smi printed no row within {self._start_deadline_s:g} s: run `nvidia-smi` in a shell; "
                        "if it hangs there, too, restart the machine, because the driver hangs"
                    )
                time.sleep(POLL_INTERVAL_S)
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

    def content(self, offset: int) -> bytes:
        """Return the raw log from an offset; empty after the logger has ended."""
        return b"" if self._raw is None else os.pread(self._raw.fileno(), max(0, self._size() - offset), offset)

    def last_line(self) -> str:
        """Return the last line of the raw log, shortened: nvidia-smi's error message if it failed."""
        return _quote(self.content(max(0, self._size() - TAIL_BYTES)).decode("utf-8", errors="replace"))

    def _size(self) -> int:
        return 0 if self._raw is None else os.fstat(self._raw.fileno()).st_size

    def _has_row(self) -> bool:
        complete = self.content(0).rpartition(b"\n")[0].split(b"\n")
        lines = [line.decode("utf-8", errors="replace").rstrip("\r") for line in complete]
        found = next((index for index, line in enumerate(lines) if is_header(line)), None)
        if found is None:
            return False
        self.header = lines[found]
        self.rows_offset = sum(len(line) + 1 for line in complete[: found + 1])
        return bool(parse_log(lines[found:]))


class LogFollower:
    """Reads a log from an offset."""

    def __init__(self, logger: NvidiaSmiLogger, offset: int) -> None:
        self._logger = logger
        self._offset = offset
        # If the offset is in the middle of a line, that line is skipped.
        self._at_line_begin = offset == logger.rows_offset

    def read(self) -> tuple[LogRow, ...]:
        complete, newline, _ = self._logger.content(self._offset).rpartition(b"\n")
        if not newline:
            return ()
        self._offset += len(complete) + 1
        lines = complete.decode("utf-8", errors="replace").split("\n")
        if not self._at_line_begin:
            lines, self._at_line_begin = lines[1:], True
        return parse_log([self._logger.header, *lines])

    def read_until(self, epoch_s: float, deadline_s: float) -> tuple[LogRow, ...]:
        """Read until a row is later than a moment, the deadline has passed, or nvidia-smi, which buffers, has ended."""
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


@dataclass(frozen=True)
class LogRow:
    """A well-formed row: its values, and the line as printed."""

    values: PowerRow
    line: str


@dataclass(frozen=True)
class Columns:
    """The columns of a log by name, without units, in the order of the header line."""

    names: tuple[str, ...]
    separator: str

    def cells(self, line: str) -> dict[str, str] | None:
        """Return a line's cells by column name; None if the numbers of cells and columns differ."""
        cells = [cell.strip() for cell in line.split(self.separator)]
        return dict(zip(self.names, cells, strict=True)) if len(cells) == len(self.names) else None


def parse_number(text: str) -> float | None:
    """Return a cell's finite number, None for everything else. Decimal commas and units behind it are accepted."""
    match = _NUMBER.fullmatch(text.strip())
    return None if match is None else float(match[1].replace(",", "."))


def parse_timestamp(text: str) -> float | None:
    """Return the epoch seconds of ``2026/11/04 10:23:45.123`` in UTC, None for everything else."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    microsecond = int((match[7] or "0").ljust(6, "0"))
    try:
        return datetime(year, month, day, hour, minute, second, microsecond, tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def parse_columns(line: str) -> Columns:
    """Return the columns that a header line names, without units (``[W]``)."""
    separator = ", " if ", " in line else ","
    return Columns(tuple(cell.partition("[")[0].strip().casefold() for cell in line.split(separator)), separator)


def is_header(line: str) -> bool:
    return len(line.split(",")) > 1 and parse_columns(line).names[0] == "timestamp"


def parse_row(columns: Columns, line: str) -> LogRow | None:
    """Return the row of a line; None if it is cut, joined with another, or no row."""
    cells = columns.cells(line)
    epoch_s = None if cells is None else parse_timestamp(cells.get("timestamp", ""))
    if cells is None or epoch_s is None:
        return None

    def number(*names: str, unit: float = 1.0) -> float | None:
        numbers = (parse_number(cells.get(name, "")) for name in names)
        return next((found * unit for found in numbers if found is not None), None)

    utilisation_percent, memory_used_bytes = number("utilization.gpu"), number("memory.used", unit=2**20)
    reasons = (cells.get(f"clocks_{name}_reasons.active", "").strip() for name in ("event", "throttle"))
    values = PowerRow(
        epoch_s=epoch_s,
        power_instant_w=number("power.draw.instant"),
        power_average_w=number("power.draw.average", "power.draw"),
        utilisation_ratio=None if utilisation_percent is None else utilisation_percent / 100,
        sm_clock_hz=number("clocks.sm", "clocks.current.sm", unit=1e6),
        temperature_c=number("temperature.gpu"),
        memory_temperature_c=number("temperature.memory"),
        event_reasons=next((int(text, 16) for text in reasons if _BITS.fullmatch(text)), None),
        memory_used_bytes=None if memory_used_bytes is None else round(memory_used_bytes),
    )
    return LogRow(values, line)


def parse_log(lines: Iterable[str]) -> tuple[LogRow, ...]:
    """Return the rows of a log in its order; lines before the first header are skipped."""
    columns: Columns | None = None
    rows = []
    for line in (raw_line.rstrip("\r\n") for raw_line in lines):
        if columns is not None:
            rows.append(parse_row(columns, line))
        elif is_header(line):
            columns = parse_columns(line)
    return tuple(row for row in rows if row is not None)


def cut(rows: Sequence[LogRow], begin_s: float, end_s: float) -> tuple[LogRow, ...]:
    """Return the rows between two moments (epoch) and the rows right before and after, in order of time.

    The row before shows whether the first row repeats a value; the row after shows that the log did not end early. A
    row that is older than its predecessor is omitted.
    """
    inside: list[LogRow] = []
    for row in rows:
        newest_s = inside[-1].values.epoch_s if inside else begin_s
        if newest_s <= row.values.epoch_s <= end_s:
            inside.append(row)
    ordered = sorted(rows, key=lambda row: row.values.epoch_s)
    before = [row for row in ordered if row.values.epoch_s < begin_s][-1:]
    after = [row for row in ordered if row.values.epoch_s > end_s][:1]
    return (*before, *inside, *after)
