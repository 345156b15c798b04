"""CPU time of a process and all its descendants, from /proc"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cpu_s(process_id: int | None, stats: Mapping[int, str]) -> float:
    """Return the CPU time of a process and all that come from it, given each process's /proc/<pid>/stat."""
    # The name stands in parentheses and may hold some itself; then come state, parent and, further on, user and system.
    fields = {pid: text.rpartition(")")[2].split() for pid, text in stats.items()}
    family = {process_id} & fields.keys()
    while children := {pid for pid, cells in fields.items() if int(cells[1]) in family} - family:
        family |= children
    return sum(int(cells) for pid in family for cells in fields[pid][11:13]) / os.sysconf("SC_CLK_TCK")


def process_stats() -> dict[int, str]:
    """Return /proc/<pid>/stat of the processes there are."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = path.read_text(errors="replace")
        except OSError:
            continue  # it has just ended
    return found
