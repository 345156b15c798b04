"""The cost of the same calls under two conditions, side by side, and the difference with its error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from opcost.columns import ABOVE_0, COUNT, FROM_0, SIGNED, Column, Columns
from opcost.comparing.matched_calls import Calls, Pair
from opcost.estimates import NORMAL_QUANTILE, Estimate, sum_of_independent, total_if_known
from opcost.measuring.record import REFERENCE_TEMPERATURE_C, MeasurementRow, time_of
from opcost.summing.energy import EnergyBasis, temperature_error_j


@dataclass(frozen=True)
class Sides(Columns):
    """The cost of calls in one run of a model, and of the matching calls under the other conditions.

    Saved is the cost under the other conditions minus that under these, negative if these cost more. A ratio is a share
    of the cost under the other conditions. Costs more: by more than the 95 % interval of the difference.
    """

    calls: Annotated[int, Column("calls in one run", COUNT)]
    other_calls: Annotated[int, Column("calls in one run under the other conditions", COUNT)]
    time_s: Annotated[float | None, Column("time of all calls", FROM_0)]
    other_time_s: Annotated[float | None, Column("the same under the other conditions", FROM_0)]
    energy_j: Annotated[float | None, Column("energy of all calls", FROM_0)]
    other_energy_j: Annotated[float | None, Column("the same under the other conditions", FROM_0)]
    power_w: Annotated[float | None, Column("mean power: energy / time", ABOVE_0)]
    other_power_w: Annotated[float | None, Column("the same under the other conditions", ABOVE_0)]
    saved_time_s: Annotated[float | None, Column("saved time", SIGNED)]
    saved_time_standard_error_s: Annotated[float | None, Column("standard error of the saved time", FROM_0)]
    saved_time_ratio: Annotated[float | None, Column("saved time / time under the other conditions")]
    saved_energy_j: Annotated[float | None, Column("saved energy", SIGNED)]
    saved_energy_standard_error_j: Annotated[float | None, Column("standard error of the saved energy", FROM_0)]
    saved_energy_ratio: Annotated[float | None, Column("saved energy / energy under the other conditions")]
    saved_energy_per_sample_j: Annotated[float | None, Column("saved energy / batch size", SIGNED)]
    costs_more_time: Annotated[bool | None, Column("whether these conditions cost more time")]
    costs_more_energy: Annotated[bool | None, Column("whether these conditions cost more energy")]

    @property
    def costs_more(self) -> bool:
        """Whether these conditions cost more: in energy if it is known, else in time."""
        return bool(self.costs_more_time if self.costs_more_energy is None else self.costs_more_energy)

    @property
    def rank(self) -> tuple[bool, float]:
        """A key that sorts calls that cost more first, the largest difference first; then the largest saved cost."""
        saved = self.saved_time_s if self.saved_energy_j is None else self.saved_energy_j
        return not self.costs_more, math.inf if saved is None else saved if self.costs_more else -saved


def sides_of(pairs: Sequence[Pair], basis: EnergyBasis, samples: int) -> Sides:
    """Return the cost of all calls of these pairs under both conditions; a cost is None if one of its rows is unknown.

    Calls that exist under one of both conditions only cost 0 under the other.

    Args:
        pairs: of calls.
        basis: that of all energies.
        samples: the batch size.
    """
    these, others = [pair.these for pair in pairs], [pair.others for pair in pairs]
    times = _total(these, time_of), _total(others, time_of)
    energies = _total(these, basis.energy_of), _total(others, basis.energy_of)
    saved_s, saved_j = _saved(pairs, times, time_of), _saved(pairs, energies, basis.energy_of)
    if saved_j is not None:
        saved_j = saved_j.with_error(_normalising_error_j(pairs, basis))
    return Sides(
        calls=_number(these),
        other_calls=_number(others),
        time_s=times[0],
        other_time_s=times[1],
        energy_j=energies[0],
        other_energy_j=energies[1],
        power_w=_over(energies[0], times[0]),
        other_power_w=_over(energies[1], times[1]),
        saved_time_s=None if saved_s is None else saved_s.value,
        saved_time_standard_error_s=None if saved_s is None else saved_s.standard_error,
        saved_time_ratio=None if saved_s is None else _over(saved_s.value, times[1]),
        saved_energy_j=None if saved_j is None else saved_j.value,
        saved_energy_standard_error_j=None if saved_j is None else saved_j.standard_error,
        saved_energy_ratio=None if saved_j is None else _over(saved_j.value, energies[1]),
        saved_energy_per_sample_j=None if saved_j is None else saved_j.value / samples,
        costs_more_time=_is_more(saved_s),
        costs_more_energy=_is_more(saved_j),
    )


def _number(calls: Iterable[Calls | None]) -> int:
    return sum(one.number for one in calls if one is not None)


def _total(calls: Iterable[Calls | None], of_row: Callable[[MeasurementRow], Estimate | None]) -> float | None:
    """Return the cost of calls, None if one is unknown."""
    return total_if_known(_cost(one, of_row) for one in calls if one is not None)


def _cost(calls: Calls, of_row: Callable[[MeasurementRow], Estimate | None]) -> float | None:
    cost = None if calls.row is None else of_row(calls.row)
    return None if cost is None else calls.number * cost.value


def _over(value: float | None, divisor: float | None) -> float | None:
    return None if value is None or not divisor else value / divisor


def _is_more(saved: Estimate | None) -> bool | None:
    return None if saved is None else saved.value < -NORMAL_QUANTILE * saved.standard_error


def _saved(
    pairs: Sequence[Pair],
    totals: tuple[float | None, float | None],
    of_row: Callable[[MeasurementRow], Estimate | None],
) -> Estimate | None:
    """Return the cost under the other conditions minus that under these, None if one of both is unknown.

    Calls of one row share its error, also if the row is that of both conditions.
    """
    if totals[0] is None or totals[1] is None:
        return None
    numbers: dict[str, int] = {}
    rows: dict[str, MeasurementRow] = {}
    for pair in pairs:
        for sign, calls in ((-1, pair.these), (1, pair.others)):
            if calls is not None and calls.row is not None:
                key = f"{calls.row.key} {calls.row.measurement.started_at}"
                rows[key] = calls.row
                numbers[key] = numbers.get(key, 0) + sign * calls.number
    costs = ((of_row(row), numbers[key]) for key, row in rows.items())
    return sum_of_independent(cost.times(number) for cost, number in costs if cost is not None)


def _normalising_error_j(pairs: Iterable[Pair], basis: EnergyBasis) -> float:
    if basis is not EnergyBasis.NORMALISED:
        return 0.0
    kelvins_j = ((_kelvins_j(pair.these, basis), _kelvins_j(pair.others, basis)) for pair in pairs)
    return temperature_error_j(others_j - these_j for these_j, others_j in kelvins_j)


def _kelvins_j(calls: Calls | None, basis: EnergyBasis) -> float:
    """Return the energy of calls times the kelvins that it was normalised by; 0 if there are none."""
    if calls is None or calls.row is None:
        return 0.0
    energy_j, celsius = _cost(calls, basis.energy_of), calls.row.measurement.temperature_c
    return 0.0 if energy_j is None or celsius is None else energy_j * (celsius - REFERENCE_TEMPERATURE_C)
