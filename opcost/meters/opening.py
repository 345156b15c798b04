"""Opening of a device's power meters."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from opcost.measuring.conditions import is_gpu
from opcost.meters.gpu_meters import (
    CAMPAIGN_SOURCE,
    EVERY_TICK_SOURCE,
    CounterMeter,
    CounterSampler,
    PowerSampler,
    SampleMeter,
)
from opcost.meters.gpus import open_gpu, open_log
from opcost.meters.rapl import RaplMeter, rapl_unavailable_reason
from opcost.power.ports import CPU_METERS, GPU_METERS, RAPL, DeviceFacts, GpuError, Meter, PowerSource, short_name
from opcost.power.trace import PowerTrace, joined, no_trace

NamedMeter: TypeAlias = Callable[[str], Meter]
"""Returns the meter of one measurement, given the name of its log."""

Answer = TypeVar("Answer")

TIMED_READS = 5


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


class JoinedMeter:
    """Meters of a device as one: the best, with the others as its checks. Without any its trace holds ``reason``."""

    def __init__(self, meters: Sequence[Meter], reason: str = "") -> None:
        self._meters = meters
        self._reason = reason

    def start(self) -> None:
        for meter in self._meters:
            meter.start()

    def log(self) -> PowerTrace:
        return joined([meter.log() for meter in self._meters] or [no_trace(self._reason)])

    def stop(self) -> PowerTrace:
        return joined([meter.stop() for meter in self._meters] or [no_trace(self._reason)])


def no_meters(device: str) -> Meters:
    """Return empty meters for a device, with the names of those that it may have."""
    names = GPU_METERS if is_gpu(device) else CPU_METERS
    return Meters(lambda _: JoinedMeter((), "no meter was requested"), names=names)


def no_energy_reason(device: str, facts: DeviceFacts) -> str | None:
    """Return the reason why energy cannot be measured on a device, None if it can."""
    return facts.no_energy_reason if is_gpu(device) else rapl_unavailable_reason()


def open_meters(device: str, facts: DeviceFacts, logs: Path, stack: ExitStack) -> Meters:
    """Open the meters of a device, which log until the stack is closed. Raises GpuError: there is no log."""
    logs.mkdir(parents=True, exist_ok=True)
    reason = no_energy_reason(device, facts)
    if reason is not None:
        return Meters(lambda _: JoinedMeter((), reason))
    if not is_gpu(device):
        return Meters(lambda log_name: RaplMeter(log_path=logs / f"{log_name}.csv"), names=(RAPL,))
    log = open_log(str(facts.uuid), logs, None, stack)
    gpu = _if_there(lambda: open_gpu(str(facts.uuid)))
    samples = counter = None
    reads: dict[str, Callable[[], object]] = {}
    if gpu is not None:
        stack.callback(gpu.close)
        samples = _if_there(partial(stack.enter_context, PowerSampler(gpu)))
        counter = _if_there(partial(stack.enter_context, CounterSampler(gpu)))
        if samples is not None:
            reads[samples.source.name] = partial(gpu.power_samples, 0.0)
        if counter is not None:
            reads[counter.name] = gpu.energy_j

    def joined_meter(log_name: str, counter_source: PowerSource) -> Meter:
        meters: list[Meter] = [] if samples is None else [SampleMeter(samples, logs, log_name)]
        if counter is not None:
            meters.append(CounterMeter(counter, logs, log_name, counter_source))
        return JoinedMeter([*meters, log.meter(log_name)])

    return Meters(
        meter=partial(joined_meter, counter_source=CAMPAIGN_SOURCE),
        every_tick=partial(joined_meter, counter_source=EVERY_TICK_SOURCE),
        idle_power_w=None if samples is None else samples.power_before_w,
        names=tuple(map(short_name, [*reads, *log.sources()])),
        read_times_s=partial(_read_times_s, reads),
    )


def _read_times_s(reads: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    times_s = {}
    for name, read in reads.items():
        begin_s = time.perf_counter()
        try:
            for _ in range(TIMED_READS):
                read()
        except GpuError as error:
            logging.getLogger(__name__).info("reads of %s are not timed: %s", name, error)
        else:
            times_s[name] = (time.perf_counter() - begin_s) / TIMED_READS
    return times_s


def _if_there(question: Callable[[], Answer]) -> Answer | None:
    try:
        return question()
    except GpuError as error:
        logging.getLogger(__name__).info("meter unavailable: %s", error)
        return None
