"""What is measured again, how often, and why. Whether anything casts doubt on a measurement, its flags say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opcost.errors import CannotMeasureError
from opcost.measuring.record import Measurement


@dataclass(frozen=True)
class RetryPolicy:
    """How often something is measured at most, the first time included.

    What disturbs for seconds is outlasted at once: ``overhead`` is for an overhead alone, while clocks are still low
    from the load before, since a new build would be that load again; ``at_once`` for a build and its measurement, while
    a flag casts doubt on that. What disturbs for longer is outlasted by later ``runs``, while a flag casts doubt on the
    best row, or that lacks energy where there is a meter. What stays so is like that by itself, and is left so. What
    cannot be measured at all costs little, and is tried by every run, after all else.
    """

    overhead: int = 3
    at_once: int = 3
    runs: int = 3


RETRIES = RetryPolicy()


def repeated(
    measure_once: Callable[[], Measurement], is_final: Callable[[Measurement], bool], times: int
) -> Measurement:
    """Return the first measurement that is final, after some times the last one.

    Raises:
        CannotMeasureError: the first one cannot be made. Where a later one cannot, the one before stays.
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
