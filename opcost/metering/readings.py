"""The readings of a device's meters around a window, and the port of a device whose energy is metered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from opcost.metering.pieces import NO_PIECES, Pieces, pieces_of_samples, pieces_of_ticks
from opcost.power.trace import PowerTrace, Window

PLACEMENT_ERROR_S = 0.015
"""Standard error of the time at which samples and counter of a GPU show a change of the load. In the recorded steps of
an H200 and an H100 (``tests/recordings``) samples follow 5 ms and 12 to 19 ms later; their times scatter by 7 ms. Of 62
windows on another H200, 85 % of the 95 % intervals contained the counted energy with 10 ms, and 95 % do with 15 ms
(``docs/data/metered_windows.csv``)."""


@dataclass(frozen=True, eq=False)
class Readings:
    """The readings of a device around a window.

    Args:
        samples: the power as a function of time; no pieces where the device has no samples.
        ticks: readings of an energy counter: epoch seconds and J, oldest first.
        sample_meter, counter_meter: the names of both meters.
        resolution_s: the shortest window that the meters resolve.
        tick_error_s: standard error of a tick's time.
        placement_error_s: standard error of the time at which the meters show a change of the load.
        missing_reason: why there are no readings, None if there are.
    """

    samples: Pieces = NO_PIECES
    ticks: Sequence[tuple[float, float]] = ()
    sample_meter: str = ""
    counter_meter: str = ""
    resolution_s: float = 0.0
    tick_error_s: float = 0.0
    placement_error_s: float = PLACEMENT_ERROR_S
    missing_reason: str | None = None

    @property
    def pieces(self) -> Pieces:
        """The samples, or the counter from tick to tick where there are none."""
        return self.samples if len(self.samples.power_w) else pieces_of_ticks(self.ticks)


def samples_of(trace: PowerTrace) -> Pieces:
    """Return the pieces of a meter whose readings cover all of the time."""
    return pieces_of_samples(trace.epoch_s, trace.power_w, trace.source.averaging_time_s)


class EnergySource(Protocol):
    """A device whose energy is metered, from ``open`` to ``close`` in threads of its own."""

    @property
    def device(self) -> str:
        """The device's name in results: ``cuda:0``, ``cpu``, ``dram``."""

    @property
    def uuid(self) -> str | None:
        """The UUID of a GPU, None for other devices."""

    @property
    def idle_power_w(self) -> float | None:
        """The power before anything was metered, None if the device was not idle then."""

    def edge(self) -> None:
        """A window begins or ends now: read a meter that may be read at any moment. It takes less than 0.1 ms."""

    def readings(self, window: Window) -> Readings:
        """Return the readings around a window that has ended; wait for the last ones, some tenths of a second."""

    def forget_before(self, epoch_s: float) -> None:
        """Drop readings that no later window needs."""

    def close(self) -> None:
        """End the device's threads."""
