"""The roofline of a card in time and energy, from its own rows: the best that any operator reached.

Williams, Waterman, Patterson, Communications of the ACM 52(4) (2009), 65-76; for energy Choi, Bedard, Fowler, Vuduc,
IPDPS 2013, 661-672. Bytes are those that an operator's calls name (``operators.OperatorCount``): what lies in a cache
counts, too, so that small operators may be faster than the memory is, and above its roof. So the byte rate is that of
operators that move more than any cache holds, where there are such. Each arithmetic has a roof of its own: products in
fp32 never come near TF32's. Energies are whole ones, idle power included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opcost.comparing.cache_chains import STREAM_BYTES

MEMORY = "memory"
COMPUTE = "compute"

FP32, TF32 = "fp32", "TF32"


@dataclass(frozen=True)
class Work:
    """What one call computes and moves, and what it costs; ``energy_j`` is None where it is unknown.

    ``arithmetic`` is what it multiplies in, such as fp32 or TF32.
    """

    flop: int
    memory_bytes: int
    time_s: float
    energy_j: float | None
    arithmetic: str = FP32

    @property
    def flop_per_byte(self) -> float | None:
        """The arithmetic intensity; None of what moves nothing."""
        return self.flop / self.memory_bytes if self.memory_bytes else None


@dataclass(frozen=True)
class Roof:
    """The highest rates: of FLOPs, by arithmetic, and of bytes, each per second or per joule."""

    flop_rates: Mapping[str, float]
    byte_rate: float

    @property
    def highest(self) -> str:
        """The arithmetic whose roof is the highest."""
        return max(self.flop_rates, key=self.flop_rates.__getitem__)

    def flop_rate(self, arithmetic: str) -> float:
        """Return the roof of an arithmetic, the highest one where nothing is known of it."""
        return self.flop_rates.get(arithmetic, self.flop_rates[self.highest])

    def ridge_flop_per_byte(self, arithmetic: str) -> float:
        """Return the intensity from which on computing is the bound, not memory."""
        return self.flop_rate(arithmetic) / self.byte_rate

    def side(self, work: Work) -> str | None:
        """Return what bounds a call: ``memory`` or ``compute``; None where it moves nothing."""
        intensity = work.flop_per_byte
        if intensity is None:
            return None
        return COMPUTE if intensity >= self.ridge_flop_per_byte(work.arithmetic) else MEMORY

    def reached(self, work: Work, cost: float) -> float:
        """Return which share of the roof is reached by work that costs so many seconds or joules; above 1 in caches."""
        return max(work.flop / self.flop_rate(work.arithmetic), work.memory_bytes / self.byte_rate) / cost


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
    flop_rates: dict[str, float] = {}
    for work, cost in costs:
        if work.flop:
            flop_rates[work.arithmetic] = max(flop_rates.get(work.arithmetic, 0.0), work.flop / cost)
    byte_rate = max((work.memory_bytes / cost for work, cost in streaming or costs), default=0.0)
    return Roof(flop_rates, byte_rate) if flop_rates and byte_rate else None
