"""From counts and measurements to a comparison of a model's summed operators with the whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from opcost.comparing.cache_chains import STREAM_BYTES, ChainRow
from opcost.comparing.cache_corrections import Corrections, corrections_under
from opcost.comparing.comparison import USUAL_RUNS, Comparison, OperatorRuns
from opcost.comparing.eager_regime import eager_cost
from opcost.comparing.gap import Constants, gap
from opcost.comparing.remark_rules import remarks_on
from opcost.measuring.conditions import Conditions
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import OperatorCount, OperatorCounts, is_leaf, memory_bytes_of
from opcost.operators.subjects import LEAF
from opcost.prediction.rates import MINIMUM_KNOWN, CostModel, fitted, known_costs
from opcost.summing.index import Measurements
from opcost.summing.summation import ModelCost, sum_beside, sum_operators

MOSTLY_KNOWN_RATIO = 0.5
"""Of the bytes that operators move: where less is measured, rates fitted to that tell nothing of the rest."""


def compare(  # noqa: PLR0913, PLR0917
    counts: OperatorCounts,
    full: MeasurementRow,
    measurements: Measurements,
    runs: OperatorRuns = USUAL_RUNS,
    dropped: OperatorCounts | None = None,
    chains: Iterable[ChainRow] = (),
) -> Comparison:
    """Compare a model's summed operators with the whole, under the conditions of the whole.

    Args:
        counts: its (filtered) operator counts.
        full: the measurement of the whole model.
        measurements: of operators, under any conditions; those of the whole's own board come first.
        runs: which runs of operators are summed; the whole always runs as it is.
        dropped: the operators that the whitelist does not keep, None where they are not known.
        chains: what the cache correction is known from.
    """
    measurements = measurements.preferring(full.circumstances.device_uuid)
    conditions = replace(full.conditions, cache=runs.cache)
    if runs.counted == LEAF:
        counts, dropped = _leaves_and_others(counts, dropped)
    cost = sum_beside(full, counts, measurements, conditions, runs.input_data)
    left_out = None
    if dropped is not None:
        left_out = sum_operators(dropped, measurements, conditions, runs.input_data, cost.basis)
    everything = [*counts.counts, *(dropped.counts if dropped else ())]
    constants = Constants(
        rates=_rates(everything, [cost, *([left_out] if left_out else [])], measurements, conditions),
        corrections=_corrections(counts, chains, conditions),
    )
    pieces = gap(cost, left_out, full, constants)
    found = Comparison(counts, runs, full, cost, left_out, pieces, eager_cost(cost, measurements))
    return replace(found, remarks=remarks_on(found, measurements))


def _rates(
    counts: Sequence[OperatorCount], sums: Sequence[ModelCost], measurements: Measurements, conditions: Conditions
) -> CostModel | None:
    """Return rates fitted to operators, for those of them that these sums lack; None where they are not wanted, or too
    little is measured.
    """
    if not any(one.missing for one in sums):
        return None
    known = known_costs(counts, measurements, conditions, sums[0].basis)
    measured_bytes = sum(memory_bytes_of(one.summed) for one in sums)
    is_enough = len(known) >= MINIMUM_KNOWN and measured_bytes >= MOSTLY_KNOWN_RATIO * memory_bytes_of(counts)
    return fitted(known) if is_enough else None


def _corrections(counts: OperatorCounts, chains: Iterable[ChainRow], conditions: Conditions) -> Corrections | None:
    """Return what calls take longer in a model than alone, None where that is not known.

    A model that moves less than the stream behind which that is measured may find in the caches what chains do not.
    """
    return corrections_under(chains, conditions) if counts.total_memory_bytes > STREAM_BYTES else None


def _leaves_and_others(
    counts: OperatorCounts, dropped: OperatorCounts | None
) -> tuple[OperatorCounts, OperatorCounts | None]:
    """Return what hooks on leaf modules would see, and all that is left out then."""
    leaves = [count for count in counts.counts if is_leaf(count.operator, counts.composites)]
    others = [count for count in counts.counts if count not in leaves]
    left_out = None if dropped is None else replace(dropped, counts=(*dropped.counts, *others))
    return replace(counts, counts=tuple(leaves)), left_out
