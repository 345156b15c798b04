"""The clock of this machine."""

from __future__ import annotations

import time

from opcost.power.ports import ClockReading


class SystemClock:
    """Reads monotonic and epoch time as a pair.

    The monotonic clock is read before and after the epoch clock and the middle is taken, so that the two belong to
    one moment even if reading takes long.
    """

    def read(self) -> ClockReading:
        """Return the present time in s."""
        before_s = time.perf_counter()
        epoch_s = time.time()
        after_s = time.perf_counter()
        return ClockReading(monotonic_s=(before_s + after_s) / 2, epoch_s=epoch_s)
