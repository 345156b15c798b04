"""The roofline of a card in time and energy: the highest rates that any measured operator reached.

Williams, Waterman, Patterson, Communications of the ACM 52(4) (2009), 65-76; for energy Choi, Bedard, Fowler, Vuduc,
IPDPS 2013, 661-672. Bytes are those of ``OperatorCount``, including data in caches, so that small operators may exceed
the memory's rate. The byte rate is therefore that of operators that move more than any cache holds. If none of these is
without products, as in 16 bits, the largest operators without products count, too: products may take longer.
Each arithmetic has its own roof, since fp32 products never reach the rate of TF32. Energies include idle power.

No roof is above a card's data sheet. A call that seems to be has wrong FLOPs, bytes or time; an unknown card has no
sheet, and nothing of it is beyond one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from opcost.estimates import ratio_if_known, total_if_known, value_of
from opcost.measuring.conditions import Conditions
from opcost.measuring.data_sheets import FP32, SHEETS, TF32
from opcost.measuring.precisions import AUTOCAST_DTYPES
from opcost.measuring.record import MeasurementRow
from opcost.operators.cache_chains import STREAM_BYTES
from opcost.operators.counts import CountsByPhase, OperatorCount
from opcost.operators.tuples import FLOAT32, OperatorTuple
from opcost.prediction.samples import sound_rows
from opcost.summing.summation import EnergyBasis, ModelCost, Part, common_basis, totals


def memory_rate(product: str) -> float:
    """Return the bytes per second of a card's memory, infinite if unknown."""
    return SHEETS[product].byte_rate if product in SHEETS else math.inf


MEMORY = "memory"
COMPUTE = "compute"

LARGE_RATIO = 0.5
"""The smallest share of the most bytes at which an operator still counts as one of the largest. With the 52 committed
models one by one on an H200, those that fit into ``STREAM_BYTES`` then have 3.8 TB/s to 4.3 TB/s, like larger ones, if
any of their operators without products moves more than 51 MB; all operators together have up to 6.8 TB/s."""


@dataclass(frozen=True)
class Work:
    """FLOPs, bytes and cost of one call; ``flop`` and ``energy_j`` are None if unknown.

    ``arithmetic`` is the format of its products, such as fp32 or TF32. Work beyond its card's data sheet is not
    possible (see ``is_beyond_sheet``): it has no roof and is in none.
    """

    flop: int | None
    memory_bytes: int
    time_s: float
    energy_j: float | None
    arithmetic: str = FP32
    is_possible: bool = True

    @property
    def flop_per_byte(self) -> float | None:
        """The arithmetic intensity; None if the call moves nothing, or its FLOPs are unknown."""
        return ratio_if_known(self.flop, self.memory_bytes)


@dataclass(frozen=True)
class Roof:
    """The highest rates of FLOPs, by arithmetic, and of bytes, each per second or per joule."""

    flop_rates: Mapping[str, float]
    byte_rate: float

    @property
    def highest(self) -> str:
        return max(self.flop_rates, key=self.flop_rates.__getitem__)

    def flop_rate(self, arithmetic: str) -> float:
        """Return the roof of an arithmetic, or the highest roof if it has none."""
        return self.flop_rates.get(arithmetic, self.flop_rates[self.highest])

    def ridge_flop_per_byte(self, arithmetic: str) -> float:
        """Return the intensity from which compute is the bound, not memory."""
        return self.flop_rate(arithmetic) / self.byte_rate

    def side(self, work: Work) -> str | None:
        """Return the bound of a call, ``memory`` or ``compute``; None if it moves nothing or its work is unknown."""
        intensity = work.flop_per_byte
        if intensity is None or not work.is_possible:
            return None
        return COMPUTE if intensity >= self.ridge_flop_per_byte(work.arithmetic) else MEMORY

    def reached(self, work: Work, cost: float) -> float | None:
        """Return the share of the roof that work reaches at a cost in s or J; None if the work is unknown.

        It may exceed 1 for data in caches.
        """
        if work.flop is None or not work.is_possible:
            return None
        return max(work.flop / self.flop_rate(work.arithmetic), work.memory_bytes / self.byte_rate) / cost


@dataclass(frozen=True)
class Roofline:
    """A card's roofs; ``energy`` is None if no energies are known."""

    time: Roof
    energy: Roof | None


def roofline_of(works: Iterable[Work], memory_rate: float = math.inf) -> Roofline | None:
    """Return the roofline of calls on one card; None if none computes or none moves anything.

    Calls that are faster than ``memory_rate``, the largest bytes per second of its memory, find their data in caches.
    """
    works = [work for work in works if work.is_possible]
    time = _roof([(work, work.time_s) for work in works], memory_rate)
    energy = _roof([(work, work.energy_j) for work in works if work.energy_j is not None], memory_rate)
    return None if time is None else Roofline(time, energy)


def _roof(costs: list[tuple[Work, float]], memory_rate: float) -> Roof | None:
    flop_rates: dict[str, float] = {}
    for work, cost in costs:
        if work.flop:
            flop_rates[work.arithmetic] = max(flop_rates.get(work.arithmetic, 0.0), work.flop / cost)
    from_memory = [(work, cost) for work, cost in costs if work.memory_bytes <= memory_rate * work.time_s]
    # The costs that show the memory's rate best.
    streaming = [(work, cost) for work, cost in from_memory if work.memory_bytes > STREAM_BYTES]
    if not any(work.flop == 0 for work, _ in streaming):
        without_products = [(work, cost) for work, cost in from_memory if work.flop == 0] or from_memory
        most = max((work.memory_bytes for work, _ in without_products), default=0)
        streaming += [(work, cost) for work, cost in without_products if work.memory_bytes >= LARGE_RATIO * most]
    byte_rate = max((work.memory_bytes / cost for work, cost in streaming), default=0.0)
    return Roof(flop_rates, byte_rate) if flop_rates and byte_rate else None


