"""The rest of a device after a load that was throttled."""

from __future__ import annotations

from collections.abc import Callable

from opcost.power.ports import Clock

SLOWED_FOR_S = 0.2
"""Shortest time from the end of a throttled load to the warm-up of the next one. Clocks stay low for 0.3 s on an H200;
the warm-up takes at least another 0.1 s."""

IDLE_S = 0.3
"""Idle time after which a load above the power limit is tried again. The limit holds for a mean over about a second, so
what the device did before decides how long such a load runs at full clocks."""

BRIEF_RATIO = 1.09
"""Share of the power limit up to which loads run at full clocks for at least 0.3 s after idling; heavier ones were
throttled after 0.1 s to 0.2 s (a dozen operators on an H100, ``docs/log/power_limit.md``)."""


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
