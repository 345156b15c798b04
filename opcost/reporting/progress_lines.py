"""Progress with the time left: a bar on a terminal; in a log file plain lines, at most one in ``PLAIN_INTERVAL_S``; for
programs lines of JSON."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from rich import progress as rich_progress
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from opcost.progress import SHOWN, Progress
from opcost.reporting.tables import LOG_WIDTH, NEW_LINE, is_quiet, shortened, wrapped
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


def progress_on_stderr(is_json: bool = False) -> Progress:
    """Return JSON lines if asked for, else a bar if stderr is a terminal, else plain lines; all are also logged.

    A quiet command shows failures only.
    """
    if is_json:
        return JsonProgress(sys.stderr)
    if is_quiet():
        return PlainProgress(sys.stderr, interval_s=math.inf)
    return BarProgress(Console(stderr=True)) if sys.stderr.isatty() else PlainProgress(sys.stderr)


class TimeLeft:
    """Estimates the time left: the expected times of the items left, scaled by what the finished ones have taken.

    The scale is damped as if ``DAMPING_ITEMS`` items had taken just that; unknown times count as equal. Several workers
    share what is left, but the longest item has one worker.
    """

    def __init__(
        self,
        items: int,
        expected_s: Sequence[float] = (),
        workers: int = 1,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.items = items
        self.workers = workers
        self.finished = 0
        self.running: dict[str, float] = {}
        """The expected time of each worker's item in s."""
        self._is_known = bool(expected_s)
        # From the last to the next one: its time, the sum and the longest of those from it on, since 100,000 may wait.
        self._waiting_s = [(0.0, 0.0, 0.0)]
        for item_s in reversed(expected_s or (1.0,) * items):
            _, sum_s, longest_s = self._waiting_s[-1]
            self._waiting_s.append((item_s, sum_s + item_s, max(longest_s, item_s)))
        self._damping_s = DAMPING_ITEMS * sum(expected_s) / max(1, items)
        self._finished_s = 0.0
        self._now = now
        self._begin_s = now()
        self._last_s: dict[str, float] = {}
        """When each worker has begun or finished last."""

    def begin(self, worker: str = "") -> None:
        """The next item begins, in place of one of this worker that has not finished."""
        if worker not in self.running:
            # No time is left for what has been given to another worker, because its own one lost it.
            self.running[worker] = self._waiting_s.pop()[0] if len(self._waiting_s) > 1 else 0.0
        self._last_s[worker] = self._now()

    def finish(self, worker: str = "") -> None:
        """The item of this worker has ended; it may be the next one, of which nothing is known yet."""
        self.begin(worker)
        self._finished_s += self.running.pop(worker)
        self.finished += 1

    def elapsed_s(self) -> float:
        return self._now() - self._begin_s

    def seconds(self) -> float | None:
        """Return the time left in s, None if it is unknown."""
        if not (self._is_known or self.finished):
            return None
        expected_s = self._finished_s + self._damping_s
        taken_s = sum(last_s - self._begin_s for last_s in self._last_s.values()) + self._damping_s
        scale = taken_s / expected_s if self.finished and expected_s else 1.0
        now_s = self._now()
        rests_s = [max(0.0, scale * item_s - now_s + self._last_s[worker]) for worker, item_s in self.running.items()]
        _, waiting_s, longest_s = self._waiting_s[-1]
        return max([(scale * waiting_s + sum(rests_s)) / self.workers, scale * longest_s, *rests_s])

    def text(self) -> str:
        """Return the time left as text: ``3 min 20 s left``; empty if it is unknown or 0."""
        left_s = self.seconds()
        return "" if not left_s else f"{duration(left_s)} left"


class ShownProgress(Progress):
    """Follows the items of all workers, and logs each item and each result; subclasses show them."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._time_left = TimeLeft(0, now=now)
        self._names: dict[str, str] = {}
        self._log = logging.getLogger(__name__)

    def start(self, items: int, expected_s: Sequence[float] = (), workers: int = 1) -> None:
        self._time_left = TimeLeft(items, expected_s, workers, self._now)
        self._names.clear()

    def begin(self, name: str, worker: str = "") -> None:
        self._names[worker] = name
        self._time_left.begin(worker)
        self._log.info("next: %s%s", self._label(worker), name)

    def finish(self, result: str, worker: str = "") -> None:
        self._end_item(result, worker)

    def fail(self, reason: str, worker: str = "") -> None:
        self._end_item(f"failed: {reason}", worker, reason)

    def _end_item(self, result: str, worker: str, reason: str | None = None) -> None:
        self._log.info("%s%s: %s", self._label(worker), self._name(worker), result, extra={SHOWN: True})
        self._time_left.finish(worker)
        self._show(result, worker, reason)

    def _show(self, result: str, worker: str, reason: str | None) -> None:
        """Show the result of the item that this worker has ended; a failure has a reason, which is in the result."""
        raise NotImplementedError

    def _name(self, worker: str) -> str:
        return self._names.get(worker, "")

    def _label(self, worker: str) -> str:
        """Return what stands before the names of a worker's items; empty for a single worker."""
        return f"{worker}  " if self._time_left.workers > 1 else ""


