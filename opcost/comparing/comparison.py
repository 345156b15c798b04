"""Comparison of a model's summed operators with the whole model, and its row in ``sum_vs_full.csv``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opcost.comparing.model_result import Doubt, ModelResult, doubts_of
from opcost.comparing.remarks import Remark, RemarkKind
from opcost.estimates import Estimate, standard_error_of, total_if_known, value_of
from opcost.measuring.comparison_record import ComparisonRow, Excess
from opcost.measuring.conditions import Conditions, differing_fields
from opcost.summing.summation import ModelCost

CONDITIONS_SHOWN = ("device_product", "execution", "cache", "precision", "torch_version", "driver_version")
"""Conditions that distinguish the comparisons of one model in labels."""


# Kinds and labels


@dataclass(frozen=True)
class KindCost:
    """The cost of all summed calls of one kind of operator in a model; the energy is None if one is unknown."""

    operator: str
    time_s: float
    energy_j: float | None


def kinds_of(cost: ModelCost) -> tuple[KindCost, ...]:
    """Return the cost of each kind of operator in a sum, in descending order of time."""
    kinds: dict[str, KindCost] = {}
    for part in cost.parts:
        name = part.case.operator.short_name
        known = kinds.get(name, KindCost(name, 0.0, 0.0))
        energy_j = total_if_known([known.energy_j, part.energy_j])
        kinds[name] = KindCost(name, known.time_s + part.time_s, energy_j)
    return tuple(sorted(kinds.values(), key=lambda kind: -kind.time_s))


def differing(conditions: Sequence[Conditions]) -> list[list[str]]:
    """Return, for each set of conditions, the values of those that differ."""
    found = differing_fields(conditions)
    names = [name for name in CONDITIONS_SHOWN if name in found]
    return [[str(getattr(one, name)) for name in names] for one in conditions]


# Rows of ``sum_vs_full.csv``


def doubts(row: ComparisonRow, remarks: Sequence[Remark], quantity: str) -> tuple[Doubt, ...]:
    """Return the doubts of a sum of ``time`` or ``energy``; none if there is no sum, or no whole."""
    costs = row.costs(quantity)
    if costs.summed is None or costs.whole is None:
        return ()
    shares = (one.figures["time_ratio"] for one in remarks if one.kind is RemarkKind.FLAGGED_OPERATORS)
    return doubts_of(
        flagged_ratio=max((share for share in shares if isinstance(share, float)), default=0.0),
        missing_ratio=costs.over_whole(costs.unmeasured) if row.missing_operators else 0.0,
        unexplained_ratio=costs.over_whole(costs.unexplained),
        is_whole_flagged=any(one.kind is RemarkKind.FLAGGED_WHOLE for one in remarks),
    )


def comparison_row(found: ModelResult, compared_at: str) -> ComparisonRow:
    """Return the row of a model whose whole is measured."""

    def estimates(part: Excess | None) -> tuple[Estimate | None, Estimate | None]:
        return (None, None) if part is None else (part.time_s, part.energy_j)

    full, cost, gap, eager, kernels = found.full, found.cost, found.gap, found.eager, found.kernels
    (correction_s, correction_j), (limit_s, limit_j) = estimates(gap.correction), estimates(gap.power_limit)
    return ComparisonRow(
        key=full.key,
        operator=full.operator,
        time_s=value_of(cost.time_s),
        energy_j=value_of(cost.energy_j),
        name=found.name,
        input_data=found.runs.input_data,
        counted=found.runs.counted,
        time_standard_error_s=standard_error_of(cost.time_s),
        energy_standard_error_j=standard_error_of(cost.energy_j),
        full_time_s=full.measurement.time_s,
        full_time_standard_error_s=full.measurement.time_standard_error_s,
        full_energy_j=value_of(found.full_energy_j),
        full_energy_standard_error_j=standard_error_of(found.full_energy_j),
        reference_temperature_c=cost.basis.temperature_c,
        time_ratio=value_of(found.time_ratio),
        time_standard_error_ratio=standard_error_of(found.time_ratio),
        energy_ratio=value_of(found.energy_ratio),
        energy_standard_error_ratio=standard_error_of(found.energy_ratio),
        function_time_s=gap.functions.time_s,
        function_energy_j=gap.functions.energy_j,
        correction_time_s=value_of(correction_s),
        correction_time_standard_error_s=standard_error_of(correction_s),
        correction_energy_j=value_of(correction_j),
        correction_energy_standard_error_j=standard_error_of(correction_j),
        power_limit_time_s=value_of(limit_s),
        power_limit_time_standard_error_s=standard_error_of(limit_s),
        power_limit_energy_j=value_of(limit_j),
        power_limit_energy_standard_error_j=standard_error_of(limit_j),
        dropped_time_s=gap.dropped.time_s,
        dropped_energy_j=gap.dropped.energy_j,
        unmeasured_time_s=gap.unmeasured.time_s,
        unmeasured_energy_j=gap.unmeasured.energy_j,
        unexplained_time_s=gap.unexplained.time_s,
        unexplained_energy_j=gap.unexplained.energy_j,
        eager_device_time_s=None if eager is None else eager.device_time_s,
        eager_launch_time_s=None if eager is None else eager.launch_time_s,
        eager_energy_j=None if eager is None else eager.energy_j,
        kernel_error_ratio=None if kernels is None else kernels.ratio,
        absolute_kernel_error_ratio=None if kernels is None else kernels.absolute_ratio,
        energy_missing_reason=cost.energy_missing_reason or full.measurement.energy_missing_reason,
        flop_ratio=cost.flop_ratio,
        memory_bytes_ratio=cost.memory_bytes_ratio,
        flop_missing_reason=cost.flop_missing_reason,
        summed_operators=len(cost.summed),
        missing_operators=len(cost.missing),
        missing=" | ".join(str(count.operator) for count in cost.missing),
        remarks=" | ".join(map(str, found.remarks)),
        compared_at=compared_at,
        conditions=found.conditions,
    )
