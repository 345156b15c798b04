"""Tables of the database: one CSV file for each kind of row, a frozen dataclass of ``Columns``.

A row's fields are str, int, float, bool, optional ones of these, tuples (``columns.cell_of``), values whose column
says how they are written, or such dataclasses, which are flattened. None is an empty cell. A checksum shows that a line
was damaged or edited; to edit a line on purpose, empty its checksum.

Rows are appended under a lock with one write that is synced to disk, so that a file never holds a part of a row and a
killed run loses no row that it reported. An unfinished last line, left by a crash, is moved to another file. A file of
an older version is replaced by one of this version and kept beside it.
"""

from __future__ import annotations

import codecs
import csv
import fcntl
import io
import logging
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache, lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Generic, TypeAlias, TypeVar, get_origin

from opcost.columns import ANY, Columns, Field, cell_of, cell_reader, cell_values, columns_of, fields_of
from opcost.errors import SHOWN_CHARACTERS, UserError, quoted
from opcost.invocation import command
from opcost.measuring.flags import Flag, flags_of
from opcost.measuring.record import MeasurementRow
from opcost.storage.files import LONGEST_LINE, TOO_LONG, replace_file
from opcost.units import printable, some_of

Row = TypeVar("Row", bound=Columns)
_Reader: TypeAlias = Callable[[Any], Any]
CHECKSUM = "checksum"
"""The last column: CRC-32 of the line's other cells as 8 hexadecimal digits; empty for rows without a checksum."""

SEPARATORS = {";": "semicolons", "\t": "tabs"}
"""Separators that other programs write instead of commas."""

TEXT_SIGN = "'"
"""Spreadsheets treat cells that begin with it as text."""

SIGNED = re.compile(r"'?\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|''")
"""The beginnings of texts to which the text sign is added: spreadsheets run them as formulas, perhaps without the white
space or in full width. Texts that look as if they had got it get it, so that all come back as they were."""

NAMED_COLUMNS = 3
LONGEST_CELL = 100_000
"""The most characters of a cell; Python's ``csv`` reads at most 131,072."""

FORMER_COLUMNS = {"mode": "inference"}
"""Columns of former versions, each with the only value that it had."""

GROUPS_KEPT, TEXTS_KEPT = 64, 1024
"""The parsed groups of columns, and cells of a column, that are kept for lines with the same cells."""

CHANGED = "wrong checksum: the line was damaged or edited"

Cells = dict[str, str]

PHRASES = {
    Flag.UNEVEN: r"uneven: the median chunk took ",
    Flag.METERS_DISAGREED_BEFORE: r"meters disagree: .* in the sentinel before$",
    Flag.METERS_DISAGREE: r"meters disagree: [\d.]+ W and [\d.]+ W$",
    Flag.THERMAL_SLOWDOWN: r"thermal slowdown for ",
    Flag.OTHER_PROCESS: r"another process (came to the GPU meanwhile|or more took )",
    Flag.NO_TEMPERATURE: r"no temperature: the device's log has no row in the loop$",
    Flag.CLOCKS_STILL_LOW: r"clocks still low from the load before for ",
    Flag.OUT_OF_MEMORY_IN_CAPTURE: r"memory ran out in the capture: libraries may run other algorithms$",
    Flag.IMPRECISE: r"not within [\d.]+% (after [\d.e+]+ s|once the overhead is subtracted)$",
    Flag.POWER_CAPPED: r"clocks held down by the power limit for ",
    Flag.POWER_CAP_UNKNOWN: r"at the power limit, and nothing tells of clocks$",
    Flag.AT_POWER_LIMIT: r"at the power limit of \d+ W: slower where it lasts$",
    Flag.DUTY_CYCLE: r"below the power limit in a duty cycle of at most \d+ %$",
    Flag.NO_KERNEL: r"runs nothing on the device$",
    Flag.MODIFIES_INPUT: r"in place: (added and subtracted in turn|writes the same values each time)$"
    r"|in-place (kernel run into another tensor|operator run out of place)$",
    Flag.RAN_WARM: r"in place: as warm$|no weights: as warm$|not chained: ",
    Flag.NOT_FINITE: r"its output holds NaN or infinity$",
}

OVERHEAD = "of the overhead: "

_DUTY_CYCLE = re.compile(r"in a duty cycle of at most (\d+) %")


class LineError(ValueError):
    """An error in a line, with a remedy if it is not the same for all lines."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.remedy = remedy


def encode(row: Any) -> list[str]:
    """Return a row's cells in the order of ``columns_of`` its type."""
    return list(map(cell_text, cell_values(row)))


