"""Errors that are not bugs: what a user can fix, and what cannot be measured."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(Exception):
    """One or more mistakes that the user can fix.

    Each line says what is wrong, where, and what to do; a script prints the lines and exits with status 2.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines

    def __reduce__(self) -> tuple[type[UserError], tuple[str, ...]]:
        return UserError, self.lines


class CannotMeasureError(Exception):
    """One operator or model cannot be measured here (out of memory, unsupported, ...): the run goes on without it."""


class UnknownOperationError(Exception):
    """A model runs operations of which it is not known whether they multiply and add, so its FLOPs are unknown.

    ``operations`` are their qualified names: ``aten::convolution``.
    """

    def __init__(self, operations: Iterable[str]) -> None:
        self.operations = tuple(sorted(operations))
        super().__init__(f"no formula for the FLOPs of {', '.join(self.operations)}")


class DescriptionError(Exception):
    """A call of an operator could not be described as plain data: a bug of opcost, not of the model."""


LONGEST_SHOWN = 200
"""Characters of a file in a message."""


def shortened(text: str) -> str:
    """Return a text of a file as a message can hold it: as it is, or its beginning."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
