"""The instruments of a measurement: meter, clock, known properties of the device, observers."""

from __future__ import annotations

from dataclasses import dataclass, field

from opcost.measuring.known_device import UNKNOWN_DEVICE, KnownDevice
from opcost.measuring.known_meters import known_trace
from opcost.measuring.observers import Observer
from opcost.measuring.waiting_power import WaitingPower
from opcost.power.ports import Clock, Meter
from opcost.power.trace import PowerTrace


@dataclass(frozen=True)
class Instruments:
    """A meter, a clock, the known properties of the device and its meters, and the observers.

    ``waiting_power`` remembers the power of the pauses from one measurement to the next.
    """

    meter: Meter
    clock: Clock
    device: KnownDevice = UNKNOWN_DEVICE
    observers: tuple[Observer, ...] = ()
    waiting_power: WaitingPower = field(default_factory=WaitingPower)

    def log(self) -> PowerTrace:
        """Return the meter's log so far, with the known properties of the meters."""
        return known_trace(self.meter.log(), self.device.meters)

    def stop(self) -> PowerTrace:
        """Stop the meter and return its log, with the known properties of the meters."""
        return known_trace(self.meter.stop(), self.device.meters)
