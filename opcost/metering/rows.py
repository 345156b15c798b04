"""Rows of a file of metered windows: one for each window and device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Annotated

from opcost.columns import ABOVE_0, COUNT_FROM_1, FROM_0, MOMENT, SHARE, SIGNED, Column, Columns
from opcost.metering.result import WindowResult


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


def rows_of(result: WindowResult) -> Iterator[MeteredWindowRow]:
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
