"""The parts of a whole model's cost: sum, corrections, dropped and unmeasured operators, and the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from opcost.comparing.cache_chain_rows import Excess
from opcost.comparing.cache_corrections import Corrections
from opcost.comparing.power_limit import OTHERS, Load, added_by_limit, limit_of
from opcost.estimates import Estimate, total_if_known, value_of
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import OperatorCount
from opcost.prediction.rates import CostModel
from opcost.summing.summation import ModelCost, Part

METHOD_ERROR_RATIOS: Mapping[str, float] = MappingProxyType({"time": 0.006, "energy": 0.010})
"""The standard error of the method itself, as a share of a corrected sum of ``time`` or ``energy``.

It is what corrected sums are off from wholes beyond the errors of rows and corrections: the root of the mean of
(ratio - 1)^2 - (its standard error)^2 is 0.64 % and 1.03 % for the 87 models at their published size in
``sum_vs_full.csv`` (H200, CUDA graphs, all operators, captured values, torch's default precision). Other models may be
further off. These wholes gave the figures, so that they are no test of them; they hold until better ones exist.
"""


def with_method_error(corrected: Estimate, quantity: str) -> Estimate:
    """Return a corrected sum of ``time`` or ``energy``, or its ratio to the whole, with the error of the method too."""
    return corrected.with_error(METHOD_ERROR_RATIOS[quantity] * corrected.value)


@dataclass(frozen=True)
class Piece:
    """Time in s and energy in J of a part of the whole model, None if unknown."""

    time_s: float | None = 0.0
    energy_j: float | None = 0.0

    def plus(self, other: Piece) -> Piece:
        return Piece(total_if_known([self.time_s, other.time_s]), total_if_known([self.energy_j, other.energy_j]))


@dataclass(frozen=True)
class Gap:
    """The parts of a whole model's cost. ``modules`` and ``functions`` are the sum.

    ``correction`` is the cache correction of the summed calls, which may be negative; if it is None, its cost is a part
    of ``unexplained``. ``correction_dtype`` is the dtype of the chains that it was measured with; ``missing_kinds`` are
    those that have a stand-in's correction. ``power_limit`` is what the power limit adds to the time of all these
    parts, and to their energy, None if unknown. ``dropped`` is the measured or predicted cost of operators
    that are not in the whitelist. ``unmeasured`` is the predicted cost of operators without a row. ``unexplained`` is
    the whole minus all other parts.
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


def gap(
    cost: ModelCost,
    dropped: ModelCost,
    full: MeasurementRow,
    predictor: CostModel | None = None,
    corrections: Corrections | None = None,
) -> Gap:
    """Return the parts of a whole model's cost.

    The sum of dropped operators is on the same energy basis as the sum. Predictor and cache corrections are the
    device's, derived from operators alone, not from whole models; None if unknown.
    """

    def measured(parts: Iterable[Part]) -> Piece:
        parts = list(parts)
        return Piece(math.fsum(part.time_s for part in parts), total_if_known(part.energy_j for part in parts))

    def piece(added: Excess | None) -> Piece:
        return Piece() if added is None else Piece(added.time_s.value, value_of(added.energy_j) or 0.0)

    modules = measured(part for part in cost.parts if not part.case.operator.is_function)
    functions = measured(part for part in cost.parts if part.case.operator.is_function)
    left_out = measured(dropped.parts).plus(predicted_piece(dropped.missing, predictor))
    unmeasured, full_j = predicted_piece(cost.missing, predictor), value_of(cost.basis.energy_of(full))
    correction = None if corrections is None else corrections.of(cost.summed)
    besides = left_out.plus(unmeasured).plus(piece(correction))
    power_limit = None
    if besides.time_s is not None and besides.energy_j is not None:
        load = Load(besides.time_s, besides.energy_j, OTHERS)
        power_limit = added_by_limit(cost, load, limit_of(full.conditions))
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
        correction_dtype=None if corrections is None else corrections.dtype,
        missing_kinds=() if corrections is None else corrections.missing_kinds(cost.summed),
    )


def predicted_piece(counts: Sequence[OperatorCount], predictor: CostModel | None) -> Piece:
    """Return the predicted cost of all calls of operators, 0 of those that compute nothing.

    It is unknown without a predictor (None), and if the predictor cannot predict one of them.
    """
    counts = [count for count in counts if count.computes]
    if not counts:
        return Piece()
    if predictor is None:
        return Piece(None, None)
    costs = [predictor.cost(count, count.occurrences) for count in counts]
    return Piece(total_if_known(time_s for time_s, _ in costs), total_if_known(energy_j for _, energy_j in costs))
