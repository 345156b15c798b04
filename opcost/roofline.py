"""The roofline of a card in time and energy, from its own rows: the best that any operator reached.

Williams, Waterman, Patterson, Communications of the ACM 52(4) (2009), 65-76; for energy Choi, Bedard, Fowler, Vuduc,
IPDPS 2013, 661-672. Bytes are those that an operator's calls name (``operators.OperatorCount``): what lies in a cache
counts, too, so that small operators may be faster than the memory is, and above its roof. So the byte rate is that of
operators that move more than any cache holds, where there are such. Energies are whole ones, idle power included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from opcost.calls_in_chains import STREAM_BYTES

MEMORY = "memory"
COMPUTE = "compute"


@dataclass(frozen=True)
class Work:
    """What one call computes and moves, and what it costs; ``energy_j`` is None where it is unknown."""

    flop: int
    memory_bytes: int
    time_s: float
    energy_j: float | None

    @property
    def flop_per_s(self) -> float:
        return self.flop / self.time_s

    @property
    def bytes_per_s(self) -> float:
        return self.memory_bytes / self.time_s

    @property
    def flop_per_byte(self) -> float | None:
        """The arithmetic intensity; None of what moves nothing."""
        return self.flop / self.memory_bytes if self.memory_bytes else None


@dataclass(frozen=True)
class Roof:
    """The highest rates: of FLOPs and of bytes, each per second or per joule."""

    flop_rate: float
    byte_rate: float

    @property
    def ridge_flop_per_byte(self) -> float:
        """The intensity from which on computing is the bound, not memory."""
        return self.flop_rate / self.byte_rate

    def at(self, flop_per_byte: float) -> float:
        """Return the highest FLOP rate at an intensity."""
        return min(self.flop_rate, flop_per_byte * self.byte_rate)

    def side(self, work: Work) -> str | None:
        """Return what bounds a call: ``memory`` or ``compute``; None where it moves nothing."""
        intensity = work.flop_per_byte
        return None if intensity is None else COMPUTE if intensity >= self.ridge_flop_per_byte else MEMORY

    def reached(self, flop: float, memory_bytes: float, cost: float) -> float:
        """Return which share of the roof is reached by work that costs so many seconds or joules; above 1 in caches."""
        return max(flop / self.flop_rate, memory_bytes / self.byte_rate) / cost


@dataclass(frozen=True)
class Roofline:
    """A card's roofs; ``energy`` is None where no energies are known."""

    time: Roof
    energy: Roof | None


def roofline_of(works: Iterable[Work]) -> Roofline | None:
    """Return the roofline that calls span; None where none computes, or none moves anything."""
    works = list(works)
    time = _roof([(work, work.time_s) for work in works])
    energy = _roof([(work, work.energy_j) for work in works if work.energy_j is not None])
    return None if time is None else Roofline(time, energy)


def is_beyond_caches(work: Work) -> bool:
    """Return whether a call moves more than any GPU's cache holds."""
    return work.memory_bytes > STREAM_BYTES


def _roof(costs: list[tuple[Work, float]]) -> Roof | None:
    streaming = [(work, cost) for work, cost in costs if is_beyond_caches(work)]
    flop_rate = max((work.flop / cost for work, cost in costs), default=0.0)
    byte_rate = max((work.memory_bytes / cost for work, cost in streaming or costs), default=0.0)
    return Roof(flop_rate, byte_rate) if flop_rate and byte_rate else None
