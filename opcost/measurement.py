"""The measuring procedure, and the ports through which it meets the world.

The procedure knows nothing of torch or NVIDIA: it is handed a workload, a meter and a clock. Operators and whole
models are measured by the same code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Protocol

import numpy as np

from opcost.conditions import EAGER, Circumstances, Conditions
from opcost.power import DeviceState, MeanPower, PowerTrace, Window, device_state, mean_power, no_trace
from opcost.statistics import (
    Estimate,
    FloatArray,
    is_within,
    mean_of_chunks,
    mean_without_outliers,
    median,
    standard_error_of,
    value_of,
)

FULL_LOOP_S = 30.0
"""The loop of the full protocol: the project's reference, to which shorter protocols are compared."""

CHUNK_S = 0.07
"""The loop waits for the device once per chunk: rarely enough to cost 0.02 % of the time, often enough to see drift,
and out of step with meters that look every 0.1 s."""

SHORT_CHUNK_S = 0.02
"""A loop that ends when its figures are precise enough may take 0.2 s: of these, ten chunks."""

MINIMUM_CHUNKS = 5

MINIMUM_PRECISE_CHUNKS = 10
"""Before that the spread of chunks says too little to stop by."""

FIRST_LOOK_S = 0.2
LOOK_GROWTH = 1.3
"""When a loop looks whether its figures are precise enough: ever more rarely, since each look is another chance to stop
by luck, and takes a millisecond of the host's."""

STOP_RATIO = 0.8
"""A loop stops at this share of the error asked for: what is looked at again and again is found small too early."""

AT_THE_LIMIT_RATIO = 0.98
"""Share of the power limit from which a long loop would be slowed down."""

UNEVEN = "uneven"
METERS_DISAGREE = "meters disagree"

UNEVEN_RATIO = 1.5
"""Undisturbed loops stay far below: 1.1 is a lot on a GPU, also where Python launches it."""

DISAGREEMENT_RATIO = 0.02
"""Two sound meters of one GPU agree within 0.5 % under a steady load (H200, ``docs/results.md``)."""

CLOCK_STEP_S = 0.05
"""A wall clock that moved against the monotonic one by more than half a meter's update period was stepped."""


REFERENCE_TEMPERATURE_C = 50.0
"""To which energies are referred, so that figures from a cool and a warm device can be compared: in the midst of what
operators reach on an H200 (45 to 62 °C)."""

SLOPE_SPREAD_RATIO = 0.8
"""How far an operator's slope of power over temperature may be from that of the qualification's load: 0.22 to 0.52 %
per kelvin in four operators on two H200, of which that load had the lowest (``docs/results.md``)."""


class Workload(Protocol):
    """Something that can be run again and again, one or more iterations in a round."""

    @property
    def execution(self) -> str:
        """How it is run: ``graph`` or ``eager``."""

    @property
    def iterations_per_round(self) -> int:
        """How many iterations a round holds."""

    @property
    def notes(self) -> str:
        """How the run differs from the run inside a model; empty if it does not."""

    def run(self, rounds: int) -> int:
        """Start that many rounds; return how many have ended since the last call.

        A GPU is kept busy: the call returns while it is at the rounds that were started last.
        """

    def finish(self) -> None:
        """Wait until the device is idle."""


class Meter(Protocol):
    """Something that logs power."""

    def start(self) -> None:
        """Begin a measurement: rows from now on belong to it."""

    def log(self) -> PowerTrace:
        """Return the rows so far."""

    def stop(self) -> PowerTrace:
        """End the measurement and return its rows, the last of them later than this call if there are any."""


@dataclass(frozen=True)
class ClockReading:
    """Monotonic and epoch seconds, read as a pair."""

    monotonic_s: float
    epoch_s: float


class Clock(Protocol):
    """Something that tells the time."""

    def read(self) -> ClockReading:
        """Return the present time."""


@dataclass(frozen=True)
class MeasurementProtocol:
    """How long to warm up and how long to measure, in s.

    With a ``relative_error`` the loop ends as soon as the 95 % intervals of time and energy are within it, and after
    ``loop_s`` at the latest. ``order_seed`` shuffles what a campaign measures; None leaves it in the model's order.
    """

    warm_up_s: float
    loop_s: float
    relative_error: float | None = None
    order_seed: int | None = None

    @property
    def chunk_s(self) -> float:
        """How long a chunk of the loop shall last."""
        longest_s = CHUNK_S if self.relative_error is None else SHORT_CHUNK_S
        return min(longest_s, self.loop_s / MINIMUM_CHUNKS)


