"""Calls of an operator that are made again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from opcost.measuring.flags import Flags

Call: TypeAlias = Callable[[], object]


@dataclass(frozen=True)
class Calls:
    """Calls of an operator that are made again and again.

    ``cycle`` makes ``period`` calls, each time the same ones in the same order. ``overhead`` is what a whole cycle does
    besides, None if nothing; ``flags`` and ``notes`` say how they differ from calls in a model. ``relocated`` makes the
    same cycle on other memory, None where there is but one place for it.
    """

    cycle: Call
    period: int = 1
    flags: Flags = ()
    notes: str = ""
    overhead: Call | None = None
    relocated: Callable[[], Call] | None = None
