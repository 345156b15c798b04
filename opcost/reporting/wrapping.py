"""Texts within a width: lines without broken words, and names shortened in the middle.

A word is a text between spaces, or a number with its unit: ``1.042 ± 0.002``, ``3 min 20 s``, ``98.1 %``.
"""

from __future__ import annotations

import re

from rich.cells import cell_len, set_cell_size

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
    # A character of two columns may leave one column less.
    return f"{set_cell_size(text, begin).rstrip()}{ELLIPSIS}{_end_of(text, end).lstrip()}"


def _end_of(text: str, width: int) -> str:
    return set_cell_size(text[::-1], width).rstrip()[::-1]


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
    """Return a word as lines."""
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
