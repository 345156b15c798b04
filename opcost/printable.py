"""Texts as they are printed: on one line, without characters that change the text around them, with short UUIDs."""

from __future__ import annotations

import re

from opcost.errors import shortened

LONGEST_BEGINNING = 600
LONGEST_END = 500
"""The most characters of a mistake that are printed: a user's text may have millions."""

_UUID = re.compile(r"\b(GPU|MIG)-([0-9a-f]{4})([0-9a-f]{4})(?:-[0-9a-f]{4,12})*", re.IGNORECASE)


def printable(text: str, kept: str = "") -> str:
    """Return a text with plain spaces for white space, and Python's escapes for other characters that are not shown.

    Such characters colour or move the text of a terminal, reverse its direction, or are no characters at all.

    The ``kept`` characters stay as they are.
    """

    def shown(character: str) -> str:
        if character.isprintable() or character in kept:
            return character
        return " " if character.isspace() else repr(character)[1:-1]

    if text.isprintable():
        return text
    return "".join(map(shown, text))


def quotable(mistake: str) -> str:
    """Return a mistake as printed: of a very long one begin and end. Indented frames of a user's code stay below it."""
    first, *frames = re.sub(r"\n(?!  )", " ", mistake).split("\n")
    return "\n".join(map(printable, [shortened(first, LONGEST_BEGINNING, LONGEST_END), *frames]))


def is_one_line(path: str) -> bool:
    """Return whether a path has no characters but those that are shown, and tabs."""
    return path.replace("\t", " ").isprintable()


def short_uuid(text: str) -> str:
    """Return a text in which UUIDs end after eight digits: enough to distinguish boards, and no identity elsewhere."""
    return _UUID.sub(r"\1-\2\3", text)


def with_named_boards(text: str) -> str:
    """Return a text in which boards have the name that a report gives them: ``GPU 1234`` for a UUID."""
    return _UUID.sub(r"\1 \2", text)