@dataclass(frozen=True)
class Measurement:
    """Time and energy per iteration, and what they rest on.

    ``time_s`` and ``energy_j`` are per iteration, their errors one standard error. Energy and power are None where
    no meter gave enough readings; ``energy_missing_reason`` says why. ``energy_at_reference_j`` is the energy at
    ``REFERENCE_TEMPERATURE_C``, None where it is not known how the device's power follows its temperature.
    Beside the plain means stand, in rows of this version, medians and means without outliers (beyond three standard
    deviations), of chunks and of readings. ``power_readings`` counts independent ones. ``check_power_w`` is what the
    next best meter said meanwhile. State fields are means over the loop: ``temperature_c`` of the chip,
    ``memory_temperature_c`` of its memory, ``busy_ratio`` the share of the time in which a kernel ran (nvidia-smi's
    figures, each over some 0.2 s before its row). ``executed_as`` is ``graph`` or ``eager``: not every call fits into
    a graph.
    """

    time_s: float
    energy_j: float | None
    time_standard_error_s: float
    energy_standard_error_j: float | None
    energy_missing_reason: str | None
    time_median_s: float | None
    time_without_outliers_s: float | None
    power_median_w: float | None
    power_without_outliers_w: float | None
    energy_at_reference_j: float | None
    energy_at_reference_standard_error_j: float | None
    power_w: float | None
    power_standard_error_w: float | None
    power_readings: int
    meter: str
    check_power_w: float | None
    check_power_standard_error_w: float | None
    check_meter: str | None
    iterations: int
    loop_time_s: float
    started_at: str
    ended_at: str
    temperature_c: float | None
    memory_temperature_c: float | None
    sm_clock_hz: float | None
    power_capped_ratio: float | None
    thermal_slowdown_ratio: float | None
    busy_ratio: float | None
    power_log: str | None
    executed_as: str
    notes: str


@dataclass(frozen=True)
class MeasurementRow:
    """One row of the database: what was measured, under what, with what result.

    ``operator``, ``parameters``, ``inputs`` and ``training_mode`` are the operator tuple's texts for people, and
    ``input_data`` that of the values it ran on; ``key`` (see ``conditions.measurement_key``) is what programs join on.
    ``order_seed`` shuffled the operators of the campaign, None if they came in the model's order.
    """

    key: str
    operator: str
    measurement: Measurement
    parameters: str
    inputs: str
    training_mode: str | None
    input_data: str
    order_seed: int | None
    conditions: Conditions
    circumstances: Circumstances


@dataclass(frozen=True)
class Loop:
    """The raw result of a loop: consecutive chunks between two clock readings, and when the load began.

    ``chunk_iterations`` are how many iterations each chunk held.
    """

    load_begin: ClockReading
    begin: ClockReading
    end: ClockReading
    chunk_durations_s: tuple[float, ...]
    chunk_iterations: tuple[int, ...]

    @property
    def iterations(self) -> int:
        return sum(self.chunk_iterations)

    @property
    def time_s(self) -> Estimate:
        """The time of one iteration."""
        return mean_of_chunks(np.array(self.chunk_durations_s), np.array(self.chunk_iterations))

    @property
    def times_s(self) -> FloatArray:
        """The time of one iteration, chunk by chunk."""
        times_s: FloatArray = np.array(self.chunk_durations_s) / np.array(self.chunk_iterations)
        return times_s

    @property
    def duration_s(self) -> float:
        """How long the loop has run."""
        return self.end.monotonic_s - self.begin.monotonic_s

    @property
    def window(self) -> Window:
        """The loop's time by the wall clock."""
        return Window(self.begin.epoch_s, self.end.epoch_s)


def measure(
    workload: Workload,
    meter: Meter,
    clock: Clock,
    protocol: MeasurementProtocol,
    power_per_kelvin: Estimate | None = None,
) -> Measurement:
    """Warm a workload up, run it in a loop while the meter logs, and evaluate both.

    Args:
        workload: what is measured.
        meter: logs the power.
        clock: tells the time.
        protocol: how long or precisely.
        power_per_kelvin: the share by which the device's power rises with each kelvin, if that is known.
    """
    meter.start()
    try:
        loop = run_loop(workload, clock, protocol, meter)
    finally:
        trace = meter.stop()
    notes = joined_notes(workload.notes, _imprecision(loop, protocol))
    return evaluate(loop, trace, power_per_kelvin, workload.execution, notes)


def run_loop(workload: Workload, clock: Clock, protocol: MeasurementProtocol, meter: Meter) -> Loop:
    """Warm up for at least ``warm_up_s``, then run chunks of equal size until the protocol is satisfied.

    A first round comes before the warm-up: it may take seconds (libraries load, algorithms are chosen) in which the
    device idles.
    """
    workload.run(1)
    workload.finish()
    load_begin = clock.read()
    rounds = _warm_up(workload, clock, protocol)
    relative_error, look_s = protocol.relative_error, FIRST_LOOK_S
    for loop in _growing_loop(workload, clock, rounds, load_begin):
        is_long = loop.duration_s >= protocol.loop_s and len(loop.chunk_durations_s) >= MINIMUM_CHUNKS
        if is_long:
            break
        if relative_error is not None and loop.duration_s >= look_s:
            look_s = LOOK_GROWTH * loop.duration_s
            if _is_precise(loop, meter.log(), STOP_RATIO * relative_error):
                break
    workload.finish()
    return loop


