"""Corrections of a sum of operators, and their errors: which sums need one, and what the power limit adds.

What caches add is the difference of the sum in which each call is measured in the state that its model leaves it in
(``summing.in_state``, ``ModelResult.cache_correction``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from opcost.estimates import Estimate, sum_of_independent, total_if_known
from opcost.measuring.conditions import GRAPH, STATE, WARM, Conditions
from opcost.measuring.loop import HARDLY_THROTTLED_RATIO
from opcost.measuring.record import Excess
from opcost.operators.counts import OperatorCount
from opcost.summing.summation import ModelCost, totals


def pooled(excesses: Sequence[Excess]) -> Excess:
    """Return the sum of independent times and energies; the energy is None if any is."""
    energies_j = [excess.energy_j for excess in excesses if excess.energy_j is not None]
    is_known = len(energies_j) == len(excesses)
    time_s = sum_of_independent(excess.time_s for excess in excesses)
    return Excess(time_s, sum_of_independent(energies_j) if is_known else None)


def is_corrected(conditions: Conditions) -> bool:
    """Return whether sums under these conditions need a cache correction: in graphs, with warm caches.

    Eager runs are launch-bound so often that cache effects are negligible.
    """
    return conditions.execution == GRAPH and conditions.cache == WARM


def is_in_state(conditions: Conditions) -> bool:
    """Return whether operators under these conditions are summed in the state of their model."""
    return conditions.execution == GRAPH and conditions.cache == STATE


# The power limit's part in the cost of a model whose operators together would draw more. Operators are measured at full
# clocks. A model of many such operators runs at lower clocks, at which it draws the limit on average, whatever its
# temperature. It takes longer than its operators, and less energy than they would at its temperature. Energies of
# operators are normalised to a lower one, so the part of the energy may be of either sign.

PRODUCTS, OTHERS = 0.36, 0.0
"""Exponents of an operator's time, to the base of its power at full clocks over that at lower clocks.

Products (matrix products, convolutions, attention) take longer at lower clocks; memory limits the others. 19 products
on an H200 and H100s, throttled alone, have 0.19 to 0.42, two others 0.01 and 0.02 (``docs/log/power_limit.md``)."""

EXPONENT_ERROR = 0.06
"""Standard deviation of the products' exponents."""

LARGEST_POWER_RATIO = 1.45
"""The largest power at full clocks, relative to that under the limit, at which exponents were measured."""

CARDS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
"""The cards whose operators have these exponents."""

THROTTLED_SHARE = 0.02
"""Share of a sum's time up to which throttled rows do not matter."""

POWER_RATIO_STEP = 1e-6
"""The width at which the bisection of a power ratio ends."""

UNCHANGED = Excess(Estimate(0.0, 0.0), Estimate(0.0, 0.0))


@dataclass(frozen=True)
class Load:
    """A part of a model's run at full clocks: its time in s, its energy in J, and the exponent of its time."""

    time_s: float
    energy_j: float
    exponent: float

    def at(self, power_ratio: float) -> tuple[float, float]:
        """Return time and energy at the clocks at which its power is lower by a ratio (from 1)."""
        longer = power_ratio**self.exponent
        return self.time_s * longer, self.energy_j * longer / power_ratio


def limit_of(conditions: Conditions) -> float | None:
    """Return the power limit in W; None if it is unknown how operators under these conditions respond to it.

    Nothing of a whole model is used, so that a sum is corrected in the same way with and without one.
    """
    is_known = (is_corrected(conditions) or is_in_state(conditions)) and conditions.device_product in CARDS
    return conditions.device_power_limit_w if is_known else None


def added_by_limit(
    cost: ModelCost, besides: Piece, conditions: Conditions, predicted: Sequence[Load] = ()
) -> Excess | None:
    """Return what the power limit adds to a sum, predicted calls and what else is known; None if one is unknown."""
    limit_w = limit_of(conditions)
    if limit_w is None or besides.time_s is None or besides.energy_j is None:
        return None
    loads = loads_of(cost)
    others = Load(besides.time_s, besides.energy_j, OTHERS)
    return None if loads is None else at_limit([*loads, *predicted, others], limit_w)


