"""What the procedure runs."""

from __future__ import annotations

from typing import Protocol

from opcost.measuring.flags import Flags


class Workload(Protocol):
    """Something that can be run again and again, one or more iterations in a round."""

    @property
    def execution(self) -> str:
        """How it is run: ``graph`` or ``eager``."""

    @property
    def iterations_per_round(self) -> int:
        """How many iterations a round holds."""

    @property
    def places(self) -> int:
        """In how many places of the memory it runs, one after the other from one ``run`` to the next."""

    @property
    def flags(self) -> Flags:
        """What programs must know of how it is run."""

    @property
    def notes(self) -> str:
        """How the run differs from the run inside a model; empty if it does not."""

    @property
    def overhead(self) -> Workload | None:
        """What each iteration does besides what is measured, by itself, iteration by iteration; None if nothing."""

    @property
    def ended_s(self) -> float | None:
        """What the rounds that ended last took by the device's own clock; None where it has none."""

    def run(self, rounds: int) -> int:
        """Start that many rounds; return how many have ended since the last call.

        A GPU is kept busy: the call returns while it is at the rounds that were started last.
        """

    def finish(self) -> None:
        """Wait until the device is idle."""