def _growing_loop(workload: Workload, clock: Clock, rounds: int, load_begin: ClockReading) -> Iterator[Loop]:
    """Run chunk after chunk; yield the loop so far after each."""
    begin = now = clock.read()
    durations_s: list[float] = []
    iterations: list[int] = []
    while True:
        ended = workload.run(rounds)
        previous, now = now, clock.read()
        durations_s.append(now.monotonic_s - previous.monotonic_s)
        iterations.append(ended * workload.iterations_per_round)
        yield Loop(load_begin, begin, now, tuple(durations_s), tuple(iterations))


def _is_precise(loop: Loop, trace: PowerTrace, relative_error: float) -> bool:
    """Return whether the 95 % intervals of time and energy are within a relative error of them.

    Without a meter that says anything the time alone counts.
    """
    chunks = len(loop.chunk_durations_s)
    if chunks < MINIMUM_PRECISE_CHUNKS or not is_within(loop.time_s, chunks, relative_error):
        return False
    if trace.missing_reason is not None:
        return True
    power = _power_and_check(trace, loop.load_begin.epoch_s, loop.window)[0].mean
    if power.estimate_w is None:
        return False
    return is_within(power.estimate_w.multiplied_by(loop.time_s), min(chunks, power.readings), relative_error)


def evaluate(
    loop: Loop,
    trace: PowerTrace,
    power_per_kelvin: Estimate | None = None,
    executed_as: str = EAGER,
    notes: str = "",
) -> Measurement:
    """Return time and energy per iteration of a loop, given the power trace that was logged meanwhile.

    Power is that of the trace; where it has none in the window, that of the first of its checks that has, if they may
    stand in.
    """
    time_s, window = loop.time_s, loop.window
    trace = _without_rows_if_clock_stepped(trace, loop)
    power, check = _power_and_check(trace, loop.load_begin.epoch_s, window)
    power_w = power.mean.estimate_w
    energy_j = None if power_w is None else power_w.multiplied_by(time_s)
    check_w = None if check is None else check.mean.estimate_w
    state = device_state(trace, window)
    at_reference_j = at_reference(energy_j, state, power_per_kelvin)
    return Measurement(
        time_s=time_s.value,
        energy_j=value_of(energy_j),
        time_standard_error_s=time_s.standard_error,
        energy_standard_error_j=standard_error_of(energy_j),
        energy_missing_reason=power.mean.missing_reason,
        time_median_s=median(loop.times_s),
        time_without_outliers_s=mean_without_outliers(loop.times_s),
        power_median_w=None if power_w is None else median(power.mean.values_w),
        power_without_outliers_w=None if power_w is None else mean_without_outliers(power.mean.values_w),
        energy_at_reference_j=value_of(at_reference_j),
        energy_at_reference_standard_error_j=standard_error_of(at_reference_j),
        power_w=value_of(power_w),
        power_standard_error_w=standard_error_of(power_w),
        power_readings=power.mean.readings,
        meter=power.meter,
        check_power_w=value_of(check_w),
        check_power_standard_error_w=standard_error_of(check_w),
        check_meter=None if check is None else check.meter,
        iterations=loop.iterations,
        loop_time_s=loop.duration_s,
        started_at=_iso(loop.begin.epoch_s),
        ended_at=_iso(loop.end.epoch_s),
        temperature_c=state.temperature_c,
        memory_temperature_c=state.memory_temperature_c,
        sm_clock_hz=state.sm_clock_hz,
        power_capped_ratio=state.power_capped_ratio,
        thermal_slowdown_ratio=state.thermal_slowdown_ratio,
        busy_ratio=state.busy_ratio,
        power_log=trace.log_name,
        executed_as=executed_as,
        notes=joined_notes(notes, _unevenness(loop), _disagreement(power_w, check_w)),
    )


def at_reference(energy_j: Estimate | None, state: DeviceState, power_per_kelvin: Estimate | None) -> Estimate | None:
    """Return an energy as it would be at ``REFERENCE_TEMPERATURE_C``, None where anything that it takes is unknown.

    The error grows with the distance in temperature: operators differ in how their power follows it. While the power is
    capped it does not.
    """
    if energy_j is None or state.temperature_c is None or power_per_kelvin is None:
        return None
    kelvin = (REFERENCE_TEMPERATURE_C - state.temperature_c) * (1 - (state.power_capped_ratio or 0.0))
    slope_error = math.hypot(power_per_kelvin.standard_error, SLOPE_SPREAD_RATIO * power_per_kelvin.value)
    return energy_j.multiplied_by(Estimate(1 + kelvin * power_per_kelvin.value, abs(kelvin) * slope_error))