class PlainProgress(ShownProgress):
    """Progress as plain lines: all failures, and of results one per interval in s, the first and the last.

    An infinite interval has failures only.
    """

    def __init__(
        self, stream: TextIO, now: Callable[[], float] = time.monotonic, interval_s: float = PLAIN_INTERVAL_S
    ) -> None:
        super().__init__(now)
        self._interval_s = interval_s
        self._stream = stream
        self._last_line_s: float | None = None

    def start(self, items: int, expected_s: Sequence[float] = (), workers: int = 1) -> None:
        super().start(items, expected_s, workers)
        self._last_line_s = None

    def _show(self, result: str, worker: str, reason: str | None) -> None:
        is_last = self._time_left.finished == self._time_left.items
        is_due = self._last_line_s is None or self._now() - self._last_line_s >= self._interval_s
        if ((is_last or is_due) and self._interval_s < math.inf) or reason is not None:
            before = f"[{self._time_left.finished}/{self._time_left.items}] {self._label(worker)}"
            first, new_line, further = result.partition(NEW_LINE)
            shown = first + f"  {self._time_left.text()}".rstrip() + new_line + further
            line = _result_line(before, self._name(worker), shown, int(os.environ.get("COLUMNS") or LOG_WIDTH))
            print(line, file=self._stream, flush=True)
            self._last_line_s = self._now()


class JsonProgress(ShownProgress):
    """Progress for programs: a line with a JSON object for each event (``docs/usage.md``)."""

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(now)
        self._stream = stream

    def start(self, items: int, expected_s: Sequence[float] = (), workers: int = 1) -> None:
        super().start(items, expected_s, workers)
        self._write("started", workers=workers, expected_s=self._time_left.seconds())

    def begin(self, name: str, worker: str = "") -> None:
        super().begin(name, worker)
        self._write("begun", item=name, worker=worker)

    def _show(self, result: str, worker: str, reason: str | None) -> None:
        event, result = ("finished", result) if reason is None else ("failed", reason)
        self._write(event, item=self._name(worker), worker=worker, result=result)

    def end(self) -> None:
        self._write("ended")

    def _write(self, event: str, **keys: object) -> None:
        left = self._time_left
        counts = {"done": left.finished, "items": left.items, "left_s": left.seconds(), "elapsed_s": left.elapsed_s()}
        print(json.dumps({"event": event, **keys, **counts}), file=self._stream, flush=True)


class BarProgress(ShownProgress):
    """Progress as a bar with the name of the running item, below a line for each result.

    Several workers have a line each below the bar. It is redrawn only on changes: a thread would take Python's time
    from the measurement.
    """

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(now)
        self._bar_width = FULL_BAR if console.width >= WIDE else SHORT_BAR
        self._bar = _Bar(
            rich_progress.MofNCompleteColumn(),
            rich_progress.BarColumn(self._bar_width),
            rich_progress.TextColumn("{task.fields[left]}"),
            rich_progress.TextColumn("{task.description}", markup=False),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._task: rich_progress.TaskID | None = None

    def start(self, items: int, expected_s: Sequence[float] = (), workers: int = 1) -> None:
        super().start(items, expected_s, workers)
        self._bar.lines = []
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        if items:
            self._task = self._bar.add_task("", total=items, left=self._time_left.text())
            self._bar.start()

    def begin(self, name: str, worker: str = "") -> None:
        super().begin(name, worker)
        self._redraw()

    def _show(self, result: str, worker: str, reason: str | None) -> None:
        width = self._bar.console.width
        line = _result_line(self._label(worker), self._name(worker), result, width)
        lines = [part for one in line.split(NEW_LINE) for part in wrapped(one, width, hanging=4)]
        self._bar.console.print(Text("\n".join(lines)), soft_wrap=True)
        self._redraw()

    def _redraw(self) -> None:
        if self._task is None:
            return
        left, number, width = self._time_left.text(), str(self._time_left.items), self._bar.console.width
        room = width - 2 * len(number) - 1 - self._bar_width - len(left) - 3
        name = ""
        if self._time_left.workers > 1:
            names = {one: name if one in self._time_left.running else "" for one, name in self._names.items()}
            self._bar.lines = [shortened(f"{self._label(one)}{name}".rstrip(), width) for one, name in names.items()]
        elif room >= SHORTEST_NAME:
            name = shortened(next(iter(self._names.values()), ""), room)
        self._bar.update(self._task, completed=self._time_left.finished, description=name, left=left, refresh=True)

    def end(self) -> None:
        self._bar.stop()


class _Bar(rich_progress.Progress):
    """A bar with lines below it."""

    lines: Sequence[str] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        return [*super().get_renderables(), *(Text(line, no_wrap=True) for line in self.lines)]


def _result_line(before: str, name: str, result: str, width: int) -> str:
    """Return a line with a name that is shortened so that the line fits, and with the whole result.

    Further lines of a result, such as the frames of an error, stay below it.
    """
    room = width - len(before) - cell_len(f": {result.partition(NEW_LINE)[0]}")
    return f"{before}{shortened(name, max(room, SHORTEST_NAME))}: {result}"
