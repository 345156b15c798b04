"""The committed tables, which all tests of a process read once: the rows of operators alone take a second."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from opcost.storage.database import Database

ROOT = Path(__file__).parents[1]


@cache
def committed(folder: Path = ROOT / "database") -> Database:
    """Return the tables of a folder, to be read only."""
    return Database(folder).read_once()
