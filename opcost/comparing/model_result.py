"""The result of a model under one set of conditions: its operators with their rows, their sum, and the measured whole.

Comparisons, rankings, profiles, layers, models under two conditions and predictions are views of it. ``Evidence`` makes
it from rows and counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from opcost.comparing.cache_corrections import Corrections, corrections_under, excesses_from_memory
from opcost.comparing.gap import EagerCost, Gap, KernelErrors, Piece, correction_of, eager_cost, gap, with_method_error
from opcost.comparing.remarks import NO_RESULT_RATIO, NOTICEABLE_RATIO, Remark, RemarkKind, remarks_on
from opcost.comparing.roofline import Works, works_of
from opcost.estimates import (
    NORMAL_QUANTILE,
    Estimate,
    ratio_if_known,
    standard_error_of,
    sum_of_independent,
    total_if_known,
    value_of,
)
from opcost.measuring.conditions import WARM, Conditions, differing_fields
from opcost.measuring.record import (
    ChainRow,
    ComparisonRow,
    Excess,
    MeasurementRow,
    is_above_limit,
    is_doubtful,
    ran_as_requested,
    time_of,
)
from opcost.operators.cases import ALL, CAPTURED, LEAF
from opcost.operators.counts import OperatorCounts, Selection, is_leaf, memory_bytes_of
from opcost.operators.model_inputs import Units
from opcost.prediction.rates import MOSTLY_KNOWN_RATIO, PREDICTED_ERROR_RATIOS, predictor_of
from opcost.summing.summation import (
    NOTHING_SUMMED,
    EnergyBasis,
    Measurements,
    ModelCost,
    best_whole,
    common_basis,
    sum_beside,
    sum_operators,
    temperature_error_j,
)

UNEXPLAINED_RATIO = 0.25
"""Magnitude of the unexplained share of a whole from which a sum is no result.

No known effect is as large: caches change a sum by up to 13 %, another board by up to 19 %, launches by up to 9 %.
"""

REPRESENTATIVE_RATIO = 0.95
"""The share of a model's bytes from which the shares, the roof and the saving of a sum are those of the model."""


class Doubt(Enum):
    """A reason why a sum is no result yet."""

    FLAGGED = "flagged"
    MISSING = "missing"
    UNEXPLAINED = "unexplained"
    ABOVE_LIMIT = "above the power limit"


def doubts_of(
    flagged_ratio: float,
    missing_ratio: float | None,
    unexplained_ratio: float | None,
    is_whole_flagged: bool = False,
    is_above_limit: bool = False,
) -> tuple[Doubt, ...]:
    """Return the doubts of a sum. Unknown ratios are None.

    They are the shares of the summed time in flagged rows, of the model that is not in the sum (0 if no operator is
    missing), and of the whole that is unexplained. ``is_above_limit`` is of a sum that is the cost of a model.
    """
    found = {
        Doubt.FLAGGED: is_whole_flagged or flagged_ratio >= NO_RESULT_RATIO,
        Doubt.MISSING: missing_ratio is None or missing_ratio >= NOTICEABLE_RATIO,
        Doubt.UNEXPLAINED: unexplained_ratio is not None and abs(unexplained_ratio) >= UNEXPLAINED_RATIO,
        Doubt.ABOVE_LIMIT: is_above_limit,
    }
    return tuple(doubt for doubt, is_found in found.items() if is_found)


@dataclass(frozen=True)
class OperatorRuns:
    """The choice of summed operators: one each of ``INPUT_DATA``, ``CACHES`` and ``COUNTED``."""

    input_data: str = CAPTURED
    cache: str = WARM
    counted: str = ALL


USUAL_RUNS = OperatorRuns()


