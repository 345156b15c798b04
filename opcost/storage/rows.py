"""Rows of a table as lines of CSV: the cells of a frozen dataclass of ``Columns``, and a checksum.

A row's fields are str, int, float, bool, optional ones of these, tuples of an enum's members, or such dataclasses,
which are flattened. None is an empty cell. The checksum shows that a line was damaged or edited; to edit a line on
purpose, empty its checksum.
"""

from __future__ import annotations

import csv
import io
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Generic, TypeAlias, TypeVar, get_args, get_origin

from opcost.columns import Columns, Field, columns_of, fields_of, values_of
from opcost.measuring.flags import Flag, flags_of
from opcost.measuring.record import MeasurementRow
from opcost.printable import printable
from opcost.units import some_of

SEPARATOR = "|"
"""Separator of an enum's members in one cell."""

Row = TypeVar("Row", bound=Columns)
_Reader: TypeAlias = Callable[[Any], Any]
"""The parser of a cell, or of a tuple of cells."""

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
"""The most unknown or missing columns that a message names."""

LONGEST_CELL = 100_000
"""The most characters of a cell; Python's ``csv`` reads at most 131,072."""

LONGEST_QUOTED = 60
"""The most characters of a cell in a message."""

GROUPS_KEPT = 64
"""The parsed groups of columns that are kept for lines with the same cells."""

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


class RowLines(Generic[Row]):
    """Conversion between rows of one dataclass and lines."""

    def __init__(self, row_type: type[Row]) -> None:
        self._fields = columns_of(row_type)
        self._read = _row_reader(row_type)
        self._upgrade = UPGRADES.get(row_type, dict)
        self.columns = [*(field.name for field in self._fields), CHECKSUM]
        self._empty = dict.fromkeys(self.columns, "")

    def header(self) -> str:
        """Return the first line of a table."""
        return _line(self.columns)

    def line(self, row: Row) -> str:
        """Return a row's line with its newline."""
        cells = encode(row)
        return _line([*cells, _crc(_line(cells))])

    def reader(self, header: str) -> Callable[[str], Row]:
        """Return the parser of lines below a header of this version, or of an older one without some optional columns.

        The parser raises a ``LineError`` for a damaged line or impossible values, this method for a header of another
        table.
        """
        found = _cells(header)
        optional = {field.name for field in self._fields if field.may_be_empty} | {CHECKSUM}
        missing = [name for name in self.columns if name not in found]
        kept = [name for name in self.columns if name in found]
        if found != kept or not optional.issuperset(missing) or not found:
            raise self._header_problem(found)
        return partial(self._row, found=found)

    def is_current(self, header: str) -> bool:
        """Return whether a header is this version's."""
        return _cells(header) == self.columns

    def _row(self, line: str, found: list[str]) -> Row:
        """Return the row of a line with these columns; older versions have fewer."""
        cells = _cells(line)
        if len(cells) != len(found):
            raise LineError(f"{len(cells)} cells, {len(found)} expected")
        if found[-1] == CHECKSUM:
            _check(line, cells)
        if found != self.columns:
            values = self._upgrade(dict(zip(found, cells, strict=True)))
            cells = list((self._empty | values).values())
        row: Row = self._read(tuple(cells[:-1]))
        return row

    def _header_problem(self, header: list[str]) -> LineError:
        for separator, name in SEPARATORS.items():
            if separator in "".join(header):
                return LineError(f"its cells are separated by {name}", "save it with commas and decimal points")
        unknown, missing = set(header) - set(self.columns), set(self.columns) - set(header) - {CHECKSUM}
        if len(missing) == len(self.columns) - 1:
            first = ",".join(self.columns[:NAMED_COLUMNS])
            return LineError("no header", f"begin the file with the line {first},…")
        differences = "in another order"
        if unknown or missing:
            texts = [
                some_of(
                    [
                        name if name.isprintable() and len(name) <= LONGEST_QUOTED else _quoted(name)
                        for name in sorted(names)
                    ],
                    NAMED_COLUMNS,
                )
                for names in (unknown, missing)
            ]
            differences = f"unknown: {texts[0] or 'none'}; missing: {texts[1] or 'none'}"
        return LineError(f"its columns are not those of this version of opcost ({differences})")


def encode(row: Any) -> list[str]:
    """Return a row's cells in the order of ``columns_of`` its type."""
    return [cell_text(value) for value in values_of(row)]


def _row_reader(row_type: Any) -> _Reader:
    """Return the parser of a dataclass, which takes a cell for each of its columns.

    Groups of columns whose cells are those of another line share one value: many rows have the same conditions.
    """
    parts: list[tuple[int | slice, _Reader]] = []
    begin = 0
    for field in fields_of(row_type):
        if field.is_group:
            end = begin + len(columns_of(field.kind))
            parts.append((slice(begin, end), lru_cache(GROUPS_KEPT)(_row_reader(field.kind))))
            begin = end
        else:
            parts.append((begin, _cell_reader(field)))
            begin += 1

    def read(cells: tuple[str, ...]) -> Any:
        values = [part(cells[place]) for place, part in parts]
        try:
            return row_type(*values)
        except ValueError as error:
            raise LineError(str(error)) from None

    return read


def _cell_reader(field: Field) -> _Reader:
    is_set = get_origin(field.kind) is tuple
    convert = partial(_members, get_args(field.kind)[0]) if is_set else CONVERSIONS.get(field.kind, field.kind)
    if (kept := field.column.kept) is not None:
        convert = partial(_kept_text, kept)
    empty, may_be_empty = () if is_set else None, field.may_be_empty

    def read(cell: str) -> object:
        if not cell and may_be_empty:
            return empty
        try:
            return convert(cell)
        except (ValueError, KeyError):
            raise LineError(f"{field.name}: {_quoted(cell)} is not valid") from None

    return read


def _members(kind: type[Enum], cell: str) -> tuple[Enum, ...]:
    return tuple(map(kind, cell.split(SEPARATOR)))


def _kept_text(kept: Callable[[str], str], cell: str) -> str:
    return kept(_text(cell))


def _text(cell: str) -> str:
    text = printable(cell)
    return text[1:] if text.startswith(TEXT_SIGN) and SIGNED.match(text, 1) else text


CONVERSIONS: Mapping[Any, Callable[[str], object]] = {bool: {"True": True, "False": False}.__getitem__, str: _text}
"""Parsers of cells for types whose constructor does not parse them."""


def cell_text(value: object) -> str:
    """Return a value's cell: None is empty, the members of a set are joined, and no text is a formula."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return SEPARATOR.join(member.value for member in value)
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


def _quoted(text: str) -> str:
    return repr(text if len(text) <= LONGEST_QUOTED else text[:LONGEST_QUOTED] + "...")


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
    return cells | {"flags": SEPARATOR.join(flag.value for flag in found), "duty_cycle": duty_cycle}


UPGRADES: Mapping[type[Any], Callable[[Cells], Cells]] = {MeasurementRow: measurement_cells}
"""Conversions by row type, for rows in which more than new columns has changed."""
