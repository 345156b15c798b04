"""Power traces: the rows that a meter logged, and the fresh readings among them.

A meter repeats a value until it has a new one; a fresh reading is the first row of a new value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from opcost.estimates import FloatArray


@dataclass(frozen=True)
class PowerSource:
    """Properties of a meter.

    ``rise_time_s`` is the time after a step of the load in which readings still depend on the old load.
    ``averaging_time_s`` is the time over which one reading averages. ``update_period_s`` is the longest time between
    new readings, 0 if unknown. ``repeats_values`` is False if every row is a new reading.

    Results of a qualification, 0 or False if unknown: ``correlation_time_s`` is the integral of the noise's
    autocorrelation, half an update period for independent readings. ``noise_ratio`` is the standard deviation of a
    reading as a share of the power. ``is_wrong``: it deviated under a steady load. ``is_for_steady_loads``: it
    deviated under pulses only.
    """

    name: str
    rise_time_s: float
    averaging_time_s: float
    update_period_s: float = 0.0
    repeats_values: bool = True
    correlation_time_s: float = 0.0
    noise_ratio: float = 0.0
    is_wrong: bool = False
    is_for_steady_loads: bool = False


NO_POWER_SOURCE = PowerSource("none", rise_time_s=0.0, averaging_time_s=0.0)


@dataclass(frozen=True)
class Window:
    """A time window in epoch seconds."""

    begin_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s

    def holds(self, epoch_s: FloatArray) -> npt.NDArray[np.bool_]:
        """Return which moments are inside, both ends included; shape (n,)."""
        inside: npt.NDArray[np.bool_] = (epoch_s >= self.begin_s) & (epoch_s <= self.end_s)
        return inside


@dataclass(frozen=True, eq=False)
class PowerTrace:
    """The rows that a meter logged around one measurement, oldest first.

    All arrays have shape (n,) and hold NaN where the meter gave no value. ``power_capped`` and ``thermal_slowdown``
    are 1 where the device was throttled for that reason, else 0. ``busy_ratio`` is the share of about 0.2 s before a
    row in which a kernel ran. ``missing_reason`` is the reason why a trace holds no power at all. ``log_name`` names
    the file with the raw rows. ``checks`` are the traces of other meters at the same time, the best first. If
    ``checks_stand_in``, they give the power of a window in which this meter has none.
    """

    source: PowerSource
    epoch_s: FloatArray
    power_w: FloatArray
    temperature_c: FloatArray
    memory_temperature_c: FloatArray
    sm_clock_hz: FloatArray
    power_capped: FloatArray
    thermal_slowdown: FloatArray
    busy_ratio: FloatArray
    missing_reason: str | None = None
    log_name: str | None = None
    checks: tuple[PowerTrace, ...] = ()
    checks_stand_in: bool = True


@dataclass(frozen=True)
class DeviceState:
    """Means of the device's state over a window, None where unknown. Ratios are shares of the log's rows."""

    temperature_c: float | None
    sm_clock_hz: float | None
    power_capped_ratio: float | None
    thermal_slowdown_ratio: float | None
    memory_temperature_c: float | None = None
    busy_ratio: float | None = None


def no_trace(reason: str, source: PowerSource = NO_POWER_SOURCE) -> PowerTrace:
    """Return an empty trace, for a meter that is missing or reports no power."""
    nothing = np.empty(0)
    return replace(trace_of_power(source, nothing, nothing), missing_reason=reason)


def trace_of_power(source: PowerSource, epoch_s: FloatArray, power_w: FloatArray) -> PowerTrace:
    """Return the trace of a meter that reports power only; both arrays have shape (n,)."""
    unknown = np.full(len(power_w), math.nan)
    return PowerTrace(source, epoch_s, power_w, unknown, unknown, unknown, unknown, unknown, unknown)


def joined(traces: Iterable[PowerTrace], rank: Callable[[PowerTrace], int] = lambda _: 0) -> PowerTrace:
    """Return the traces of several meters as one: the first of them, with the others as its checks.

    They are sorted by rank, then by whether they hold power, then in the order given. If none holds power, the reasons
    are joined.
    """
    apart = [replace(logged, checks=()) for trace in traces for logged in (trace, *trace.checks)]
    first, *others = sorted(apart, key=lambda logged: (rank(logged), logged.missing_reason is not None))
    reasons = [logged.missing_reason for logged in (first, *others)]
    return replace(
        first,
        checks=tuple(others),
        log_name=next((logged.log_name for logged in apart if logged.log_name is not None), None),
        missing_reason="; ".join(map(str, dict.fromkeys(reasons))) if all(reasons) else first.missing_reason,
    )


def fresh_readings(trace: PowerTrace, window: Window) -> FloatArray:
    """Return the fresh power readings inside the window in W (see ``fresh_rows``)."""
    return fresh_rows(trace, window)[1]


def fresh_rows(trace: PowerTrace, window: Window) -> tuple[FloatArray, FloatArray]:
    """Return the fresh power readings inside the window (both ends included): epoch in s, power in W.

    A row that repeats the previous value is no fresh reading, unless the value has lasted 1.5 update periods: then a
    new reading happened to be equal. If the update period is unknown, equal readings count once.
    """
    known = ~np.isnan(trace.power_w)
    epoch_s: FloatArray = trace.epoch_s[known]
    power_w: FloatArray = trace.power_w[known]
    if len(power_w) == 0:
        return epoch_s, power_w
    inside = window.holds(epoch_s)
    if trace.source.repeats_values:
        inside &= _is_fresh(epoch_s, power_w, trace.source.update_period_s or math.inf)
    return epoch_s[inside], power_w[inside]


def _is_fresh(epoch_s: FloatArray, power_w: FloatArray, update_period_s: float) -> npt.NDArray[np.bool_]:
    """Return which rows are fresh readings. The first is not: it may repeat a value from before the log began."""
    is_fresh: npt.NDArray[np.bool_] = np.concatenate([[False], power_w[1:] != power_w[:-1]])
    appeared_s = epoch_s[0]
    for row in range(len(power_w)):
        if is_fresh[row]:
            appeared_s = epoch_s[row]
        elif epoch_s[row] - appeared_s >= 1.5 * update_period_s:
            # An equal reading counts once, also after a gap in the log.
            is_fresh[row] = True
            appeared_s = epoch_s[row] - 0.5 * update_period_s
    return is_fresh


def device_state(trace: PowerTrace, window: Window) -> DeviceState:
    """Return the means of temperatures, clock, throttling and load over the rows inside the window.

    Values that the trace's own meter does not report are taken from its checks.
    """
    inside = window.holds(trace.epoch_s)
    state = DeviceState(
        temperature_c=_known_mean(trace.temperature_c[inside]),
        sm_clock_hz=_known_mean(trace.sm_clock_hz[inside]),
        power_capped_ratio=_known_mean(trace.power_capped[inside]),
        thermal_slowdown_ratio=_known_mean(trace.thermal_slowdown[inside]),
        memory_temperature_c=_known_mean(trace.memory_temperature_c[inside]),
        busy_ratio=_known_mean(trace.busy_ratio[inside]),
    )
    for check in trace.checks:
        other = asdict(device_state(check, window))
        state = replace(state, **{name: other[name] for name, value in asdict(state).items() if value is None})
    return state


def _known_mean(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