@dataclass(frozen=True)
class ModelResult:
    """One run of a model under one set of conditions: the sum of its operators, and the measured whole.

    ``conditions`` are those of the summed operators. ``whole`` is None if it is not measured. ``selection`` has the
    operators to sum and those that a whitelist drops, None if the model is not counted; the ``cost`` is then empty.
    ``measurements`` are all rows of operators, also those not summed. ``corrections`` are those of caches in this
    model, None if unknown. ``kernels`` are the errors of kernel times, None if they were not profiled. ``predicted`` is
    the predicted cost of operators without a row, if it is a part of the cost. ``input_size`` has the batch first, and
    is empty if unknown. ``units`` are those of one run, None if unknown.
    """

    conditions: Conditions
    whole: MeasurementRow | None
    cost: ModelCost = NOTHING_SUMMED
    selection: Selection | None = None
    measurements: Measurements = field(default_factory=lambda: Measurements(()), repr=False, compare=False)
    runs: OperatorRuns = USUAL_RUNS
    corrections: Corrections | None = None
    kernels: KernelErrors | None = None
    predicted: Piece | None = None
    name: str = ""
    input_size: tuple[int, ...] = ()
    units: Units | None = None

    @property
    def counts(self) -> OperatorCounts:
        """The operators to sum of a model that is counted."""
        assert self.selection is not None
        return self.selection.kept

    @property
    def full(self) -> MeasurementRow:
        """The measured whole of a result that has one: only such a result is a comparison."""
        assert self.whole is not None
        return self.whole

    @property
    def of_model(self) -> Conditions:
        """The conditions of a run of the model: the whole's, or those of the operators with warm caches."""
        return replace(self.conditions, cache=WARM) if self.whole is None else self.whole.conditions

    @property
    def board(self) -> str | None:
        """The board (a UUID) of the whole."""
        return None if self.whole is None else self.whole.circumstances.device_uuid

    @property
    def is_complete(self) -> bool:
        return self.cost.time_s is not None and not self.cost.missing

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(sorted({one.operator.short_name for one in self.cost.missing}))

    @property
    def is_representative(self) -> bool:
        """Whether the sum has so many of the model's bytes that it shows what dominates the model."""
        return self.is_complete or (self.cost.memory_bytes_ratio or 0.0) >= REPRESENTATIVE_RATIO

    @cached_property
    def works(self) -> Works:
        return works_of(self.cost)

    # The whole in parts

    @cached_property
    def left_out(self) -> ModelCost:
        """The cost of dropped operators."""
        if self.selection is None:
            return NOTHING_SUMMED
        dropped, basis = self.selection.dropped, self.cost.basis
        return sum_operators(dropped, self.measurements, self.conditions, self.runs.input_data, basis)

    @cached_property
    def gap(self) -> Gap:
        """The parts of the measured whole. The costs of operators without a row are predicted if most have one."""
        counts = [] if self.selection is None else [*self.selection.kept.counts, *self.selection.dropped.counts]
        sums, predictor = (self.cost, self.left_out), None
        measured_bytes = sum(memory_bytes_of(one.summed) for one in sums)
        is_missing = any(count.computes for one in sums for count in one.missing)
        if is_missing and measured_bytes >= MOSTLY_KNOWN_RATIO * memory_bytes_of(counts):
            predictor = predictor_of(counts, self.measurements, self.conditions, self.cost.basis)
        return gap(self.cost, self.left_out, self.full, predictor, self.corrections)

    @cached_property
    def eager(self) -> EagerCost | None:
        """The expected cost of an eager run of the summed operators, None if unknown."""
        return eager_cost(self.cost, self.measurements)

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """The remarks on the sum and the measured whole."""
        return remarks_on(self)

    @property
    def full_energy_j(self) -> Estimate | None:
        """The whole model's energy, normalised if the sum's is."""
        return None if self.whole is None else self.cost.basis.energy_of(self.whole)

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
            whole_c = self.full.measurement.temperature_c
            parts, kelvins_j = self.cost.parts, self.cost.basis.kelvins_j
            sum_j = sum_j.with_error(temperature_error_j(kelvins_j(one.occurrences, one.row, whole_c) for one in parts))
        return sum_j.divided_by(full_j)

    # The cost of a run

    @cached_property
    def correction(self) -> Excess | None:
        """All that corrects the sum, None if the cache correction is unknown."""
        if self.corrections is None or not self.cost.parts:
            return None
        return correction_of(self.corrections.of(self.cost.summed), self.cost, self.conditions)

    @property
    def basis(self) -> EnergyBasis:
        """The basis of the cost's energy: the whole's own, or the sum's that takes its place."""
        return self.cost.basis if self.whole is None else common_basis([self.whole])

    @cached_property
    def corrected(self) -> tuple[Estimate | None, Estimate | None]:
        """Time and energy of the corrected sum, without correction where that is unknown."""
        cost, correction = self.cost, self.correction
        if correction is None:
            return cost.time_s, cost.energy_j

        def corrected(summed: Estimate | None, added: Estimate | None, quantity: str) -> Estimate | None:
            if summed is None or added is None:
                return summed
            return with_method_error(sum_of_independent([summed, added]), quantity)

        time_s = corrected(cost.time_s, correction.time_s, "time")
        return time_s, corrected(cost.energy_j, correction.energy_j, "energy")

    @property
    def time_s(self) -> Estimate | None:
        """The time of one run: the whole's, or the corrected sum's if it is complete or completed by predictions."""
        if self.whole is not None:
            return time_of(self.whole)
        return self._completed(self.corrected[0], None if self.predicted is None else self.predicted.time_s)

    @property
    def energy_j(self) -> Estimate | None:
        if self.whole is not None:
            return self.basis.energy_of(self.whole)
        return self._completed(self.corrected[1], None if self.predicted is None else self.predicted.energy_j)

    def _completed(self, summed: Estimate | None, predicted: float | None) -> Estimate | None:
        if self.is_complete:
            return summed
        if summed is None or predicted is None:
            return None
        error = PREDICTED_ERROR_RATIOS[self.conditions.execution] / NORMAL_QUANTILE * predicted
        return sum_of_independent([summed, Estimate(predicted, error)])

    @property
    def power_w(self) -> float | None:
        return ratio_if_known(value_of(self.energy_j), value_of(self.time_s))

    @property
    def corrected_ratios(self) -> tuple[float | None, float | None]:
        """Corrected sum over whole in time and energy, on the sum's basis; None if unknown or the sum is not complete.

        It is unknown of a whole that did not run as requested: launches are in one of both only.
        """
        if self.whole is None or not self.is_complete or not ran_as_requested(self.whole):
            return None, None
        (sum_s, sum_j), whole_j = self.corrected, self.full_energy_j
        return (
            None if sum_s is None else sum_s.value / time_of(self.whole).value,
            None if sum_j is None or whole_j is None else sum_j.value / whole_j.value,
        )

    # Whether it is a result

    @property
    def is_whole_flagged(self) -> bool:
        return self.whole is not None and is_doubtful(self.whole)

    @property
    def is_sum_flagged(self) -> bool:
        """Whether flagged rows have so much of the summed time that the sum is no result yet."""
        return self.flagged_ratio >= NO_RESULT_RATIO

    @property
    def flagged_ratio(self) -> float:
        return self.cost.time_ratio(part for part in self.cost.parts if is_doubtful(part.row))

    @property
    def missing_ratio(self) -> float | None:
        """The share of the model's bytes or FLOPs, of both the larger, that is not in the sum; None if unknown."""
        if not self.cost.missing:
            return 0.0
        ratios = [ratio for ratio in (self.cost.memory_bytes_ratio, self.cost.flop_ratio) if ratio is not None]
        return 1 - min(ratios) if ratios else None

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """The reasons why the whole or the sum is no result yet, as in a comparison."""
        deviations = (abs(ratio - 1) for ratio in self.corrected_ratios if ratio is not None)
        return doubts_of(
            self.flagged_ratio,
            self.missing_ratio,
            unexplained_ratio=max(deviations, default=None),
            is_whole_flagged=self.is_whole_flagged,
            is_above_limit=self.whole is None and is_above_limit(self.power_w, self.conditions.device_power_limit_w),
        )

    @property
    def measured_at(self) -> str:
        """The end of the newest measurement that the cost rests on (ISO 8601)."""
        rows = [part.row for part in self.cost.parts] if self.whole is None else [self.whole]
        return max((row.measurement.ended_at for row in rows), default="")


