"""The cost of a metered window: seconds, and the energy of each device with its error or why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Annotated

from opcost.columns import ABOVE_0, COUNT_FROM_1, FROM_0, MOMENT, SHARE, SIGNED, Column, Columns
from opcost.estimates import Estimate, sum_of_independent
from opcost.metering.window_energy import WindowEnergy
from opcost.units import UNKNOWN, percent, significant


@dataclass(frozen=True)
class DeviceEnergy:
    """The energy of one device in a window, in J, with its standard error; None with a reason where it is unknown.

    ``coverage_ratio`` is the share of the window for which its meter has readings. ``above_idle_j`` is the energy
    without ``idle_power_w`` times the window's length, where it was asked for and the idle power is known.
    """

    device: str
    meter: str
    energy_j: float | None
    energy_standard_error_j: float | None
    coverage_ratio: float
    missing_reason: str | None = None
    idle_power_w: float | None = None
    above_idle_j: float | None = None

    def __str__(self) -> str:
        if self.energy_j is None or self.energy_standard_error_j is None:
            return f"{self.device}: {UNKNOWN} ({self.missing_reason})"
        error = percent(self.energy_standard_error_j / self.energy_j, 2)
        above = "" if self.above_idle_j is None else f", {significant(self.above_idle_j)} J above idle"
        return f"{self.device}: {significant(self.energy_j)} J ± {error}{above} ({self.meter})"


@dataclass(frozen=True)
class WindowResult:
    """The cost of a window.

    ``begin_s`` is the epoch in s. ``repeats`` is how often the code ran within the window, 1 unless
    ``EnergyMeter.measure`` repeated it. ``exception`` names the type of the exception that ended the window.
    """

    label: str
    begin_s: float
    duration_s: float
    devices: tuple[DeviceEnergy, ...]
    repeats: int = 1
    exception: str | None = None

    @property
    def energy(self) -> Estimate | None:
        """The energy of all devices with its standard error in J, None if that of any is unknown."""
        known = [
            Estimate(device.energy_j, device.energy_standard_error_j or 0.0)
            for device in self.devices
            if device.energy_j is not None
        ]
        return sum_of_independent(known) if known and len(known) == len(self.devices) else None

    @property
    def energy_j(self) -> float | None:
        return None if self.energy is None else self.energy.value

    @property
    def energy_per_repeat_j(self) -> float | None:
        return None if self.energy_j is None else self.energy_j / self.repeats

    @property
    def time_per_repeat_s(self) -> float:
        return self.duration_s / self.repeats

    @property
    def missing_reason(self) -> str | None:
        """Why the energy is unknown, None if it is known."""
        reasons = [device.missing_reason for device in self.devices if device.missing_reason is not None]
        return "; ".join(dict.fromkeys(reasons)) or None

    def __str__(self) -> str:
        name = f"{self.label}: " if self.label else ""
        return f"{name}{significant(self.duration_s)} s, {'; '.join(map(str, self.devices))}"


def device_energy(device: str, energy: WindowEnergy, duration_s: float, idle_power_w: float | None) -> DeviceEnergy:
    """Return a device's energy in a window of that length, above idle where the idle power is given."""
    known_j = energy.energy_j
    above_j = None if known_j is None or idle_power_w is None else known_j.value - idle_power_w * duration_s
    return DeviceEnergy(
        device=device,
        meter=energy.meter,
        energy_j=None if known_j is None else known_j.value,
        energy_standard_error_j=None if known_j is None else known_j.standard_error,
        coverage_ratio=energy.coverage_ratio,
        missing_reason=energy.missing_reason,
        idle_power_w=idle_power_w,
        above_idle_j=above_j,
    )


@dataclass(frozen=True)
class MeteredWindowRow(Columns):
    """A window of one device. Where its energy is empty, ``energy_missing_reason`` says why."""

    label: Annotated[str | None, Column("the window's label")]
    started_at: Annotated[str, Column("begin of the window", MOMENT)]
    time_s: Annotated[float, Column("length of the window", FROM_0)]
    repeats: Annotated[int, Column("runs of the code within the window", COUNT_FROM_1)]
    device: Annotated[str, Column("device: cuda:N, cpu, dram")]
    meter: Annotated[str | None, Column("meter, and the counter that scales it")]
    energy_j: Annotated[float | None, Column("in the window, idle power included", ABOVE_0)]
    energy_standard_error_j: Annotated[float | None, Column("one standard error of that", FROM_0)]
    coverage_ratio: Annotated[float, Column("share of the window with readings", SHARE)]
    idle_power_w: Annotated[float | None, Column("before the meter was opened, if asked for", FROM_0)]
    energy_above_idle_j: Annotated[float | None, Column("energy without idle power, if asked for", SIGNED)]
    energy_missing_reason: Annotated[str | None, Column("reason of an empty energy")]
    exception: Annotated[str | None, Column("type of the exception that ended the window")]


def window_rows(result: WindowResult) -> Iterator[MeteredWindowRow]:
    """Yield a row for each device of a window."""
    for device in result.devices:
        yield MeteredWindowRow(
            label=result.label or None,
            started_at=datetime.fromtimestamp(result.begin_s, tz=timezone.utc).isoformat(timespec="microseconds"),
            time_s=result.duration_s,
            repeats=result.repeats,
            device=device.device,
            meter=device.meter or None,
            energy_j=device.energy_j,
            energy_standard_error_j=device.energy_standard_error_j,
            coverage_ratio=device.coverage_ratio,
            idle_power_w=device.idle_power_w,
            energy_above_idle_j=device.above_idle_j,
            energy_missing_reason=device.missing_reason,
            exception=result.exception,
        )
