"""Layout of tables within a width, and of lines without broken words.

A column without any known value is left out. A table that is too wide first breaks its headings at spaces, then loses
columns, and at last has a block for each row. A word is a text between spaces, or a number with its unit:
``1.042 ± 0.002``, ``3 min 20 s``, ``98.1 %``. It is never broken in two, except one that is longer than the width.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from opcost.units import UNKNOWN

ELLIPSIS = "…"

_NUMBER = re.compile(r"[^\w\s]*\d(?:[\d.,]*\d)?")
"""A token that what follows belongs to: a plain number, possibly in parentheses or with a sign."""

_SPACED = re.compile(r"\s*\S+")

_BEFORE = ("±", "%", "(!)")
"""Tokens that belong to what is before them."""

_SEPARATED = re.compile(r".+?(?:[^\w\s]+|_+|$)", re.DOTALL)
"""A part of a word, with the separators behind it."""


def words(text: str) -> list[str]:
    """Return the words of a text."""
    return [word.strip() for word in _spaced_words(text)]


def longest_word(text: str) -> int:
    """Return the length of the longest word of a text, behind the text's indentation."""
    return len(text) - len(text.lstrip()) + max(map(cell_len, words(text)), default=0)


def wrapped(text: str, width: int, hanging: int = 0) -> list[str]:
    """Return a text as lines of at most ``width`` characters; later lines are indented by ``hanging``.

    A word that is longer than a line is broken at its separators, or else shortened in the middle.
    """
    if cell_len(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in _spaced_words(text):
        if line and cell_len(line + word) <= width:
            line += word
            continue
        if line:
            lines.append(line)
        *full, line = _broken(" " * hanging + word.lstrip() if lines else word, width, hanging)
        lines += full
    return [*lines, line]


def shortened(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters, with an ellipsis in its middle if it is longer."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    end = (width - 1) // 2
    begin = width - 1 - end
    last = set_cell_size(text[::-1], end).rstrip()[::-1]
    # A character of two columns may leave one column less.
    return f"{set_cell_size(text, begin).rstrip()}{ELLIPSIS}{last.lstrip()}"


def _spaced_words(text: str) -> list[str]:
    """Return the words of a text, each with the spaces before it. Several spaces end a word in any case."""
    found: list[str] = []
    last = ""
    for token in _SPACED.findall(text):
        bare = token.strip()
        if token == f" {bare}" and found and (bare in _BEFORE or last == "±" or _NUMBER.fullmatch(last)):
            found[-1] += token
        else:
            found.append(token)
        last = bare
    return found


def _broken(word: str, width: int, hanging: int) -> list[str]:
    if cell_len(word) <= width:
        return [word]
    lines, line = [], ""
    for part in _SEPARATED.findall(word):
        if line and cell_len(line + part) > width:
            lines.append(line)
            line = " " * hanging
        line += part
        if cell_len(line) > width:
            line = shortened(line, width)
    return [*lines, line]


GAP = 2
"""Characters between two columns, and of the indentation of a block's lines."""

MINIMUM_WIDTH = 40


@dataclass(frozen=True)
class Column:
    """A column of a table on a terminal.

    ``drop`` is 0 for a column that every width shows. Of the others, the highest go first if the table is too wide, of
    equals the last. ``wraps`` is 0, or the width down to which the cells, which are texts, are broken at spaces.
    """

    title: str
    align: Literal["left", "right"] = "right"
    drop: int = 0
    wraps: int = 0


def keeping(columns: Sequence[Column], title: str | None) -> list[Column]:
    """Return the columns with the one of this title, which rows are sorted by, never left out."""
    return [replace(column, drop=0) if column.title == title else column for column in columns]


@dataclass(frozen=True)
class _Content:
    """Columns, and rows with a text for each column."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]

    def cells(self, index: int) -> list[str]:
        return [row[index] for row in self.rows]

    def without_unknown(self) -> tuple[_Content, list[str]]:
        """Return the content without columns that have no known value, and their titles."""
        unknown = [index for index in range(1, len(self.columns)) if set(self.cells(index)) == {UNKNOWN}]
        left = self
        for index in reversed(unknown):
            left = left.without(index)
        return left, [self.columns[index].title for index in unknown]

    def without(self, index: int) -> _Content:
        rows = tuple(row[:index] + row[index + 1 :] for row in self.rows)
        return _Content(self.columns[:index] + self.columns[index + 1 :], rows)

    def least_widths(self) -> list[int]:
        return [self._least_width(index) for index in range(len(self.columns))]

    def widths(self, width: int) -> list[int] | None:
        """Return a width of each column with which the table fits, None if it does not."""
        widths = self.least_widths()
        left = width - _total(widths)
        if left < 0:
            return None
        # Texts get the room first, then headings.
        for index in sorted(range(len(widths)), key=lambda index: self.columns[index].wraps == 0):
            natural = _longest([self.columns[index].title, *self.cells(index)])
            more = min(left, natural - widths[index])
            widths[index] += more
            left -= more
        return widths

    def _least_width(self, index: int) -> int:
        column, cells = self.columns[index], self.cells(index)
        if column.wraps:
            width = max([min(_longest(cells), column.wraps), *map(longest_word, cells)])
        else:
            width = _longest(cells)
        return max(width, longest_word(column.title))


@dataclass(frozen=True)
class Drawn:
    """A table that fits, and the titles of the columns that it leaves out: for their width, or without known values."""

    table: RenderableType
    left_out: tuple[str, ...]
    unknown: tuple[str, ...]


def least_width(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Return the least width of a table with all of its columns."""
    return _total(_Content(tuple(columns), tuple(map(tuple, rows))).least_widths())


def drawn(content: tuple[Sequence[Column], Sequence[Sequence[str]]], width: int, block: int) -> Drawn:
    """Return a table that fits a width.

    Args:
        content: the columns, the first one with names, and rows with a text for each column.
        width: in characters.
        block: the number of successive rows that belong together.
    """
    columns, rows = content
    left, unknown = _Content(tuple(columns), tuple(map(tuple, rows))).without_unknown()
    known, kept = left.columns, list(range(len(left.columns)))
    while (widths := left.widths(width)) is None:
        index = max(range(len(left.columns)), key=lambda index: (left.columns[index].drop, index))
        if not left.columns[index].drop:
            break
        left = left.without(index)
        del kept[index]
    table = _blocks(left, width, block) if widths is None else _table(left, widths)
    left_out = tuple(column.title for index, column in enumerate(known) if index not in kept)
    return Drawn(table, left_out, tuple(unknown))


def _table(content: _Content, widths: Sequence[int]) -> Table:
    # The box has a space between columns.
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    titles = [wrapped(column.title, width) for column, width in zip(content.columns, widths, strict=True)]
    height = max(map(len, titles), default=0)
    for column, width, title in zip(content.columns, widths, titles, strict=True):
        lines = [""] * (height - len(title)) + title
        table.add_column(Text("\n".join(lines)), justify=column.align, no_wrap=True, width=width)
    for row in content.rows:
        cells = zip(content.columns, row, widths, strict=True)
        table.add_row(
            *(
                Text("\n".join(wrapped(cell, width, len(cell) - len(cell.lstrip()))) if one.wraps else cell)
                for one, cell, width in cells
            )
        )
    return table


def _blocks(content: _Content, width: int, block: int) -> Group:
    """Return a block for each row, or for several that belong together: the names, and a line for each other column."""
    titles = [column.title for column in content.columns[1:]]
    rows = content.rows
    slots = [_longest(cell for row in rows[number::block] for cell in row[1:]) for number in range(block)]
    label = _longest(titles)
    are_beside = block > 1 and label + sum(slots) + GAP * (block + 1) <= width
    lines: list[Text] = []
    for begin in range(0, len(rows), block):
        own = rows[begin : begin + block]
        names = [line for row in own if row[0] for line in wrapped(row[0], width, GAP)]
        lines += [Text(name, "bold") for name in names]
        values = [list(zip(titles, row[1:], strict=True)) for row in own]
        if are_beside:
            cells = (tuple(map(set_cell_size, row, slots)) for row in zip(*(row[1:] for row in own), strict=True))
            values = [[(title, (" " * GAP).join(row)) for title, row in zip(titles, cells, strict=True)]]
        lines += [Text(line) for row in values for title, cell in row for line in _value(title, cell, label, width)]
    return Group(*lines)


def _value(title: str, cell: str, label: int, width: int) -> list[str]:
    """Return the lines of a value in a block: beside its title if its words fit there, else below."""
    if not cell.strip():
        return []
    room = width - label - 2 * GAP
    if longest_word(cell) <= room:
        begin, *others = wrapped(cell, room)
        return [f"{'':{GAP}}{title:{label}}{'':{GAP}}{begin}", *(" " * (label + 2 * GAP) + line for line in others)]
    return [*_indented(title, GAP, width), *_indented(cell, 2 * GAP, width)]


def _indented(text: str, indent: int, width: int) -> list[str]:
    return [" " * indent + line for line in wrapped(text, width - indent)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _longest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)
