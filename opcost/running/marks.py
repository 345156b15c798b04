"""Marks of running code, such as the begin of an epoch, for the program that follows it.

``opcost power -- COMMAND`` names a file in the environment of the command, and reads from it what the command marks.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opcost.units import printable

MARKS_FILE = "OPCOST_MARKS"
"""The environment variable that names the file."""

LONGEST_LABEL = 200

MOST_MARKS, LARGEST_BYTES = 50_000, 4_000_000
"""The part of the file that is read: the parts of so many marks take 1 s and 50 MB."""

TOO_MANY = f"marks beyond the first {MOST_MARKS:,} or {LARGEST_BYTES // 1_000_000} MB are left out"

LATEST_S = 1e11
"""The latest epoch of a mark: beyond the year 5000 it is none."""


@dataclass(frozen=True)
class Mark:
    """A label, and the epoch in s from which it holds."""

    epoch_s: float
    label: str


def mark(label: str, environment: Mapping[str, str] | None = None) -> None:
    """Mark this moment, for ``opcost power -- COMMAND``; do nothing where no program follows this one.

    A mark costs some tens of microseconds. It raises nothing: the code that is followed is to run on in any case.
    """
    path = (os.environ if environment is None else environment).get(MARKS_FILE)
    if not path:
        return
    # The label's own conversion to text may raise anything.
    with suppress(Exception):
        line = json.dumps([time.time(), str(label)[:LONGEST_LABEL]]) + "\n"
        # One write, so that lines of several processes do not mix. A pipe in the file's place must not block it.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


class Marks:
    """The marks in a file to which a program writes: ``found``, in the order of time. A reading reads what is new."""

    def __init__(self, path: Path, report: Callable[[str], object] = lambda _: None) -> None:
        self.found: list[Mark] = []
        self._path, self._report, self._place = path, report, 0

    def read(self, has_ended: bool = False) -> list[Mark]:
        """Return ``found`` with what has come, and report why some lines are left out.

        A file that has become shorter was begun again. Once no program writes any more (``has_ended``), a last line
        without its end is as it stays.
        """
        try:
            lines = self._new_content(has_ended).decode("utf-8", errors="replace").splitlines()
        except OSError:
            return self.found
        room = MOST_MARKS - len(self.found)
        if len(lines) > room:
            self._report(TOO_MANY)
        new = [(line, _mark(line)) for line in lines[:room] if line.strip()]
        if wrong := [line for line, mark in new if mark is None]:
            self._report(f"a line of the marks is no mark and is left out: {printable(wrong[0][:80])}")
        if new:
            found = [*self.found, *(mark for _, mark in new if mark is not None)]
            self.found = sorted(found, key=lambda mark: mark.epoch_s)
        return self.found

    def _new_content(self, has_ended: bool) -> bytes:
        """Return the new lines, of which a pipe or a device in the file's place has none or no end."""
        with os.fdopen(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                self._report("the file of marks was replaced by what is no file: there are no more marks")
                return b""
            self._place = self._place if status.st_size >= self._place else 0
            if status.st_size > LARGEST_BYTES:
                self._report(TOO_MANY)
            file.seek(self._place)
            content = file.read(LARGEST_BYTES - self._place)
        if not has_ended or status.st_size > LARGEST_BYTES:
            content = content[: content.rfind(b"\n") + 1]
        self._place += len(content)
        return content


def _mark(line: str) -> Mark | None:
    try:
        epoch_s, label = json.loads(line)
        mark = Mark(float(epoch_s), printable(str(label)[:LONGEST_LABEL]))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return mark if 0 <= mark.epoch_s <= LATEST_S else None