def _row_reader(row_type: Any) -> _Reader:
    """Return the parser of a row's cells. Equal groups share one value: many rows have the same conditions."""
    readers: list[_Reader] = []
    places: list[int | slice] = []
    begin, found = 0, fields_of(row_type)
    for field in found:
        end = begin + len(columns_of(field.kind) if field.is_group else [field])
        readers.append(lru_cache(GROUPS_KEPT)(_row_reader(field.kind)) if field.is_group else _cell_reader(field))
        places.append(slice(begin, end) if field.is_group else begin)
        begin = end
    names = [field.attribute for field in found]
    take: Callable[[Any], Iterable[Any]] = itemgetter(*places) if len(places) > 1 else lambda cells: (cells[places[0]],)
    # Names take time, so they are used only where the columns are in another order than the arguments.
    is_in_order = names == [field.name for field in fields(row_type) if not field.kw_only]

    def read(cells: tuple[str, ...]) -> Any:
        try:
            values = [reader(cell) for reader, cell in zip(readers, take(cells), strict=True)]
        except (ValueError, KeyError):
            for field, reader, cell in zip(found, readers, take(cells), strict=True):
                _read_cell(field, reader, cell)
            raise
        try:
            return row_type(*values) if is_in_order else row_type(**dict(zip(names, values, strict=True)))
        except ValueError as error:
            raise LineError(str(error)) from None

    return read


def _cell_reader(field: Field) -> _Reader:
    is_tuple = get_origin(field.kind) is tuple
    convert: _Reader = CONVERSIONS.get(field.kind, field.kind)
    is_parsed = is_tuple or field.column.read is not None
    if is_parsed:
        read_text = field.column.read or cell_reader(field.kind)
        convert = lru_cache(TEXTS_KEPT)(lambda cell: read_text(_text(cell)))
    if not field.may_be_empty:
        return convert
    if not is_parsed:
        return lambda cell: convert(cell) if cell else None
    empty = () if is_tuple else None
    # A text that was cut cannot be parsed.
    return lambda cell: convert(cell) if cell and len(cell) < LONGEST_CELL else empty


def _read_cell(field: Field, reader: _Reader, cell: Any) -> None:
    """Raise the ``LineError`` of a cell, or of a group of cells, that cannot be read."""
    try:
        reader(cell)
    except LineError:
        raise
    except (ValueError, KeyError):
        values = field.column.values
        problem = f"possible ({values.words})" if get_origin(field.kind) is tuple and values != ANY else "valid"
        raise LineError(f"{field.name}: {quoted(cell)} is not {problem}") from None


def _text(cell: str) -> str:
    text = cell if cell.isprintable() else printable(cell)
    return text[1:] if text[:1] == TEXT_SIGN and SIGNED.match(text, 1) else text


CONVERSIONS: Mapping[Any, Callable[[str], object]] = {bool: {"True": True, "False": False}.__getitem__, str: _text}
"""Parsers of cells for types whose constructor does not parse them."""


