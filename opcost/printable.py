"""Text of files and folders as it is printed: on one line, without characters that change the text around them."""

from __future__ import annotations

import re

from opcost.errors import shortened

LONGEST_BEGINNING = 600
LONGEST_END = 500
"""The most characters of a mistake that are printed: a user's text may have millions."""


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
    """Return a mistake as it is printed: of a very long one, its beginning and its remedy at the end.

    Frames of a user's code, which are indented, stay below the mistake.
    """
    first, *frames = re.sub(r"\n(?!  )", " ", mistake).split("\n")
    return "\n".join(map(printable, [shortened(first, LONGEST_BEGINNING, LONGEST_END), *frames]))


def is_one_line(path: str) -> bool:
    """Return whether a path has no characters but those that are shown, and tabs."""
    return path.replace("\t", " ").isprintable()
