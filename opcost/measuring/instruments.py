"""The instruments of a measurement: meter, clock, known properties of the device, observers, and power of waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from opcost.estimates import Estimate
from opcost.measuring.flags import Flag, Flags
from opcost.measuring.known_device import UNKNOWN_DEVICE, KnownDevice, known_trace
from opcost.measuring.record import Measurement, is_flagged, may_be_throttled
from opcost.power.ports import Clock, Meter
from opcost.power.trace import PowerTrace

WAITING_LASTS_S = 60.0
"""Time for which a power of waiting is used. In it a chip's temperature changes by a few kelvin."""

CHANGE_RATIO = 0.02
"""Relative standard error of a power of waiting that was measured before: that of a few kelvin at 0.3 % to 0.5 % per
kelvin. Pauses take 5 % of the energy, so an operator's energy changes by 0.1 %."""


@dataclass(frozen=True)
class Finding:
    """The flags and notes that an observer adds to a loop."""

    flags: Flags = ()
    notes: str = ""


NOTHING = Finding()


class Observer:
    """Callbacks of a measurement. The procedure calls each method of all observers, in their order."""

    def before_build(self) -> None:
        """Called before a workload is built; one build may run in several loops."""

    def before_start(self) -> None:
        """Called after the workload is built and before the meter starts."""

    def during(self) -> None:
        """Called after the first call, and after each chunk of warm-up and loop."""

    def before_loop(self) -> None:
        """Called when the warm-up has ended."""

    def after_finish(self) -> Finding:
        """Called when a loop has ended or failed, while the meter still logs."""
        return NOTHING


class ProcessWatch(Observer):
    """Flags loops during which another process used the device: ``disturbance`` says what did since its last call."""

    def __init__(self, disturbance: Callable[[], str]) -> None:
        self._disturbance = disturbance

    def before_build(self) -> None:
        self._disturbance()

    def after_finish(self) -> Finding:
        note = self._disturbance()
        return Finding((Flag.OTHER_PROCESS,), note) if note else NOTHING


class WaitingPower:
    """Remembers the last sound measurement of a load that only waits, as a device does in the pauses of duty cycles.

    Its power is the same for all operators, so it serves those that follow within a minute; pauses are timed for each.
    """

    def __init__(self) -> None:
        self._last: Measurement | None = None
        self._ended_s = 0.0

    def remember(self, measurement: Measurement, now_s: float) -> None:
        is_doubtful = is_flagged(measurement) or may_be_throttled(measurement) or Flag.IMPRECISE in measurement.flags
        if measurement.energy_j is not None and not is_doubtful:
            self._last, self._ended_s = measurement, now_s

    def recent(self, now_s: float) -> Measurement | None:
        return self._last if now_s - self._ended_s <= WAITING_LASTS_S else None


def lasting(waiting: Measurement, time_s: Estimate) -> Measurement:
    """Return a measurement of waiting as it would be with another time of an iteration."""
    longer = time_s.value / waiting.time_s

    def scaled(before_j: Estimate | None) -> Estimate | None:
        return None if before_j is None else before_j.times(longer).with_error(CHANGE_RATIO * longer * before_j.value)

    return waiting.with_figures(time_s, scaled(waiting.energy), scaled(waiting.energy_at_reference))


@dataclass(frozen=True)
class Instruments:
    """A meter, a clock, observers, what is known of the device, and the power of pauses measured before."""

    meter: Meter
    clock: Clock
    device: KnownDevice = UNKNOWN_DEVICE
    observers: tuple[Observer, ...] = ()
    waiting_power: WaitingPower = field(default_factory=WaitingPower)

    def log(self) -> PowerTrace:
        return known_trace(self.meter.log(), self.device.meters)

    def stop(self) -> PowerTrace:
        return known_trace(self.meter.stop(), self.device.meters)
