"""Subtraction of an overhead from a measurement."""

from __future__ import annotations

from dataclasses import replace

from opcost.errors import CannotMeasureError
from opcost.estimates import BATCHES, Estimate, estimate_of, is_within, standard_error_of, value_of
from opcost.measuring.flags import Flag, Flags, flags_of, flags_of_an_overhead, joined_notes
from opcost.measuring.record import Measurement


def without_overhead(
    measurement: Measurement, overhead: Measurement, relative_error: float | None = None
) -> Measurement:
    """Return a measurement minus its overhead; errors add in quadrature.

    Values that cannot be subtracted (medians, means without outliers, the check by another meter) are None. The state
    of the device and the loop are those of the measurement.

    Args:
        measurement: workload and overhead together.
        overhead: the overhead alone.
        relative_error: the target precision, None without one. A less precise difference is flagged.

    Raises:
        CannotMeasureError: the difference of the times is not above 0.
    """
    time_s = _time_s(measurement).less(_time_s(overhead))
    if time_s.value <= 0:
        raise CannotMeasureError(f"it takes no longer than its overhead alone ({overhead.time_s:.3g} s)")
    energy_j = _positive(
        _less(
            estimate_of(measurement.energy_j, measurement.energy_standard_error_j),
            estimate_of(overhead.energy_j, overhead.energy_standard_error_j),
        )
    )
    at_reference_j = _positive(_less(_energy_at_reference_j(measurement), _energy_at_reference_j(overhead)))
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
                *flags_of_an_overhead(overhead.flags),
                *_imprecision(time_s, energy_j, relative_error),
            ]
        ),
        notes=joined_notes(measurement.notes, f"overhead: {overhead.notes}" if overhead.notes else ""),
    )


def _time_s(measurement: Measurement) -> Estimate:
    return Estimate(measurement.time_s, measurement.time_standard_error_s)


def _positive(estimate: Estimate | None) -> Estimate | None:
    return estimate if estimate is not None and estimate.value > 0 else None


def _energy_at_reference_j(measurement: Measurement) -> Estimate | None:
    return estimate_of(measurement.energy_at_reference_j, measurement.energy_at_reference_standard_error_j)


def _less(minuend: Estimate | None, subtrahend: Estimate | None) -> Estimate | None:
    if minuend is None or subtrahend is None:
        return None
    return minuend.less(subtrahend)


def _imprecision(time_s: Estimate, energy_j: Estimate | None, relative_error: float | None) -> Flags:
    """Return a flag if the difference is less precise than the target."""
    figures = [time_s, *([] if energy_j is None else [energy_j])]
    if relative_error is None or all(is_within(figure, BATCHES, relative_error) for figure in figures):
        return ()
    return (Flag.IMPRECISE,)
