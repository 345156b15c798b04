"""Opening of a device's power meters."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from opcost.estimates import FloatArray
from opcost.measuring.conditions import DeviceFacts, is_gpu
from opcost.meters.nvidia_smi import NvidiaSmiError
from opcost.meters.nvidia_smi_log import LogRow, cut
from opcost.meters.nvidia_smi_logger import LAST_ROW_DEADLINE_S, LogFollower, NvidiaSmiLogger
from opcost.meters.nvml import NvmlError, NvmlGpu
from opcost.meters.nvml_counter import CAMPAIGN_SOURCE, EVERY_TICK_SOURCE, CounterMeter, CounterSampler
from opcost.meters.nvml_samples import NvmlMeter, PowerSampler
from opcost.meters.rapl import RaplMeter, rapl_unavailable_reason
from opcost.power.log_rows import PowerRow
from opcost.power.meter_names import AVERAGE, COUNTER, CPU_METERS, GPU_METERS, INSTANT, RAPL, SAMPLES, short_name
from opcost.power.ports import Meter
from opcost.power.trace import PowerSource, PowerTrace, joined, no_trace

NamedMeter: TypeAlias = Callable[[str], Meter]
"""Returns the meter of one measurement, given the name of its log."""

Sampler = TypeVar("Sampler")

TIMED_READS = 5

MIG_REASON = "MIG is on: the power of one instance cannot be measured"


@dataclass(frozen=True)
class Meters:
    """The power meters of a device.

    ``meter`` returns all meters as one; ``every_tick`` does the same with every tick of the energy counter, for
    qualifications, and is None if there is only one meter. Both take the name of the measurement's log.
    ``idle_power_w`` is the power before the meters were opened, None if it was not steady or is unknown. ``names`` are
    the short names of the meters, the best first. ``read_times_s`` returns the time of one read of each source that can
    be timed.
    """

    meter: NamedMeter
    every_tick: NamedMeter | None = None
    idle_power_w: float | None = None
    names: tuple[str, ...] = ()
    read_times_s: Callable[[], Mapping[str, float]] = dict


class NoMeter:
    """A meter without readings, for a device without a meter; its trace holds the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def start(self) -> None:
        """Do nothing."""

    def log(self) -> PowerTrace:
        return no_trace(self._reason)

    def stop(self) -> PowerTrace:
        return no_trace(self._reason)


def no_meters(device: str) -> Meters:
    """Return empty meters for a device, with the names of those that it may have."""
    names = GPU_METERS if is_gpu(device) else CPU_METERS
    return Meters(lambda _: NoMeter("no meter was requested"), names=names)


def no_energy_reason(device: str, facts: DeviceFacts) -> str | None:
    """Return the reason why energy cannot be measured on a device, None if it can."""
    if is_gpu(device):
        return MIG_REASON if facts.is_mig else None
    return rapl_unavailable_reason()


def open_meters(device: str, facts: DeviceFacts, logs: Path, stack: ExitStack) -> Meters:
    """Open the meters of a device, which log until the stack is closed.

    Raises:
        NvidiaSmiError: nvidia-smi does not log.
    """
    logs.mkdir(parents=True, exist_ok=True)
    reason = no_energy_reason(device, facts)
    if reason is not None:
        return Meters(lambda _: NoMeter(reason))
    if not is_gpu(device):
        return Meters(lambda log_name: RaplMeter(log_path=logs / f"{log_name}.csv"), names=(short_name(RAPL),))
    logger = stack.enter_context(NvidiaSmiLogger(str(facts.uuid), logs))
    gpu = _if_there(lambda: NvmlGpu.open(str(facts.uuid)))
    samples = counter = None
    if gpu is not None:
        stack.callback(gpu.close)
        samples = _if_there(partial(stack.enter_context, PowerSampler(gpu)))
        counter = _if_there(partial(stack.enter_context, CounterSampler(gpu)))

    def joined_meter(log_name: str, counter_source: PowerSource) -> Meter:
        meters: list[Meter] = [NvidiaSmiMeter(logger, log_name)]
        if counter is not None:
            meters.insert(0, CounterMeter(counter, logs, log_name, counter_source))
        if samples is not None:
            meters.insert(0, NvmlMeter(samples, logs, log_name))
        return JoinedMeter(meters)

    reads: dict[str, Callable[[], object]] = {}
    if gpu is not None and samples is not None:
        reads[SAMPLES] = partial(gpu.power_samples, 0.0)
    if gpu is not None and counter is not None:
        reads[COUNTER] = gpu.energy_j
    sources = [*reads, *sources_of(logger)]
    return Meters(
        meter=partial(joined_meter, counter_source=CAMPAIGN_SOURCE),
        every_tick=partial(joined_meter, counter_source=EVERY_TICK_SOURCE),
        idle_power_w=None if samples is None else samples.power_before_w,
        names=tuple(map(short_name, sources)),
        read_times_s=partial(_read_times_s, reads),
    )


