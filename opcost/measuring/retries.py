"""The number of repetitions of flagged measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opcost.errors import CannotMeasureError
from opcost.measuring.record import Measurement


@dataclass(frozen=True)
class RetryPolicy:
    """The largest numbers of measurements of one case, including the first.

    ``overhead``: measurements of an overhead while clocks are still low from the load before; a new build would be that
    load again. ``at_once``: builds with their measurements while the result is flagged. ``runs``: campaigns while the
    best row is flagged, or has no energy although there is a meter. A case that fails is tried again by every campaign,
    after all others.
    """

    overhead: int = 3
    at_once: int = 3
    runs: int = 3


RETRIES = RetryPolicy()


def repeated(
    measure_once: Callable[[], Measurement], is_final: Callable[[Measurement], bool], times: int
) -> Measurement:
    """Return the first measurement that is final, or the last one after a number of times.

    Raises:
        CannotMeasureError: the first measurement failed. If a later one fails, the one before it is returned.
    """
    measurement = measure_once()
    for _ in range(times - 1):
        if is_final(measurement):
            break
        try:
            measurement = measure_once()
        except CannotMeasureError:
            break
    return measurement