@dataclass(frozen=True)
class _MeteredPower:
    """What one meter says of a window."""

    meter: str
    mean: MeanPower


def _power_and_check(
    trace: PowerTrace, load_begin_s: float, window: Window
) -> tuple[_MeteredPower, _MeteredPower | None]:
    """Return the power by the best meter that has one, or by the only one that may give it, and by the next best."""
    metered = [
        _MeteredPower(logged.source.name, mean_power(logged, load_begin_s, window)) for logged in (trace, *trace.checks)
    ]
    known = [power for power in metered if power.mean.estimate_w is not None]
    best = (known or metered)[0] if trace.checks_stand_in else metered[0]
    return best, next((power for power in known if power is not best), None)


def _disagreement(power_w: Estimate | None, check_w: Estimate | None) -> str:
    """Return a remark on two meters of which one must be wrong."""
    if power_w is None or check_w is None:
        return ""
    difference_w = abs(power_w.value - check_w.value)
    error_w = math.hypot(power_w.standard_error, check_w.standard_error)
    if difference_w <= max(DISAGREEMENT_RATIO * power_w.value, 3 * error_w):
        return ""
    return f"{METERS_DISAGREE}: {power_w.value:.1f} W and {check_w.value:.1f} W"


def joined_notes(*notes: str) -> str:
    """Return notes on one line, those left out that say nothing."""
    return "; ".join(filter(None, notes))


def limit_note(measurement: Measurement, power_limit_w: float | None) -> str:
    """Return a remark on a power at its limit: what a longer loop, or another neighbourhood, would change."""
    if measurement.power_w is None or power_limit_w is None or measurement.power_w < AT_THE_LIMIT_RATIO * power_limit_w:
        return ""
    return f"at the power limit of {power_limit_w:.0f} W: slower the longer it runs alone"


def is_doubtful(measurement: Measurement) -> bool:
    """Return whether something seems to have disturbed a measurement, as its notes say."""
    return any(doubt in measurement.notes for doubt in (UNEVEN, METERS_DISAGREE))


def _imprecision(loop: Loop, protocol: MeasurementProtocol) -> str:
    """Return a remark on a loop that came to its end before it was precise enough."""
    if protocol.relative_error is None or loop.duration_s < protocol.loop_s:
        return ""
    return f"not within {protocol.relative_error:.2%} after {protocol.loop_s:g} s"


def _unevenness(loop: Loop) -> str:
    """Return a remark on chunks that take much longer than the shortest: something else may use the device.

    Two neighbours are taken together: a host that wakes up late makes one chunk longer and the next one shorter.
    """
    durations_s, iterations = np.array(loop.chunk_durations_s), np.array(loop.chunk_iterations)
    times_s = (durations_s[:-1] + durations_s[1:]) / (iterations[:-1] + iterations[1:])
    excess = median(times_s) / float(times_s.min())
    return f"{UNEVEN}: the median chunk took {excess:.1f} times the shortest" if excess > UNEVEN_RATIO else ""


def _warm_up(workload: Workload, clock: Clock, protocol: MeasurementProtocol) -> int:
    """Run for at least the warm-up's time and return how many rounds make a chunk of the loop when warm.

    Short chunks cost more per round, so the answer comes from one with at least half as many as wanted.
    """
    begin = now = clock.read()
    rounds = 1
    while True:
        ended = workload.run(rounds)
        previous, now = now, clock.read()
        if ended:
            per_round_s = max((now.monotonic_s - previous.monotonic_s) / ended, 1e-9)
            wanted = max(1, round(protocol.chunk_s / per_round_s))
            if now.monotonic_s - begin.monotonic_s >= protocol.warm_up_s and wanted <= 2 * ended:
                return wanted
            rounds = min(wanted, 10 * rounds)


def _without_rows_if_clock_stepped(trace: PowerTrace, loop: Loop) -> PowerTrace:
    step_s = (loop.end.epoch_s - loop.load_begin.epoch_s) - (loop.end.monotonic_s - loop.load_begin.monotonic_s)
    if abs(step_s) <= CLOCK_STEP_S or trace.missing_reason is not None:
        return trace
    reason = f"the system clock was stepped by {step_s:+.2f} s during the measurement, so the power log cannot be cut"
    return replace(no_trace(reason), source=trace.source, log_name=trace.log_name)


def _iso(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, tz=timezone.utc).isoformat(timespec="milliseconds")
