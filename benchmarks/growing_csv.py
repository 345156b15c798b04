"""CSV files to which a program adds row by row, so that the next run goes on where one has ended"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path


def known(path: Path, column: str) -> set[str]:
    """Return the cells of a column; none where there is no file yet."""
    return {row[column] for row in _rows(path)[1]}


def append(path: Path, row: Mapping[str, object]) -> None:
    """Add a row, after a header if there is none yet.

    Raises:
        SystemExit: the file has other columns.
    """
    header, _ = _rows(path)
    if header and header != list(row):
        raise SystemExit(f"{path}: its columns are those of another version; name another --output")
    with path.open("a", newline="") as file:
        table = csv.DictWriter(file, list(row), lineterminator="\n")
        if not header:
            table.writeheader()
        table.writerow(row)


def _rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    if not path.exists():
        return [], []
    with path.open(newline="") as file:
        table = csv.DictReader(file)
        return list(table.fieldnames or []), list(table)
