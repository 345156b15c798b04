"""Rows that a process parses once: each command of a test would parse those of the shipped tables again."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from opcost.storage.database import Database
from opcost.storage.table import CsvTable

READER = "_reader"
PARSING: Callable[[CsvTable[Any], str], Callable[[str], Any]] = vars(CsvTable)[READER]


@cache
def _parser(row_type: type, header: str) -> Callable[[str], Any]:
    return cache(PARSING(CsvTable(Path(), row_type), header))


def parser(table: CsvTable[Any], header: str) -> Callable[[str], Any]:
    """Return what stands for ``CsvTable._reader``. Rows of a test's own are parsed as ever."""
    is_own = not table.row_type.__module__.startswith("opcost.")
    return PARSING(table, header) if is_own else _parser(table.row_type, header)


def parse_shipped() -> None:
    """Parse the shipped tables in this process, and in those that it forks."""
    setattr(CsvTable, READER, parser)
    for shipped in Database(Path(__file__).parents[1] / "database").tables:
        shipped.rows()
