"""Time and energy that calls would save if they ran at their roof.

The roof of a call is the highest rate that any measured operator reached (see ``roofline``). Data in caches may exceed
the memory's rate; such calls save nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opcost.comparing.roofline import Roof, Roofline, Work, roofline_of
from opcost.comparing.tuple_costs import arithmetic_of
from opcost.estimates import value_of
from opcost.measuring.record import is_flagged
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple
from opcost.summing.summation import ModelCost, Part


@dataclass(frozen=True)
class RoofShare:
    """The share of the roof that calls reach in time and energy, up to 1; None if it is unknown.

    The share of several calls is their cost at the roof over their cost.
    """

    time_ratio: float | None
    energy_ratio: float | None


UNKNOWN_SHARE = RoofShare(None, None)

Works: TypeAlias = Sequence[tuple[Part, Work]]
"""Parts of a sum, each with the work of one call."""


def work_of(part: Part, counts: Mapping[OperatorTuple, OperatorCount]) -> Work:
    """Return FLOPs, bytes and cost of one call of a part of a sum. The energy is on the sum's basis."""
    count = counts[part.case.operator]
    return Work(
        flop=count.flop,
        memory_bytes=count.memory_bytes,
        time_s=part.row.measurement.time_s,
        energy_j=value_of(part.basis.energy_of(part.row)),
        arithmetic=arithmetic_of(part.case.operator, part.row.conditions),
    )


def works_of(cost: ModelCost) -> Works:
    """Return the parts of a sum, each with the work of one call."""
    counts = {count.operator: count for count in cost.summed}
    return [(part, work_of(part, counts)) for part in cost.parts]


def roofline_of_sums(sums: Iterable[Works]) -> Roofline | None:
    """Return the roofline of all rows of sums under the same conditions that are not flagged."""
    works = (pair for one in sums for pair in one)
    return roofline_of({part.row.key: work for part, work in works if not is_flagged(part.row.measurement)}.values())


def roof_share(works: Works, roofline: Roofline | None) -> RoofShare:
    """Return the share of the roof that a sum reaches."""
    if roofline is None or not works:
        return UNKNOWN_SHARE
    times = [(part.occurrences, work, work.time_s) for part, work in works]
    energies = [(part.occurrences, work, work.energy_j) for part, work in works if work.energy_j is not None]
    has_energy = roofline.energy is not None and len(energies) == len(works)
    return RoofShare(
        _share(roofline.time, times), _share(roofline.energy, energies) if roofline.energy and has_energy else None
    )


def at_roof(roof: Roof, work: Work, cost: float) -> float:
    """Return the cost of a call at its roof, at most its own cost."""
    return cost * min(1.0, roof.reached(work, cost))


def _share(roof: Roof, calls: list[tuple[int, Work, float]]) -> float:
    total = math.fsum(number * cost for number, _, cost in calls)
    return math.fsum(number * at_roof(roof, work, cost) for number, work, cost in calls) / total
