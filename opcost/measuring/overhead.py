"""Subtraction of an overhead from a measurement."""

from __future__ import annotations

from dataclasses import replace

from opcost.errors import CannotMeasureError
from opcost.estimates import BATCHES, Estimate, estimate_of, is_within, standard_error_of, value_of
from opcost.measuring.flags import OF_AN_OVERHEAD, Flag, flags_of, joined_notes
from opcost.measuring.record import Measurement


def without_overhead(
    measurement: Measurement, overhead: Measurement, relative_error: float | None = None
) -> Measurement:
    """Return a measurement minus its overhead; errors add in quadrature.

    Values that cannot be subtracted (medians, means without outliers, the check by another meter) are None. The state
    of the device and the loop are those of the measurement. A difference that is less precise than ``relative_error``,
    if there is one, is flagged. Raises CannotMeasureError: the difference of the times is not above 0.
    """

    def difference(
        value: float | None, error: float | None, of_overhead: float | None, its_error: float | None
    ) -> Estimate | None:
        both, less = estimate_of(value, error), estimate_of(of_overhead, its_error)
        found = None if both is None or less is None else both.less(less)
        return found if found is not None and found.value > 0 else None

    time_s = difference(
        measurement.time_s, measurement.time_standard_error_s, overhead.time_s, overhead.time_standard_error_s
    )
    if time_s is None:
        raise CannotMeasureError(f"it takes no longer than its overhead alone ({overhead.time_s:.3g} s)")
    energy_j = difference(
        measurement.energy_j, measurement.energy_standard_error_j, overhead.energy_j, overhead.energy_standard_error_j
    )
    at_reference_j = difference(
        measurement.energy_at_reference_j,
        measurement.energy_at_reference_standard_error_j,
        overhead.energy_at_reference_j,
        overhead.energy_at_reference_standard_error_j,
    )
    is_precise = relative_error is None or all(
        is_within(figure, BATCHES, relative_error) for figure in (time_s, energy_j) if figure is not None
    )
    power_w = None if energy_j is None else energy_j.divided_by(time_s)
    reason = measurement.energy_missing_reason or overhead.energy_missing_reason
    return replace(
        measurement,
        time_s=time_s.value,
        energy_j=value_of(energy_j),
        time_standard_error_s=time_s.standard_error,
        energy_standard_error_j=standard_error_of(energy_j),
        energy_missing_reason=None if energy_j else reason or "it takes no more energy than its overhead alone",
        time_median_s=None,
        time_without_outliers_s=None,
        power_median_w=None,
        power_without_outliers_w=None,
        energy_at_reference_j=value_of(at_reference_j) if energy_j else None,
        energy_at_reference_standard_error_j=standard_error_of(at_reference_j) if energy_j else None,
        power_w=value_of(power_w),
        power_standard_error_w=standard_error_of(power_w),
        check_power_w=None,
        check_power_standard_error_w=None,
        check_meter=None,
        flags=flags_of(
            [
                *measurement.flags,
                *OF_AN_OVERHEAD.intersection(overhead.flags),
                *([] if is_precise else [Flag.IMPRECISE]),
            ]
        ),
        notes=joined_notes(measurement.notes, f"overhead: {overhead.notes}" if overhead.notes else ""),
    )
