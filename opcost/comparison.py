"""The sum of the parts beside the measured whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from opcost.conditions import Circumstances, Conditions, measurement_key
from opcost.measurement import MeasurementRow
from opcost.operators import OperatorCounts
from opcost.statistics import Estimate
from opcost.summation import ModelCost, energy_of, sum_operators, time_of


@dataclass(frozen=True)
class Comparison:
    """One model under one set of conditions: its summed operators, the measured whole, and their ratios.

    Ratios are sum / whole; their errors are one standard error. ``remarks`` says, one line each, what the reader must
    know: rows that exist but under other conditions, circumstances that differ and for what share of the summed time.
    """

    name: str
    conditions: Conditions
    full: MeasurementRow
    cost: ModelCost
    time_ratio: Estimate | None
    energy_ratio: Estimate | None
    remarks: tuple[str, ...]


def compare(name: str, counts: OperatorCounts, full: MeasurementRow, rows: Mapping[str, MeasurementRow]) -> Comparison:
    """Compare a model's summed operators with the whole, under the conditions of the whole.

    Args:
        name: the model's name among the user's configs.
        counts: its (filtered) operator counts.
        full: the measurement of the whole model.
        rows: all operator measurements by key, under any conditions.
    """
    cost = sum_operators(counts, rows, full.conditions)
    energy_j = energy_of(full)
    return Comparison(
        name=name,
        conditions=full.conditions,
        full=full,
        cost=cost,
        time_ratio=cost.time_s.divided_by(time_of(full)) if cost.time_s else None,
        energy_ratio=cost.energy_j.divided_by(energy_j) if cost.energy_j and energy_j else None,
        remarks=(*_under_other_conditions(cost, full.conditions, rows.values()), *_circumstances(cost, full, rows)),
    )


def _under_other_conditions(cost: ModelCost, conditions: Conditions, rows: Iterable[MeasurementRow]) -> tuple[str, ...]:
    """Say of missing tuples which of their rows were not summed because a condition differs."""
    missing = {count.operator.key for count in cost.missing}
    differences: dict[str, set[str]] = {}
    for row in rows:
        operator_key = row.key.partition("-")[0]
        if operator_key in missing:
            text = "; ".join(row.conditions.differences(conditions))
            differences.setdefault(text, set()).add(operator_key)
    return tuple(
        f"{len(keys)} missing operators are measured under other conditions and not summed ({text})"
        for text, keys in differences.items()
    )


def _circumstances(cost: ModelCost, full: MeasurementRow, rows: Mapping[str, MeasurementRow]) -> tuple[str, ...]:
    """Say which circumstances of the summed rows differ from the whole's, with their share of the summed time."""
    if cost.time_s is None:
        return ()
    shares: dict[str, float] = {}
    for count in cost.summed:
        row = rows[measurement_key(count.operator, full.conditions)]
        share = count.occurrences * row.measurement.time_s / cost.time_s.value
        for difference in _circumstance_differences(row, full):
            shares[difference] = shares.get(difference, 0.0) + share
    return tuple(f"{text} for {share:.1%} of the summed time" for text, share in shares.items())


def _circumstance_differences(row: MeasurementRow, full: MeasurementRow) -> list[str]:
    pairs = [
        (field.name, getattr(row.circumstances, field.name), getattr(full.circumstances, field.name))
        for field in fields(Circumstances)
    ]
    pairs.append(("meter", row.measurement.meter, full.measurement.meter))
    return [f"{name} is {ours}, the whole model's {theirs}" for name, ours, theirs in pairs if ours != theirs]
