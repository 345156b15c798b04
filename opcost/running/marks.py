"""Marks of running code, such as the begin of an epoch, for the program that follows it.

``opcost power -- COMMAND`` names a file in the environment of the command, and reads from it what the command marks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opcost.printable import printable

MARKS_FILE = "OPCOST_MARKS"
"""The environment variable that names the file."""

LONGEST_LABEL = 200


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
    line = json.dumps([time.time(), str(label)[:LONGEST_LABEL]]) + "\n"
    try:
        # One write, so that lines of several processes do not mix.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(descriptor, line.encode())
    except OSError:
        return
    finally:
        os.close(descriptor)


def marks_in(path: Path) -> list[Mark]:
    """Return the marks in a file in the order of their times; lines that are no marks are left out."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return sorted((mark for line in lines if (mark := _mark(line)) is not None), key=lambda mark: mark.epoch_s)


def _mark(line: str) -> Mark | None:
    try:
        epoch_s, label = json.loads(line)
        return Mark(float(epoch_s), printable(str(label)[:LONGEST_LABEL]))
    except (ValueError, TypeError):
        return None
