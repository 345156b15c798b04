"""What a measurement is made with."""

from __future__ import annotations

from dataclasses import dataclass

from opcost.measuring.known_device import UNKNOWN_DEVICE, KnownDevice
from opcost.measuring.known_meters import known_trace
from opcost.measuring.observers import Observer
from opcost.power.ports import Clock, Meter
from opcost.power.trace import PowerTrace


@dataclass(frozen=True)
class Instruments:
    """A meter that logs the power, a clock, what is known of the device and its meters, and who looks on."""

    meter: Meter
    clock: Clock
    device: KnownDevice = UNKNOWN_DEVICE
    observers: tuple[Observer, ...] = ()

    def log(self) -> PowerTrace:
        """Return what the meter has logged so far, in the light of what is known of it."""
        return known_trace(self.meter.log(), self.device.meters)

    def stop(self) -> PowerTrace:
        """Stop the meter and return what it has logged, in the light of what is known of it."""
        return known_trace(self.meter.stop(), self.device.meters)
