"""Time and energy that calls would save if they ran at their roof.

The roof of a call is the highest rate that any measured operator reached (see ``roofline``). Data in caches may exceed
the memory's rate; such calls save nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opcost.comparing.roofline import Roof, Roofline, Work, memory_rate, roofline_of
from opcost.comparing.tuple_costs import work_of
from opcost.measuring.record import MeasurementRow, does_other_work, is_doubtful
from opcost.operators.counts import OperatorCount
from opcost.operators.keys import tuple_key
from opcost.operators.values import has_zeros_in_weights
from opcost.summing.energy import common_basis
from opcost.summing.summation import ModelCost, Part


@dataclass(frozen=True)
class RoofShare:
    """The share of the roof that calls reach in time and energy, up to 1; None if it is unknown, as with unknown FLOPs.

    The share of several calls is their cost at the roof over their cost.
    """

    time_ratio: float | None
    energy_ratio: float | None


UNKNOWN_SHARE = RoofShare(None, None)

Works: TypeAlias = Sequence[tuple[Part, Work]]
"""Parts of a sum, each with the work of one call."""


def works_of(cost: ModelCost) -> Works:
    """Return the parts of a sum, each with the work of one call."""
    counts = {count.operator: count for count in cost.summed}
    return [(part, work_of(counts[part.case.operator], part.row, part.basis)) for part in cost.parts]


def roofline_of_rows(rows: Iterable[MeasurementRow], counts: Mapping[str, OperatorCount]) -> Roofline | None:
    """Return the roofline of rows under the same conditions that are sound and do the counted work.

    Rows with zeros in weights are left out: they draw less power than any model does. So is what the card cannot do.
    Energies are at the reference temperature where that is known.

    Args:
        rows: of operators.
        counts: FLOPs and bytes of each operator, by its key; rows of other operators are left out.
    """
    # All boards and repeats: the roof is the best rate of any, so neither order nor length of loops matters.
    usual = (row for row in rows if not has_zeros_in_weights(row.input_data))
    sound = (row for row in usual if not (is_doubtful(row) or does_other_work(row.measurement)))
    works: list[Work] = []
    product = ""
    for row in sound:
        count, product = counts.get(tuple_key(row.key)), row.conditions.device_product
        if count is not None:
            works.append(work_of(count, row, common_basis([row])))
    return roofline_of(works, memory_rate(product))


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


def at_roof(roof: Roof, work: Work, cost: float) -> float | None:
    """Return the cost of a call at its roof, at most its own cost; None if its work is unknown."""
    reached = roof.reached(work, cost)
    return None if reached is None else cost * min(1.0, reached)


def _share(roof: Roof, calls: list[tuple[int, Work, float]]) -> float | None:
    total = math.fsum(number * cost for number, _, cost in calls)
    costs = [(number, at_roof(roof, work, cost)) for number, work, cost in calls]
    known = [number * cost for number, cost in costs if cost is not None]
    return math.fsum(known) / total if len(known) == len(costs) else None
