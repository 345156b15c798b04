"""The result of a model under one set of conditions: its operators with their rows, their sum, and the measured whole.

Comparisons, rankings, profiles, layers, models under two conditions and predictions are views of it. ``Evidence`` makes
it from rows and counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from statistics import median

from opcost.comparing.comparison import NO_RESULT_RATIO, NOTICEABLE_RATIO, Remark, remarks_on
from opcost.comparing.corrections import (
    UNCHANGED,
    Corrections,
    Piece,
    added_by_limit,
    correction_of,
    corrections_under,
    excesses_from_memory,
    is_corrected,
    is_in_state,
    pooled,
    with_method_error,
)
from opcost.comparing.roofline import Works, works_of
from opcost.estimates import NORMAL_QUANTILE, Estimate, ratio_if_known, sum_of_independent, total_if_known, value_of
from opcost.measuring.conditions import EAGER, GRAPH, STATE, WARM, Conditions
from opcost.measuring.record import (
    ChainRow,
    Excess,
    KernelTimeRow,
    MeasurementRow,
    is_above_limit,
    is_doubtful,
    ran_as_requested,
    time_of,
)
from opcost.operators.counts import (
    ALL,
    CAPTURED,
    LEAF,
    OperatorCount,
    OperatorCounts,
    Selection,
    is_leaf,
    memory_bytes_of,
)
from opcost.operators.model_inputs import Units
from opcost.prediction.rates import MOSTLY_KNOWN_RATIO, PREDICTED_ERROR_RATIOS, CostModel, predictor_of
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
    totals,
)

UNEXPLAINED_RATIO = 0.25
"""Magnitude of the unexplained share of a whole from which a sum is no result.

No known effect is as large: caches change a sum by up to 13 %, another board by up to 19 %, launches by up to 9 %.
"""

LARGEST_WARM_RATIO = 0.02
"""The share of a sum's time in warm rows from which it is no sum in state: such calls are 5 % too short on average."""

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
class Gap:
    """The parts of a whole model's cost. ``modules`` and ``functions`` are the sum.

    ``correction`` is the cache correction of the summed calls, which may be negative; if it is None, its cost is a part
    of ``unexplained``. ``correction_dtype`` is the dtype of the chains that it was measured with; ``missing_kinds`` are
    those that have a stand-in's correction. ``power_limit`` is what the power limit adds to all these parts, None if
    unknown. ``dropped`` operators are not in the whitelist, measured or predicted; ``unmeasured`` ones are predicted.
    """

    modules: Piece
    functions: Piece
    correction: Excess | None
    power_limit: Excess | None
    dropped: Piece
    unmeasured: Piece
    unexplained: Piece
    correction_dtype: str | None = None
    missing_kinds: tuple[str, ...] = ()


def predicted_piece(counts: Sequence[OperatorCount], predictor: CostModel | None) -> Piece:
    """Return the predicted cost of operators that compute; unknown if the predictor is None or cannot predict one."""
    counts = [count for count in counts if count.computes]
    if not counts:
        return Piece()
    if predictor is None:
        return Piece(None, None)
    costs = [predictor.cost(count, count.occurrences) for count in counts]
    return Piece(total_if_known(time_s for time_s, _ in costs), total_if_known(energy_j for _, energy_j in costs))


# Expected time and energy of an eager run: that of the device or that of the launches, whichever is longer. In a loop
# of one operator, each call takes the longer of the two. A model launches kernels ahead while long ones run, so it
# takes the longer of the two sums. Both are derived from operators that were measured eagerly and in CUDA graphs, which
# need no launches.

LONG_RATIO = 1.1
"""Largest ratio of eager time to graph time of a loop that is bound by the device. The difference is the gap between
two eager kernels: 1 to 4 us for kernels of 40 us and more (H200)."""

LAUNCH_BOUND_RATIO = 1.25
"""Smallest ratio of a loop's eager time to graph time plus gap at which it is launch-bound. Its eager time is then the
time of a launch."""


