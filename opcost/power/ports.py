"""The ports of meter, clock, GPU and power limit; names of meters: a long one in rows, a short one as an option.

This module imports the standard library only, because ``--help`` lists the short names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    # Only for types: the guardian of a power limit starts without numpy.
    from opcost.power.log_rows import PowerRow
    from opcost.power.trace import PowerTrace


AUTO = "auto"
"""On the command line: the best meter that passed its qualification."""

SAMPLES, COUNTER, RAPL = "samples", "counter", "rapl"

_SHORT_NAMES = {
    "power samples": SAMPLES,
    "energy counter": COUNTER,
    "power.draw.instant": "instant",
    "power.draw": "average",
    "rapl package": RAPL,
    "rapl package+dram": RAPL,
}
"""By the end of a meter's name in rows, which begins with its library or program."""

CPU_METERS = (RAPL,)
GPU_METERS = tuple(name for name in _SHORT_NAMES.values() if name not in CPU_METERS)
"""Short names of the meters of each kind of device."""

METER_CHOICES = (AUTO, *dict.fromkeys(_SHORT_NAMES.values()))


def short_name(source_name: str) -> str:
    """Return the name of a meter on the command line; a source without a short name keeps its own."""
    return next((short for end, short in _SHORT_NAMES.items() if source_name.endswith(end)), source_name)


@dataclass(frozen=True)
class PowerSource:
    """Properties of a meter.

    ``rise_time_s`` is the time after a step of the load in which readings still depend on the old load.
    ``averaging_time_s`` is the time over which one reading averages. ``update_period_s`` is the longest time between
    new readings, 0 if unknown. ``repeats_values`` is False if every row is a new reading.

    Results of a qualification, 0 or False if unknown: ``correlation_time_s`` is the integral of the noise's
    autocorrelation, half an update period for independent readings. ``noise_ratio`` is the standard deviation of a
    reading as a share of the power. ``is_wrong``: it deviated under a steady load. ``is_for_steady_loads``: it
    deviated under pulses only.
    """

    name: str
    rise_time_s: float
    averaging_time_s: float
    update_period_s: float = 0.0
    repeats_values: bool = True
    correlation_time_s: float = 0.0
    noise_ratio: float = 0.0
    is_wrong: bool = False
    is_for_steady_loads: bool = False


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


MOST_GPU_POWER_W = 10_000.0
"""Several times the power of any board. A driver without a value may report one with all bits set, or 0."""


def is_gpu_power(power_w: float) -> bool:
    """Return whether a GPU can draw this power."""
    return 0 < power_w < MOST_GPU_POWER_W


class GpuError(Exception):
    """A GPU's driver is missing or does not answer; in one line. ``hides_gpu``: a user would miss a GPU."""

    def __init__(self, message: str, hides_gpu: bool = False) -> None:
        super().__init__(message)
        self.hides_gpu = hides_gpu


class NoRightError(GpuError):
    """This user has no right to do what was asked, such as to set power limits."""


class PowerLimit(Protocol):
    """The power limit of one board; its name, for messages and locks, is the UUID. ``running.power_limit`` sets it."""

    name: str

    def limit_range_w(self) -> LimitRange:
        """Return the limits that can be set. Raises GpuError: the board does not report them."""

    def limit_w(self) -> float:
        """Return the present limit in W. Raises GpuError: the board does not report it."""

    def set_limit_w(self, power_w: float) -> None:
        """Set the limit in W. Raises NoRightError: this user may not; GpuError: the board refuses it."""

    def limit_command(self, power_w: float) -> str:
        """Return the command for a shell that sets the limit in W."""

    def close(self) -> None:
        """Leave the board."""


@dataclass(frozen=True)
class DeviceFacts:
    """Properties of a device, with its whole ``uuid``; ``no_energy_reason`` says why its energy cannot be measured."""

    uuid: str | None
    product: str
    memory_bytes: int
    power_limit_w: float | None
    driver_version: str | None
    no_energy_reason: str | None = None


class Gpu(PowerLimit, Protocol):
    """One GPU, from ``GpuVendor.open`` to ``close``. Each query raises GpuError if the GPU or its driver lacks it.

    ``library`` is the name of what is asked. ``sample_source`` describes the power samples, which are asked for every
    ``sample_interval_s``.
    """

    library: str
    sample_source: PowerSource
    sample_interval_s: float

    def facts(self) -> DeviceFacts: ...

    def no_energy_reason(self) -> str | None:
        """Return why the power is not that of this device alone, such as of a part of a board; None if it is."""

    def power_samples(self, after_epoch_s: float) -> list[tuple[float, float]]:
        """Return possible samples after a moment (epoch s, W), in any order. Raises GpuError: none is possible."""

    def energy_j(self) -> float:
        """Return the value of a counter of energy."""

    def state(self) -> PowerRow:
        """Return power, load, clock, temperatures, memory in use and reasons of throttling now; None if unknown."""

    def process_ids(self) -> set[int]:
        """Return the processes that compute on it, maybe by ids of another container."""


class GpuLog(Protocol):
    """The log beside a GPU's samples and counter. It is read every ``batch_interval_s`` where all its rows count."""

    batch_interval_s: float

    def read(self) -> tuple[PowerRow, ...]:
        """Return the rows since the last call, at first since the log began; or the present one."""

    def finish(self) -> tuple[PowerRow, ...]:
        """Return the rows since the last call up to now; this may wait."""

    def failure(self) -> str | None:
        """Return why no further row comes, None while the log runs."""

    def sources(self) -> tuple[str, ...]:
        """Return the names of the powers in it, the better one first."""

    def meter(self, log_name: str) -> Meter:
        """Return the meter of one measurement, which keeps its part of the log by a name."""
