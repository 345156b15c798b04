"""Progress with the time left: a bar on a terminal; in a log file plain lines, at most one in ``PLAIN_INTERVAL_S``."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from rich import progress as rich_progress
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from opcost.progress import SHOWN, Progress
from opcost.reporting.tables import LOG_WIDTH, NEW_LINE, shortened, wrapped
from opcost.units import duration

PLAIN_INTERVAL_S = 0.3
"""Shortest time between two lines in a log file: all results of usual protocols are shown, few of very fast ones."""

FULL_BAR, SHORT_BAR = 30, 10
"""Widths of the bar, on terminals of at least ``WIDE`` columns and on others."""

WIDE = 100

SHORTEST_NAME = 12
"""Columns that a shortened name has at least."""

DAMPING_ITEMS = 3
"""The weight of expected times against finished items, in items: the times of single items are less well known than
those of a whole campaign (``docs/accuracy.md``)."""


def progress_on_stderr() -> LoggedProgress:
    """Return a bar if stderr is a terminal, else plain lines; both are also logged."""
    return LoggedProgress(BarProgress(Console(stderr=True)) if sys.stderr.isatty() else PlainProgress(sys.stderr))


class TimeLeft:
    """Estimates the time left: the expected times of the items left, scaled by what the finished ones have taken.

    The scale is damped as if ``DAMPING_ITEMS`` items had taken just that; unknown times count as equal.
    """

    def __init__(self, items: int, expected_s: Sequence[float] = (), now: Callable[[], float] = time.monotonic) -> None:
        self.items = items
        self.finished = 0
        self._is_known = bool(expected_s)
        self._expected_s = expected_s or (1.0,) * items
        self._now = now
        self._begin_s = now()

    def seconds(self) -> float | None:
        """Return the time left in s, None if it is unknown."""
        if not (self._is_known or self.finished):
            return None
        whole_s, finished_s = sum(self._expected_s), sum(self._expected_s[: self.finished])
        if not self.finished or not whole_s:
            return whole_s - finished_s
        damping_s = DAMPING_ITEMS * whole_s / self.items if self._is_known else 0.0
        elapsed_s = self._now() - self._begin_s
        return (whole_s - finished_s) * (elapsed_s + damping_s) / (finished_s + damping_s)

    def text(self) -> str:
        """Return the time left as text: ``3 min 20 s left``; empty if it is unknown or 0."""
        left_s = self.seconds()
        return "" if not left_s else f"{duration(left_s)} left"


class LoggedProgress(Progress):
    """Logs each item and each result, and passes them to the shown progress."""

    def __init__(self, shown: Progress) -> None:
        self.shown = shown
        self._log = logging.getLogger(__name__)
        self._name = ""

    def start(self, items: int, expected_s: Sequence[float] = (), workers: int = 1) -> None:
        self.shown.start(items, expected_s, workers)

    def begin(self, name: str, worker: str = "") -> None:
        self._name = name
        self._log.info("next: %s", name)
        self.shown.begin(name, worker)

    def finish(self, result: str, worker: str = "") -> None:
        self._log.info("%s: %s", self._name, result, extra={SHOWN: True})
        self.shown.finish(result, worker)

    def fail(self, reason: str, worker: str = "") -> None:
        self._log.info("%s: failed: %s", self._name, reason, extra={SHOWN: True})
        self.shown.fail(reason, worker)

    def end(self) -> None:
        self.shown.end()


class PlainProgress(Progress):
    """Progress as plain lines, at most one per ``PLAIN_INTERVAL_S``, and always the first and the last."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now = now
        self._time_left = TimeLeft(0, now=now)
        self._name = ""
        self._last_line_s: float | None = None

    def start(self, items: int, expected_s: Sequence[float] = (), workers: int = 1) -> None:
        self._time_left = TimeLeft(items, expected_s, self._now)
        self._last_line_s = None

    def begin(self, name: str, worker: str = "") -> None:
        self._name = name

    def finish(self, result: str, worker: str = "") -> None:
        is_last = self._time_left.finished + 1 == self._time_left.items
        is_due = self._last_line_s is None or self._now() - self._last_line_s >= PLAIN_INTERVAL_S
        self._count(result, is_shown=is_last or is_due)

    def fail(self, reason: str, worker: str = "") -> None:
        self._count(f"failed: {reason}", is_shown=True)

    def _count(self, result: str, is_shown: bool) -> None:
        self._time_left.finished += 1
        if is_shown:
            before = f"[{self._time_left.finished}/{self._time_left.items}] "
            first, new_line, further = result.partition(NEW_LINE)
            shown = first + f"  {self._time_left.text()}".rstrip() + new_line + further
            line = _result_line(before, self._name, shown, int(os.environ.get("COLUMNS") or LOG_WIDTH))
            print(line, file=self._stream, flush=True)
            self._last_line_s = self._now()


class BarProgress(Progress):
    """Progress as a bar with the name of the running item, below a line for each result.

    It is redrawn only on changes: a thread would take Python's time from the measurement.
    """

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._bar_width = FULL_BAR if console.width >= WIDE else SHORT_BAR
        self._bar = rich_progress.Progress(
            rich_progress.MofNCompleteColumn(),
            rich_progress.BarColumn(self._bar_width),
            rich_progress.TextColumn("{task.fields[left]}"),
            rich_progress.TextColumn("{task.description}", markup=False),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._task: rich_progress.TaskID | None = None
        self._time_left = TimeLeft(0, now=now)
        self._name = ""

    def start(self, items: int, expected_s: Sequence[float] = (), workers: int = 1) -> None:
        self._time_left = TimeLeft(items, expected_s, self._now)
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        if items:
            self._task = self._bar.add_task("", total=items, left=self._time_left.text())
            self._bar.start()

    def begin(self, name: str, worker: str = "") -> None:
        self._name = name
        self._redraw()

    def finish(self, result: str, worker: str = "") -> None:
        self._time_left.finished += 1
        width = self._bar.console.width
        shown = _result_line("", self._name, result, width).split(NEW_LINE)
        lines = [line for one in shown for line in wrapped(one, width, hanging=4)]
        self._bar.console.print(Text("\n".join(lines)), soft_wrap=True)
        self._redraw()

    def _redraw(self) -> None:
        if self._task is not None:
            left, number = self._time_left.text(), str(self._time_left.items)
            room = self._bar.console.width - 2 * len(number) - 1 - self._bar_width - len(left) - 3
            name = shortened(self._name, room) if room >= SHORTEST_NAME else ""
            self._bar.update(self._task, completed=self._time_left.finished, description=name, left=left, refresh=True)

    def fail(self, reason: str, worker: str = "") -> None:
        self.finish(f"failed: {reason}", worker)

    def end(self) -> None:
        self._bar.stop()


def _result_line(before: str, name: str, result: str, width: int) -> str:
    """Return a line with a name that is shortened so that the line fits, and with the whole result.

    Further lines of a result, such as the frames of an error, stay below it.
    """
    room = width - len(before) - cell_len(f": {result.partition(NEW_LINE)[0]}")
    return f"{before}{shortened(name, max(room, SHORTEST_NAME))}: {result}"
