"""The committed tables, which claims read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from opcost.storage.database import Database


@cache
def committed(root: Path) -> Database:
    """Return the tables of a copy of the repository, to be read only."""
    return Database(root / "database").read_once()
