"""What the procedure reads power and time through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from opcost.power.trace import PowerTrace


class Meter(Protocol):
    """Something that logs power."""

    def start(self) -> None:
        """Begin a measurement: rows from now on belong to it."""

    def log(self) -> PowerTrace:
        """Return the rows so far."""

    def stop(self) -> PowerTrace:
        """End the measurement and return its rows, the last of them later than this call if there are any."""


@dataclass(frozen=True)
class ClockReading:
    """Monotonic and epoch seconds, read as a pair."""

    monotonic_s: float
    epoch_s: float


class Clock(Protocol):
    """Something that tells the time."""

    def read(self) -> ClockReading:
        """Return the present time."""
