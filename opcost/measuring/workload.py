"""The port of workloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from opcost.measuring.flags import Flags


class Workload(Protocol):
    """A repeatable load with one or more iterations in each round."""

    @property
    def execution(self) -> str:
        """``graph`` or ``eager``."""

    @property
    def iterations_per_round(self) -> int: ...

    @property
    def placements(self) -> int:
        """The number of memory placements, which successive calls of ``run`` use in turn."""

    @property
    def waits(self) -> int | None:
        """The number of waits for the GPU in a round that is captured in pieces; None if it is not."""

    @property
    def call_memory_peak_bytes(self) -> int | None:
        """The most memory of the device that a call of a whole model holds with its weights; None if unknown."""

    @property
    def far_launches_s(self) -> float | None:
        """The part of the time of a call in its state that it has because its graph is not in the cache, if known."""

    @property
    def flags(self) -> Flags: ...

    @property
    def notes(self) -> str:
        """Differences from the run inside a model; empty if there are none."""

    @property
    def overhead(self) -> Workload | None:
        """The part of each iteration that is not to be measured, as a workload of its own; None if there is none."""

    @property
    def only_waits(self) -> bool:
        """Whether it does nothing but wait, so that its power is the same for all operators."""

    @property
    def ended_s(self) -> float | None:
        """The time of the rounds that ended last, by the device's clock; None if it has none."""

    def run(self, rounds: int) -> int:
        """Start a number of rounds; return how many have ended since the last call.

        On a GPU the call returns while the last rounds still run, so that the GPU stays busy.
        """

    def finish(self) -> None:
        """Wait until the device is idle."""


Call: TypeAlias = Callable[[], object]


@dataclass(frozen=True)
class Calls:
    """Repeatable calls of an operator.

    ``cycle`` makes ``period`` calls, the same ones in the same order each time. ``overhead`` makes the other work of a
    cycle; with ``overhead_only_waits`` it is nothing but waiting. ``alone`` are the same calls with less of it.
    ``flags`` and ``notes`` describe differences from calls in a model. ``call_memory_peak_bytes`` is that of
    ``Workload``. ``relocated`` returns the same cycle in other memory; it is None if the memory cannot be changed.
    """

    cycle: Call
    period: int = 1
    flags: Flags = ()
    notes: str = ""
    overhead: Call | None = None
    overhead_only_waits: bool = False
    alone: Calls | None = None
    relocated: Callable[[], Call] | None = None
    call_memory_peak_bytes: int | None = None
