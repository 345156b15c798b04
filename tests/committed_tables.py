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


@cache
def of_boards(*boards: str) -> Database:
    """Return the committed tables, of which those of measurements have the rows of these boards only.

    Args:
        boards: the first four digits of their UUIDs.
    """
    database = Database(ROOT / "database").read_once()
    for name in ("operator_measurements", "full_model_measurements"):
        rows = getattr(committed(), name).rows()
        own = [row for row in rows if (row.circumstances.device_uuid or "").removeprefix("GPU-")[:4] in boards]
        # In the place of what the table would read.
        vars(getattr(database, name))["_all_rows"] = own
    return database
