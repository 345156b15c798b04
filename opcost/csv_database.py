"""The database: one CSV file for each kind of row, its header made from the row's dataclass.

A row is a frozen dataclass whose fields are str, int, float, bool, optional ones of these, or such dataclasses, which
are flattened. None is an empty cell. Rows are appended under a lock with one write that is synced to disk, so that a
row is there as a whole or not at all, and a killed run loses none that it reported.
"""

from __future__ import annotations

import csv
import fcntl
import io
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from opcost.errors import UserError

Row = TypeVar("Row")

BLOCK_BYTES = 65536

SEPARATORS = {";": "semicolons", "\t": "tabs"}
"""What programs write instead of commas."""

NAMED_COLUMNS = 3
"""Of those that are not this version's, in one message."""

LONGEST_CELL = 100_000
"""Characters; Python's ``csv`` reads no cell of more than 131,072."""


class CsvTable(Generic[Row]):
    """A CSV file with rows of one dataclass."""

    def __init__(self, path: Path, row_type: type[Row]) -> None:
        self.path = path
        self._layout = _layout(row_type)
        self._columns = self._layout.columns()

    def rows(self) -> list[Row]:
        """Return all rows, oldest first; no file is no rows. A last line without its end is no row, and is warned of.

        Raises:
            UserError: the header is not this version's, or a cell is not of its column's type or impossible.
        """
        if not self.path.exists():
            return []
        text = self._complete_lines()
        if not text:
            return []
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = []
        try:
            self._check_header(next(reader, []))
            for cells in reader:
                rows.append(self._row(cells, reader.line_num))
        except csv.Error as error:
            raise UserError(f"{self.path}:{reader.line_num}: no valid CSV ({error}); mend or delete the line") from None
        return rows

    def append(self, row: Row) -> None:
        """Append one row; it is on disk when this returns.

        Raises:
            UserError: the file is of another version, or the disk is full.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            end = self._end_of_last_line(descriptor)
            content = _line(encode(row)) if end else _line(self._columns) + _line(encode(row))
            self._write_or_roll_back(descriptor, content, end)
        finally:
            os.close(descriptor)

    def text(self, rows: Sequence[Row]) -> str:
        """Return a whole table as text."""
        return "".join(_line(line).decode() for line in [self._columns, *map(encode, rows)])

    def _complete_lines(self) -> str:
        content = self.path.read_bytes()
        # The end may be torn in the middle of a character.
        end = content.rfind(b"\n") + 1
        if end < len(content):
            line = content.count(b"\n") + 1
            # All of its cells may be there, the last one cut short.
            remedy = "end it with a line break if it is whole, or it is cut off with the next row"
            log = logging.getLogger(__name__)
            log.warning("%s:%d: a last line without an end is left out; %s", self.path, line, remedy)
        content = content[:end]
        try:
            # Some programs write a byte order mark first.
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise UserError(f"{self.path}:{line}: no UTF-8 text; mend or delete the line") from None

    def _end_of_last_line(self, descriptor: int) -> int:
        """Check the header, cut off a last line that a killed writer left unfinished, return the size of the rest."""
        size = os.fstat(descriptor).st_size
        end = _end_of_last_line(descriptor, size)
        if end < size:
            os.ftruncate(descriptor, end)
        if end:
            with self.path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
                self._check_header(next(csv.reader([file.readline()]), []))
        return end

    def _write_or_roll_back(self, descriptor: int, content: bytes, end: int) -> None:
        try:
            written = os.write(descriptor, content)
            if written < len(content):
                raise OSError(f"only {written} of {len(content)} bytes were written")
            os.fsync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, end)
            raise UserError(
                f"{self.path}: the row could not be written ({error}); make room and start again"
            ) from error

    def _check_header(self, header: list[str]) -> None:
        if header != self._columns:
            raise UserError(f"{self.path}:1: {self._header_problem(header)}")

    def _header_problem(self, header: list[str]) -> str:
        for separator, name in SEPARATORS.items():
            if separator in "".join(header):
                return f"its cells are separated by {name}; save it with commas and decimal points"
        unknown, missing = set(header) - set(self._columns), set(self._columns) - set(header)
        if len(missing) == len(self._columns):
            return f"this is no header; begin the file with the line {','.join(self._columns[:NAMED_COLUMNS])},…"
        named = f"unknown: {_some(unknown)}; missing: {_some(missing)}"
        differences = named if unknown or missing else "in another order"
        remedy = "move the file away or use another --database"
        return f"its columns are not those of this version of opcost ({differences}); {remedy}"

    def _row(self, cells: list[str], line: int) -> Row:
        if len(cells) != len(self._columns):
            problem = f"{len(cells)} cells, {len(self._columns)} expected"
            raise UserError(f"{self.path}:{line}: {problem}; mend or delete the line")
        try:
            row: Row = self._layout.decode(iter(cells))
        except _CellError as error:
            raise UserError(f"{self.path}:{line}: {error}; mend or delete the line") from None
        return row


def _some(names: set[str]) -> str:
    """Return some names, the first ones in the alphabet."""
    first, more = sorted(names)[:NAMED_COLUMNS], len(names) - NAMED_COLUMNS
    return ", ".join(first) + (f" and {more} more" if more > 0 else "") or "none"


class _CellError(Exception):
    pass


@dataclass(frozen=True)
class _Layout:
    """A row's dataclass with its fields: a converter for a cell, or the layout of a nested dataclass."""

    row_type: type[Any]
    parts: tuple[tuple[str, _Layout | Callable[[str], object]], ...]

    def columns(self) -> list[str]:
        nested = [part.columns() if isinstance(part, _Layout) else [name] for name, part in self.parts]
        return [name for names in nested for name in names]

    def decode(self, cells: Iterator[str]) -> Any:
        values = {name: _decode(name, part, cells) for name, part in self.parts}
        try:
            return self.row_type(**values)
        except ValueError as error:
            raise _CellError(str(error)) from None


