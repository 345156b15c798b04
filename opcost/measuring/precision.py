"""The precision of a loop so far, and a forecast of whether it will reach its target."""

from __future__ import annotations

import math

from opcost.estimates import Estimate, half_width_ratio
from opcost.measuring.recorded_loop import MINIMUM_PRECISE_CHUNKS, Loop
from opcost.power.mean import MeteredPower

CHECKS_IN_A_ROW = 2
"""The number of successive checks that must agree."""

GIVE_UP_AFTER_S = 2.0
"""The time from which a loop ends if it would not reach its target precision in the longest time allowed."""

FALLING_RATIO = 0.9
"""The smallest reduction of the error that a doubling of the loop's time must give. Independent noise gives 0.7. An
error that stays above has slow drift, such as launches from Python, whose mean no loop of 30 s determines to 1 %."""

NEAR_RATIO = 1.5
"""A loop is not given up for an error that stopped falling if it is this near to the target, because errors themselves
are known to about 20 %."""


def energy_of_iteration_j(loop: Loop, power: MeteredPower) -> Estimate | None:
    """Return the energy of one iteration in J, None if the power is unknown.

    Power and time are treated as independent. The error is too large if the device is throttled, because time then
    rises as power falls.
    """
    return None if power.mean.estimate_w is None else power.mean.estimate_w.multiplied_by(loop.time_s)


def is_precise(loop: Loop, power: MeteredPower, relative_error: float) -> bool:
    """Return whether the 95 % intervals of time and energy are within a relative error.

    Without a power meter only the time counts. Calls that launch no kernel are always precise.
    """
    if loop.launches_no_kernel:
        return True
    is_short = len(loop.chunk_durations_s) < MINIMUM_PRECISE_CHUNKS
    return not is_short and half_width_ratio_of(loop, power) <= relative_error


def half_width_ratio_of(loop: Loop, power: MeteredPower) -> float:
    """Return half the width of the 95 % interval of time or energy over its value, the larger of both.

    It is infinite if the energy is not known yet. Without a power meter only the time counts.
    """
    chunks = loop.independent_chunks
    time_ratio = half_width_ratio(loop.time_s, chunks)
    if power.trace.missing_reason is not None:
        return time_ratio
    energy_j = energy_of_iteration_j(loop, power)
    if energy_j is None:
        return math.inf
    return max(time_ratio, half_width_ratio(energy_j, min(chunks, power.mean.readings)))


class Forecast:
    """Predicts from a loop's errors so far whether it will reach its target precision in time."""

    def __init__(self, relative_error: float, loop_s: float) -> None:
        self._relative_error = relative_error
        self._loop_s = loop_s
        self._earlier: tuple[float, float] | None = None
        self._unlikely_checks = 0

    def is_hopeless(self, loop: Loop, power: MeteredPower) -> bool:
        """Return whether this check and the ones before it found that the loop will not reach its target.

        The answer is False for short loops and for few readings.
        """
        if loop.duration_s < GIVE_UP_AFTER_S or not _has_enough_readings(loop, power):
            return False
        ratio = half_width_ratio_of(loop, power)
        # Errors fall with the root of the time at best.
        is_out_of_reach = ratio * math.sqrt(loop.duration_s / self._loop_s) > self._relative_error
        is_near = ratio <= NEAR_RATIO * self._relative_error
        is_unlikely = is_out_of_reach or (self._stays(loop.duration_s, ratio) and not is_near)
        self._unlikely_checks = self._unlikely_checks + 1 if is_unlikely else 0
        return self._unlikely_checks == CHECKS_IN_A_ROW

    @property
    def is_unlikely(self) -> bool:
        """Whether the last check found the target precision out of reach."""
        return self._unlikely_checks > 0

    def _stays(self, duration_s: float, ratio: float) -> bool:
        """Return whether the error has hardly fallen since half of the time."""
        if self._earlier is None:
            self._earlier = duration_s, ratio
        earlier_s, earlier_ratio = self._earlier
        if duration_s < 2 * earlier_s:
            return False
        if ratio <= FALLING_RATIO * earlier_ratio:
            self._earlier = duration_s, ratio
            return False
        return True


def _has_enough_readings(loop: Loop, power: MeteredPower) -> bool:
    """Return whether chunks and readings suffice for a forecast. Without a power meter only chunks count."""
    readings = len(loop.chunk_durations_s)
    if power.trace.missing_reason is None:
        readings = min(readings, 0 if power.mean.estimate_w is None else power.mean.readings)
    return readings >= MINIMUM_PRECISE_CHUNKS
