"""The loop: warm a workload up, run it chunk by chunk, and stop at the requested length or precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from opcost.estimates import Estimate, FloatArray, half_width_ratio, mean_over_placements, without_placement_effects
from opcost.measuring.instruments import Instruments
from opcost.measuring.ports import Workload
from opcost.measuring.protocol import MINIMUM_CHUNKS, MeasurementProtocol
from opcost.power.mean import MeteredPower, power_and_check
from opcost.power.ports import ClockReading
from opcost.power.trace import DeviceState, PowerTrace, Window, device_state, fresh_readings

MINIMUM_PRECISE_CHUNKS = 10
"""The fewest chunks whose spread may end a loop by its precision."""

FIRST_CHECK_S = 0.2
CHECK_GROWTH = 1.3
"""Time of the first check of a loop's precision, and the factor from one check to the next. Checks become rarer because
each one takes a millisecond of the host and is another chance to stop by coincidence."""

UNLIKELY_CHECK_GROWTH = 1.1
"""The factor after a check that found the target precision out of reach. Loops of about 10 s that cannot reach
it then end a quarter earlier; no other loops are ended early (simulated, ``docs/log/eager.md``)."""

STOP_RATIO = 0.9
CHECKS_IN_A_ROW = 2
"""A loop stops at this share of the target relative error, at its first check or after two successive ones. Repeated
checks find a small error too early: with one check at 0.8 and times that scatter by 20 %, 92 % of intervals cover the
truth; with two at 0.9, 95 % do, after 20 % more time (``benchmarks/simulated_coverage.py``)."""

GIVE_UP_AFTER_S = 2.0
"""The time from which a loop ends if it would not reach its target precision in the longest time allowed."""

FALLING_RATIO = 0.9
"""The smallest reduction of the error that a doubling of the loop's time must give. Independent noise gives 0.7. An
error that stays above has slow drift, such as launches from Python, whose mean no loop of 30 s determines to 1 %."""

HARDLY_THROTTLED_RATIO = 0.02
"""Throttling for this share of a loop changes its time by 0.7 % at most, because clocks fall by a quarter at most
(H200). In a short loop a single row of the log is a larger share."""

TOO_LIGHT_RATIO = 0.9
"""Share of the power limit below which a load cannot be throttled by it. If its clocks are low, the load before was
throttled."""

NO_KERNEL_S = 5e-8
"""Calls that take less than this time launch no kernel: the shortest takes 20 times as long (H200, in a graph)."""

NEAR_RATIO = 1.5
"""A loop is not given up for an error that stopped falling if it is this near to the target, because errors themselves
are known to about 20 %."""


@dataclass(frozen=True)
class Loop:
    """The raw result of a loop: two or more consecutive chunks between two clock readings, and the load's begin.

    ``chunk_iterations`` are the numbers of iterations of the chunks. ``placements`` is the number of memory placements
    in which chunks ran in turn. ``moments`` are the readings before, between and after the chunks, empty if not kept.
    """

    load_begin: ClockReading
    begin: ClockReading
    end: ClockReading
    chunk_durations_s: tuple[float, ...]
    chunk_iterations: tuple[int, ...]
    placements: int = 1
    moments: tuple[ClockReading, ...] = ()

    @property
    def iterations(self) -> int:
        return sum(self.chunk_iterations)

    @property
    def time_s(self) -> Estimate:
        """The time of one iteration."""
        return mean_over_placements(np.array(self.chunk_durations_s), np.array(self.chunk_iterations), self.placements)

    @property
    def launches_no_kernel(self) -> bool:
        """Whether its calls are too short to launch a kernel."""
        return self.time_s.value < NO_KERNEL_S

    @property
    def independent_chunks(self) -> int:
        """The number of independent chunks: at most one for each placement if there are several."""
        chunks = len(self.chunk_durations_s)
        return chunks if self.placements == 1 else min(chunks, self.placements)

    @property
    def times_s(self) -> FloatArray:
        """The time of one iteration in each chunk, shape (n,)."""
        times_s: FloatArray = np.array(self.chunk_durations_s) / np.array(self.chunk_iterations)
        return times_s

    @property
    def in_one_placement(self) -> Loop:
        """The loop without the differences between placements."""
        left_s = without_placement_effects(
            np.array(self.chunk_durations_s), np.array(self.chunk_iterations), self.placements
        )
        return replace(self, chunk_durations_s=tuple(map(float, left_s)), placements=1)

    @property
    def later_half(self) -> Loop | None:
        """The loop without its first half, whole rounds of placements; None if few chunks would be left."""
        skipped = math.ceil(len(self.chunk_durations_s) / 2 / self.placements) * self.placements
        if not self.moments or len(self.chunk_durations_s) - skipped < MINIMUM_PRECISE_CHUNKS:
            return None
        return replace(
            self,
            begin=self.moments[skipped],
            chunk_durations_s=self.chunk_durations_s[skipped:],
            chunk_iterations=self.chunk_iterations[skipped:],
            moments=self.moments[skipped:],
        )

    @property
    def duration_s(self) -> float:
        """The duration of the loop."""
        return self.end.monotonic_s - self.begin.monotonic_s

    @property
    def window(self) -> Window:
        """The loop's window by the wall clock."""
        return Window(self.begin.epoch_s, self.end.epoch_s)


