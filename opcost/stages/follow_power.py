"""Follow a program: log its devices while it runs, and give the energy of the run and of the parts that it marks."""

from __future__ import annotations

import logging
import math
import os
import shutil
import signal
import subprocess
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import TextIO, TypeVar

from opcost.errors import UserError
from opcost.metering.window_energy import EnergySource, WindowResult, result_of
from opcost.meters.energy import CPU, open_sources
from opcost.meters.gpus import open_log
from opcost.meters.host import HostState, SystemClock
from opcost.power.log_rows import FOLLOWED_COLUMNS, HostRow, PowerRow, followed_line, power_of
from opcost.power.ports import ClockReading, GpuError, GpuLog
from opcost.running.marks import MARKS_FILE, Mark, Marks
from opcost.storage.files import held_folder
from opcost.units import percent, printable, significant, watts

Answer = TypeVar("Answer")

INTERVAL_S = 1.0
POLL_S = 0.1
"""How soon the end of a process that is no child is seen."""

LONGEST_REASON = 200

ENDING = (signal.SIGINT, signal.SIGTERM)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that programs have a meaning of their own for, such as Slurm's before the end of a job's time."""

SETTLED_AFTER_S = 1.5
"""Time after a part's end from which its readings have come by themselves."""


@dataclass(frozen=True)
class Target:
    """The program that is followed: a command that is started, or a process that runs."""

    command: tuple[str, ...] = ()
    pid: int | None = None

    def __str__(self) -> str:
        return " ".join(self.command) if self.command else f"process {self.pid}"


@dataclass(frozen=True)
class FollowReport:
    """A program that has ended, by its end or perhaps by SIGINT or SIGTERM: the energy of the run and of its parts."""

    file: str
    followed: str
    exit_status: int | None
    rows: int
    run: WindowResult
    parts: tuple[WindowResult, ...]
    is_interrupted: bool = False


@dataclass
class Followers:
    """The readings that come while a program runs, and where they are written."""

    gpus: Mapping[str, GpuLog]
    file: TextIO
    marks: Path
    show: Callable[[str], None]
    host: HostState = field(default_factory=HostState)
    rows: int = 0
    latest: dict[str, PowerRow] = field(default_factory=dict)

    def write(self, marks: Sequence[Mark]) -> None:
        state = self.host.read()
        # Each GPU is read as the rows of the one before are written: one that cannot be read loses no rows of others.
        new = ((device, row) for device, log in self.gpus.items() for row in log.read())
        now_s = SystemClock().read().epoch_s
        of_cpu = () if self.gpus else ((CPU, PowerRow(now_s, power_average_w=state.cpu_power_w)),)
        try:
            for device, row in chain(of_cpu, new):
                label = next((mark.label for mark in reversed(marks) if mark.epoch_s <= row.epoch_s), "")
                self.file.write(followed_line(row, device, state, label) + "\n")
                self.latest[device] = row
                self.rows += 1
            self.file.flush()
        except OSError:
            # The rest of its buffer would raise again as the file is closed.
            with suppress(OSError):
                self.file.close()
            raise
        self.show(live_line(self.latest, state, marks[-1].label if marks else ""))


