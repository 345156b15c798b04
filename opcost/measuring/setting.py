"""The settings of a measurement that a user or a config chooses."""

from __future__ import annotations

from dataclasses import dataclass

from opcost.measuring.conditions import TORCH_DEFAULT, WARM
from opcost.operators.user_code import UserCode
from opcost.power.meter_names import AUTO


@dataclass(frozen=True)
class Setting:
    """The settings of a measurement besides its case and its protocol.

    ``precision`` is a ``Precision``. ``execution`` is one of ``EXECUTIONS``, None for the device's default. ``cache``
    is one of ``CACHES`` and applies to operators only. ``meter`` is one of ``METER_CHOICES``. ``code`` is
    a user's code that builds the model and may run.
    """

    precision: str = TORCH_DEFAULT
    execution: str | None = None
    cache: str = WARM
    meter: str = AUTO
    code: UserCode | None = None


USUAL = Setting()