def run_loop(workload: Workload, instruments: Instruments, protocol: MeasurementProtocol) -> Loop:
    """Warm up for at least ``warm_up_s``, then run chunks of equal size until the protocol is satisfied.

    One round precedes the warm-up. It may take seconds in which the device idles, while libraries load and choose
    algorithms.
    """
    workload.run(1)
    workload.finish()
    load_begin = _now(instruments)
    rounds = _warm_up(workload, instruments, protocol)
    loops = _growing_loop(workload, instruments, rounds, load_begin)
    if protocol.relative_error is None:
        loop = next(loop for loop in loops if _is_long(loop, protocol.loop_s))
    else:
        loop = _precise_loop(loops, protocol, instruments)
    workload.finish()
    return loop


def energy_of_iteration_j(loop: Loop, power: MeteredPower) -> Estimate | None:
    """Return the energy of one iteration in J, None if the power is unknown.

    Power and time are treated as independent. The error is too large if the device is throttled, because time then
    rises as power falls.
    """
    return None if power.mean.estimate_w is None else power.mean.estimate_w.multiplied_by(loop.time_s)


def _now(instruments: Instruments) -> ClockReading:
    """Read the clock and call the observers."""
    now = instruments.clock.read()
    for observer in instruments.observers:
        observer.during()
    return now


def _precise_loop(loops: Iterator[Loop], protocol: MeasurementProtocol, instruments: Instruments) -> Loop:
    """Return a loop as soon as it has reached its target precision, will not reach it, or is throttled.

    If only its later half has reached it, the first half is left out: it had a disturbance, or a load that settled.
    Differences between placements are not considered, because a longer loop does not reduce them.
    """
    relative_error, check_s = STOP_RATIO * (protocol.relative_error or 0.0), FIRST_CHECK_S
    forecast = Forecast(relative_error, protocol.loop_s)
    checks = precise_checks = precise_halves = 0
    while True:
        loop = next(loops)
        if _is_long(loop, protocol.loop_s):
            return loop
        is_due = loop.duration_s >= check_s
        is_young = protocol.at_full_clocks and loop.duration_s < FIRST_CHECK_S
        if not is_due and not is_young:
            continue
        trace = instruments.log()
        # While its power is unknown, or light, the flags may be those of the load before.
        is_known = is_due or _is_heavy(trace, loop.window, instruments.device.power_limit_w)
        if protocol.at_full_clocks and is_known and is_throttled(device_state(trace, loop.window)):
            return loop
        if is_due:
            power, _ = power_and_check(trace, loop.load_begin.epoch_s, loop.window)
            checks += len(loop.chunk_durations_s) >= MINIMUM_PRECISE_CHUNKS
            is_enough = is_precise(loop.in_one_placement, power, relative_error)
            precise_checks = precise_checks + 1 if is_enough else 0
            if precise_checks and precise_checks >= min(checks, CHECKS_IN_A_ROW):
                return loop
            half = None if is_enough else loop.later_half
            precise_halves = precise_halves + 1 if half and _is_half_precise(half, trace, relative_error) else 0
            if half and precise_halves >= CHECKS_IN_A_ROW:
                return half
            if forecast.is_hopeless(loop.in_one_placement, power):
                return loop
            check_s = loop.duration_s * (UNLIKELY_CHECK_GROWTH if forecast.is_unlikely else CHECK_GROWTH)


def _is_half_precise(half: Loop, trace: PowerTrace, relative_error: float) -> bool:
    power, _ = power_and_check(trace, half.load_begin.epoch_s, half.window)
    return is_precise(half.in_one_placement, power, relative_error)


def _is_long(loop: Loop, loop_s: float) -> bool:
    return loop.duration_s >= loop_s and len(loop.chunk_durations_s) >= MINIMUM_CHUNKS


def _is_heavy(trace: PowerTrace, window: Window, power_limit_w: float | None) -> bool:
    """Return whether the last reading in a window is of a load that the power limit may throttle."""
    readings_w = fresh_readings(trace, window)
    return power_limit_w is not None and len(readings_w) > 0 and readings_w[-1] >= TOO_LIGHT_RATIO * power_limit_w


def is_throttled(state: DeviceState) -> bool:
    """Return whether the power limit throttled the device for a relevant share of the time; False if unknown."""
    return (state.power_capped_ratio or 0.0) > HARDLY_THROTTLED_RATIO


