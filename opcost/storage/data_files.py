"""Files for other programs: a data set with its card and its list of tables, and metered windows and layers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path

from opcost.columns import DataTable, Field, Kind
from opcost.errors import UserError
from opcost.metering.layers import MeteredLayerRow
from opcost.metering.window_energy import MeteredWindowRow
from opcost.shipped import citation
from opcost.storage.files import replace_file
from opcost.storage.table import CsvTable, cell_text
from opcost.version import __version__

CSV, PARQUET = FORMATS = ("csv", "parquet")
ENDINGS = tuple(f".{one}" for one in FORMATS)

PACKAGE, CARD, CITATION = "datapackage.json", "README.md", "CITATION.cff"
PROFILE = "https://datapackage.org/profiles/2.0/datapackage.json"
"""The list of tables and of their columns by the Data Package standard."""

MARK = "opcost_version"
"""A property by which an export is known."""

TYPES: Mapping[Kind, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


@dataclass(frozen=True)
class DataFolder:
    """The folder that a data set is written to, and the format of its tables, one of ``FORMATS``."""

    folder: Path
    format: str = CSV

    def check(self) -> None:
        """Raise a ``UserError`` unless the folder is new or empty, or holds a former export."""
        if self.folder.exists() and any(self.folder.iterdir()) and self._listed() is None:
            raise UserError(f"{self.folder}: holds other files than an export; name a new folder with --to")

    def write(self, tables: Sequence[DataTable], columns: Sequence[Field], title: str, card: str) -> None:
        """Write a data set in the place of a former one; files that are not of it stay.

        ``columns`` are those that tables may have, by name; ``card`` is the page of the data set. Raises ``UserError``
        as ``check`` does, or for a file that is not of a former export and has the name of one of this;
        ``ModuleNotFoundError`` if the format's library is missing.
        """
        # A missing library is found before any file changes.
        encode = csv_of if self.format == CSV else parquet_of
        if self.format == PARQUET:
            import_module("pyarrow")
        self.check()
        contents = {f"{table.name}.{self.format}": encode(table) for table in tables}
        # ``input_0_size_1`` is described as ``input_N_size_M``.
        known = [(re.compile(re.sub("NAME|[NM]", ".+", field.name)), field) for field in columns]
        listed = [_resource(table, known, *one) for table, one in zip(tables, contents.items(), strict=True)]
        package = {"$schema": PROFILE, "name": "opcost", "title": title, MARK: __version__, "resources": listed}
        configs = "".join(
            f'- config_name: "{table.name}"\n  data_files: "{name}"\n'
            for table, name in zip(tables, contents, strict=True)
        )
        texts = {
            PACKAGE: json.dumps(package, indent=1, ensure_ascii=False).encode() + b"\n",
            CARD: f'---\npretty_name: "{title}"\nconfigs:\n{configs}---\n\n{card}'.encode(),
        }
        if citation().is_file():
            texts[CITATION] = citation().read_bytes()
        names = self._listed()
        former = set() if names is None else {*names, *texts}
        there = {path.name: path for path in self.folder.iterdir()} if self.folder.exists() else {}
        for name in (*texts, *contents):
            if name in there and name not in former:
                raise UserError(f"{there[name]}: not of a former export; move it away, or name another --to")
        for name in former.intersection(there).difference(contents, texts):
            there[name].unlink()
        for name, content in (texts | contents).items():
            replace_file(self.folder / name, content)

    def _listed(self) -> set[str] | None:
        """Return the names of the tables of a former export, None if there is none."""
        try:
            found = json.loads((self.folder / PACKAGE).read_bytes())
            names = {one["path"] for one in found["resources"]} if MARK in found else None
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return None if names is None else {name for name in names if str(name).endswith(ENDINGS)}


def _resource(
    table: DataTable, known: Sequence[tuple[re.Pattern[str], Field]], name: str, content: bytes
) -> dict[str, object]:
    """Return the description of a table's file: its size, its hash, and its columns with their units.

    ``known`` has what describes columns of names that fit a pattern.
    """
    fields: list[dict[str, object]] = []
    for column, kind in table.columns.items():
        described: dict[str, object] = {"name": column, "type": TYPES[kind]}
        if kind is bool and name.endswith(CSV):
            described |= {"trueValues": ["True"], "falseValues": ["False"]}
        if field := next((field for pattern, field in known if pattern.fullmatch(column)), None):
            described |= {"unit": field.unit} if field.unit else {}
            # A text may be empty without being unknown.
            required = kind is not str and not field.may_be_empty
            described |= {"description": field.column.meaning, "constraints": {"required": required}}
        fields.append(described)
    found = {"name": table.name.lower(), "path": name, "format": name.rpartition(".")[2], "rows": len(table.rows)}
    size = {"bytes": len(content), "hash": f"sha256:{sha256(content).hexdigest()}"}
    return {**found, **size, "schema": {"fields": fields, "missingValues": [""]}}


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