def cell_text(value: object) -> str:
    """Return a value's cell: None is empty, a tuple is one text, and no text is a formula."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        value = cell_of(value)
    if isinstance(value, float):
        # NumPy's floats have another repr.
        return repr(float(value))
    if not isinstance(value, str):
        return str(value)
    text = printable(" ".join(value.splitlines()))
    if SIGNED.match(text):
        text = TEXT_SIGN + text
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 3] + "..."


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error as error:
        raise LineError(f"no valid CSV ({error})") from None


def _check(line: str, cells: Sequence[str]) -> None:
    """Raise a ``LineError`` unless the last cell is empty, or the checksum of the others as this module writes them."""
    *others, checksum = cells
    begin, _, last = line.rpartition(",")
    is_written_here = last == checksum and _crc(f"{begin}\n") == checksum
    if checksum and not is_written_here and checksum != _crc(_line(others)):
        raise LineError(CHANGED, "delete the line, or empty its last cell if the values are right")


def _crc(line: str) -> str:
    return f"{zlib.crc32(line.encode()):08x}"


def _line(cells: Sequence[str]) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


# Conversion of cells from tables of former versions. Up to version 0.2 a row had no flags, and programs looked for
# phrases in its notes. Each phrase is converted to the flag that replaces it. It must match a note from its beginning,
# so that torch's own messages do not match.


def measurement_cells(cells: Cells) -> Cells:
    """Return the cells of a measurement with flags and duty cycle, which former versions wrote as notes."""
    if "flags" in cells or "notes" not in cells:
        return cells
    notes = [note.removeprefix(OVERHEAD) for note in cells["notes"].split("; ")]
    found = flags_of(flag for flag, phrase in PHRASES.items() for note in notes if re.match(phrase, note))
    share = _DUTY_CYCLE.search(cells["notes"]) if Flag.DUTY_CYCLE in found else None
    duty_cycle = "" if share is None else repr(int(share[1]) / 100)
    return cells | {"flags": cell_of(found), "duty_cycle": duty_cycle}


# Files

BLOCK_BYTES = 65536
NO_FILE = "not a regular file"
TORN, OLD = ".torn", ".old"
"""Suffixes of files with unfinished lines, and of tables of older versions."""

FIX = "fix or delete the line"
AWAY = "move the file away or use another --database"
ROOM = "make room and start again"
LOCAL = "use a --database on a local disk, and add its rows with"


class CsvTable(Generic[Row]):
    """A CSV file with rows of one dataclass, and perhaps a shipped one, which is only read."""

    def __init__(self, path: Path, row_type: type[Row], shipped: Path | None = None) -> None:
        self.path = path
        self._shipped: CsvTable[Row] | None = None if shipped is None else type(self)(shipped, row_type)
        self.row_type = row_type
        self._fields = columns_of(row_type)
        self._absent = {field.name: field.column.absent for field in self._fields} | {CHECKSUM: ""}
        self._columns = list(self._absent)
        self._row_of = _row_reader(row_type)
        self._parser: Callable[[str], Callable[[str], Row]] = self._reader

    @property
    def files(self) -> tuple[Path, ...]:
        shipped = () if self._shipped is None else self._shipped.files
        return (*((self.path,) if self.path.is_file() else ()), *shipped)

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)

    def rows(self, wanted: Callable[[str], bool] | None = None) -> list[Row]:
        """Return the shipped rows and the file's other rows, each oldest first; none without a file.

        An unfinished last line is skipped with a warning. Lines whose first cell is not ``wanted`` are not parsed.
        Raises ``UserError`` if the header is of no version up to this one, or a line is damaged or has impossible
        values.
        """
        shipped = [] if self._shipped is None else self._shipped.rows(wanted)
        own = self._own_rows(wanted)
        known = set(shipped) if own else ()
        return [*shipped, *(row for row in own if row not in known)]

    def _own_rows(self, wanted: Callable[[str], bool] | None = None) -> list[Row]:
        rows = []
        for line, row in self._read(wanted):
            if isinstance(row, LineError):
                raise UserError(self._problem(line, row))
            rows.append(row)
        return rows

    def lines(self) -> int:
        if not self.path.is_file():
            return 0
        with self.path.open("rb") as file:
            blocks = iter(partial(file.read, BLOCK_BYTES), b"")
            return max(0, sum(block.count(b"\n") for block in blocks) - 1)

    def problems(self) -> list[str]:
        return [self._problem(line, row) for line, row in self._read() if isinstance(row, LineError)]

    def has_readable_header(self) -> bool:
        return not any(line == 1 and isinstance(row, LineError) for line, row in self._read(lambda _: False))

    def prepare(self) -> None:
        """Make the file ready for a row that has yet to be measured, which ``append`` will not refuse then."""
        self._append("")

    def append(self, row: Row) -> None:
        """Append a row to the disk; a ``UserError`` for a file of another version, without a lock, or a full disk."""
        self._append(self._line_of(row))

    def append_missing(self, rows: Iterable[Row]) -> int:
        """Append the rows without an equal row in the table; return how many were appended."""
        lines = dict.fromkeys(map(self._line_of, rows))
        if not self._unknown(lines):
            return 0
        with self._locked() as descriptor:
            # Another process may have appended them meanwhile.
            missing = self._unknown(lines)
            self._append_under_lock(descriptor, "".join(missing))
        return len(missing)

    def _unknown(self, lines: Iterable[str]) -> list[str]:
        known = set(map(self._line_of, self.rows()))
        return [line for line in lines if line not in known]

    def as_read(self, rows: Iterable[Row]) -> list[Row]:
        """Return rows as they are read again from their cells; a ``ValueError`` if they cannot be."""
        return [self._row_of(tuple(encode(row))) for row in rows]

    def text(self, rows: Iterable[Row]) -> str:
        return "".join([_line(self._columns), *map(self._line_of, rows)])

    def replace_rows(self, update: Callable[[list[Row]], Iterable[Row]]) -> None:
        """Replace the rows under the lock by those that ``update`` returns for them; an error leaves them."""
        with self._locked() as descriptor:
            is_current = not self._end_of_last_line(descriptor) or self._is_current()
            rows = self._own_rows()
            new = list(update(rows))
            if not is_current:
                self._upgrade(self.text(new))
            elif new != rows:
                self._replace(self.text(new))

    def keep_good_lines(self) -> Path:
        """Rewrite the file without damaged lines, and return the path of the old file's copy."""
        with self._locked():
            good = [row for _, row in self._read() if not isinstance(row, LineError)]
            old = self._keep_old()
            self._replace(self.text(good))
            return old

    def _append(self, lines: str) -> None:
        with self._locked() as descriptor:
            self._append_under_lock(descriptor, lines)

    def _append_under_lock(self, descriptor: int, lines: str) -> None:
        end = self._end_of_last_line(descriptor)
        if end and not self._is_current():
            self._upgrade(self.text(self._own_rows()) + lines)
            return
        content = (lines if end else _line(self._columns) + lines).encode()
        try:
            with self._as_user_error("the row could not be written", ROOM):
                written = os.write(descriptor, content)
                if written < len(content):
                    raise OSError(f"only {written} of {len(content)} bytes were written")
                os.fsync(descriptor)
        except UserError:
            os.ftruncate(descriptor, end)
            raise

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the file's exclusive lock and yield its descriptor. A missing file is created empty."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and not self.path.is_file():
            raise UserError(self._problem(1, LineError(NO_FILE)))
        if len(self.files) > 1 and os.path.samefile(*self.files):
            raise UserError(f"{self.path}: a link to the shipped table, which is only read; delete the link")
        while True:
            with self._as_user_error("cannot be opened", "make it accessible"):
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                except OSError:
                    # How a command is called is looked up here only: that takes a third of the time of a row.
                    with self._as_user_error("cannot be locked", f"{LOCAL} {command('merge')}"):
                        raise
                # Another process may have replaced the file while this one waited.
                if os.path.exists(self.path) and os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)

    @contextmanager
    def _as_user_error(self, problem: str, remedy: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{self.path}: {problem} ({error.strerror or error}); {remedy}") from error

    def _read(self, wanted: Callable[[str], bool] | None = None) -> Iterator[tuple[int, Row | LineError]]:
        """Yield each line's number with its row or error. Nothing is read below a wrong header."""
        if not self.path.exists():
            return
        if not self.path.is_file():
            yield 1, LineError(NO_FILE)
            return
        with self.path.open("rb") as file:
            header = _header_of(file)
            if not header.endswith(b"\n") and len(header) < LONGEST_LINE:
                self._warn_of_unfinished_line(header, 1)
                return
            try:
                read = self._parser(_decoded(header))
            except LineError as error:
                yield 1, error
                return
            for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), start=2):
                if len(line) == LONGEST_LINE:
                    yield number, LineError(TOO_LONG)
                    return
                if not line.endswith(b"\n"):
                    self._warn_of_unfinished_line(line, number)
                elif wanted is None or wanted(line[: line.find(b",")].decode(errors="replace")):
                    try:
                        yield number, read(_decoded(line))
                    except LineError as error:
                        yield number, error

    def _line_of(self, row: Row) -> str:
        cells = encode(row)
        return _line([*cells, _crc(_line(cells))])

    def _reader(self, header: str) -> Callable[[str], Row]:
        """Return the parser of lines below a header, perhaps an older one; a ``LineError`` for another table's."""
        found = _cells(header)
        optional = {field.name for field in self._fields if field.may_be_empty or field.column.absent} | {CHECKSUM}
        missing = [name for name in self._columns if name not in found]
        kept = [name for name in self._columns if name in found]
        known = [name for name in found if name not in FORMER_COLUMNS]
        if known != kept or not optional.issuperset(missing) or not found:
            raise self._header_problem(found)
        if FORMER_COLUMNS.keys() & set(found) or (issubclass(self.row_type, MeasurementRow) and "flags" in missing):
            return partial(self._row, found=found, take=partial(self._converted, found))
        # Cells of columns that the file lacks stand behind its own.
        absent = [self._absent[name] for name in missing]
        take = itemgetter(*map([*found, *missing].index, self._columns))
        return partial(self._row, found=found, take=lambda cells: take([*cells, *absent]))

    def _converted(self, found: list[str], cells: list[str]) -> list[str]:
        """Return the cells of a line in the columns of this version; a ``LineError`` if they cannot be converted."""
        values = dict(zip(found, cells, strict=True))
        if issubclass(self.row_type, MeasurementRow):
            values = measurement_cells(values)
        for name, value in FORMER_COLUMNS.items():
            if values.pop(name, value) != value:
                raise LineError(f"{name}: only {value!r} was ever written")
        return list((self._absent | values).values())

    def _row(self, line: str, found: list[str], take: Callable[[list[str]], Sequence[str]]) -> Row:
        cells = _cells(line)
        if len(cells) != len(found):
            raise LineError(f"{len(cells)} cells, {len(found)} expected")
        if found[-1] == CHECKSUM:
            _check(line, cells)
        row: Row = self._row_of(tuple(take(cells)[:-1]))
        return row

    def _header_problem(self, header: list[str]) -> LineError:
        for separator, name in SEPARATORS.items():
            if separator in "".join(header):
                return LineError(f"its cells are separated by {name}", "save it with commas and decimal points")
        unknown, missing = set(header) - set(self._columns), set(self._columns) - set(header) - {CHECKSUM}
        if len(missing) == len(self._columns) - 1:
            first = ",".join(self._columns[:NAMED_COLUMNS])
            return LineError("no header", f"begin the file with the line {first},…")
        differences = "in another order"
        if unknown or missing:

            def shown(name: str) -> str:
                return name if name.isprintable() and len(name) <= SHOWN_CHARACTERS else quoted(name)

            texts = (some_of(list(map(shown, sorted(names))), NAMED_COLUMNS) for names in (unknown, missing))
            differences = "unknown: {}; missing: {}".format(*(text or "none" for text in texts))
        return LineError(f"its columns are not those of this version of opcost ({differences})")

    def _problem(self, line: int, error: LineError) -> str:
        remedy = error.remedy or (FIX if line > 1 else AWAY)
        return f"{self.path}:{line}: {error}; {remedy}"

    def _warn_of_unfinished_line(self, line: bytes, number: int) -> None:
        # An unfinished line may have all of its cells, the last one cut.
        if line:
            remedy = f"the next write moves it to {self.path.name}{TORN}"
            log = logging.getLogger(__name__)
            log.warning("%s:%d: the last line has no newline and is skipped; %s", self.path, number, remedy)

    def _is_current(self) -> bool:
        with self.path.open("rb") as file:
            header = _header_of(file)
        try:
            text = _decoded(header)
            self._reader(text)
        except LineError as error:
            raise UserError(self._problem(1, error)) from None
        return _cells(text) == self._columns

    def _end_of_last_line(self, descriptor: int) -> int:
        """Move an unfinished last line to another file; return the size of the rest."""
        end = size = os.fstat(descriptor).st_size
        while end > 0:
            # Backwards, only as far as needed.
            begin = max(0, end - BLOCK_BYTES)
            newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
            if newline >= 0:
                end = begin + newline + 1
                break
            end = begin
        if end < size:
            torn = self.path.with_name(self.path.name + TORN)
            if torn.exists() and not torn.is_file():
                raise UserError(f"{torn}: {NO_FILE}; move the file away")
            with self._as_user_error("its unfinished last line could not be moved", ROOM), torn.open("ab") as file:
                for begin in range(end, size, BLOCK_BYTES):
                    file.write(os.pread(descriptor, min(BLOCK_BYTES, size - begin), begin))
                file.write(b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.ftruncate(descriptor, end)
            log = logging.getLogger(__name__)
            log.warning("%s: an unfinished last line was moved to %s", self.path, torn.name)
        return end

    def _upgrade(self, content: str) -> None:
        old = self._keep_old()
        self._replace(content)
        log = logging.getLogger(__name__)
        log.warning("%s: converted to this version; the former table is %s", self.path, old.name)

    def _keep_old(self) -> Path:
        old, number = self.path.with_name(self.path.name + OLD), 1
        while old.exists():
            number += 1
            old = self.path.with_name(f"{self.path.name}{OLD}-{number}")
        with self._as_user_error("could not be copied", ROOM):
            shutil.copy2(self.path, old)
        return old

    def _replace(self, content: str) -> None:
        with self._as_user_error("could not be replaced", ROOM):
            replace_file(self.path, content.encode())


class ReadTable(CsvTable[Row]):
    """A table for commands that only read: each line is parsed once, and only if it is wanted."""

    def __init__(self, path: Path, row_type: type[Row], shipped: Path | None = None) -> None:
        super().__init__(path, row_type, shipped)
        self._parser = cache(lambda header: cache(self._reader(header)))


def _header_of(file: IO[bytes]) -> bytes:
    return file.readline(LONGEST_LINE).removeprefix(codecs.BOM_UTF8)


def _decoded(line: bytes) -> str:
    if len(line) >= LONGEST_LINE:
        raise LineError(TOO_LONG)
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise LineError("no UTF-8 text") from None
