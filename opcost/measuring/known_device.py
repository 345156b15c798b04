"""Properties of a device that are known before it is measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from opcost.estimates import Estimate
from opcost.measuring.known_meters import KnownMeters


@dataclass(frozen=True)
class Repeatability:
    """Relative standard deviations of time and power between runs, in addition to the error within a loop."""

    time_ratio: float = 0.0
    power_ratio: float = 0.0


GPU_REPEATABILITY = Repeatability(time_ratio=0.002, power_ratio=0.004)
"""With these values, 95 % intervals cover the difference of two runs for 95 % of times and 94 % of normalised energies
without the error of the power temperature coefficient, which runs share (ResNet-50's operators, three runs on each of
two H200, from which both values were determined, ``docs/log/repeatability.md``)."""


@dataclass(frozen=True)
class KnownDevice:
    """Known properties of a device, None if unknown.

    ``power_coefficient_per_kelvin`` is its power temperature coefficient. ``power_limit_w`` is the power at which it is
    throttled. ``repeatability`` is the difference between builds and runs in addition to their own errors. ``meters``
    holds the results of the meters' qualification.
    """

    power_coefficient_per_kelvin: Estimate | None = None
    power_limit_w: float | None = None
    repeatability: Repeatability = Repeatability()
    meters: KnownMeters = field(default_factory=KnownMeters)


UNKNOWN_DEVICE = KnownDevice()


def known_beforehand(is_gpu: bool, power_limit_w: float | None) -> KnownDevice:
    """Return the known properties of a device whose meters are not qualified."""
    return KnownDevice(None, power_limit_w, GPU_REPEATABILITY if is_gpu else Repeatability())
