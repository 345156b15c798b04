"""The power of a device that only waits, as it does in the pauses of duty cycles.

It is the same for all operators, so it is measured for one and used for those that follow within a minute. Only the
time of each one's pauses is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from opcost.estimates import Estimate, estimate_of, standard_error_of, value_of
from opcost.measuring.flags import Flag
from opcost.measuring.record import Measurement, is_flagged, may_be_throttled

LASTS_S = 60.0
"""Time for which a power of waiting is used. In it a chip's temperature changes by a few kelvin."""

CHANGE_RATIO = 0.02
"""Relative standard error of a power of waiting that was measured before: that of a few kelvin at 0.3 % to 0.5 % per
kelvin. Pauses take 5 % of the energy, so an operator's energy changes by 0.1 %."""


@dataclass(frozen=True)
class Waiting:
    """A sound measurement of a load that only waits, and the monotonic time of its end."""

    measurement: Measurement
    ended_s: float

    def lasting(self, time_s: Estimate) -> Measurement:
        """Return the measurement as it would be with another time of an iteration."""
        measured, longer = self.measurement, time_s.value / self.measurement.time_s
        energy_j = _scaled(measured.energy_j, measured.energy_standard_error_j, longer)
        at_reference_j = _scaled(measured.energy_at_reference_j, measured.energy_at_reference_standard_error_j, longer)
        return replace(
            measured,
            time_s=time_s.value,
            time_standard_error_s=time_s.standard_error,
            energy_j=value_of(energy_j),
            energy_standard_error_j=standard_error_of(energy_j),
            energy_at_reference_j=value_of(at_reference_j),
            energy_at_reference_standard_error_j=standard_error_of(at_reference_j),
        )


def _scaled(energy_j: float | None, error_j: float | None, longer: float) -> Estimate | None:
    before_j = estimate_of(energy_j, error_j)
    return None if before_j is None else before_j.times(longer).with_error(CHANGE_RATIO * longer * before_j.value)


class WaitingPower:
    """Remembers the last sound measurement of a load that only waits."""

    def __init__(self) -> None:
        self._last: Waiting | None = None

    def remember(self, measurement: Measurement, now_s: float) -> None:
        """Remember a measurement that has just ended, unless it is doubtful, imprecise or has no energy."""
        is_doubtful = is_flagged(measurement) or may_be_throttled(measurement) or Flag.IMPRECISE in measurement.flags
        if measurement.energy_j is not None and not is_doubtful:
            self._last = Waiting(measurement, now_s)

    def recent(self, now_s: float) -> Waiting | None:
        """Return what is remembered, None if there is nothing of the last ``LASTS_S``."""
        return self._last if self._last is not None and now_s - self._last.ended_s <= LASTS_S else None
