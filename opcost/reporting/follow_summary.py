"""The cost of a followed program, on a terminal: a line a second, and the summary at the end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

from opcost.printable import printable
from opcost.stages.follow_power import FollowReport
from opcost.units import number_of

SHOWN_PARTS = 20
"""The most marked parts in a summary; ``--json`` has all."""


class LiveLine:
    """Shows the present state on stderr if that is a terminal, in one line that the next one replaces."""

    def show(self, line: str) -> None:
        """Replace the line; an empty one clears it."""
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{printable(line)[:width]}", end="", file=sys.stderr, flush=True)


def summary_lines(report: FollowReport) -> Iterator[str]:
    """Yield the lines of a summary: the parts, the run, and the file."""
    for part in report.parts[:SHOWN_PARTS]:
        yield printable(str(part))
    if len(report.parts) > SHOWN_PARTS:
        yield f"and {number_of(len(report.parts) - SHOWN_PARTS, 'part')} more"
    yield printable(f"{report.followed}: {report.run}")
    yield f"{report.file}: {number_of(report.rows, 'row')}"
