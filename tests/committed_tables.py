"""The committed tables, which all tests of a process read once: the rows of operators alone take a second."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

from opcost.measuring.record import MeasurementRow
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
        vars(getattr(database, name))["_own_rows"] = partial(_wanted_of, own)
    return database


def _wanted_of(rows: Sequence[MeasurementRow], wanted: Callable[[str], bool] | None) -> list[MeasurementRow]:
    return [row for row in rows if wanted is None or wanted(row.key)]
