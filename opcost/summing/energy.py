"""The choice between a row's energy as measured and its energy normalised to 50 °C."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum

from opcost.estimates import Estimate, estimate_of
from opcost.measuring.record import (
    COEFFICIENT_ERROR_PER_KELVIN,
    COEFFICIENT_SPREAD_PER_KELVIN,
    REFERENCE_TEMPERATURE_C,
    MeasurementRow,
)


class EnergyBasis(Enum):
    """The energies that are summed or compared: all as measured, or all at the reference temperature."""

    MEASURED = "measured"
    NORMALISED = "normalised"

    @property
    def temperature_c(self) -> float | None:
        """The temperature that energies are normalised to, None if they are as measured."""
        return REFERENCE_TEMPERATURE_C if self is EnergyBasis.NORMALISED else None

    def energy_of(self, row: MeasurementRow) -> Estimate | None:
        """Return a row's energy per iteration in J, None if unknown.

        The error is that of the measurement alone. The error of normalising is shared by all rows, so it must not be
        added in quadrature.
        """
        return estimate_of(self._value_of(row), row.measurement.energy_standard_error_j)

    def is_known(self, row: MeasurementRow) -> bool:
        return self._value_of(row) is not None and row.measurement.energy_standard_error_j is not None

    def _value_of(self, row: MeasurementRow) -> float | None:
        measured = row.measurement
        return measured.energy_at_reference_j if self is EnergyBasis.NORMALISED else measured.energy_j

    def coefficient_error_j(self, parts: Iterable[tuple[int, MeasurementRow]], whole: MeasurementRow) -> float:
        """Return the error in J of sum minus whole model that is due to power temperature coefficients.

        The error of the board's coefficient is multiplied by the difference of mean temperatures, the spread between
        operators' coefficients by each operator's own difference. ``parts`` are numbers of calls with their row.
        """
        whole_c, kelvins_j = whole.measurement.temperature_c, []
        for calls, row in parts:
            energy_j, celsius = self.energy_of(row), row.measurement.temperature_c
            if energy_j is not None and celsius is not None and whole_c is not None:
                kelvins_j.append(calls * energy_j.value * (celsius - whole_c))
        return temperature_error_j(kelvins_j)


def temperature_error_j(kelvins_j: Iterable[float]) -> float:
    """Return the error in J of a difference of energies that is due to power temperature coefficients.

    Each part is an energy in J times the difference of its temperatures in K.
    """
    parts = list(kelvins_j)
    board_j, operators_j = math.fsum(parts), math.hypot(*parts)
    return math.hypot(COEFFICIENT_ERROR_PER_KELVIN * board_j, COEFFICIENT_SPREAD_PER_KELVIN * operators_j)


def common_basis(rows: Iterable[MeasurementRow]) -> EnergyBasis:
    """Return the basis on which energies of these rows may be compared: normalised if all can be, else as measured."""
    is_known = list(map(EnergyBasis.NORMALISED.is_known, rows))
    return EnergyBasis.NORMALISED if is_known and all(is_known) else EnergyBasis.MEASURED