def is_precise(loop: Loop, power: MeteredPower, relative_error: float) -> bool:
    """Return whether the 95 % intervals of time and energy are within a relative error.

    Without a power meter only the time counts. Calls that launch no kernel are always precise.
    """
    if loop.launches_no_kernel:
        return True
    is_short = len(loop.chunk_durations_s) < MINIMUM_PRECISE_CHUNKS
    return not is_short and half_width_ratio_of(loop, power) <= relative_error


def half_width_ratio_of(loop: Loop, power: MeteredPower) -> float:
    """Return half the width of the 95 % interval of time or energy over its value, the larger of both.

    It is infinite if the energy is not known yet. Without a power meter only the time counts.
    """
    chunks = loop.independent_chunks
    time_ratio = half_width_ratio(loop.time_s, chunks)
    if power.trace.missing_reason is not None:
        return time_ratio
    energy_j = energy_of_iteration_j(loop, power)
    if energy_j is None:
        return math.inf
    return max(time_ratio, half_width_ratio(energy_j, min(chunks, power.mean.readings)))


class Forecast:
    """Predicts from a loop's errors so far whether it will reach its target precision in time."""

    def __init__(self, relative_error: float, loop_s: float) -> None:
        self._relative_error = relative_error
        self._loop_s = loop_s
        self._earlier: tuple[float, float] | None = None
        self._unlikely_checks = 0

    def is_hopeless(self, loop: Loop, power: MeteredPower) -> bool:
        """Return whether this check and the ones before it found that the loop will not reach its target.

        The answer is False for short loops and for few readings.
        """
        if loop.duration_s < GIVE_UP_AFTER_S or not _has_enough_readings(loop, power):
            return False
        ratio = half_width_ratio_of(loop, power)
        # Errors fall with the root of the time at best.
        is_out_of_reach = ratio * math.sqrt(loop.duration_s / self._loop_s) > self._relative_error
        is_near = ratio <= NEAR_RATIO * self._relative_error
        is_unlikely = is_out_of_reach or (self._stays(loop.duration_s, ratio) and not is_near)
        self._unlikely_checks = self._unlikely_checks + 1 if is_unlikely else 0
        return self._unlikely_checks == CHECKS_IN_A_ROW

    @property
    def is_unlikely(self) -> bool:
        """Whether the last check found the target precision out of reach."""
        return self._unlikely_checks > 0

    def _stays(self, duration_s: float, ratio: float) -> bool:
        """Return whether the error has hardly fallen since half of the time."""
        if self._earlier is None:
            self._earlier = duration_s, ratio
        earlier_s, earlier_ratio = self._earlier
        if duration_s < 2 * earlier_s:
            return False
        if ratio <= FALLING_RATIO * earlier_ratio:
            self._earlier = duration_s, ratio
            return False
        return True


def _has_enough_readings(loop: Loop, power: MeteredPower) -> bool:
    """Return whether chunks and readings suffice for a forecast. Without a power meter only chunks count."""
    readings = len(loop.chunk_durations_s)
    if power.trace.missing_reason is None:
        readings = min(readings, 0 if power.mean.estimate_w is None else power.mean.readings)
    return readings >= MINIMUM_PRECISE_CHUNKS


def _growing_loop(
    workload: Workload, instruments: Instruments, rounds: int, load_begin: ClockReading
) -> Iterator[Loop]:
    """Run chunk after chunk; yield the loop so far after each chunk from the second on."""
    for observer in instruments.observers:
        observer.before_loop()
    now = _now(instruments)
    moments = [now]
    durations_s: list[float] = []
    iterations: list[int] = []
    while True:
        ended = workload.run(rounds)
        previous, now = now, _now(instruments)
        moments.append(now)
        durations_s.append(_ended_s(workload, previous, now))
        iterations.append(ended * workload.iterations_per_round)
        if len(durations_s) > 1:
            chunks = tuple(durations_s), tuple(iterations)
            yield Loop(load_begin, moments[0], now, *chunks, workload.placements, tuple(moments))


def _warm_up(workload: Workload, instruments: Instruments, protocol: MeasurementProtocol) -> int:
    """Run for at least the warm-up's time and return the number of rounds of a chunk.

    Short chunks take more time per round, so the number comes from a chunk with at least half as many rounds. The last
    chunk has that number of rounds, too: a device may report the end of a chunk one chunk later.
    """
    begin = now = _now(instruments)
    rounds = 1
    while True:
        ended = workload.run(rounds)
        previous, now = now, _now(instruments)
        if ended:
            per_round_s = max(_ended_s(workload, previous, now) / ended, 1e-9)
            wanted = max(1, round(protocol.chunk_s / per_round_s))
            if now.monotonic_s - begin.monotonic_s >= protocol.warm_up_s and wanted <= 2 * ended:
                workload.run(wanted)
                return wanted
            rounds = min(wanted, 10 * rounds)


def _ended_s(workload: Workload, previous: ClockReading, now: ClockReading) -> float:
    """Return the time of the rounds that ended between two readings, by the device's clock if it has one."""
    return now.monotonic_s - previous.monotonic_s if workload.ended_s is None else workload.ended_s
