"""Power on a terminal: a line while it is logged, and the summary of a followed program at its end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from opcost.power.log_rows import PowerRow, power_of
from opcost.printable import printable
from opcost.units import number_of

if TYPE_CHECKING:
    from opcost.stages.follow_power import FollowReport

SHOWN_EVERY_S = 0.5
SHOWN_PARTS = 20
"""The most marked parts in a summary; ``--json`` has all."""


class LiveLine:
    """Shows the present state on stderr if that is a terminal, in one line that the next one replaces."""

    def show(self, line: str) -> None:
        """Replace the line; an empty one clears it."""
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{printable(line)[:width]}", end="", file=sys.stderr, flush=True)


def shown(batches: Iterable[tuple[PowerRow, ...]]) -> Iterator[tuple[PowerRow, ...]]:
    """Yield rows unchanged, and show the power on stderr if that is a terminal, twice a second at most."""
    live, shown_s = LiveLine(), 0.0
    for rows in batches:
        known = [(row.epoch_s, power_w) for row in rows if (power_w := power_of(row)) is not None]
        if known and known[-1][0] - shown_s >= SHOWN_EVERY_S:
            shown_s, power_w = known[-1]
            live.show(f"{power_w:.1f} W now")
        yield rows
    live.show("")


def summary_lines(report: FollowReport) -> Iterator[str]:
    """Yield the lines of a summary: the parts, the run, and the file."""
    for part in report.parts[:SHOWN_PARTS]:
        yield printable(str(part))
    if len(report.parts) > SHOWN_PARTS:
        yield f"and {number_of(len(report.parts) - SHOWN_PARTS, 'part')} more"
    yield printable(f"{report.followed}: {report.run}")
    yield f"{report.file}: {number_of(report.rows, 'row')}"