def correction_of(cache: Excess, cost: ModelCost, conditions: Conditions) -> Excess:
    """Return all that corrects a sum: the cache correction, and what the power limit adds if that is known."""
    if cache.energy_j is None:
        return cache
    added = added_by_limit(cost, Piece(cache.time_s.value, cache.energy_j.value), conditions)
    return cache if added is None else pooled([cache, added])


def loads_of(cost: ModelCost) -> list[Load] | None:
    """Return the parts of a sum; None if an energy is unknown, or if its rows are throttled, as in loops of 30 s."""
    throttled_s = math.fsum(
        part.time_s for part in cost.parts if (part.row.measurement.power_capped_ratio or 0.0) >= HARDLY_THROTTLED_RATIO
    )
    if throttled_s > THROTTLED_SHARE * totals(cost.parts)[0]:
        return None
    return loads_with((part.time_s, part.energy_j, part.count) for part in cost.parts)


def loads_with(costs: Iterable[tuple[float, float | None, OperatorCount]]) -> list[Load] | None:
    """Return calls by their time in s and energy in J; None if an energy is unknown."""
    found = []
    for time_s, energy_j, count in costs:
        if energy_j is None:
            return None
        found.append(Load(time_s, energy_j, PRODUCTS if count.flop else OTHERS))
    return found


def at_limit(loads: Sequence[Load], limit_w: float) -> Excess | None:
    """Return what the power limit adds to the time of some loads, and to their energy on the basis of the sum.

    The power of all falls by one ratio, so that they draw the limit on average. It is 0 if they draw less at full
    clocks, and None if the ratio is larger than any that was measured.
    """

    def cost(power_ratio: float) -> tuple[float, float]:
        costs = [load.at(power_ratio) for load in loads]
        return math.fsum(time_s for time_s, _ in costs), math.fsum(energy_j for _, energy_j in costs)

    def power_w(power_ratio: float) -> float:
        time_s, energy_j = cost(power_ratio)
        return energy_j / time_s if time_s else 0.0

    low, high = 1.0, LARGEST_POWER_RATIO
    if power_w(low) <= limit_w:
        return UNCHANGED
    if power_w(high) > limit_w:
        return None
    while high - low > POWER_RATIO_STEP:
        middle = (low + high) / 2
        low, high = (middle, high) if power_w(middle) > limit_w else (low, middle)
    (time_s, _), (full_time_s, full_energy_j) = cost(high), cost(1.0)
    products_s = math.fsum(load.at(high)[0] for load in loads if load.exponent)
    added_s = Estimate(time_s - full_time_s, EXPONENT_ERROR * math.log(high) * products_s)
    return Excess(added_s, Estimate(limit_w * time_s - full_energy_j, limit_w * added_s.standard_error))


# Errors of corrected sums

METHOD_ERROR_RATIOS: Mapping[str, float] = MappingProxyType({"time": 0.015, "energy": 0.032})
"""The standard error of the method itself, as a share of a corrected sum of ``time`` or ``energy``.

It is what sums in state are off from wholes beyond the errors of rows: the root of the mean of (ratio - 1)^2 - (its
standard error)^2 for fourteen held-back models on two H200s (``docs/log/states.md``), of which nine take less than 3
ms.
"""


def with_method_error(corrected: Estimate, quantity: str) -> Estimate:
    """Return a corrected sum of ``time`` or ``energy``, or its ratio to the whole, with the error of the method too."""
    return corrected.with_error(METHOD_ERROR_RATIOS[quantity] * corrected.value)


@dataclass(frozen=True)
class Piece:
    """Time in s and energy in J of a part of the whole model, None if unknown."""

    time_s: float | None = 0.0
    energy_j: float | None = 0.0

    def plus(self, other: Piece) -> Piece:
        return Piece(total_if_known([self.time_s, other.time_s]), total_if_known([self.energy_j, other.energy_j]))
