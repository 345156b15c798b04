"""How something is to be run and metered, as far as that is chosen."""

from __future__ import annotations

from dataclasses import dataclass

from opcost.measuring.conditions import TORCH_DEFAULT, WARM
from opcost.power.meter_names import AUTO


@dataclass(frozen=True)
class Setting:
    """What questions to one measuring process may differ in, besides the case (with its data) and the protocol.

    ``precision`` is a ``Precision``; ``execution`` one of ``EXECUTIONS``, None for the device's usual one; ``cache`` is
    one of ``CACHES``, for operators: whole models run as they are; ``meter`` is one of ``METER_CHOICES``, from which
    energies are taken. Which conditions follow, a device says.
    """

    precision: str = TORCH_DEFAULT
    execution: str | None = None
    cache: str = WARM
    meter: str = AUTO


USUAL = Setting()
