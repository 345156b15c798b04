"""Models that a command leaves out of its result: a warning names each, with the reason."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SAID: ContextVar[set[str] | None] = ContextVar("said", default=None)


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