def columns(row_type: type[Any]) -> list[str]:
    """Return the column names of a row's dataclass, nested ones flattened in place."""
    return _layout(row_type).columns()


def encode(row: Any) -> list[str]:
    """Return a row's cells in the order of ``columns``."""
    cells: list[str] = []
    for field in fields(row):
        value = getattr(row, field.name)
        cells.extend(encode(value) if is_dataclass(value) else [_cell(value)])
    return cells


def _layout(row_type: type[Any]) -> _Layout:
    hints: dict[str, Any] = get_type_hints(row_type)
    return _Layout(row_type, tuple((field.name, _part(hints[field.name])) for field in fields(row_type)))


def _part(kind: Any) -> _Layout | Callable[[str], object]:
    return _layout(kind) if isinstance(kind, type) and is_dataclass(kind) else _converter(kind)


def _decode(name: str, part: _Layout | Callable[[str], object], cells: Iterator[str]) -> object:
    if isinstance(part, _Layout):
        return part.decode(cells)
    cell = next(cells)
    try:
        return part(cell)
    except (ValueError, KeyError):
        raise _CellError(f"{name}: {cell!r} is not understood") from None


def _converter(kind: Any) -> Callable[[str], object]:
    """Return what turns a cell into a value of a type; an optional type reads an empty cell as None."""
    kinds = get_args(kind) or (kind,)
    base = next(candidate for candidate in kinds if candidate is not NoneType)
    convert: Callable[[str], object] = {"True": True, "False": False}.__getitem__ if base is bool else base
    if NoneType in kinds:
        return lambda cell: None if cell == "" else convert(cell)
    return convert


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        # numpy's own floats have another repr.
        return repr(float(value))
    # Python 3.10 reads no line with a NUL.
    text = " ".join(str(value).replace("\0", " ").splitlines())
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 3] + "..."


def _end_of_last_line(descriptor: int, size: int) -> int:
    """Return the position behind the last newline of a file, reading backwards only as far as needed."""
    end = size
    while end > 0:
        begin = max(0, end - BLOCK_BYTES)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def _line(cells: list[str]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue().encode("utf-8")
