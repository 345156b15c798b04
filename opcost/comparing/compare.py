"""Comparison of a model's summed operators with the whole model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opcost.comparing.cache_chain_rows import ChainRow
from opcost.comparing.cache_corrections import Corrections, corrections_under
from opcost.comparing.comparison import USUAL_RUNS, Comparison, OperatorRuns, conditions_of_sum
from opcost.comparing.eager_regime import eager_cost
from opcost.comparing.gap import Constants, gap
from opcost.comparing.remark_rules import remarks_on
from opcost.comparing.weights_from_memory import excesses_from_memory
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import LEAF
from opcost.operators.counts import OperatorCounts, is_leaf, memory_bytes_of
from opcost.operators.whitelist import Selection
from opcost.prediction.rates import MOSTLY_KNOWN_RATIO, CostModel, predictor_of
from opcost.summing.index import Measurements
from opcost.summing.summation import ModelCost, sum_beside, sum_operators


@dataclass(frozen=True)
class Evidence:
    """The rows of operators, and of chains for the cache correction."""

    measurements: Measurements
    chains: Sequence[ChainRow] = ()

    def preferring(self, board: str | None) -> Evidence:
        """Return the same rows with a preference for operators on a board (a device's UUID)."""
        return replace(self, measurements=self.measurements.preferring(board))


def compare(
    selection: Selection,
    full: MeasurementRow,
    evidence: Evidence,
    runs: OperatorRuns = USUAL_RUNS,
    cost: ModelCost | None = None,
) -> Comparison:
    """Compare a model's summed operators with the whole model, under the whole model's conditions and execution.

    Args:
        selection: the model's counts, split into summed and dropped operators.
        full: the row of the whole model.
        evidence: rows under any conditions; rows of the whole model's board are preferred.
        runs: input data, cache mode and choice of the summed operators.
        cost: the sum, if it is known already; see ``summed``.
    """
    cost = summed(selection, full, evidence, runs) if cost is None else cost
    evidence = evidence.preferring(full.circumstances.device_uuid)
    selection = counted_only(selection, runs)
    measurements, conditions = evidence.measurements, conditions_of_sum(full, runs)
    left_out = sum_operators(selection.dropped, measurements, conditions, runs.input_data, cost.basis)
    constants = Constants(
        predictor=_predictor(selection, (cost, left_out), measurements, conditions),
        corrections=corrections_of(
            selection.kept, corrections_under(evidence.chains, conditions), measurements, conditions
        ),
    )
    pieces, eager = gap(cost, left_out, full, constants), eager_cost(cost, measurements)
    found = Comparison(selection.kept, runs, full, cost, left_out, pieces, eager)
    return replace(found, remarks=remarks_on(found, measurements))


def summed(selection: Selection, full: MeasurementRow, evidence: Evidence, runs: OperatorRuns) -> ModelCost:
    """Return the sum of operators in a comparison, see ``compare``."""
    kept = counted_only(selection, runs).kept
    return sum_beside(full, kept, evidence.measurements, conditions_of_sum(full, runs), runs.input_data)


def _predictor(
    selection: Selection, sums: Sequence[ModelCost], measurements: Measurements, conditions: Conditions
) -> CostModel | None:
    """Return a predictor for the missing operators of these sums; None if none is missing or too few are measured.

    Operators that run nothing cost nothing and need no prediction.
    """
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
