"""Files of metered windows and layers: CSV as the other tables, or of windows a JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from opcost.errors import UserError
from opcost.metering.layer_rows import MeteredLayerRow
from opcost.metering.rows import MeteredWindowRow
from opcost.storage.files import replace_file
from opcost.storage.table import CsvTable

CSV, JSON_LINES = ".csv", ".jsonl"


def check_output(path: Path) -> None:
    """Refuse a file that could not be written at the end.

    Raises:
        UserError: its ending is of no known format, its folder is missing, or it is a table of another kind.
    """
    if path.suffix not in (CSV, JSON_LINES):
        raise UserError(f"output {path}: name a file that ends in {CSV} or {JSON_LINES}")
    if not path.parent.is_dir():
        raise UserError(f"output {path}: there is no folder {path.parent}; make it, or name another file")
    if path.suffix == CSV:
        CsvTable(path, MeteredWindowRow).prepare()


def append_windows(path: Path, rows: Sequence[MeteredWindowRow]) -> None:
    """Append rows to a file; it is made if there is none.

    Raises:
        UserError: the file cannot be written.
    """
    if path.suffix == CSV:
        table = CsvTable(path, MeteredWindowRow)
        for row in rows:
            table.append(row)
        return
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    except OSError as error:
        raise UserError(f"output {path}: cannot be written ({error.strerror})") from error


def write_layers(path: Path, rows: Sequence[MeteredLayerRow]) -> None:
    """Write rows to a CSV file in the place of what was there.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        replace_file(path, CsvTable(path, MeteredLayerRow).text(rows).encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); name another file") from error
