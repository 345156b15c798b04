"""The quality of a meter, as a row of its qualification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from opcost.columns import ABOVE_0, FROM_0, MOMENT, SIGNED, Column, Columns
from opcost.measuring.conditions import DEVICE_PRODUCT, DEVICE_UUID, DRIVER_VERSION, TORCH_VERSION

GOOD = "good"
REFERENCE = "the reference"
UNCHECKED = "the only measure of the others: not checked"
STEADY_ONLY = "for steady loads only"


@dataclass(frozen=True)
class MeterQuality(Columns):
    """The quality of one meter. Unknown values are None."""

    meter: Annotated[str, Column("meter and field", title="meter")]
    update_period_s: Annotated[
        float | None, Column("time from one new reading to the next", ABOVE_0, title="update period")
    ]
    rise_time_s: Annotated[
        float | None,
        Column("time from a step of the load to a reading within 5 % of its power", FROM_0, title="rise time"),
    ]
    lag_s: Annotated[float | None, Column("time from a step of the load to the first change of its readings", SIGNED)]
    averaging_time_s: Annotated[
        float | None,
        Column("time from that change to the new power; empty: too short", ABOVE_0, title="averaging time"),
    ]
    noise_ratio: Annotated[
        float | None, Column("standard deviation of a reading over the power", FROM_0, title="noise")
    ]
    correlation_time_s: Annotated[float | None, Column("integral of the noise's autocorrelation", FROM_0)]
    steady_deviation_ratio: Annotated[
        float | None, Column("deviation from the reference under a steady load", SIGNED, title="steady")
    ]
    pulsed_deviation_ratio: Annotated[
        float | None, Column("largest deviation from the reference under pulses", SIGNED, title="pulsed")
    ]
    verdict: Annotated[str, Column("permitted use", title="verdict")]

    @property
    def is_right_when_steady(self) -> bool:
        """Whether it is right under a steady load, as measured operators and models are."""
        return self.verdict in (GOOD, STEADY_ONLY, REFERENCE, UNCHECKED)


@dataclass(frozen=True)
class QualificationRow(Columns):
    """One meter of one board under one driver.

    ``polling_deviation_ratio`` compares the energy counter read at each tick with the counter read once a second; it is
    None for other meters. In ``idle_power_w`` clocks are low if the board had rested; in ``idle_power_after_load_w``
    they are high.
    """

    device_uuid: Annotated[str | None, DEVICE_UUID]
    driver_version: Annotated[str | None, DRIVER_VERSION]
    quality: MeterQuality
    read_time_s: Annotated[
        float | None, Column("time of one read; empty if it cannot be timed", FROM_0, title="read cost")
    ]
    polling_deviation_ratio: Annotated[
        float | None, Column("relative excess of the energy counter when read at each tick", SIGNED)
    ]
    power_per_kelvin_ratio: Annotated[float | None, Column("power temperature coefficient of the board", SIGNED)]
    power_per_kelvin_standard_error_ratio: Annotated[float | None, Column("one standard error of that", ABOVE_0)]
    idle_power_w: Annotated[float | None, Column("idle power before any load; empty if it was not steady", FROM_0)]
    idle_power_after_load_w: Annotated[float | None, Column("idle power right after the load, by this meter", FROM_0)]
    qualified_at: Annotated[str, Column("time of the qualification", MOMENT)]
    device_product: Annotated[str, DEVICE_PRODUCT]
    torch_version: Annotated[str, TORCH_VERSION]
