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
    """Receives the items of a piece of work, and may show them with the time left. This one shows nothing.

    Several items may run at once, one per worker, and end in any order. ``worker`` is the name of a worker, such as
    ``cuda:0`` or ``node7 cuda:3``; empty where there is one only.
    """

    def start(self, items: int, expected_s: Sequence[float] = (), workers: int = 1) -> None:
        """A piece of work begins; ``expected_s`` has the expected time of the items in s, in the order in which they
        begin; empty if unknown."""

    def begin(self, name: str, worker: str = "") -> None:
        """The next item begins. It replaces an item of this worker that has not ended: that one was lost."""

    def finish(self, result: str, worker: str = "") -> None:
        """This worker's item has ended with this result."""

    def fail(self, reason: str, worker: str = "") -> None:
        """This worker's item has failed for this reason, which is always shown."""

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
def reported(progress: Progress, items: int, expected_s: Sequence[float] = (), workers: int = 1) -> Iterator[None]:
    """Report a piece of work, see ``Progress.start``, and its end in any case."""
    progress.start(items, expected_s, workers)
    try:
        yield
    finally:
        progress.end()