class Attempts:
    """The steps of following a program. A step that fails ends itself, with one line, and never the program."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._reported: set[str] = set()

    def attempt(self, what: str, step: Callable[[], Answer]) -> Answer | None:
        if what in self._ended:
            return None
        try:
            return step()
        except Exception as error:
            self._ended.add(what)
            self.report(f"{what} ends: {printable(getattr(error, 'strerror', None) or repr(error))[:LONGEST_REASON]}")
            return None

    def report(self, line: str) -> None:
        if line not in self._reported:
            self._reported.add(line)
            logging.getLogger(__name__).warning("%s; the program runs on", line)


def live_line(rows: Mapping[str, PowerRow], host: HostRow, mark: str) -> str:
    """Return the present state of all devices in one line; what is unknown is left out."""
    parts = []
    for device, row in rows.items():
        power_w = power_of(row)
        known = [
            *([watts(power_w)] if power_w is not None else []),
            *([percent(row.utilisation_ratio, 0)] if row.utilisation_ratio is not None else []),
            *([f"{significant(row.sm_clock_hz * 1e-6)} MHz"] if row.sm_clock_hz is not None else []),
            *([f"{row.temperature_c:.0f} °C"] if row.temperature_c is not None else []),
            *([f"{row.memory_used_bytes / 1e9:.1f} GB"] if row.memory_used_bytes is not None else []),
        ]
        parts += [f"{device} {' '.join(known)}"] if known else []
    load = [] if host.cpu_load_ratio is None else [f"CPU {percent(host.cpu_load_ratio, 0)}"]
    return "  ".join([*parts, *load, *([mark] if mark else [])])


def follow(
    target: Target, devices: Sequence[str] | None, path: Path, interval_s: float | None, show: Callable[[str], None]
) -> FollowReport:
    """Follow a program until it ends, or until Ctrl-C where it is no child; write rows to a new CSV file.

    Devices are names of GPUs, ``cpu``, ``dram``; None for all that have a meter. ``show`` gets the present state as a
    line once an interval, which is 1 s if None. Raises UserError: the command or process is not there, or a named
    device has no meter.
    """
    # Before meters are opened and files are made.
    if target.command and shutil.which(target.command[0]) is None:
        raise UserError(f"{target.command[0]}: no such program; check the command after --")
    if target.pid is not None and not is_running(target.pid):
        raise UserError(f"--pid {target.pid}: there is no such process")
    interval_s = interval_s or INTERVAL_S
    with ExitStack() as stack:
        sources = open_sources(devices)
        for source in sources:
            stack.callback(source.close)
        marks = stack.enter_context(held_folder("opcost-marks-")) / "marks"
        marks.touch()
        logs = {}
        for source in sources:
            # Where clocks, load and memory of a GPU are not logged, its energy is metered all the same.
            with suppress(GpuError):
                if source.uuid is not None:
                    logs[source.device] = open_log(source.uuid, path.parent, interval_s, stack)
        file = stack.enter_context(path.open("x", encoding="utf-8", buffering=1))
        file.write(",".join(FOLLOWED_COLUMNS) + "\n")
        return _followed(target, sources, Followers(logs, file, marks, show), path, interval_s)


def _followed(
    target: Target, sources: Sequence[EnergySource], followers: Followers, path: Path, interval_s: float
) -> FollowReport:
    clock, parts, attempts = SystemClock(), Parts(sources), Attempts()
    marks = Marks(followers.marks, attempts.report)

    def read_all() -> None:
        for source in sources:
            source.edge()

    read_all()
    begin = end = clock.read()
    with _running(target, followers.marks) as wait:
        status = None
        while status is None and not wait.stopping.is_set():
            status = wait.until_end(interval_s)
            end = clock.read()
            attempts.attempt("metering", read_all)
            found = attempts.attempt("reading of marks", marks.read) or []
            attempts.attempt(f"the log {path}", partial(followers.write, found))
            attempts.attempt("metering of parts", partial(parts.settle, found, end.epoch_s - SETTLED_AFTER_S))
    attempts.attempt("reading of marks", partial(marks.read, has_ended=True))
    found = [*(mark for mark in marks.found if mark.epoch_s < end.epoch_s), Mark(end.epoch_s, "")]
    attempts.attempt("metering of parts", partial(parts.settle, found, end.epoch_s))
    attempts.attempt("the shown line", partial(followers.show, ""))
    run = attempts.attempt("metering", partial(result_of, sources, "run", begin, end))
    run = run or WindowResult("run", begin.epoch_s, end.monotonic_s - begin.monotonic_s, ())
    return FollowReport(
        file=str(path),
        followed=str(target),
        exit_status=status if target.command else None,
        rows=followers.rows,
        run=run,
        parts=tuple(parts.results),
        is_interrupted=wait.is_interrupted,
    )


class Parts:
    """The parts of a run from mark to mark, whose energy is calculated while the program runs."""

    def __init__(self, sources: Sequence[EnergySource]) -> None:
        self.results: list[WindowResult] = []
        self._sources, self._ended_s = sources, -math.inf

    def settle(self, marks: Sequence[Mark], before_s: float) -> None:
        """Calculate the parts between ``marks`` that ended before an epoch in s, by the wall clock, as marks are."""
        first = max(bisect_right(marks, self._ended_s, key=lambda mark: mark.epoch_s) - 1, 0)
        for mark, following in pairwise(marks[first:]):
            if following.epoch_s > before_s:
                break
            end = ClockReading(following.epoch_s - mark.epoch_s, following.epoch_s)
            self.results.append(result_of(self._sources, mark.label, ClockReading(0.0, mark.epoch_s), end))
            self._ended_s = following.epoch_s


class Waiting:
    """Waits for the end of a program; ``stopping`` once Ctrl-C ends the following of a process that is no child."""

    def __init__(self, process: subprocess.Popen[bytes] | None, pid: int) -> None:
        self.is_interrupted = False
        self._process, self._pid = process, pid
        self.stopping = threading.Event()

    def interrupt(self, number: int, _: object) -> None:
        """Pass a signal on to a command, which a terminal has sent SIGINT itself; end the following of a process."""
        self.is_interrupted |= number in ENDING
        if self._process is None:
            self.stopping.set()
        elif number != signal.SIGINT or not os.isatty(0):
            with suppress(OSError):
                self._process.send_signal(number)

    def until_end(self, longest_s: float) -> int | None:
        """Return the exit status as a shell gives it, None if the program runs on after some time."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                status = self._process.wait(longest_s)
                return 128 - status if status < 0 else status
            return None
        for _ in range(max(1, round(longest_s / POLL_S))):
            if not is_running(self._pid):
                return 0
            if self.stopping.wait(POLL_S):
                return None
        return None


@contextmanager
def _running(target: Target, marks: Path) -> Iterator[Waiting]:
    process = None
    if target.command:
        try:
            process = subprocess.Popen(target.command, env={**os.environ, MARKS_FILE: str(marks)})
        except OSError as error:
            raise UserError(f"{target.command[0]}: cannot be run ({error.strerror}); check the command") from error
    waiting = Waiting(process, target.pid or 0)
    passed_on = (*ENDING, *(PASSED_ON if target.command else ()))
    former = {number: signal.signal(number, waiting.interrupt) for number in passed_on}
    try:
        yield waiting
    finally:
        # The program goes on to its end and gets its signals until then, though something failed here.
        if process is not None:
            process.wait()
        for number, handler in former.items():
            signal.signal(number, handler)


def is_running(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except PermissionError:
        return True
    except (OSError, IndexError, OverflowError):
        return False
    return state not in ("Z", "X")
