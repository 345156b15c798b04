"""The sum of the parts beside the measured whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opcost.comparing.eager_regime import EagerCost
from opcost.comparing.gap import Gap
from opcost.comparing.remarks import Remark
from opcost.estimates import Estimate, total_if_known
from opcost.measuring.conditions import WARM, Conditions
from opcost.measuring.record import MeasurementRow, time_of
from opcost.operators.cases import ALL, CAPTURED
from opcost.operators.counts import OperatorCounts
from opcost.summing.energy import EnergyBasis
from opcost.summing.summation import ModelCost


@dataclass(frozen=True)
class OperatorRuns:
    """Which runs of operators are summed: on which values, one of ``INPUT_DATA``, finding what in the cache.

    ``counted``, one of ``COUNTED``, says which of them: those of leaf modules are what hooks on modules see.
    """

    input_data: str = CAPTURED
    cache: str = WARM
    counted: str = ALL


USUAL_RUNS = OperatorRuns()


@dataclass(frozen=True)
class Comparison:
    """One model under one set of conditions: its summed operators beside the measured whole.

    ``counts`` are those that should be summed, ``runs`` which runs of them, ``full`` is the whole. ``left_out`` is the
    cost of what is not summed on purpose. ``gap`` names what makes the whole; ``eager`` is what an eager run of the
    summed operators should cost, None where that is not known. ``remarks`` are what the reader must know.
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
        """Those of the summed operators: their ``cache`` may be another than the whole model's."""
        return replace(self.full.conditions, cache=self.runs.cache)

    @property
    def full_energy_j(self) -> Estimate | None:
        """The whole's energy, at the same temperature as the sum's."""
        return self.cost.basis.energy_of(self.full)

    @property
    def time_ratio(self) -> Estimate | None:
        """Sum over whole; its error is one standard error."""
        return None if self.cost.time_s is None else self.cost.time_s.divided_by(time_of(self.full))

    @property
    def energy_ratio(self) -> Estimate | None:
        """Sum over whole; where energies are normalised its error holds what is not known of slopes."""
        sum_j, full_j = self.cost.energy_j, self.full_energy_j
        if sum_j is None or full_j is None:
            return None
        if self.cost.basis is EnergyBasis.NORMALISED:
            parts = ((part.occurrences, part.row) for part in self.cost.parts)
            sum_j = sum_j.with_error(self.cost.basis.slope_error_j(parts, self.full))
        return sum_j.divided_by(full_j)


@dataclass(frozen=True)
class KindCost:
    """What all summed calls of one kind of operator cost in a model; energy as the sum's, None where one is unknown."""

    operator: str
    time_s: float
    energy_j: float | None


def kinds_of(cost: ModelCost) -> tuple[KindCost, ...]:
    """Return what each kind of operator costs in a sum, the one that takes most time first."""
    kinds: dict[str, KindCost] = {}
    for part in cost.parts:
        name = part.case.operator.short_name
        known = kinds.get(name, KindCost(name, 0.0, 0.0))
        energy_j = total_if_known([known.energy_j, part.energy_j])
        kinds[name] = KindCost(name, known.time_s + part.time_s, energy_j)
    return tuple(sorted(kinds.values(), key=lambda kind: -kind.time_s))


CONDITIONS_SHOWN = ("device_product", "execution", "cache", "precision", "mode", "torch_version", "driver_version")
"""By which labels distinguish the comparisons of one model."""


def labels_of(name: str, conditions: Sequence[Conditions]) -> list[str]:
    """Return a model's name for each set of conditions that it was compared under, with those that differ."""
    differing = [field for field in CONDITIONS_SHOWN if len({getattr(one, field) for one in conditions}) > 1]
    shown = (", ".join(str(getattr(one, field)) for field in differing) for one in conditions)
    return [f"{name} ({text})" if text else name for text in shown]
