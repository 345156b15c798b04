"""The result of a comparison of summed operators with a whole model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opcost.comparing.eager_regime import EagerCost
from opcost.comparing.gap import Gap
from opcost.comparing.remarks import Remark
from opcost.estimates import Estimate, total_if_known
from opcost.measuring.conditions import WARM, Conditions, differing_fields
from opcost.measuring.record import MeasurementRow, time_of
from opcost.operators.cases import ALL, CAPTURED
from opcost.operators.counts import OperatorCounts
from opcost.summing.energy import EnergyBasis
from opcost.summing.summation import ModelCost


@dataclass(frozen=True)
class OperatorRuns:
    """The choice of summed operators.

    ``input_data`` is one of ``INPUT_DATA``, ``cache`` one of ``CACHES``, ``counted`` one of ``COUNTED``: all operators,
    or leaf modules only.
    """

    input_data: str = CAPTURED
    cache: str = WARM
    counted: str = ALL


USUAL_RUNS = OperatorRuns()


@dataclass(frozen=True)
class Comparison:
    """One model under one set of conditions: its summed operators and the measured whole model.

    ``counts`` are the operators to sum, ``runs`` the choice of rows, ``full`` is the whole model's row. ``left_out`` is
    the cost of dropped operators. ``gap`` holds the parts of the whole model's cost. ``eager`` is the expected cost of
    an eager run of the summed operators, None if unknown. ``remarks`` are for the reader.
    """

    counts: OperatorCounts
    runs: OperatorRuns
    full: MeasurementRow
    cost: ModelCost
    left_out: ModelCost
    gap: Gap
    eager: EagerCost | None
    remarks: tuple[Remark, ...] = ()

    @property
    def conditions(self) -> Conditions:
        return conditions_of_sum(self.full, self.runs)

    @property
    def full_energy_j(self) -> Estimate | None:
        """The whole model's energy, normalised if the sum's is."""
        return self.cost.basis.energy_of(self.full)

    @property
    def time_ratio(self) -> Estimate | None:
        """Sum over whole model, with one standard error."""
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


CONDITIONS_SHOWN = ("device_product", "execution", "cache", "precision", "mode", "torch_version", "driver_version")
"""Conditions that distinguish the comparisons of one model in labels."""


def labels_of(name: str, conditions: Sequence[Conditions]) -> list[str]:
    """Return a label for each set of conditions: the model's name and the conditions that differ."""
    return [f"{name} ({', '.join(texts)})" if texts else name for texts in differing(conditions)]


def differing(conditions: Sequence[Conditions]) -> list[list[str]]:
    """Return, for each set of conditions, the values of those that differ."""
    found = differing_fields(conditions)
    names = [name for name in CONDITIONS_SHOWN if name in found]
    return [[str(getattr(one, name)) for name in names] for one in conditions]
