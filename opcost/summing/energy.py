"""Which energy of a row is used: as measured, or normalised to one temperature. Nothing else chooses between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum

from opcost.estimates import Estimate, estimate_of
from opcost.measuring.record import (
    REFERENCE_TEMPERATURE_C,
    SLOPE_ERROR_PER_KELVIN,
    SLOPE_SPREAD_PER_KELVIN,
    MeasurementRow,
)


class EnergyBasis(Enum):
    """What energies are that are summed or compared: all of them as measured, or all at the reference temperature."""

    MEASURED = "measured"
    NORMALISED = "normalised"

    @property
    def temperature_c(self) -> float | None:
        """The temperature that energies are normalised to, None where they are as measured."""
        return REFERENCE_TEMPERATURE_C if self is EnergyBasis.NORMALISED else None

    def energy_of(self, row: MeasurementRow) -> Estimate | None:
        """Return a row's energy per iteration in J, None where it has none.

        The error is that of the measurement: that of normalising is not independent from row to row.
        """
        measured = row.measurement
        energy_j = measured.energy_at_reference_j if self is EnergyBasis.NORMALISED else measured.energy_j
        return estimate_of(energy_j, measured.energy_standard_error_j)

    def slope_error_j(self, parts: Iterable[tuple[int, MeasurementRow]], whole: MeasurementRow) -> float:
        """Return what is not known of slopes over the temperature in the difference of a sum from a whole, in J.

        The board's slope counts by how far the mean temperature of the parts is from the whole's, what operators differ
        in by how far each is.

        Args:
            parts: how many calls, and the row of one.
            whole: what their sum is held against.
        """
        whole_c = whole.measurement.temperature_c
        kelvins_j = [
            calls * energy_j.value * (row.measurement.temperature_c - whole_c)
            for calls, row in parts
            if (energy_j := self.energy_of(row)) is not None
            and row.measurement.temperature_c is not None
            and whole_c is not None
        ]
        board_j, operators_j = math.fsum(kelvins_j), math.hypot(*kelvins_j)
        return math.hypot(SLOPE_ERROR_PER_KELVIN * board_j, SLOPE_SPREAD_PER_KELVIN * operators_j)


def common_basis(rows: Iterable[MeasurementRow]) -> EnergyBasis:
    """Return what energies of these rows may be compared by: normalised if all of them have that, else as measured."""
    is_known = [EnergyBasis.NORMALISED.energy_of(row) is not None for row in rows]
    return EnergyBasis.NORMALISED if is_known and all(is_known) else EnergyBasis.MEASURED
