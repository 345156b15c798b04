"""What the procedure meets the world through: a workload, a meter, a clock; and what it is asked beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from opcost.estimates import Estimate
from opcost.power.trace import PowerTrace

FULL_LOOP_S = 30.0
"""The loop of the full protocol: the project's reference, to which shorter protocols are compared."""

CHUNK_S = 0.07
"""The loop waits for the device once per chunk: rarely enough to cost 0.02 % of the time, often enough to see drift,
and out of step with meters that look every 0.1 s."""

SHORT_CHUNK_S = 0.02
"""A loop that ends when its figures are precise enough may take 0.2 s: of these, ten chunks."""

MINIMUM_CHUNKS = 5

GPU_WARM_UP_S = 2.0
"""Longer than the slowest meter's rise time (1.2 s), and long enough for clocks and most of the temperature's rise."""

CPU_WARM_UP_S = 0.5

SHORT_WARM_UP_S = 0.1
"""For loops that end when they are precise enough: NVML's samples, each of the 20 ms before it, are within 0.3 % of
what they will be 0.06 s after an operator's begin, where the device was at work before (mean of 549 operators on an
H200, ``docs/results.md``)."""


class Workload(Protocol):
    """Something that can be run again and again, one or more iterations in a round."""

    @property
    def execution(self) -> str:
        """How it is run: ``graph`` or ``eager``."""

    @property
    def iterations_per_round(self) -> int:
        """How many iterations a round holds."""

    @property
    def places(self) -> int:
        """In how many places of the memory it runs, one after the other from one ``run`` to the next."""

    @property
    def notes(self) -> str:
        """How the run differs from the run inside a model; empty if it does not."""

    @property
    def overhead(self) -> Workload | None:
        """What each iteration does besides what is measured, by itself, iteration by iteration; None if nothing."""

    @property
    def ended_s(self) -> float | None:
        """What the rounds that ended last took by the device's own clock; None where it has none."""

    def run(self, rounds: int) -> int:
        """Start that many rounds; return how many have ended since the last call.

        A GPU is kept busy: the call returns while it is at the rounds that were started last.
        """

    def finish(self) -> None:
        """Wait until the device is idle."""


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


@dataclass(frozen=True)
class MeasurementProtocol:
    """How long to warm up and how long to measure, in s.

    With a ``relative_error`` the loop ends as soon as the 95 % intervals of time and energy are within it, and after
    ``loop_s`` at the latest. ``order_seed`` shuffles what a campaign measures; None leaves it in the model's order.

    A load that draws more than the device may runs ever slower alone, but not where it runs ``at_full_clocks``: a loop
    that ends when it is precise ends where clocks are held down, too, and is run again with pauses, for ``duty_cycle``
    of the time.
    """

    warm_up_s: float
    loop_s: float
    relative_error: float | None = None
    order_seed: int | None = None
    at_full_clocks: bool = False
    duty_cycle: float = 1.0

    @property
    def chunk_s(self) -> float:
        """How long a chunk of the loop shall last."""
        longest_s = CHUNK_S if self.relative_error is None else SHORT_CHUNK_S
        return min(longest_s, self.loop_s / MINIMUM_CHUNKS)


def protocol_for(
    is_gpu: bool, loop_s: float = FULL_LOOP_S, relative_error: float | None = None, order_seed: int | None = None
) -> MeasurementProtocol:
    """Return a protocol: a loop of the length or precision asked for, after the device's warm-up."""
    if relative_error is None:
        return MeasurementProtocol(GPU_WARM_UP_S if is_gpu else CPU_WARM_UP_S, loop_s, order_seed=order_seed)
    return MeasurementProtocol(SHORT_WARM_UP_S if is_gpu else CPU_WARM_UP_S, FULL_LOOP_S, relative_error, order_seed)


ProtocolFor: TypeAlias = Callable[[bool], MeasurementProtocol]
"""Returns the protocol for a device, given whether that is a GPU."""


@dataclass(frozen=True)
class Repeatability:
    """Standard deviations of time and power from one run to the next, as shares, beyond what a loop shows itself."""

    time_ratio: float = 0.0
    power_ratio: float = 0.0


GPU_REPEATABILITY = Repeatability(time_ratio=0.002, power_ratio=0.004)
"""With these, 95 % of the intervals of two runs' times hold their difference, and 94 % of those of energies at one
temperature, the error of whose slope, which runs have in common, is not counted (ResNet-50's operators, three runs on
each of two H200, on which the two shares were found, ``docs/results.md``)."""


@dataclass(frozen=True)
class KnownDevice:
    """What is known of a device beforehand, None where it is not.

    ``power_per_kelvin`` is the share by which its power rises with each kelvin, ``power_limit_w`` the power at which it
    slows down. ``repeatability`` is by how much what is built and measured once more differs beyond its own errors.
    """

    power_per_kelvin: Estimate | None = None
    power_limit_w: float | None = None
    repeatability: Repeatability = Repeatability()


UNKNOWN_DEVICE = KnownDevice()
