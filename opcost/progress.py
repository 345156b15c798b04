"""The port through which stages report their progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

SHOWN = "is_shown"
"""Marks messages to ``logging`` that the terminal shows in another form (``extra={SHOWN: True}``), so that only log
files hold them."""


class Progress(Protocol):
    """Receives the items of a piece of work, and may show them with the time left."""

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
