"""The live power trace on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from opcost.power.log_rows import PowerRow


def shown(batches: Iterable[tuple[PowerRow, ...]]) -> Iterator[tuple[PowerRow, ...]]:
    """Yield rows unchanged, and draw them on stderr if that is a terminal and rich is installed."""
    if not sys.stderr.isatty():
        yield from batches
        return
    try:
        # Power can be logged before anything is installed.
        from opcost.reporting.terminal_power import LiveTrace
    except ModuleNotFoundError:
        yield from batches
        return
    with LiveTrace() as live:
        for rows in batches:
            live.add(rows)
            yield rows
