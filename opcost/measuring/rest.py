"""The rest of a device after a load that was throttled."""

from __future__ import annotations

from collections.abc import Callable

from opcost.power.ports import Clock

SLOWED_FOR_S = 0.25
"""Shortest time from the measurement of a throttled load to the warm-up of the next one; reading the meters takes 0.05
s before. After it H100s report throttling for another 0.15 s, and so long the warm-up lasts."""


class Rest:
    """A time in which nothing is measured. Builds in that time are a part of it.

    Args:
        clock: any.
        pause: does nothing for some seconds.
    """

    def __init__(self, clock: Clock, pause: Callable[[float], None]) -> None:
        self._clock = clock
        self._pause = pause
        self._end_s = 0.0

    def begin(self) -> None:
        """Begin a rest of ``SLOWED_FOR_S``."""
        self._end_s = self._clock.read().monotonic_s + SLOWED_FOR_S

    def end(self) -> None:
        """Wait until the rest is over, if there is one."""
        left_s = self._end_s - self._clock.read().monotonic_s
        if left_s > 0:
            self._pause(left_s)
