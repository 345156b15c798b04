"""Knowledge of a device before it is measured: its repeatability, and the quality of its meters as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol

from opcost.columns import ABOVE_0, FROM_0, MOMENT, SIGNED, Column, Columns
from opcost.estimates import Estimate, estimate_of, weighted_mean
from opcost.measuring.conditions import DEVICE_PRODUCT, DEVICE_UUID, DRIVER_VERSION, TORCH_VERSION
from opcost.power.ports import AUTO, PowerSource, short_name
from opcost.power.trace import PowerTrace, joined, no_trace

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


class QualificationTable(Protocol):
    """Known qualifications of meters; new ones are appended."""

    def rows(self) -> list[QualificationRow]: ...

    def append(self, row: QualificationRow) -> None: ...


class HeldQualifications:
    """Those that another process knows; ``new`` ones are passed to it, since it alone writes its database."""

    def __init__(self, known: Sequence[QualificationRow]) -> None:
        self._known, self.new = known, list[QualificationRow]()

    def rows(self) -> list[QualificationRow]:
        return [*self._known, *self.new]

    def append(self, row: QualificationRow) -> None:
        self.new.append(row)


LONGER_READINGS = 2.0
"""Ratio of update periods, now and in the qualification, from which the noise found there does not apply."""


@dataclass(frozen=True)
class KnownMeters:
    """Qualities of meters by name; energies come from the meter ``chosen`` alone, a short name, unless ``AUTO``."""

    found: Mapping[str, MeterQuality] = field(default_factory=dict)
    chosen: str = AUTO

    def is_chosen(self, trace: PowerTrace) -> bool:
        return short_name(trace.source.name) == self.chosen

    def rank(self, trace: PowerTrace) -> int:
        quality = self.found.get(trace.source.name)
        if self.is_chosen(trace):
            return 0
        return 2 if quality is None else 1 if quality.is_right_when_steady else 3

    def source(self, source: PowerSource) -> PowerSource:
        quality = self.found.get(source.name)
        if quality is None:
            return source
        source = replace(
            source,
            rise_time_s=max(source.rise_time_s, quality.rise_time_s or 0.0),
            averaging_time_s=max(source.averaging_time_s, quality.averaging_time_s or 0.0),
            is_wrong=not quality.is_right_when_steady,
            is_for_steady_loads=quality.verdict == STEADY_ONLY,
        )
        if source.update_period_s > LONGER_READINGS * (quality.update_period_s or 0.0):
            # Campaigns read the energy counter more rarely, so the noise of the qualification does not apply.
            return source
        correlation_time_s, noise_ratio = quality.correlation_time_s or 0.0, quality.noise_ratio or 0.0
        return replace(source, correlation_time_s=correlation_time_s, noise_ratio=noise_ratio)


def known_trace(trace: PowerTrace, meters: KnownMeters) -> PowerTrace:
    """Return a trace and its checks with the known properties of their meters, sorted by rank, a chosen one first."""
    if not meters.found and meters.chosen == AUTO:
        return trace
    apart = (replace(trace, checks=()), *trace.checks)
    traces = [replace(logged, source=meters.source(logged.source)) for logged in apart]
    if meters.chosen != AUTO and not any(map(meters.is_chosen, traces)):
        nothing = no_trace(f"the meter {meters.chosen} logged nothing", PowerSource(meters.chosen, 0.0, 0.0))
        traces.insert(0, nothing)
    return replace(joined(traces, meters.rank), checks_stand_in=meters.chosen == AUTO)


@dataclass(frozen=True)
class Repeatability:
    """Relative standard deviations of time and power between runs, in addition to the error within a loop."""

    time_ratio: float = 0.0
    power_ratio: float = 0.0


GPU_REPEATABILITY = Repeatability(time_ratio=0.002, power_ratio=0.004)
"""With these values, 95 % intervals cover the difference of two runs for 95 % of times and 94 % of normalised energies
(ResNet-50's operators, three runs on each of two H200, ``docs/log/repeatability.md``)."""


@dataclass(frozen=True)
class KnownDevice:
    """Known properties of a device, None if unknown: a GPU is throttled at ``power_limit_w``; see ``Repeatability``."""

    power_coefficient_per_kelvin: Estimate | None = None
    power_limit_w: float | None = None
    repeatability: Repeatability = Repeatability()
    meters: KnownMeters = field(default_factory=KnownMeters)


UNKNOWN_DEVICE = KnownDevice()


USUAL_POWER_PER_KELVIN = {"NVIDIA H200": Estimate(0.003, 0.001)}
"""Power temperature coefficients of cards: 0.17 to 0.49 % per kelvin on nine boards and under eight loads."""


def power_temperature_coefficient(rows: Sequence[QualificationRow]) -> Estimate | None:
    """Return the newest coefficient, if any, as a weighted mean with the card's usual one if that is known."""
    slopes = (estimate_of(row.power_per_kelvin_ratio, row.power_per_kelvin_standard_error_ratio) for row in rows[::-1])
    newest = next((slope for slope in slopes if slope is not None), None)
    usual = USUAL_POWER_PER_KELVIN.get(rows[-1].device_product) if rows else None
    return newest if newest is None or usual is None else weighted_mean([newest, usual])
