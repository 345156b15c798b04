"""Errors that are not bugs: mistakes of the user, and operators that cannot be measured."""

from __future__ import annotations


class UserError(Exception):
    """One or more mistakes that the user can fix.

    Each line names the mistake, its position and its remedy. A script prints the lines and exits with status 2.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines

    def __reduce__(self) -> tuple[type[UserError], tuple[str, ...]]:
        return UserError, self.lines


class CannotMeasureError(Exception):
    """An operator or model cannot be measured (out of memory, unsupported, ...); the run continues without it."""


class CannotBuildError(CannotMeasureError):
    """The function that builds a model fails, or its model does what tuples cannot describe; it may be a user's.

    Args:
        text: the mistake; its further lines are frames of the user's code.
        remedy: its own, which ends the first line; None for the usual one.
        key: of the config, if it has the mistake.
    """

    def __init__(self, text: str, remedy: str | None = None, key: str | None = None) -> None:
        first, *frames = text.split("\n")
        super().__init__("\n".join([first if remedy is None else f"{first}; {remedy}", *frames]))
        self.remedy, self.key = remedy, key


class DescriptionError(Exception):
    """A call of an operator cannot be described as plain data. This is a bug of opcost, not of the model."""


LONGEST_SHOWN = 200
"""The most characters of a file's text that a message quotes."""


def shortened(text: str) -> str:
    """Return a file's text for a message, cut after ``LONGEST_SHOWN`` characters."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
