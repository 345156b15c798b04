"""Files for other programs: a data set with its lists of files and columns, and metered windows and layers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

from opcost.columns import COLUMN_HEAD, DataTable, Field, Kind, described
from opcost.errors import UserError
from opcost.metering.layers import MeteredLayerRow
from opcost.metering.window_energy import MeteredWindowRow
from opcost.shipped import citation
from opcost.storage.files import replace_file
from opcost.storage.table import CsvTable, cell_text

CSV, PARQUET = FORMATS = ("csv", "parquet")
ENDINGS = tuple(f".{one}" for one in FORMATS)

TABLES = "tables.csv"
TABLES_HEAD = ("file", "rows")
"""The list of the tables, by which an export is known."""

COLUMNS, COLUMNS_PAGE, CITATION = "columns.csv", "columns.md", "CITATION.cff"


@dataclass(frozen=True)
class DataFolder:
    """The folder that a data set is written to, and the format of its tables, one of ``FORMATS``."""

    folder: Path
    format: str = CSV

    def check(self) -> None:
        """Raise a ``UserError`` unless the folder is new or empty, or holds a former export."""
        if self.folder.exists() and any(self.folder.iterdir()) and self._listed() is None:
            raise UserError(f"{self.folder}: holds other files than an export; name a new folder with --to")

    def write(self, tables: Sequence[DataTable], columns: Sequence[Field], page: str) -> None:
        """Write a data set in the place of a former one; files that are not of it stay.

        ``tables`` has one for each kind of operator, ``columns`` the list of columns, and ``page`` the same as a page.
        Raises ``UserError`` as ``check`` does, or for a file that is not of a former export and has the name of one of
        this; ``ModuleNotFoundError`` if the format's library is missing.
        """
        # A missing library is found before any file changes.
        encode = csv_of if self.format == CSV else parquet_of
        if self.format == PARQUET:
            import_module("pyarrow")
        self.check()
        names = {f"{table.name}.{self.format}": table for table in tables}
        texts = {
            TABLES: _csv([TABLES_HEAD, *((name, len(table.rows)) for name, table in names.items())]),
            COLUMNS: _csv([COLUMN_HEAD, *map(described, columns)]),
            COLUMNS_PAGE: page.encode(),
        }
        if citation().is_file():
            texts[CITATION] = citation().read_bytes()
        listed = self._listed()
        former = set() if listed is None else {*listed, *texts}
        there = {path.name: path for path in self.folder.iterdir()} if self.folder.exists() else {}
        for name in (*texts, *names):
            if name in there and name not in former:
                raise UserError(f"{there[name]}: not of a former export; move it away, or name another --to")
        for name in former.intersection(there).difference(names, texts):
            there[name].unlink()
        for name, text in texts.items():
            replace_file(self.folder / name, text)
        for name, table in names.items():
            replace_file(self.folder / name, encode(table))

    def _listed(self) -> set[str] | None:
        path = self.folder / TABLES
        if not path.is_file():
            return None
        try:
            head, *lines = csv.reader(path.read_text(encoding="utf-8").splitlines(), strict=True)
        except (UnicodeDecodeError, ValueError, csv.Error):
            return None
        names = {line[0] for line in lines if line}
        return {name for name in names if name.endswith(ENDINGS)} if tuple(head) == TABLES_HEAD else None


def csv_of(table: DataTable) -> bytes:
    return _csv([table.columns, *table.rows])


def _csv(lines: Iterable[Iterable[object]]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerows(map(cell_text, line) for line in lines)
    return buffer.getvalue().encode()


def parquet_of(table: DataTable) -> bytes:
    import pyarrow
    from pyarrow import parquet

    types = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}

    def value(value: object, kind: Kind) -> object:
        # Numbers in a column of texts, and sets of flags, are as in CSV.
        if kind is str and value is not None and not isinstance(value, str):
            return cell_text(value)
        return float(value) if kind is float and isinstance(value, int) else value

    schema = pyarrow.schema([(name, types[kind]) for name, kind in table.columns.items()])
    columns = [
        pyarrow.array([value(row[place], kind) for row in table.rows], types[kind])
        for place, kind in enumerate(table.columns.values())
    ]
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, schema=schema), file)
    return file.getvalue()


JSON_LINES = ".jsonl"


def check_output(path: Path) -> None:
    """Raise a ``UserError`` for an unknown ending, a missing folder, or a table of another kind of rows."""
    if path.suffix not in (f".{CSV}", JSON_LINES):
        raise UserError(f"output {path}: name a file that ends in .{CSV} or {JSON_LINES}")
    if not path.parent.is_dir():
        raise UserError(f"output {path}: there is no folder {path.parent}; make it, or name another file")
    if path.suffix == f".{CSV}":
        CsvTable(path, MeteredWindowRow).prepare()


def append_windows(path: Path, rows: Sequence[MeteredWindowRow]) -> None:
    """Append rows to a file, which is made if there is none; a ``UserError`` if it cannot be written."""
    if path.suffix == f".{CSV}":
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
    """Write rows to a CSV file in the place of what was there; a ``UserError`` if it cannot be written."""
    try:
        replace_file(path, CsvTable(path, MeteredLayerRow).text(rows).encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); name another file") from error
