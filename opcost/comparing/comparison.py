"""Comparison of a model's summed operators with the whole model, and its row in ``sum_vs_full.csv``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opcost.comparing.cache_corrections import Corrections, corrections_under, excesses_from_memory
from opcost.comparing.gap import EagerCost, Gap, KernelErrors, eager_cost, gap
from opcost.comparing.remarks import Remark, remarks_on
from opcost.estimates import (
    Estimate,
    standard_error_of,
    total_if_known,
    value_of,
)
from opcost.measuring.comparison_record import ChainRow, ComparisonRow, Excess
from opcost.measuring.conditions import WARM, Conditions, differing_fields
from opcost.measuring.record import MeasurementRow, time_of
from opcost.operators.cases import ALL, CAPTURED, LEAF
from opcost.operators.counts import OperatorCounts, Selection, is_leaf, memory_bytes_of
from opcost.prediction.rates import MOSTLY_KNOWN_RATIO, CostModel, predictor_of
from opcost.summing.summation import EnergyBasis, Measurements, ModelCost, sum_beside, sum_operators

CONDITIONS_SHOWN = ("device_product", "execution", "cache", "precision", "torch_version", "driver_version")
"""Conditions that distinguish the comparisons of one model in labels."""


@dataclass(frozen=True)
class OperatorRuns:
    """The choice of summed operators: one each of ``INPUT_DATA``, ``CACHES`` and ``COUNTED``."""

    input_data: str = CAPTURED
    cache: str = WARM
    counted: str = ALL


USUAL_RUNS = OperatorRuns()


@dataclass(frozen=True)
class Comparison:
    """One model under one set of conditions: its summed operators and the measured whole model.

    ``counts`` are the operators to sum, ``full`` is the whole model's row. ``left_out`` is the cost of dropped
    operators. ``eager`` is the expected cost of an eager run of the summed operators, None if unknown, ``kernels`` are
    the errors of kernel times, None if they were not profiled.
    """

    counts: OperatorCounts
    runs: OperatorRuns
    full: MeasurementRow
    cost: ModelCost
    left_out: ModelCost
    gap: Gap
    eager: EagerCost | None
    remarks: tuple[Remark, ...] = ()
    kernels: KernelErrors | None = None

    @property
    def conditions(self) -> Conditions:
        return conditions_of_sum(self.full, self.runs)

    @property
    def full_energy_j(self) -> Estimate | None:
        """The whole model's energy, normalised if the sum's is."""
        return self.cost.basis.energy_of(self.full)

    @property
    def time_ratio(self) -> Estimate | None:
        return None if self.cost.time_s is None else self.cost.time_s.divided_by(time_of(self.full))

    @property
    def energy_ratio(self) -> Estimate | None:
        """Sum over whole model. The error of normalised energies includes that of power temperature coefficients."""
        sum_j, full_j = self.cost.energy_j, self.full_energy_j
        if sum_j is None or full_j is None:
            return None
        if self.cost.basis is EnergyBasis.NORMALISED:
            parts = ((part.occurrences, part.row) for part in self.cost.parts)
            sum_j = sum_j.with_error(self.cost.basis.coefficient_error_j(parts, self.full))
        return sum_j.divided_by(full_j)


def conditions_of_sum(full: MeasurementRow, runs: OperatorRuns) -> Conditions:
    """Return the conditions of the operators to sum: the whole model's, in the execution that it really had.

    A sum of graphs has no launches, so it is not compared with a whole that ran eagerly. ``cache`` is that of ``runs``.
    """
    return replace(full.conditions, execution=full.measurement.executed_as, cache=runs.cache)


@dataclass(frozen=True)
class Evidence:
    """The rows of operators, and of chains for the cache correction."""

    measurements: Measurements
    chains: Sequence[ChainRow] = ()


def compare(
    selection: Selection,
    full: MeasurementRow,
    evidence: Evidence,
    runs: OperatorRuns = USUAL_RUNS,
    cost: ModelCost | None = None,
) -> Comparison:
    """Compare a model's summed operators with the whole model, under the whole model's conditions and execution.

    Rows of the whole model's board are preferred. ``cost`` is the sum, if it is known already; see ``summed``.
    """
    cost = summed(selection, full, evidence, runs) if cost is None else cost
    selection, conditions = counted_only(selection, runs), conditions_of_sum(full, runs)
    measurements = evidence.measurements.preferring(full.circumstances.device_uuid)
    left_out = sum_operators(selection.dropped, measurements, conditions, runs.input_data, cost.basis)
    predictor = _predictor(selection, (cost, left_out), measurements, conditions)
    of_card = corrections_under(evidence.chains, conditions)
    corrections = corrections_of(selection.kept, of_card, measurements, conditions)
    pieces, eager = gap(cost, left_out, full, predictor, corrections), eager_cost(cost, measurements)
    found = Comparison(selection.kept, runs, full, cost, left_out, pieces, eager)
    return replace(found, remarks=remarks_on(found, measurements))


def summed(selection: Selection, full: MeasurementRow, evidence: Evidence, runs: OperatorRuns) -> ModelCost:
    """Return the sum of operators in a comparison, see ``compare``."""
    kept = counted_only(selection, runs).kept
    return sum_beside(full, kept, evidence.measurements, conditions_of_sum(full, runs), runs.input_data)


def _predictor(
    selection: Selection, sums: Sequence[ModelCost], measurements: Measurements, conditions: Conditions
) -> CostModel | None:
    """Return a predictor for the missing operators of these sums; None if none is missing or too few are measured."""
    if not any(count.computes for one in sums for count in one.missing):
        return None
    counts = [*selection.kept.counts, *selection.dropped.counts]
    measured_bytes = sum(memory_bytes_of(one.summed) for one in sums)
    if measured_bytes < MOSTLY_KNOWN_RATIO * memory_bytes_of(counts):
        return None
    return predictor_of(counts, measurements, conditions, sums[0].basis)


def corrections_of(
    counts: OperatorCounts, found: Corrections | None, measurements: Measurements, conditions: Conditions
) -> Corrections | None:
    """Return the cache corrections of a model's operators, None if unknown.

    They are those that are found for the card, and those of its products with a matrix that were measured with weights
    from memory, too. A model that moves less than the chains' stream has others, because its data may stay in caches.
    """
    if found is None:
        return None
    of_weights = excesses_from_memory(counts.counts, measurements, conditions)
    return replace(found, of_weights=of_weights).in_model(counts.total_memory_bytes)


def counted_only(selection: Selection, runs: OperatorRuns) -> Selection:
    """Return the selection, reduced to leaf modules if ``runs`` asks for them."""
    if runs.counted != LEAF:
        return selection
    kept, dropped = selection.kept, selection.dropped
    leaves = tuple(count for count in kept.counts if is_leaf(count.operator, kept.composites))
    others = tuple(count for count in kept.counts if not is_leaf(count.operator, kept.composites))
    return Selection(replace(kept, counts=leaves), replace(dropped, counts=(*dropped.counts, *others)))


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


def comparison_row(name: str, found: Comparison, compared_at: str) -> ComparisonRow:
    """Return the row of a model's comparison."""

    def estimates(part: Excess | None) -> tuple[Estimate | None, Estimate | None]:
        return (None, None) if part is None else (part.time_s, part.energy_j)

    full, cost, gap, eager, kernels = found.full, found.cost, found.gap, found.eager, found.kernels
    (correction_s, correction_j), (limit_s, limit_j) = estimates(gap.correction), estimates(gap.power_limit)
    return ComparisonRow(
        key=full.key,
        operator=full.operator,
        time_s=value_of(cost.time_s),
        energy_j=value_of(cost.energy_j),
        name=name,
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
