"""The ports of meter, clock and power limit, and the names of meters: a long one in rows, a short one as an option.

This module imports the standard library only, because ``--help`` lists the short names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    # Only for types: the guardian of a power limit starts without numpy.
    from opcost.power.trace import PowerTrace


SAMPLES = "NVML power samples"
COUNTER = "NVML energy counter"
INSTANT = "nvidia-smi power.draw.instant"
AVERAGE = "nvidia-smi power.draw"
RAPL = "rapl package"
RAPL_WITH_MEMORY = "rapl package+dram"

AUTO = "auto"
"""On the command line: the best meter that passed its qualification."""

_SHORT_NAMES = {
    SAMPLES: "samples",
    COUNTER: "counter",
    INSTANT: "instant",
    AVERAGE: "average",
    RAPL: "rapl",
    RAPL_WITH_MEMORY: "rapl",
}

CPU_METERS = (_SHORT_NAMES[RAPL],)
GPU_METERS = tuple(name for name in _SHORT_NAMES.values() if name not in CPU_METERS)
"""Short names of the meters of each kind of device."""

METER_CHOICES = (AUTO, *dict.fromkeys(_SHORT_NAMES.values()))


def short_name(source_name: str) -> str:
    """Return the name of a meter on the command line; a source without a short name keeps its own."""
    return _SHORT_NAMES.get(source_name, source_name)


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


@dataclass(frozen=True)
class LimitRange:
    """The lowest and the highest power limit that a board can be given, and that of its delivery, in W."""

    lowest_w: float
    highest_w: float
    default_w: float


class PowerLimit(Protocol):
    """The power limit of one board; its name, for messages and locks, is the UUID. ``running.power_limit`` sets it."""

    name: str

    def range_w(self) -> LimitRange:
        """Return the limits that can be set. Raises PowerLimitError: the board does not report them."""

    def read_w(self) -> float:
        """Return the present limit in W. Raises PowerLimitError: the board does not report it."""

    def set_w(self, power_w: float) -> None:
        """Set the limit in W. Raises NoRightError: this user may not; PowerLimitError: the board refuses it."""

    def close(self) -> None:
        """Leave the board."""


class PowerLimitError(Exception):
    """A board's power limit cannot be read or set. The message is one line."""


class NoRightError(PowerLimitError):
    """This user has no right to set power limits."""
