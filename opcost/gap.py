"""What lies between the sum of a model's operators and the measured whole, by name: sum + named parts = whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opcost.estimation import CostModel
from opcost.measurement import MeasurementRow
from opcost.operators import OperatorCount
from opcost.statistics import Estimate
from opcost.summation import ModelCost, Part, energy_of


@dataclass(frozen=True)
class Piece:
    """Time in s and energy in J of a part of the whole model, None where it is not known."""

    time_s: float | None = 0.0
    energy_j: float | None = 0.0

    def plus(self, other: Piece) -> Piece:
        """Return both together."""
        return Piece(_total([self.time_s, other.time_s]), _total([self.energy_j, other.energy_j]))


@dataclass(frozen=True)
class Gap:
    """The pieces of a whole model. ``modules`` and ``functions`` are the sum.

    ``dropped`` is what is not summed on purpose, measured or estimated; ``unmeasured`` what should be summed and has no
    measurement, estimated. ``unexplained`` is what is left, below 0 where the rest is more than the whole.
    """

    modules: Piece
    functions: Piece
    dropped: Piece
    unmeasured: Piece
    unexplained: Piece


def gap(
    cost: ModelCost,
    dropped: ModelCost | None,
    full: MeasurementRow,
    full_energy_j: Estimate | None,
    model: CostModel | None,
) -> Gap:
    """Return what makes a whole model.

    Args:
        cost: the sum of its operators.
        dropped: the sum of those that are left out of it on purpose, None where they are not known.
        full: the measured whole.
        full_energy_j: its energy, as that of the sum: at the reference temperature, or as measured.
        model: what operators cost that were not measured, None where too little is known to tell.
    """
    modules, functions = (
        _measured(
            [part for part in cost.parts if part.subject.operator.is_function == is_function], cost.is_at_reference
        )
        for is_function in (False, True)
    )
    left_out = Piece(None, None)
    if dropped is not None:
        left_out = _measured(dropped.parts, cost.is_at_reference).plus(_estimated(dropped.missing, model))
    unmeasured = _estimated(cost.missing, model)
    known = modules.plus(functions).plus(left_out).plus(unmeasured)
    return Gap(
        modules=modules,
        functions=functions,
        dropped=left_out,
        unmeasured=unmeasured,
        unexplained=Piece(
            _difference(full.measurement.time_s, known.time_s),
            _difference(None if full_energy_j is None else full_energy_j.value, known.energy_j),
        ),
    )


def _measured(parts: Sequence[Part], at_reference: bool) -> Piece:
    energies = [(part.occurrences, energy_of(part.row, at_reference)) for part in parts]
    return Piece(
        time_s=math.fsum(part.time_s for part in parts),
        energy_j=_total(None if energy is None else number * energy.value for number, energy in energies),
    )


def _estimated(counts: Sequence[OperatorCount], model: CostModel | None) -> Piece:
    if not counts:
        return Piece()
    if model is None:
        return Piece(None, None)
    costs = [(count.occurrences, *model.cost(count)) for count in counts]
    return Piece(
        time_s=math.fsum(number * time_s for number, time_s, _ in costs),
        energy_j=_total(None if energy_j is None else number * energy_j for number, _, energy_j in costs),
    )


def _total(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _difference(whole: float | None, known: float | None) -> float | None:
    return None if whole is None or known is None else whole - known
