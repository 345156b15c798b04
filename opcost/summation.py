"""Counts x measurements = what a model costs by its parts, and what is missing from the sum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opcost.conditions import Conditions, measurement_key
from opcost.measurement import MeasurementRow
from opcost.operators import OperatorCount, OperatorCounts
from opcost.selection import share
from opcost.statistics import Estimate, sum_of_independent


@dataclass(frozen=True)
class ModelCost:
    """The cost of one run of a model, summed from its operators.

    ``summed`` and ``missing`` are the counts with and without a measurement under the conditions asked for. Time and
    energy are None where nothing could be summed; energy also where any summed operator lacks it, since a sum of some
    energies is the energy of nothing. ``flop_ratio`` and
    ``memory_bytes_ratio`` are the shares of the model's FLOPs and bytes that the sum carries.
    """

    time_s: Estimate | None
    energy_j: Estimate | None
    energy_missing_reason: str | None
    summed: tuple[OperatorCount, ...]
    missing: tuple[OperatorCount, ...]
    flop_ratio: float | None
    memory_bytes_ratio: float | None


def best_rows(rows: Iterable[MeasurementRow]) -> dict[str, MeasurementRow]:
    """Return one row for each key: one with energy if there is any, of these the longest loop, of these the last."""
    best: dict[str, MeasurementRow] = {}
    for row in rows:
        known = best.get(row.key)
        if known is None or _rank(row) >= _rank(known):
            best[row.key] = row
    return best


def sum_operators(counts: OperatorCounts, rows: Mapping[str, MeasurementRow], conditions: Conditions) -> ModelCost:
    """Sum time and energy by occurrence over the counts that have a row under these conditions.

    The n calls of one tuple share one measured mean, so they contribute n times its error; different tuples were
    measured independently, so their errors add in quadrature.

    Args:
        counts: a model's (filtered) operator counts.
        rows: measurements by key.
        conditions: what all summed rows must hold under.
    """
    keys = {count: measurement_key(count.operator, conditions) for count in counts.counts}
    summed = tuple(count for count in counts.counts if keys[count] in rows)
    missing = tuple(count for count in counts.counts if keys[count] not in rows)
    measured = [(count.occurrences, rows[keys[count]]) for count in summed]
    reason = _energy_missing_reason([row for _, row in measured])
    carried = share(summed, counts)
    return ModelCost(
        time_s=sum_of_independent(time_of(row).times(n) for n, row in measured) if measured else None,
        energy_j=sum_of_independent(_energies(measured)) if reason is None else None,
        energy_missing_reason=reason,
        summed=summed,
        missing=missing,
        flop_ratio=carried.flop_ratio,
        memory_bytes_ratio=carried.memory_bytes_ratio,
    )


def time_of(row: MeasurementRow) -> Estimate:
    """Return a row's time per iteration in s."""
    return Estimate(row.measurement.time_s, row.measurement.time_standard_error_s)


def energy_of(row: MeasurementRow) -> Estimate | None:
    """Return a row's energy per iteration in J, None where it has none."""
    energy_j, error_j = row.measurement.energy_j, row.measurement.energy_standard_error_j
    return None if energy_j is None or error_j is None else Estimate(energy_j, error_j)


def _rank(row: MeasurementRow) -> tuple[bool, float]:
    return energy_of(row) is not None, row.circumstances.loop_s


def _energies(measured: Iterable[tuple[int, MeasurementRow]]) -> Iterable[Estimate]:
    return (energy.times(n) for n, row in measured if (energy := energy_of(row)) is not None)


def _energy_missing_reason(rows: list[MeasurementRow]) -> str | None:
    if not rows:
        return "no operator of the model is measured"
    without = [row for row in rows if energy_of(row) is None]
    if not without:
        return None
    return f"{len(without)} of {len(rows)} operators have no energy: {without[0].measurement.energy_missing_reason}"
