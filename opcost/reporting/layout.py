"""Layout of tables within a width, and of lines without broken words.

A column without any known value is left out. A table that is too wide first breaks its headings at spaces, then loses
columns, and at last has a block for each row. A word is a text between spaces, or a number with its unit:
``1.042 ± 0.002``, ``3 min 20 s``, ``98.1 %``. It is never broken in two, except one that is longer than the width.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal, TypeAlias

from rich.cells import cell_len, set_cell_size

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


_Filled: TypeAlias = tuple[Column, list[str]]
"""A column with the text of each row."""

Line: TypeAlias = tuple[str, bool]
"""A line of a table, and whether it is a heading."""


@dataclass(frozen=True)
class Drawn:
    """A table that fits, and the titles of the columns that it leaves out: for their width, or without known values."""

    lines: tuple[Line, ...]
    left_out: tuple[str, ...]
    unknown: tuple[str, ...]


def least_width(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Return the least width of a table with all of its columns."""
    return _total([_least_width(one) for one in _filled(columns, rows)])


def drawn(content: tuple[Sequence[Column], Sequence[Sequence[str]]], width: int, block: int) -> Drawn:
    """Return a table that fits a width in characters: columns, the first one with names, and a text for each in rows.

    ``block`` is the number of successive rows that belong together.
    """
    first, *others = _filled(*content)
    known = [first, *(one for one in others if set(one[1]) != {UNKNOWN})]
    unknown = tuple(column.title for column, cells in others if set(cells) == {UNKNOWN})
    kept = list(known)
    while (widths := _widths(kept, width)) is None:
        index = max(range(len(kept)), key=lambda index: (kept[index][0].drop, index))
        if not kept[index][0].drop:
            break
        del kept[index]
    left_out = tuple(one[0].title for one in known if not any(one is shown for shown in kept))
    return Drawn(tuple(_blocks(kept, width, block) if widths is None else _table(kept, widths)), left_out, unknown)


def _filled(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[_Filled]:
    return [(column, [row[index] for row in rows]) for index, column in enumerate(columns)]


def _least_width(one: _Filled) -> int:
    column, cells = one
    width = _longest(cells)
    if column.wraps:
        width = max([min(width, column.wraps), *map(longest_word, cells)])
    return max(width, longest_word(column.title))


def _widths(columns: Sequence[_Filled], width: int) -> list[int] | None:
    """Return a width of each column with which the table fits, None if it does not."""
    widths = list(map(_least_width, columns))
    left = width - _total(widths)
    if left < 0:
        return None
    # Texts get the room first, then headings.
    for index, (column, cells) in sorted(enumerate(columns), key=lambda numbered: numbered[1][0].wraps == 0):
        more = min(left, _longest([column.title, *cells]) - widths[index])
        widths[index] += more
        left -= more
    return widths


def _table(columns: Sequence[_Filled], widths: Sequence[int]) -> Iterator[Line]:
    """Yield the headings, which end in one line, a rule, and the rows."""
    aligns = [column.align for column, _ in columns]
    titles = [wrapped(column.title, width) for (column, _), width in zip(columns, widths, strict=True)]
    height = max(map(len, titles))
    for line in zip(*([""] * (height - len(title)) + title for title in titles), strict=True):
        yield _joined(line, widths, aligns), True
    yield "─" * _total(widths), False
    for row in zip(*(cells for _, cells in columns), strict=True):
        broken = [
            wrapped(cell, width, len(cell) - len(cell.lstrip())) if column.wraps else [cell]
            for (column, _), cell, width in zip(columns, row, widths, strict=True)
        ]
        for parts in zip_longest(*broken, fillvalue=""):
            yield _joined(parts, widths, aligns), False


def _joined(cells: Iterable[str], widths: Sequence[int], aligns: Sequence[str]) -> str:
    padded = []
    for cell, width, align in zip(cells, widths, aligns, strict=True):
        spaces = " " * (width - cell_len(cell))
        padded.append(cell + spaces if align == "left" else spaces + cell)
    return (" " * GAP).join(padded).rstrip()


def _blocks(columns: Sequence[_Filled], width: int, block: int) -> Iterator[Line]:
    """Yield a block for each row, or for several that belong together: the names, and a line for each other column."""
    (_, names), *others = columns
    titles = [column.title for column, _ in others]
    rows: list[tuple[str, ...]] = [()] * len(names)
    if others:
        rows = list(zip(*(cells for _, cells in others), strict=True))
    slots = [_longest(cell for row in rows[number::block] for cell in row) for number in range(block)]
    label = _longest(titles)
    are_beside = block > 1 and label + sum(slots) + GAP * (block + 1) <= width
    for begin in range(0, len(rows), block):
        for name in filter(None, names[begin : begin + block]):
            yield from ((line, True) for line in wrapped(name, width, GAP))
        own = rows[begin : begin + block]
        if are_beside:
            own = [tuple((" " * GAP).join(map(set_cell_size, cells, slots)) for cells in zip(*own, strict=True))]
        for row in own:
            for title, cell in zip(titles, row, strict=True):
                yield from ((line.rstrip(), False) for line in _value(title, cell, label, width))


def _value(title: str, cell: str, label: int, width: int) -> list[str]:
    """Return the lines of a value in a block: beside its title if its words fit there, else below."""
    if not cell.strip():
        return []
    room = width - label - 2 * GAP
    if longest_word(cell) <= room:
        begin, *others = wrapped(cell, room)
        return [f"{'':{GAP}}{title:{label}}{'':{GAP}}{begin}", *(" " * (label + 2 * GAP) + line for line in others)]
    indented = ((title, GAP), (cell, 2 * GAP))
    return [" " * indent + line for text, indent in indented for line in wrapped(text, width - indent)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _longest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)
