"""From counts and measurements to a comparison of a model's summed operators with the whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from opcost.comparing.cache_chains import STREAM_BYTES, ChainRow
from opcost.comparing.cache_corrections import Corrections, corrections_under
from opcost.comparing.comparison import USUAL_RUNS, Comparison, OperatorRuns
from opcost.comparing.eager_regime import eager_cost
from opcost.comparing.gap import Constants, gap
from opcost.comparing.remark_rules import remarks_on
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import LEAF
from opcost.operators.counts import OperatorCounts, is_leaf, memory_bytes_of
from opcost.operators.whitelist import Selection
from opcost.prediction.port import Predictor, known_costs
from opcost.prediction.rates import MINIMUM_KNOWN, fitted
from opcost.summing.index import Measurements
from opcost.summing.summation import ModelCost, sum_beside, sum_operators

MOSTLY_KNOWN_RATIO = 0.5
"""Of the bytes that operators move: where less is measured, rates fitted to that do not hold for the rest."""


@dataclass(frozen=True)
class Evidence:
    """What was measured besides whole models: operators, and calls in chains, from which the cache correction is."""

    measurements: Measurements
    chains: Sequence[ChainRow] = ()

    def preferring(self, board: str | None) -> Evidence:
        """Return the same, rows of operators on a board (a device's UUID) before others that are as good."""
        return replace(self, measurements=self.measurements.preferring(board))


def compare(
    selection: Selection, full: MeasurementRow, evidence: Evidence, runs: OperatorRuns = USUAL_RUNS
) -> Comparison:
    """Compare a model's summed operators with the whole, under the conditions of the whole.

    Args:
        selection: its operator counts: what is to be summed, and what is left out on purpose.
        full: the measurement of the whole model.
        evidence: rows under any conditions; those of the whole's own board come first.
        runs: which runs of operators are summed; the whole always runs as it is.
    """
    cost = summed(selection, full, evidence, runs)
    evidence = evidence.preferring(full.circumstances.device_uuid)
    selection = _counted(selection, runs)
    measurements, conditions = evidence.measurements, replace(full.conditions, cache=runs.cache)
    left_out = sum_operators(selection.dropped, measurements, conditions, runs.input_data, cost.basis)
    constants = Constants(
        predictor=_predictor(selection, (cost, left_out), measurements, conditions),
        corrections=_corrections(selection.kept, evidence.chains, conditions),
    )
    pieces, eager = gap(cost, left_out, full, constants), eager_cost(cost, measurements)
    found = Comparison(selection.kept, runs, full, cost, left_out, pieces, eager)
    return replace(found, remarks=remarks_on(found, measurements))


def summed(selection: Selection, full: MeasurementRow, evidence: Evidence, runs: OperatorRuns) -> ModelCost:
    """Return the sum of operators in a comparison; arguments as for ``compare``."""
    conditions = replace(full.conditions, cache=runs.cache)
    return sum_beside(full, _counted(selection, runs).kept, evidence.measurements, conditions, runs.input_data)


def _predictor(
    selection: Selection, sums: Sequence[ModelCost], measurements: Measurements, conditions: Conditions
) -> Predictor | None:
    """Return what estimates the operators that some sums lack from those that they have; None where they lack none, or
    too little is measured.
    """
    if not any(one.missing for one in sums):
        return None
    counts = [*selection.kept.counts, *selection.dropped.counts]
    known = known_costs(counts, measurements, conditions, sums[0].basis)
    measured_bytes = sum(memory_bytes_of(one.summed) for one in sums)
    is_enough = len(known) >= MINIMUM_KNOWN and measured_bytes >= MOSTLY_KNOWN_RATIO * memory_bytes_of(counts)
    return fitted(known) if is_enough else None


def _corrections(counts: OperatorCounts, chains: Iterable[ChainRow], conditions: Conditions) -> Corrections | None:
    """Return what calls take longer in a model than alone, None where that is not known.

    A model that moves less than the stream behind which that is measured may find in the caches what chains do not.
    """
    return corrections_under(chains, conditions) if counts.total_memory_bytes > STREAM_BYTES else None


def _counted(selection: Selection, runs: OperatorRuns) -> Selection:
    """Return the selection itself, or with only what hooks on leaf modules would see as what is kept."""
    if runs.counted != LEAF:
        return selection
    kept, dropped = selection.kept, selection.dropped
    leaves = tuple(count for count in kept.counts if is_leaf(count.operator, kept.composites))
    others = tuple(count for count in kept.counts if not is_leaf(count.operator, kept.composites))
    return Selection(replace(kept, counts=leaves), replace(dropped, counts=(*dropped.counts, *others)))
