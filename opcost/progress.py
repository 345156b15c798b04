"""The port through which stages report their progress, and warnings of models that they leave out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

SHOWN = "is_shown"
"""Marks messages to ``logging`` that the terminal shows in another form (``extra={SHOWN: True}``), so that only log
files hold them."""

_SAID: ContextVar[set[str] | None] = ContextVar("said", default=None)


class Progress:
    """Receives the items of a piece of work, and may show them with the time left. This one shows nothing."""

    def start(self, items: int, expected_s: Sequence[float] = ()) -> None:
        """A piece of work begins; ``expected_s`` has the expected time of each item in s, empty if unknown."""

    def begin(self, name: str) -> None:
        """The next item begins."""

    def finish(self, result: str) -> None:
        """The current item has ended with this result."""

    def fail(self, reason: str) -> None:
        """The current item has failed for this reason, which is always shown."""

    def end(self) -> None:
        """The piece of work has ended."""


def warn_left_out(line: str) -> None:
    """Warn of something that is left out; the line names it and its remedy."""
    said = _SAID.get()
    if said is None or line not in said:
        logging.getLogger(__name__).warning("left out: %s", line)
    if said is not None:
        said.add(line)


@contextmanager
def warning_once() -> Iterator[None]:
    """Give each of these warnings once meanwhile: several stages of a command may read the same models."""
    token = _SAID.set(set())
    try:
        yield
    finally:
        _SAID.reset(token)


@contextmanager
def reported(progress: Progress, items: int, expected_s: Sequence[float] = ()) -> Iterator[None]:
    """Report a piece of work, see ``Progress.start``, and its end in any case."""
    progress.start(items, expected_s)
    try:
        yield
    finally:
        progress.end()
