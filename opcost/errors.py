"""Errors that are not bugs: mistakes of the user, and operators that cannot be measured."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass

LONGEST_SHOWN = 200
"""The most characters of a file's text that a message quotes."""

SHOWN_CHARACTERS = 60
"""The most characters of a word that a message quotes."""


class UserError(Exception):
    """Mistakes that the user can fix: a line each with position and remedy. A script prints them and exits with 2."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines

    def __reduce__(self) -> tuple[type[UserError], tuple[str, ...]]:
        return UserError, self.lines

    def _render_traceback_(self) -> list[str]:
        """Return the lines that a notebook shows, as a command does."""
        return [f"error: {line}" for line in self.lines]


class CannotMeasureError(Exception):
    """An operator or model cannot be measured (out of memory, unsupported, ...); the run continues without it."""


class UnknownModelError(CannotMeasureError):
    """A library has no model of a name; ``question`` asks for one of a similar name, empty without any."""

    def __init__(self, problem: str, question: str = "") -> None:
        super().__init__(f"{problem}{question and f'; {question}'}")
        self.question = question


@dataclass(frozen=True)
class KeyRemedy:
    """The remedy of a key's mistake: one of these values, or something else; without values, to leave the key out."""

    key: str
    values: tuple[str, ...] = ()
    otherwise: str = ""

    def text(self, option: str | None = None) -> str:
        """Return the remedy in words, for the option that gave the key, or for a config if there is none."""
        if not self.values:
            return f"leave {option or self.key} out"
        known = " or ".join(self.values)
        first = f"give {option} {known}" if option else f"write {self.key}: {known}"
        return ", or ".join(filter(None, [first, self.otherwise]))


class CannotBuildError(CannotMeasureError):
    """The function that builds a model fails, or its model does what tuples cannot describe; it may be a user's.

    Further lines of ``text`` are frames of the user's code. ``remedy`` is None for the usual one.
    """

    def __init__(self, text: str, remedy: str | KeyRemedy | None = None, key: str | None = None) -> None:
        self.text, self.remedy = text, remedy
        self.key = remedy.key if isinstance(remedy, KeyRemedy) else key
        super().__init__(self.with_remedy(None))

    def with_remedy(self, option: str | None, usual: str | None = None) -> str:
        """Return the error's lines for the ``option`` that gave the key; ``usual`` is the remedy if it has none."""
        first, *frames = self.text.split("\n")
        own = self.remedy.text(option) if isinstance(self.remedy, KeyRemedy) else self.remedy
        return "\n".join(["; ".join(filter(None, (first, own or usual))), *frames])


class DescriptionError(Exception):
    """A call of an operator cannot be described as plain data. This is a bug of opcost, not of the model."""


def quoted(text: str) -> str:
    """Return a text in quotes, on one line and cut after ``SHOWN_CHARACTERS``."""
    return repr(shortened(text, SHOWN_CHARACTERS))


def shortened(text: str, longest: int = LONGEST_SHOWN, end: int = 0) -> str:
    """Return a text for a message, cut after some characters; as many as ``end`` of its last ones stay."""
    return text if len(text) <= longest + end else f"{text[:longest]}...{text[len(text) - end :]}"


class AttentionRefusedError(UserError):
    """The back end of attention that a user chose cannot run a call of the model on any GPU."""


def suggestion(name: str, known: Collection[str], otherwise: str) -> str:
    """Return a question with up to three similar names, the shortest that begin so first; else another remedy."""
    longer = sorted((one for one in known if name and one.startswith(name)), key=lambda one: (len(one), one))
    close = list(dict.fromkeys([*longer, *difflib.get_close_matches(name, known, n=3)]))[:3]
    return f"did you mean {' or '.join(close)}?" if close else otherwise