@dataclass(frozen=True)
class EagerCost:
    """Expected times of the device and of the launches in an eager run of the summed operators.

    ``device_time_s`` includes gaps between kernels. ``energy_j`` is the operators' energy in graphs plus, for the rest
    of the time, the power of a device that waits for launches; None if unknown. ``assumed_ratio`` is the share of the
    launch time that is of kinds without a launch-bound loop.
    """

    device_time_s: float
    launch_time_s: float
    energy_j: float | None
    assumed_ratio: float

    @property
    def time_s(self) -> float:
        return max(self.device_time_s, self.launch_time_s)

    @property
    def is_launch_bound(self) -> bool:
        return self.launch_time_s > self.device_time_s


@dataclass(frozen=True)
class Twins:
    """Calls in an eager sum, and the same in a CUDA graph: the costs of one call, alike if on the same input data."""

    kind: str
    calls: int
    eager_s: float
    graph_s: float
    eager_j: float | None
    graph_j: float | None
    is_alike: bool


def eager_cost(cost: ModelCost, measurements: Measurements) -> EagerCost | None:
    """Return the expected cost of an eager run of summed operators.

    It is None if the sum is not of eager runs, an operator has no row in a graph, or no loop is launch-bound.

    The launch time of a kind of operator is the median of its launch-bound loops. A kind without any has the median
    over all kinds, but at most its shortest loop. The device time of a call is its eager time if that is well above the
    launch time, else its time in a graph plus one gap (an operator of several kernels has several gaps).
    """
    twins = _twins(cost, measurements)
    gaps_s = [one.eager_s - one.graph_s for one in twins if one.eager_s <= LONG_RATIO * one.graph_s]
    gap_s = max(median(gaps_s), 0.0) if gaps_s else 0.0
    waiting = [one for one in twins if one.eager_s > LAUNCH_BOUND_RATIO * (one.graph_s + gap_s)]
    if not waiting:
        return None
    known = {one.kind for one in waiting}
    launches_s: dict[str, float] = {}
    for kind in {one.kind for one in twins}:
        shortest_s = min(one.eager_s for one in twins if one.kind == kind)
        launch_s = median(one.eager_s for one in waiting if one.kind == kind or kind not in known)
        launches_s[kind] = launch_s if kind in known else min(launch_s, shortest_s)

    def on_device_s(one: Twins) -> float:
        is_longer = one.eager_s > LAUNCH_BOUND_RATIO * launches_s[one.kind]
        return one.eager_s if is_longer else min(one.eager_s, one.graph_s + gap_s)

    device_s = math.fsum(one.calls * on_device_s(one) for one in twins)
    all_launches_s = math.fsum(one.calls * launches_s[one.kind] for one in twins)
    assumed_s = math.fsum(one.calls * launches_s[one.kind] for one in twins if one.kind not in known)
    graphs_j = total_if_known(None if one.graph_j is None else one.calls * one.graph_j for one in twins)
    known_w = [
        (one.eager_j - one.graph_j) / (one.eager_s - one.graph_s)
        for one in waiting
        if one.eager_j is not None and one.graph_j is not None
    ]
    energy_j = None
    if graphs_j is not None and len(known_w) == len(waiting) and all(one.is_alike for one in twins):
        # The power of a waiting device is the additional energy of launch-bound loops over their additional time.
        rest_s = max(device_s, all_launches_s) - math.fsum(one.calls * one.graph_s for one in twins)
        energy_j = graphs_j + max(rest_s, 0.0) * max(median(known_w), 0.0)
    return EagerCost(device_s, all_launches_s, energy_j, assumed_s / all_launches_s)


def _twins(cost: ModelCost, measurements: Measurements) -> list[Twins]:
    """Return all parts with their rows in graphs; an empty list if one is missing."""
    found = []
    for part in cost.parts:
        conditions = part.row.conditions
        graph = measurements.nearest(part.case, replace(conditions, execution=GRAPH))
        if conditions.execution != EAGER or graph is None or graph.measurement.executed_as != GRAPH:
            return []
        eager, energy_of = part.row, part.basis.energy_of
        found.append(
            Twins(
                kind=part.case.operator.short_name,
                calls=part.occurrences,
                eager_s=eager.measurement.time_s,
                graph_s=graph.measurement.time_s,
                eager_j=value_of(energy_of(eager)),
                graph_j=value_of(energy_of(graph)),
                is_alike=graph.input_data == eager.input_data,
            )
        )
    return found


