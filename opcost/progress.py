"""How long work tells of itself: the port that stages report to."""

from __future__ import annotations

from typing import Protocol

SHOWN = "is_shown"
"""Marks messages to ``logging`` (``extra={SHOWN: True}``) of what people see in a terminal anyway: for files."""


class Progress(Protocol):
    """Is told of each item of a piece of work; shows it with the time left, or does not."""

    def start(self, items: int, expected_item_s: float | None) -> None:
        """A piece of work begins; ``expected_item_s`` is how long an item takes, None if nobody knows."""

    def begin(self, name: str) -> None:
        """The next item begins."""

    def finish(self, result: str) -> None:
        """The item that began last has ended with this result."""

    def fail(self, reason: str) -> None:
        """The item that began last has failed for this reason, which is shown in any case."""

    def end(self) -> None:
        """The piece of work is over."""
