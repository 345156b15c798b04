"""What a meter is worth: a row of its qualification."""

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
    """What one meter is worth. What could not be found is unknown."""

    meter: Annotated[str, Column("which meter and field", title="meter")]
    update_period_s: Annotated[
        float | None, Column("time from one new reading to the next", ABOVE_0, title="update period")
    ]
    rise_time_s: Annotated[
        float | None, Column("time from a step to when it shows the new power within 5 %", FROM_0, title="latency")
    ]
    lag_s: Annotated[float | None, Column("time from a step to when its readings begin to move", SIGNED)]
    averaging_time_s: Annotated[
        float | None, Column("how long they move then; empty: too short to be seen", ABOVE_0, title="averaging time")
    ]
    noise_ratio: Annotated[
        float | None, Column("standard deviation of a reading over the power", FROM_0, title="noise")
    ]
    correlation_time_s: Annotated[float | None, Column("how long readings are alike", FROM_0)]
    steady_deviation_ratio: Annotated[
        float | None, Column("deviation from the reference under a steady load", SIGNED, title="steady")
    ]
    pulsed_deviation_ratio: Annotated[
        float | None, Column("deviation from the reference under pulses, the worst", SIGNED, title="pulsed")
    ]
    verdict: Annotated[str, Column("what it may be used for", title="verdict")]

    @property
    def is_right_when_steady(self) -> bool:
        """Whether it may be trusted with a load that does not change, as every measured operator is one."""
        return self.verdict in (GOOD, STEADY_ONLY, REFERENCE, UNCHECKED)


@dataclass(frozen=True)
class QualificationRow(Columns):
    """One meter of one board under one driver.

    ``polling_deviation_ratio`` holds reads at each tick against one read in a second; it is None for other meters.
    Clocks are down in ``idle_power_w`` if the board had rested, and up in ``idle_power_after_load_w``.
    """

    device_uuid: Annotated[str | None, DEVICE_UUID]
    driver_version: Annotated[str | None, DRIVER_VERSION]
    quality: MeterQuality
    read_time_s: Annotated[
        float | None, Column("how long a read takes; empty where that cannot be timed", FROM_0, title="read cost")
    ]
    polling_deviation_ratio: Annotated[
        float | None, Column("share that a counter read at each tick shows more", SIGNED)
    ]
    power_per_kelvin_ratio: Annotated[float | None, Column("rise of the board's power with its temperature", SIGNED)]
    power_per_kelvin_standard_error_ratio: Annotated[float | None, Column("one standard error of that", ABOVE_0)]
    idle_power_w: Annotated[float | None, Column("power before anything ran; empty where it was not steady", FROM_0)]
    idle_power_after_load_w: Annotated[float | None, Column("power right after the load, by this meter", FROM_0)]
    qualified_at: Annotated[str, Column("when it was qualified", MOMENT)]
    device_product: Annotated[str, DEVICE_PRODUCT]
    torch_version: Annotated[str, TORCH_VERSION]
