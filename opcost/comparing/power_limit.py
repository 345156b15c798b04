"""The power limit's part in the cost of a model whose operators together would draw more.

Operators are measured at full clocks. A model of many such operators runs at lower clocks, at which it draws the limit
on average, whatever its temperature. It takes longer than its operators, and less energy than they would at its
temperature. Energies of operators are normalised to a lower one, so the part of the energy may be of either sign.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from opcost.comparing.cache_chain_rows import Excess, is_corrected, pooled
from opcost.estimates import Estimate, sum_of_independent, value_of
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import REFERENCE_TEMPERATURE_C, Measurement, MeasurementRow
from opcost.measuring.throttling import HARDLY_THROTTLED_RATIO, LEAST_SETTLED_LOOP_S
from opcost.summing.energy import EnergyBasis
from opcost.summing.summation import ModelCost

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

LEAST_KELVIN = 2.0
"""The smallest difference of temperatures from which a row shows its coefficient: temperatures are whole degrees."""

POWER_RATIO_STEP = 1e-6
"""The width at which the bisection of a power ratio ends."""

UNCHANGED = Excess(Estimate(0.0, 0.0), Estimate(0.0, 0.0))


@dataclass(frozen=True)
class Limit:
    """The power limit in W of a run, whose chip may be warmer than the temperature that energies are normalised to.

    ``warmth`` is the power at full clocks at the run's temperature over that on the basis of the sum, and
    ``normalised`` the run's energy on this basis over its energy as measured: 1 while it draws the limit, whatever its
    temperature.
    """

    power_w: float
    warmth: float = 1.0
    normalised: float = 1.0


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


def limit_of(conditions: Conditions) -> Limit | None:
    """Return the power limit; None if it is unknown how operators under these conditions respond to it."""
    is_known = is_corrected(conditions) and conditions.device_product in CARDS
    return Limit(conditions.device_power_limit_w) if is_known and conditions.device_power_limit_w else None


def limit_beside(full: MeasurementRow, cost: ModelCost) -> Limit | None:
    """Return the power limit in the run of a whole model, see ``limit_of``.

    It is infinite for a whole that was not throttled, as in a loop that ended before, and None for one that was
    throttled in a loop too short for its clocks to settle.
    """
    measured = full.measurement
    if measured.power_capped_ratio is not None and measured.power_capped_ratio < HARDLY_THROTTLED_RATIO:
        return Limit(math.inf)
    limit = limit_of(replace(full.conditions, execution=measured.executed_as))
    normal_j, measured_j = value_of(cost.basis.energy_of(full)), measured.energy_j
    if limit is None or normal_j is None or not measured_j or measured.loop_time_s < LEAST_SETTLED_LOOP_S:
        return None
    return replace(limit, warmth=_warmth(full, cost), normalised=normal_j / measured_j)


def _warmth(full: MeasurementRow, cost: ModelCost) -> float:
    """Return the power at a whole model's temperature over that on the basis of its sum's energies."""
    celsius = full.measurement.temperature_c
    if celsius is None or cost.basis is not EnergyBasis.NORMALISED:
        return 1.0
    slopes = [slope for part in cost.parts if (slope := _power_per_kelvin(part.row.measurement)) is not None]
    return 1 / (1 - statistics.median(slopes) * (celsius - REFERENCE_TEMPERATURE_C)) if slopes else 1.0


def _power_per_kelvin(measured: Measurement) -> float | None:
    """Return the coefficient by which a row's energy was normalised; None if the row does not show it."""
    celsius, measured_j, normal_j = measured.temperature_c, measured.energy_j, measured.energy_at_reference_j
    if celsius is None or not measured_j or normal_j is None or measured.power_capped_ratio:
        return None
    kelvin = celsius - REFERENCE_TEMPERATURE_C
    return (1 - normal_j / measured_j) / kelvin if abs(kelvin) >= LEAST_KELVIN else None


def added_by_limit(cost: ModelCost, besides: Load, limit: Limit | None) -> Excess | None:
    """Return what the power limit adds to a sum and what else is known of its model; see ``at_limit``.

    It is None if an energy or the limit is unknown.
    """
    loads = loads_of(cost)
    return None if loads is None or limit is None else at_limit([*loads, besides], limit)


def correction_of(cache: Excess, cost: ModelCost, whole: MeasurementRow | None, conditions: Conditions) -> Excess:
    """Return all that corrects a sum: the cache correction, and what the power limit adds if that is known."""
    limit = limit_of(conditions) if whole is None else limit_beside(whole, cost)
    if cache.energy_j is None:
        return cache
    added = added_by_limit(cost, Load(cache.time_s.value, cache.energy_j.value, OTHERS), limit)
    return cache if added is None else pooled([cache, added], sum_of_independent)


def loads_of(cost: ModelCost) -> list[Load] | None:
    """Return the parts of a sum; None if an energy is unknown, or if its rows are throttled, as in loops of 30 s."""
    throttled_s = math.fsum(
        part.time_s for part in cost.parts if (part.row.measurement.power_capped_ratio or 0.0) >= HARDLY_THROTTLED_RATIO
    )
    if throttled_s > THROTTLED_SHARE * math.fsum(part.time_s for part in cost.parts):
        return None
    has_products = {count.operator for count in cost.summed if count.flop}
    loads = []
    for part in cost.parts:
        if part.energy_j is None:
            return None
        exponent = PRODUCTS if part.case.operator in has_products else OTHERS
        loads.append(Load(part.time_s, part.energy_j, exponent))
    return loads


def at_limit(loads: Sequence[Load], limit: Limit) -> Excess | None:
    """Return what the power limit adds to the time of some loads, and to their energy on the basis of the sum.

    The power of all falls by one ratio, so that they draw the limit on average. It is 0 if they draw less at full
    clocks, and None if the ratio is larger than any that was measured.
    """
    limit_w = limit.power_w / limit.warmth
    if _power_w(loads, 1.0) <= limit_w:
        return UNCHANGED
    if _power_w(loads, LARGEST_POWER_RATIO) > limit_w:
        return None
    power_ratio = _power_ratio(loads, limit_w)
    (time_s, _), (full_time_s, full_energy_j) = _cost(loads, power_ratio), _cost(loads, 1.0)
    products_s = math.fsum(load.at(power_ratio)[0] for load in loads if load.exponent)
    error_s = EXPONENT_ERROR * math.log(power_ratio) * products_s
    power_w = limit.power_w * limit.normalised
    return Excess(
        Estimate(time_s - full_time_s, error_s), Estimate(power_w * time_s - full_energy_j, power_w * error_s)
    )


def _power_ratio(loads: Sequence[Load], limit_w: float) -> float:
    """Return the ratio by which the power of all loads falls so that they draw the limit, by bisection."""
    low, high = 1.0, LARGEST_POWER_RATIO
    while high - low > POWER_RATIO_STEP:
        middle = (low + high) / 2
        low, high = (middle, high) if _power_w(loads, middle) > limit_w else (low, middle)
    return high


def _power_w(loads: Sequence[Load], power_ratio: float) -> float:
    time_s, energy_j = _cost(loads, power_ratio)
    return energy_j / time_s if time_s else 0.0


def _cost(loads: Sequence[Load], power_ratio: float) -> tuple[float, float]:
    """Return time in s and energy in J of all loads with a power that is lower by a ratio."""
    costs = [load.at(power_ratio) for load in loads]
    return math.fsum(time_s for time_s, _ in costs), math.fsum(energy_j for _, energy_j in costs)
