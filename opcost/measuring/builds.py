"""Whole models in several builds: the one with the median time counts, and the others show how far builds differ.

The time of some models has two states 2.6 % apart. The first build of a process is often in the rarer one
(``docs/log/repeatability.md``).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from opcost.errors import CannotMeasureError
from opcost.measuring.protocol import RETRIES, MeasurementProtocol
from opcost.measuring.record import Measurement, is_at_power_limit, is_flagged

SETTLING_S = 2.7
SETTLED_LOOP_S = 2.7
"""Clocks at the power limit settle within two or three swings of 0.9 s. Warm-up and loop have three
(``docs/log/power_limit.md``)."""

NOTICEABLE_RANGE_RATIO = 0.01
"""Range of the builds' times over their median from which people are informed: builds of one state are within 0.2 %."""


def median_of_builds(measure_build: Callable[[], Measurement], builds: int) -> Measurement:
    """Return the measurement of the build with the median time, with the differences between builds.

    Flagged builds are replaced by others, ``RETRIES.at_once - 1`` times in total. Of two builds the shorter one counts.
    If the first build fails, its ``CannotMeasureError`` is raised; if a later one does, those before it count.
    """
    found = [measure_build()]
    for _ in range(builds + RETRIES.at_once - 2):
        if sum(not is_flagged(one) for one in found) >= builds:
            break
        try:
            found.append(measure_build())
        except CannotMeasureError:
            break
    best = max(map(_quality, found))
    counted = sorted((one for one in found if _quality(one) == best), key=lambda one: one.time_s)
    return _with_differences(counted[(len(counted) - 1) // 2], counted)


def settled(run_build: Callable[[MeasurementProtocol], Measurement], protocol: MeasurementProtocol) -> Measurement:
    """Return the measurement of a build in lasting use; ``run_build`` measures it, first by the given protocol.

    At the power limit a short loop has full clocks in a part that is left to chance. Such a build runs again, with the
    time in which clocks settle as its warm-up.
    """
    measurement = run_build(protocol)
    if protocol.relative_error is None or not is_at_power_limit(measurement):
        return measurement
    return run_build(replace(protocol, warm_up_s=SETTLING_S, loop_s=SETTLED_LOOP_S, relative_error=None))


def are_different(time_range_ratio: float | None) -> bool:
    """Return whether builds with this range of times over their median differ noticeably; False if it is unknown."""
    return (time_range_ratio or 0.0) > NOTICEABLE_RANGE_RATIO


def _quality(measurement: Measurement) -> tuple[bool, bool]:
    return measurement.energy_j is not None, not is_flagged(measurement)


def _with_differences(measurement: Measurement, builds: Sequence[Measurement]) -> Measurement:
    """Return a measurement with the ranges of its builds' times and energies, and with errors that include them.

    A time that is the median of n has a standard error of sqrt(pi / 2n) standard deviations. Energy and power are not
    chosen by their values, so theirs is one standard deviation.
    """
    times_s, powers_w = [one.time_s for one in builds], [one.power_w for one in builds]
    measured_j, normalised_j = [one.energy_j for one in builds], [one.energy_at_reference_j for one in builds]
    error_s, share = measurement.time_standard_error_s, math.sqrt(math.pi / (2 * len(builds)))

    def with_scatter(error: float | None, values: Sequence[float | None]) -> float | None:
        return None if error is None else math.hypot(error, _unexplained(values, error))

    return replace(
        measurement,
        builds=len(builds),
        builds_time_range_ratio=_range_ratio(times_s),
        builds_energy_range_ratio=_range_ratio(measured_j if None in normalised_j else normalised_j),
        time_standard_error_s=math.hypot(error_s, share * _unexplained(times_s, error_s)),
        power_standard_error_w=with_scatter(measurement.power_standard_error_w, powers_w),
        energy_standard_error_j=with_scatter(measurement.energy_standard_error_j, measured_j),
        energy_at_reference_standard_error_j=with_scatter(
            measurement.energy_at_reference_standard_error_j, normalised_j
        ),
    )


def _range_ratio(values: Sequence[float | None]) -> float | None:
    """Return the range of two or more values over their median, None if one is unknown."""
    known = _all_known(values)
    return (max(known) - min(known)) / statistics.median(known) if known else None


def _unexplained(values: Sequence[float | None], error: float) -> float:
    """Return the standard deviation of values beyond that which an error of each explains; 0 if it is unknown."""
    known = _all_known(values)
    return math.sqrt(max(0.0, statistics.variance(known) - error**2)) if known else 0.0


def _all_known(values: Sequence[float | None]) -> list[float]:
    """Return two or more values, or none if one is unknown."""
    known = [value for value in values if value is not None]
    return known if 2 <= len(known) == len(values) else []
