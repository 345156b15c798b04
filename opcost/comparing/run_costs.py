"""The costs of one run of a model side by side: its sum of operators, the corrected sum, and the measured whole."""

from __future__ import annotations

from dataclasses import dataclass

from opcost.comparing.ranking import ModelFigures
from opcost.estimates import value_of
from opcost.measuring.record import time_of


@dataclass(frozen=True)
class RunCosts:
    """Times and energies of one run; None if unknown. Energies are at the same temperature, None for as measured.

    A corrected sum is None if no correction is known.
    """

    sum_time_s: float | None = None
    sum_energy_j: float | None = None
    corrected_time_s: float | None = None
    corrected_energy_j: float | None = None
    whole_time_s: float | None = None
    whole_energy_j: float | None = None
    reference_temperature_c: float | None = None

    @staticmethod
    def of(figures: ModelFigures) -> RunCosts:
        """Return the costs of a model under one set of conditions."""
        cost, whole = figures.cost, figures.whole
        basis = figures.basis if cost is None else cost.basis
        is_corrected = figures.correction is not None
        return RunCosts(
            sum_time_s=None if cost is None else value_of(cost.time_s),
            sum_energy_j=None if cost is None else value_of(cost.energy_j),
            corrected_time_s=value_of(figures.corrected_time_s) if is_corrected else None,
            corrected_energy_j=value_of(figures.corrected_energy_j) if is_corrected else None,
            whole_time_s=None if whole is None else time_of(whole).value,
            whole_energy_j=None if whole is None else value_of(basis.energy_of(whole)),
            reference_temperature_c=basis.temperature_c,
        )


UNKNOWN_COSTS = RunCosts()