@dataclass(frozen=True)
class Evidence:
    """The rows that results are made from: of operators, and of chains for the cache correction."""

    measurements: Measurements
    chains: Sequence[ChainRow] = ()
    _of_cards: dict[str, Corrections | None] = field(default_factory=dict, repr=False, compare=False)

    def corrections_under(self, conditions: Conditions) -> Corrections | None:
        """Return the cache corrections of a card with its software, None if unknown."""
        if conditions.key not in self._of_cards:
            self._of_cards[conditions.key] = corrections_under(self.chains, conditions)
        return self._of_cards[conditions.key]

    def result(
        self,
        selection: Selection | None,
        wholes: Sequence[MeasurementRow] = (),
        conditions: Conditions | None = None,
        runs: OperatorRuns = USUAL_RUNS,
    ) -> ModelResult:
        """Return the result of a model from its counts and the best of its wholes; rows of its board are preferred.

        Operators are summed under ``conditions``; None: under those of the whole, of which there is one, in the
        execution that it really had.
        """
        if selection is None:
            return ModelResult(conditions or wholes[-1].conditions, wholes[-1] if wholes else None)
        selection = counted_only(selection, runs)

        def sum_of(whole: MeasurementRow | None) -> ModelCost:
            under = conditions_of_sum(whole, runs) if conditions is None and whole is not None else conditions
            assert under is not None
            return sum_beside(whole, selection.kept, self.measurements, under, runs.input_data)

        whole, cost = best_whole(wholes, sum_of) if wholes else (None, sum_of(None))
        under = conditions or conditions_of_sum(wholes[0] if whole is None else whole, runs)
        # Under given conditions, models are ranked: corrections then are those of any board, for all models.
        board = None if whole is None or conditions is not None else whole.circumstances.device_uuid
        measurements = self.measurements.preferring(board)
        corrections = self.corrections_under(under)
        if corrections is not None:
            of_weights = excesses_from_memory(selection.kept.counts, measurements, under)
            corrections = replace(corrections, of_weights=of_weights).in_model(selection.kept.total_memory_bytes)
        return ModelResult(under, whole, cost, selection, measurements, runs, corrections)


def conditions_of_sum(full: MeasurementRow, runs: OperatorRuns) -> Conditions:
    """Return the conditions of the operators to sum: the whole model's, in the execution that it really had.

    A sum of graphs has no launches, so it is not compared with a whole that ran eagerly. ``cache`` is that of ``runs``.
    """
    return replace(full.conditions, execution=full.measurement.executed_as, cache=runs.cache)


def counted_only(selection: Selection, runs: OperatorRuns) -> Selection:
    """Return the selection, reduced to leaf modules if ``runs`` asks for them."""
    if runs.counted != LEAF:
        return selection
    kept, dropped = selection.kept, selection.dropped
    leaves = tuple(count for count in kept.counts if is_leaf(count.operator, kept.composites))
    others = tuple(count for count in kept.counts if not is_leaf(count.operator, kept.composites))
    return Selection(replace(kept, counts=leaves), replace(dropped, counts=(*dropped.counts, *others)))


# Its row in ``sum_vs_full.csv``, its kinds of operators, and labels


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
