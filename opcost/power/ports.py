"""The ports of meter and clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from opcost.power.trace import PowerTrace


class Meter(Protocol):
    """A power meter that logs its readings."""

    def start(self) -> None:
        """Begin a measurement: all later rows belong to it."""

    def log(self) -> PowerTrace:
        """Return the rows so far."""

    def stop(self) -> PowerTrace:
        """End the measurement and return its rows. If there are any, the last one is later than this call."""


@dataclass(frozen=True)
class ClockReading:
    """Monotonic and epoch seconds, read as a pair."""

    monotonic_s: float
    epoch_s: float


class Clock(Protocol):
    """A clock with monotonic and wall-clock time."""

    def read(self) -> ClockReading:
        """Return the present time."""
