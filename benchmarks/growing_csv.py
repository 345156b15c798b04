"""CSV files to which a program adds row by row, so that the next run continues where one has ended"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from pathlib import Path

from opcost.command.options import folder_option


def growing_parser(description: str | None, evaluate_help: str) -> argparse.ArgumentParser:
    """Return a parser for a program that adds to a file until a time is up, or evaluates several.

    It yields ``output`` (Path) or ``evaluate`` (list of Path), ``limit_seconds`` (float), ``seed`` (int), and
    ``database`` (Path), where the board's meters are qualified.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--output", type=Path, help="measure what this file does not have, and add it")
    what.add_argument("--evaluate", type=Path, metavar="FILE", nargs="+", help=evaluate_help)
    parser.add_argument("--limit-seconds", type=float, default=480.0, help="begin nothing more after that")
    folder_option("--database", "where the qualification of the board's meters is kept").add_to(parser)
    parser.add_argument("--seed", type=int, default=0)
    return parser


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
