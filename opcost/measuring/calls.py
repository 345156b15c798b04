"""Repeatable calls of an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from opcost.measuring.flags import Flags

Call: TypeAlias = Callable[[], object]


@dataclass(frozen=True)
class Calls:
    """Repeatable calls of an operator.

    ``cycle`` makes ``period`` calls, the same ones in the same order each time. ``overhead`` makes the other work of
    a cycle, None if there is none; with ``overhead_only_waits`` it is nothing but waiting. ``flags`` and ``notes``
    describe differences from calls in a model. ``relocated`` returns the same cycle in other memory; it is None if the
    memory cannot be changed.
    """

    cycle: Call
    period: int = 1
    flags: Flags = ()
    notes: str = ""
    overhead: Call | None = None
    overhead_only_waits: bool = False
    relocated: Callable[[], Call] | None = None
