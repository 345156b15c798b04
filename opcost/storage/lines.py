"""The lines of files that may be anything: no line fills the memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

LONGEST_LINE = 2**24
"""The most bytes of a line, more than the longest cells of a row need."""

TOO_LONG = "longer than any row"


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, as they are read, without their ends. Bytes that are no UTF-8 are replaced.

    Raises:
        ValueError: a line is longer than any row.
    """
    with path.open("rb") as file:
        for line in iter(partial(file.readline, LONGEST_LINE), b""):
            if len(line) == LONGEST_LINE:
                raise ValueError(TOO_LONG)
            yield line.decode(errors="replace").rstrip("\r\n")