def _read_times_s(reads: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    times_s = {name: _if_there(partial(_mean_time_s, read)) for name, read in reads.items()}
    return {name: time_s for name, time_s in times_s.items() if time_s is not None}


def _mean_time_s(read: Callable[[], object]) -> float:
    begin_s = time.perf_counter()
    for _ in range(TIMED_READS):
        read()
    return (time.perf_counter() - begin_s) / TIMED_READS


def _if_there(opened: Callable[[], Sampler]) -> Sampler | None:
    """Return the result of a query to NVML, None if it fails."""
    try:
        return opened()
    except NvmlError as error:
        logging.getLogger(__name__).info("meter unavailable: %s", error)
        return None


class JoinedMeter:
    """Meters of one device as one, the best first. The traces of the others are checks of the best one's."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = meters

    def start(self) -> None:
        for meter in self._meters:
            meter.start()

    def log(self) -> PowerTrace:
        return joined([meter.log() for meter in self._meters])

    def stop(self) -> PowerTrace:
        return joined([meter.stop() for meter in self._meters])


INSTANT_SOURCE = PowerSource(INSTANT, rise_time_s=0.2, averaging_time_s=0.025, update_period_s=0.1)
"""A reading averages over about 25 ms of every 100 ms. The first 0.2 s after a step overshoot."""

AVERAGE_SOURCE = PowerSource(AVERAGE, rise_time_s=1.2, averaging_time_s=1.0, update_period_s=0.1)
"""A moving average over one second on Hopper, Ada and GA10x. It is assumed for every card; if a card averages over a
shorter time, errors are overestimated."""

LONGEST_SILENCE_S = 0.5
"""The longest time without a row at the end of a measurement: five update periods."""

# Bits of nvmlClocksEventReasons, NVML API reference.
SOFTWARE_POWER_CAP = 0x4
HARDWARE_SLOWDOWN = 0x8
SOFTWARE_THERMAL_SLOWDOWN = 0x20
HARDWARE_THERMAL_SLOWDOWN = 0x40
HARDWARE_POWER_BRAKE = 0x80


class NvidiaSmiMeter:
    """One measurement with a running logger: ``start``, then ``stop``, once.

    Its part of the log is saved as ``<logs_directory>/<log_name>.csv``, as printed by nvidia-smi, with times in UTC.
    """

    def __init__(self, logger: NvidiaSmiLogger, log_name: str, stop_deadline_s: float = LAST_ROW_DEADLINE_S) -> None:
        self._logger = logger
        self._path = logger.logs_directory / f"{log_name}.csv"
        self._stop_deadline_s = stop_deadline_s
        self._begin_s = math.nan
        self._follower: LogFollower | None = None
        self._rows: list[LogRow] = []
        self._start_failure = "the meter was not started"

    @property
    def skipped_lines(self) -> int:
        """The number of lines since the start that were no rows: cut or joined lines, or messages."""
        return 0 if self._follower is None else self._follower.skipped_lines

    def start(self) -> None:
        """Begin a measurement; nvidia-smi is started again if it has ended."""
        self._follower, self._rows = None, []
        try:
            self._logger.ensure_running()
        except NvidiaSmiError as error:
            self._start_failure = str(error)
            return
        self._begin_s = time.time()
        self._follower = self._logger.follow()

    def log(self) -> PowerTrace:
        """Return the rows that have arrived so far."""
        if self._follower is None:
            return no_trace(self._start_failure, INSTANT_SOURCE)
        self._rows.extend(self._follower.read())
        return power_trace([row.values for row in self._rows], None)

    def stop(self) -> PowerTrace:
        """End the measurement, save its part of the log, and return its rows."""
        if self._follower is None:
            return no_trace(self._start_failure, INSTANT_SOURCE)
        end_s = time.time()
        self._rows.extend(self._follower.read_until(end_s, self._stop_deadline_s))
        rows = cut(self._rows, self._begin_s, end_s)
        missing_reason = self._why_incomplete(rows, end_s)
        self._keep(rows)
        return power_trace([row.values for row in rows], self._path.name, missing_reason)

    def _why_incomplete(self, rows: Sequence[LogRow], end_s: float) -> str | None:
        newest_s = rows[-1].values.epoch_s if rows else self._begin_s
        if newest_s > end_s:
            return None
        if not self._logger.is_running():
            return f"nvidia-smi ended during the measurement; its last line: {self._logger.last_line()}"
        silent_s = end_s - newest_s
        if rows and silent_s <= LONGEST_SILENCE_S:
            return None
        # The next measurement starts it again.
        self._logger.end()
        return f"nvidia-smi printed nothing in the last {silent_s:.1f} s of the measurement"

    def _keep(self, rows: Sequence[LogRow]) -> None:
        lines = [self._logger.header, *(row.line for row in rows)]
        self._path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def sources_of(logger: NvidiaSmiLogger) -> tuple[str, ...]:
    """Return the names of the power fields in a running log, the better one first."""
    trace = power_trace([row.values for row in logger.follow_from_begin().read()], None)
    return tuple(logged.source.name for logged in (trace, *trace.checks) if logged.missing_reason is None)


def power_trace(rows: Sequence[PowerRow], log_name: str | None, missing_reason: str | None = None) -> PowerTrace:
    """Return rows of nvidia-smi as a power trace of the better power field that most rows have.

    If they have both fields, the other one is its check.
    """
    instant_w = _column(rows, lambda row: row.power_instant_w)
    average_w = _column(rows, lambda row: row.power_average_w)
    if missing_reason is None and np.isnan(instant_w).all() and np.isnan(average_w).all():
        missing_reason = "nvidia-smi reports no power for this GPU" if rows else "nvidia-smi logged no row in time"
    average = PowerTrace(
        source=AVERAGE_SOURCE,
        epoch_s=_column(rows, lambda row: row.epoch_s),
        power_w=average_w,
        temperature_c=_column(rows, lambda row: row.temperature_c),
        memory_temperature_c=_column(rows, lambda row: row.memory_temperature_c),
        sm_clock_hz=_column(rows, lambda row: row.sm_clock_hz),
        power_capped=_column(rows, lambda row: is_power_capped(row.event_reasons)),
        thermal_slowdown=_column(rows, lambda row: is_thermal_slowdown(row.event_reasons)),
        busy_ratio=_column(rows, lambda row: row.utilisation_ratio),
        missing_reason=missing_reason,
        log_name=log_name,
    )
    if not _mostly_known(instant_w):
        return average
    checks = (average,) if _mostly_known(average_w) and missing_reason is None else ()
    return replace(average, source=INSTANT_SOURCE, power_w=instant_w, checks=checks)


def is_power_capped(event_reasons: int | None) -> bool | None:
    """Return whether the device is throttled by the power limit or the power brake; None if unknown."""
    return None if event_reasons is None else bool(event_reasons & (SOFTWARE_POWER_CAP | HARDWARE_POWER_BRAKE))


def is_thermal_slowdown(event_reasons: int | None) -> bool | None:
    """Return whether the device is throttled by its temperature; None if unknown.

    The general hardware slowdown is reported with the bit of its cause, thermal or brake. On cards that do not report
    a cause it counts as thermal.
    """
    if event_reasons is None:
        return None
    causes = HARDWARE_THERMAL_SLOWDOWN | HARDWARE_POWER_BRAKE
    unexplained = bool(event_reasons & HARDWARE_SLOWDOWN) and not event_reasons & causes
    return unexplained or bool(event_reasons & (SOFTWARE_THERMAL_SLOWDOWN | HARDWARE_THERMAL_SLOWDOWN))


def _column(rows: Sequence[PowerRow], value: Callable[[PowerRow], float | None]) -> FloatArray:
    values = [value(row) for row in rows]
    return np.array([math.nan if number is None else float(number) for number in values], dtype=np.float64)


def _mostly_known(values: FloatArray) -> bool:
    return len(values) > 0 and bool(np.mean(~np.isnan(values)) >= 0.5)
