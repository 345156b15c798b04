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

from opcost.printable import printable

MARKS_FILE = "OPCOST_MARKS"
"""The environment variable that names the file."""

LONGEST_LABEL = 200

LARGEST_BYTES = 16_000_000
"""The part of the file that is read, again and again: some 400,000 marks."""

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


def marks_in(path: Path, report: Callable[[str], object] = lambda _: None) -> list[Mark]:
    """Return the marks in a file in the order of their times, and report why some of its lines are left out."""
    try:
        lines = _content(path, report).decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = [(line, _mark(line)) for line in lines if line.strip()]
    if wrong := [line for line, mark in found if mark is None]:
        report(f"a line of the marks is no mark and is left out: {printable(wrong[0][:80])}")
    return sorted((mark for _, mark in found if mark is not None), key=lambda mark: mark.epoch_s)


def _content(path: Path, report: Callable[[str], object]) -> bytes:
    """Return the lines of a file, of which a pipe or a device in its place has none or no end."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            report("the file of marks was replaced by what is no file: there are no marks")
            return b""
        content = file.read(LARGEST_BYTES + 1)
    if len(content) <= LARGEST_BYTES:
        return content
    report(f"marks beyond the first {LARGEST_BYTES // 1_000_000} MB are left out")
    return content.rpartition(b"\n")[0]


def _mark(line: str) -> Mark | None:
    try:
        epoch_s, label = json.loads(line)
        mark = Mark(float(epoch_s), printable(str(label)[:LONGEST_LABEL]))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return mark if 0 <= mark.epoch_s <= LATEST_S else None
