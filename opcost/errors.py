"""Errors that are not bugs: what a user can mend, and what cannot be measured."""


class UserError(Exception):
    """One or more mistakes that the user can mend.

    Each line says what is wrong, where, and what to do; a script prints the lines and exits with status 2.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class CannotMeasureError(Exception):
    """One operator or model cannot be measured here (out of memory, unsupported, ...): the run goes on without it."""
