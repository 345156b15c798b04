"""Tables of the database: one CSV file for each kind of row.

Rows are appended under a lock with one write that is synced to disk, so that a file never holds a part of a row and a
killed run loses no row that it reported. An unfinished last line, left by a crash, is moved to another file. A file of
an older version is replaced by one of this version and kept beside it.
"""

from __future__ import annotations

import codecs
import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import IO, Generic, TypeVar

from opcost.columns import Columns
from opcost.errors import UserError
from opcost.invocation import command
from opcost.storage.files import LONGEST_LINE, TOO_LONG, replace_file
from opcost.storage.rows import LineError, RowLines

Row = TypeVar("Row", bound=Columns)

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
        self._lines = RowLines(row_type)
        self._parser: Callable[[str], Callable[[str], Row]] = self._lines.reader

    @property
    def files(self) -> tuple[Path, ...]:
        shipped = () if self._shipped is None else self._shipped.files
        return (*((self.path,) if self.path.is_file() else ()), *shipped)

    @property
    def size_bytes(self) -> int:
        """The size of its files; 0 without any."""
        return sum(path.stat().st_size for path in self.files)

    def rows(self, wanted: Callable[[str], bool] | None = None) -> list[Row]:
        """Return the shipped rows and the file's other rows, each oldest first; none without a file.

        A row that is in both files, as after a merge, counts once. An unfinished last line is skipped with a warning.
        Lines whose first cell is not ``wanted`` are not parsed.

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
        """Return the number of finished lines below the header, damaged ones included; it takes milliseconds."""
        if not self.path.is_file():
            return 0
        with self.path.open("rb") as file:
            blocks = iter(partial(file.read, BLOCK_BYTES), b"")
            return max(0, sum(block.count(b"\n") for block in blocks) - 1)

    def problems(self) -> list[str]:
        """Return one message for each line that cannot be read."""
        return [self._problem(line, row) for line, row in self._read() if isinstance(row, LineError)]

    def has_readable_header(self) -> bool:
        """Return whether the header is of this version or an older one."""
        return not any(line == 1 and isinstance(row, LineError) for line, row in self._read(lambda _: False))

    def prepare(self) -> None:
        """Make the file ready for a row that has yet to be measured, which ``append`` will not refuse then."""
        self._append("")

    def append(self, row: Row) -> None:
        """Append one row; it is on disk when this returns.

        Raises ``UserError`` if the file is of another version, cannot be locked, or the disk is full.
        """
        self._append(self._lines.line(row))

    def append_missing(self, rows: Iterable[Row]) -> int:
        """Append the rows without an equal row in the table; return how many were appended."""
        lines = dict.fromkeys(map(self._lines.line, rows))
        if not self._unknown(lines):
            return 0
        with self._locked() as descriptor:
            # Another process may have appended them meanwhile.
            missing = self._unknown(lines)
            self._append_under_lock(descriptor, "".join(missing))
        return len(missing)

    def _unknown(self, lines: Iterable[str]) -> list[str]:
        known = set(map(self._lines.line, self.rows()))
        return [line for line in lines if line not in known]

    def text(self, rows: Iterable[Row]) -> str:
        """Return a whole table as text."""
        return "".join([self._lines.header(), *map(self._lines.line, rows)])

    def replace_rows(self, update: Callable[[list[Row]], Iterable[Row]]) -> None:
        """Replace the file's rows under the lock; the new rows are on disk when this returns.

        ``update`` returns the new rows, given the present ones. If they are equal, the file is not written. An error is
        that of ``rows`` or ``append``; the file is then unchanged.
        """
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
        else:
            content = lines if end else self._lines.header() + lines
            self._write_or_roll_back(descriptor, content.encode(), end)

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
                with self._as_user_error("cannot be locked", f"{LOCAL} {command('merge')}"):
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
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
            self._lines.reader(text)
        except LineError as error:
            raise UserError(self._problem(1, error)) from None
        return self._lines.is_current(text)

    def _end_of_last_line(self, descriptor: int) -> int:
        """Move an unfinished last line to another file; return the size of the rest."""
        size = os.fstat(descriptor).st_size
        end = _end_of_last_line(descriptor, size)
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

    def _write_or_roll_back(self, descriptor: int, content: bytes, end: int) -> None:
        try:
            with self._as_user_error("the row could not be written", ROOM):
                written = os.write(descriptor, content)
                if written < len(content):
                    raise OSError(f"only {written} of {len(content)} bytes were written")
                os.fsync(descriptor)
        except UserError:
            os.ftruncate(descriptor, end)
            raise

    def _upgrade(self, content: str) -> None:
        old = self._keep_old()
        self._replace(content)
        log = logging.getLogger(__name__)
        log.warning("%s: converted to this version; the former table is %s", self.path, old.name)

    def _keep_old(self) -> Path:
        """Copy the file; return the copy's path."""
        old = _free_name(self.path.with_name(self.path.name + OLD))
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
        self._parser = cache(lambda header: cache(self._lines.reader(header)))


def _header_of(file: IO[bytes]) -> bytes:
    return file.readline(LONGEST_LINE).removeprefix(codecs.BOM_UTF8)


def _decoded(line: bytes) -> str:
    if len(line) >= LONGEST_LINE:
        raise LineError(TOO_LONG)
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise LineError("no UTF-8 text") from None


def _free_name(path: Path) -> Path:
    """Return a path that does not exist: this one, or one with a number."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _end_of_last_line(descriptor: int, size: int) -> int:
    """Return the position after the last newline of a file, reading backwards only as far as needed."""
    end = size
    while end > 0:
        begin = max(0, end - BLOCK_BYTES)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0