# Kernel times from a profiler, of each kind of operator in its model and of the same calls alone. A sum can be right
# because errors of different kinds cancel. Kernel times in the model show the error of each kind. They do not include
# gaps between kernels, so they are compared with kernel times of the operators alone.


@dataclass(frozen=True)
class KernelErrors:
    """Kernel times alone minus those in the model, as shares of all kernel time in the model.

    ``by_kind`` holds the signed share of each kind, the largest magnitude first. ``ratio`` is the sum of signed shares,
    in which errors cancel, ``absolute_ratio`` the sum of magnitudes.
    """

    by_kind: tuple[tuple[str, float], ...]

    @property
    def ratio(self) -> float:
        return math.fsum(error for _, error in self.by_kind)

    @property
    def absolute_ratio(self) -> float:
        return math.fsum(abs(error) for _, error in self.by_kind)


def kernel_key(model_key: str, conditions: Conditions) -> str:
    """Return the key of a model's rows. It does not depend on execution and cache, because kernel times do not."""
    return f"{model_key}-{replace(conditions, execution=EAGER, cache=WARM).key}"


def kernel_errors(rows: Iterable[KernelTimeRow], model_key: str, conditions: Conditions) -> KernelErrors | None:
    """Return the errors of a model's kinds by the newest rows; None if it was not profiled or one kind has no time."""
    key = kernel_key(model_key, conditions)
    newest = {row.operator: row for row in rows if row.key == key}
    whole_s = math.fsum(row.in_model_time_s for row in newest.values())
    if total_if_known(row.alone_time_s for row in newest.values()) is None or not whole_s:
        return None
    errors = [(row.operator, ((row.alone_time_s or 0.0) - row.in_model_time_s) / whole_s) for row in newest.values()]
    return KernelErrors(tuple(sorted(errors, key=lambda error: -abs(error[1]))))


