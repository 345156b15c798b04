"""What is known of a device before it is measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from opcost.estimates import Estimate
from opcost.measuring.known_meters import KnownMeters


@dataclass(frozen=True)
class Repeatability:
    """Standard deviations of time and power from one run to the next, as shares, beyond what a loop shows itself."""

    time_ratio: float = 0.0
    power_ratio: float = 0.0


GPU_REPEATABILITY = Repeatability(time_ratio=0.002, power_ratio=0.004)
"""With these, 95 % of the intervals of two runs' times hold their difference, and 94 % of those of energies at one
temperature, the error of whose slope, which runs have in common, is not counted (ResNet-50's operators, three runs on
each of two H200, on which the two shares were found, ``docs/log/repeatability.md``)."""


@dataclass(frozen=True)
class KnownDevice:
    """What is known of a device beforehand, None where it is not.

    ``power_per_kelvin`` is the share by which its power rises with each kelvin, ``power_limit_w`` the power at which it
    slows down. ``repeatability`` is by how much what is built and measured once more differs beyond its own errors.
    ``meters`` are what its meters are worth.
    """

    power_per_kelvin: Estimate | None = None
    power_limit_w: float | None = None
    repeatability: Repeatability = Repeatability()
    meters: KnownMeters = field(default_factory=KnownMeters)


UNKNOWN_DEVICE = KnownDevice()


def known_beforehand(is_gpu: bool, power_limit_w: float | None) -> KnownDevice:
    """Return what is known of a device whose meters are not qualified."""
    return KnownDevice(None, power_limit_w, GPU_REPEATABILITY if is_gpu else Repeatability())