FASTER_CLOCK_RATIO = 1.15
"""Highest clock over that of a data sheet's rates: an H200 runs products at up to 1.98 GHz, 1.08 times the 1.83 GHz of
its sheet, and boards of GeForce cards may be faster. Memory has the clock of the sheet."""

FASTER_MEMORY_RATIO = 1.05
"""Share of the memory's rate that is allowed, for sizes of caches and units that data sheets round."""

WINOGRAD_RATIO = 4.0
"""Products of a direct convolution, of which FLOPs are counted, over those of Winograd's algorithm with tiles of 4 by 4
(Lavin and Gray, CVPR 2016, 4013-4021), the largest that cuDNN has."""


def is_beyond_sheet(work: Work, operator: OperatorTuple, product: str) -> bool:
    """Return whether a call seems to compute (convolutions: directly) or move more than its card can."""
    sheet = SHEETS.get(product)
    if sheet is None:
        return False
    from_memory = (work.memory_bytes - sheet.cache_bytes) / work.time_s
    most = FASTER_CLOCK_RATIO * sheet.flop_rates.get(work.arithmetic, math.inf)
    if "conv" in operator.short_name.lower():
        most *= WINOGRAD_RATIO
    return from_memory > FASTER_MEMORY_RATIO * sheet.byte_rate or (work.flop or 0) / work.time_s > most


RECURRENT = frozenset({"lstm", "gru", "rnn", "rnn_tanh", "rnn_relu"})
"""Layers and functions that cuDNN computes as a whole; a cell of one step is products as others are."""


def arithmetic_of(operator: OperatorTuple, conditions: Conditions) -> str:
    """Return the format of an operator's products: that of autocast, its first floating-point input's, or TF32.

    torch has one TF32 switch for what cuDNN computes (convolutions, recurrent layers), and one for all other products.
    """
    dtype = next((spec.dtype for spec in operator.floating_inputs), FLOAT32)
    dtype = AUTOCAST_DTYPES.get(conditions.precision, dtype)
    if dtype != FLOAT32:
        return dtype
    if conditions.device_type == "cpu":
        return FP32
    name = operator.short_name.lower()
    is_of_cudnn = "conv" in name or name in RECURRENT
    return TF32 if (conditions.cudnn_tf32 if is_of_cudnn else conditions.matmul_tf32) else FP32


def work_of(count: OperatorCount, row: MeasurementRow, basis: EnergyBasis) -> Work:
    """Return FLOPs, bytes and cost of one call of an operator. The energy is on this basis."""
    arithmetic = arithmetic_of(count.operator, row.conditions)
    energy_j = value_of(basis.energy_of(row))
    work = Work(count.flop, count.memory_bytes, row.measurement.time_s, energy_j, arithmetic)
    return replace(work, is_possible=not is_beyond_sheet(work, count.operator, row.conditions.device_product))


Works: TypeAlias = Sequence[tuple[Part, Work]]
"""Parts of a sum, each with the work of one call."""


def works_of(cost: ModelCost) -> Works:
    return [(part, work_of(part.count, part.row, part.basis)) for part in cost.parts]


def roofline_of_rows(rows: Iterable[MeasurementRow], counts: CountsByPhase) -> Roofline | None:
    """Return the roofline of sound rows under the same conditions; energies at the reference temperature if known."""
    # All boards and repeats: the roof is the best rate of any, so neither order nor length of loops matters.
    works, product = [], ""
    for row, count in sound_rows(rows, counts):
        product = row.conditions.device_product
        works.append(work_of(count, row, common_basis([row])))
    return roofline_of(works, memory_rate(product))


def roof_share(works: Works, roofline: Roofline | None) -> tuple[float | None, float | None]:
    """Return the shares of the roof that calls reach in time and energy: their cost there over their cost, up to 1."""
    (time_s, energy_j), (saving_s, saving_j) = totals(part for part, _ in works), savings(works, roofline)
    return (
        None if saving_s is None or not works else 1 - saving_s / time_s,
        None if saving_j is None or not energy_j else 1 - saving_j / energy_j,
    )


def savings(works: Works, roofline: Roofline | None) -> tuple[float | None, float | None]:
    """Return time and energy that calls below their roof would save there; None if one is unknown."""

    def saved(roof: Roof | None, costs: Iterable[tuple[int, Work, float | None]]) -> float | None:
        if roof is None:
            return None
        found: list[float | None] = []
        for calls, work, cost in costs:
            reached = None if cost is None else roof.reached(work, cost)
            found.append(None if cost is None or reached is None else calls * (cost - cost * min(1.0, reached)))
        return total_if_known(found)

    if roofline is None:
        return None, None
    return (
        saved(roofline.time, ((part.occurrences, work, work.time_s) for part, work in works)),
        saved(roofline.energy, ((part.occurrences, work, work.energy_j) for part, work in works)),
    )
