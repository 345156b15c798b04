"""Rows and configs that a process parses once: each command of a test would parse all that ships again."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from opcost.storage import yaml_files
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database
from opcost.storage.table import CsvTable

ROOT = Path(__file__).parents[1]
READING, COMPOSING = CsvTable._reader, yaml_files._compose


@cache
def _reader(row_type: type, header: str) -> Callable[[str], Any]:
    return cache(READING(CsvTable(Path(), row_type), header))


def reader(table: CsvTable[Any], header: str) -> Callable[[str], Any]:
    """Return the parser of a table's lines. Rows of a test's own are parsed as ever."""
    is_own = not table.row_type.__module__.startswith("opcost.")
    return READING(table, header) if is_own else _reader(table.row_type, header)


@cache
def _composed(text: str) -> tuple[yaml.Node | None, list[Any]]:
    return COMPOSING(text)


def composed(text: str) -> tuple[yaml.Node | None, list[Any]]:
    """Return the nodes of a text, and a list of its mistakes that the caller may add to."""
    root, mistakes = _composed(text)
    return root, [*mistakes]


INSTEAD_OF = {"opcost.storage.table.CsvTable._reader": reader, "opcost.storage.yaml_files._compose": composed}


def parse_shipped() -> None:
    """Parse what ships in this process, and in those that it forks."""
    CsvTable._reader, yaml_files._compose = reader, composed
    for table in Database(ROOT / "database").tables:
        table.rows()
    ModelFolders(ROOT / "measurements").readable()