# The result


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
    is empty if unknown. ``units`` are those of one run, None if unknown. ``phases`` are the results of the ``PARTS`` of
    a training step, in order; they are empty if unknown, and of an inference pass.
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
    phases: tuple[ModelResult, ...] = ()

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
    def batch_size(self) -> int | None:
        return self.input_size[0] if self.input_size else None

    @property
    def board(self) -> str | None:
        return None if self.whole is None else self.whole.circumstances.device_uuid

    @property
    def counted_with(self) -> str | None:
        """The library that the model was counted with and its version, None if unknown, or if it has none."""
        return None if self.selection is None else self.counts.library

    @property
    def measured_with(self) -> str | None:
        return None if self.whole is None else self.whole.circumstances.library_of(self.whole.operator)

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
        if self.selection is None:
            return NOTHING_SUMMED
        dropped, basis = self.selection.dropped, self.cost.basis
        return sum_operators(dropped, self.measurements, self.conditions, self.runs.input_data, basis)

    @cached_property
    def gap(self) -> Gap:
        """The parts of the measured whole. The costs of operators without a row are predicted if most have one.

        Predictor and cache corrections are the device's, derived from operators alone, not from whole models.
        """
        cost, dropped, full, predictor = self.cost, self.left_out, self.full, None
        counts = [] if self.selection is None else [*self.selection.kept.counts, *self.selection.dropped.counts]
        measured_bytes = memory_bytes_of(cost.summed) + memory_bytes_of(dropped.summed)
        is_missing = any(count.computes for count in (*cost.missing, *dropped.missing))
        if is_missing and measured_bytes >= MOSTLY_KNOWN_RATIO * memory_bytes_of(counts):
            # Rows in state have no energy of their own.
            warm = replace(self.conditions, cache=WARM) if is_in_state(self.conditions) else self.conditions
            predictor = predictor_of(counts, self.measurements, warm, cost.basis)

        def piece(added: Excess | None) -> Piece:
            return Piece() if added is None else Piece(added.time_s.value, value_of(added.energy_j) or 0.0)

        modules = Piece(*totals(part for part in cost.parts if not part.case.operator.is_function))
        functions = Piece(*totals(part for part in cost.parts if part.case.operator.is_function))
        left_out = Piece(*totals(dropped.parts)).plus(predicted_piece(dropped.missing, predictor))
        unmeasured, full_j = predicted_piece(cost.missing, predictor), value_of(self.full_energy_j)
        chains = None if self.in_state is not None else self.corrections
        correction = self.cache_correction
        besides = left_out.plus(unmeasured).plus(piece(correction))
        power_limit = added_by_limit(cost, besides, full.conditions)
        known = modules.plus(functions).plus(besides).plus(piece(power_limit))
        return Gap(
            modules=modules,
            functions=functions,
            correction=correction,
            power_limit=power_limit,
            dropped=left_out,
            unmeasured=unmeasured,
            unexplained=Piece(
                None if known.time_s is None else full.measurement.time_s - known.time_s,
                None if full_j is None or known.energy_j is None else full_j - known.energy_j,
            ),
            correction_dtype=None if chains is None else chains.dtype,
            missing_kinds=() if chains is None else chains.missing_kinds(cost.summed),
        )

    @cached_property
    def eager(self) -> EagerCost | None:
        return eager_cost(self.cost, self.measurements)

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        return remarks_on(self)

    @property
    def full_energy_j(self) -> Estimate | None:
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
        cache = self.cache_correction
        return None if cache is None else correction_of(cache, self.cost, self.conditions)

    @cached_property
    def in_state(self) -> ModelCost | None:
        """The sum of the calls in their states, None if too few of them are measured so."""
        if self.selection is None or not (is_corrected(self.conditions) or is_in_state(self.conditions)):
            return None
        if not self.measurements.has_states:
            return None
        found = self.cost
        if not is_in_state(self.conditions):
            under = replace(self.conditions, cache=STATE)
            found = sum_operators(self.counts, self.measurements, under, self.runs.input_data, self.cost.basis)
        return found if found.parts and found.warm_ratio <= LARGEST_WARM_RATIO else None

    @cached_property
    def cache_correction(self) -> Excess | None:
        """The part that caches add to the summed calls, None if it is unknown: by their states, else by kinds."""
        return self.cache_correction_of(self.cost.summed) if self.cost.parts else None

    def cache_correction_of(self, counts: Iterable[OperatorCount]) -> Excess | None:
        """Return the part that caches add to some calls; those that are not summed have the correction by kinds."""
        counts, summed = list(counts), set(map(id, self.cost.summed))
        if self.in_state is None:
            return None if self.corrections is None else self.corrections.of(counts)
        if self.in_state is self.cost:
            return UNCHANGED
        added, others = beyond(self.in_state, self.cost), [one for one in counts if id(one) not in summed]
        by_kinds = None if self.corrections is None else self.corrections.of(others)
        if added.energy_j is None and self.corrections is not None:
            added = replace(added, energy_j=self.corrections.of(self.cost.summed).energy_j)
        return added if by_kinds is None or not others else pooled([added, by_kinds], sum_of_independent)

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


def beyond(cost: ModelCost, warm: ModelCost) -> Excess:
    """Return what a sum in state has beyond the warm one, both with times.

    The times are of different rows. The energies share the warm rows, so that the rest of the error is the state's.
    """
    assert cost.time_s is not None
    assert warm.time_s is not None
    if cost.energy_j is None or warm.energy_j is None:
        return Excess(cost.time_s.less(warm.time_s), None)
    error_j = math.sqrt(max(cost.energy_j.standard_error**2 - warm.energy_j.standard_error**2, 0.0))
    energy_j = Estimate(cost.energy_j.value - warm.energy_j.value, error_j)
    return Excess(cost.time_s.less(warm.time_s), energy_j)


@dataclass(frozen=True)
class Evidence:
    """The rows that results are made from: of operators, and of chains for the cache correction."""

    measurements: Measurements
    chains: Sequence[ChainRow] = ()
    _of_cards: dict[str, Corrections | None] = field(default_factory=dict, repr=False, compare=False)

    def corrections_under(self, conditions: Conditions) -> Corrections | None:
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
