"""The loop: warm a workload up, run it chunk by chunk, and stop at the requested length or precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from opcost.estimates import (
    Estimate,
    FloatArray,
    half_width_ratio,
    in_batches,
    is_within,
    mean_over_placements,
    without_placement_effects,
)
from opcost.measuring.instruments import Instruments
from opcost.measuring.protocol import MINIMUM_CHUNKS, MeasurementProtocol
from opcost.measuring.record import FAR_ABOVE_LIMIT_RATIO
from opcost.measuring.workload import Workload
from opcost.power.ports import ClockReading
from opcost.power.trace import (
    DeviceState,
    MeteredPower,
    PowerTrace,
    Window,
    device_state,
    fresh_readings,
    power_and_check,
)

MINIMUM_PRECISE_CHUNKS = 10
"""The fewest chunks whose spread may end a loop by its precision."""

NO_KERNEL_S = 5e-8
"""Calls that take less than this time launch no kernel: the shortest takes 20 times as long (H200, in a graph)."""

CHECKS_IN_A_ROW = 2
"""The number of successive checks that must agree."""

GIVE_UP_AFTER_S = 2.0
"""The time from which a loop ends if it would not reach its target precision in the longest time allowed."""

FALLING_RATIO = 0.9
"""The smallest reduction of the error that a doubling of the loop's time must give. Independent noise gives 0.7. An
error that stays above has slow drift, such as launches from Python, whose mean no loop of 30 s determines to 1 %."""

NEAR_RATIO = 1.5
"""A loop is not given up for an error that stopped falling if it is this near to the target, because errors themselves
are known to about 20 %."""


@dataclass(frozen=True)
class Loop:
    """The raw result of a loop: two or more consecutive chunks between two clock readings, and the load's begin.

    Chunks ran in ``placements`` of memory in turn. ``moments`` are the readings around the chunks, empty if not kept. A
    loop ``is_too_heavy`` if it was ended because it would be throttled.
    """

    load_begin: ClockReading
    begin: ClockReading
    end: ClockReading
    chunk_durations_s: tuple[float, ...]
    chunk_iterations: tuple[int, ...]
    placements: int = 1
    moments: tuple[ClockReading, ...] = ()
    is_too_heavy: bool = False

    @property
    def iterations(self) -> int:
        return sum(self.chunk_iterations)

    @property
    def time_s(self) -> Estimate:
        return mean_over_placements(np.array(self.chunk_durations_s), np.array(self.chunk_iterations), self.placements)

    @property
    def launches_no_kernel(self) -> bool:
        return self.time_s.value < NO_KERNEL_S

    @property
    def times_s(self) -> FloatArray:
        times_s: FloatArray = np.array(self.chunk_durations_s) / np.array(self.chunk_iterations)
        return times_s

    @property
    def in_one_placement(self) -> Loop:
        left_s = without_placement_effects(
            np.array(self.chunk_durations_s), np.array(self.chunk_iterations), self.placements
        )
        return replace(self, chunk_durations_s=tuple(map(float, left_s)), placements=1)

    @property
    def later_half(self) -> Loop | None:
        """The loop without its first half, whole rounds of placements; None if few chunks would be left."""
        skipped = math.ceil(len(self.chunk_durations_s) / 2 / self.placements) * self.placements
        return self._chunks(skipped, len(self.chunk_durations_s)) if self.moments else None

    def until(self, epoch_s: float) -> Loop | None:
        return self._chunks(0, sum(moment.epoch_s <= epoch_s for moment in self.moments[1:]))

    def joined(self, chunks: int) -> Loop:
        """The loop in a smaller number of chunks."""
        durations_s, iterations = in_batches(np.array(self.chunk_durations_s), np.array(self.chunk_iterations), chunks)
        joined = tuple(map(float, durations_s)), tuple(map(int, iterations))
        return replace(self, chunk_durations_s=joined[0], chunk_iterations=joined[1], moments=())

    def _chunks(self, first: int, end: int) -> Loop | None:
        if end - first < MINIMUM_PRECISE_CHUNKS:
            return None
        return replace(
            self,
            begin=self.moments[first],
            end=self.moments[end],
            chunk_durations_s=self.chunk_durations_s[first:end],
            chunk_iterations=self.chunk_iterations[first:end],
            moments=self.moments[first : end + 1],
        )

    @property
    def duration_s(self) -> float:
        return self.end.monotonic_s - self.begin.monotonic_s

    @property
    def window(self) -> Window:
        return Window(self.begin.epoch_s, self.end.epoch_s)


def energy_of_iteration_j(loop: Loop, power: MeteredPower) -> Estimate | None:
    """Return the energy of one iteration in J; too large an error if throttled: time rises as power falls."""
    return None if power.mean.estimate_w is None else power.mean.estimate_w.multiplied_by(loop.time_s)


def is_precise(loop: Loop, power: MeteredPower, relative_error: float) -> bool:
    """Return whether the 95 % intervals of time and energy (without a meter, of time) are within a relative error."""
    if loop.launches_no_kernel:
        return True
    is_short = len(loop.chunk_durations_s) < MINIMUM_PRECISE_CHUNKS
    return not is_short and half_width_ratio_of(loop, power) <= relative_error


def half_width_ratio_of(loop: Loop, power: MeteredPower) -> float:
    """Return half the 95 % interval of time or energy over its value, the larger of both; infinite if unknown."""
    chunks = len(loop.chunk_durations_s)
    # Chunks in one of several placements are not independent of each other.
    independent = chunks if loop.placements == 1 else min(chunks, loop.placements)
    time_ratio = half_width_ratio(loop.time_s, independent)
    if power.trace.missing_reason is not None:
        return time_ratio
    energy_j = energy_of_iteration_j(loop, power)
    if energy_j is None:
        return math.inf
    return max(time_ratio, half_width_ratio(energy_j, min(independent, power.mean.readings)))


class Forecast:
    """Predicts from a loop's errors so far whether it will reach its target precision in time."""

    def __init__(self, relative_error: float, loop_s: float) -> None:
        self._relative_error = relative_error
        self._loop_s = loop_s
        self._earlier: tuple[float, float] | None = None
        self._unlikely_checks = 0
        self.is_unlikely = False

    def is_hopeless(self, loop: Loop, power: MeteredPower) -> bool:
        """Return whether the checks so far found that the loop will not reach its target; short loops say nothing."""
        readings = len(loop.chunk_durations_s)
        if power.trace.missing_reason is None:
            readings = min(readings, 0 if power.mean.estimate_w is None else power.mean.readings)
        if loop.duration_s < GIVE_UP_AFTER_S or readings < MINIMUM_PRECISE_CHUNKS:
            return False
        ratio = half_width_ratio_of(loop, power)
        # Errors fall with the root of the time at best.
        is_out_of_reach = ratio * math.sqrt(loop.duration_s / self._loop_s) > self._relative_error
        is_near = ratio <= NEAR_RATIO * self._relative_error
        self.is_unlikely = is_out_of_reach or (self._stays(loop.duration_s, ratio) and not is_near)
        self._unlikely_checks = self._unlikely_checks + 1 if self.is_unlikely else 0
        return self._unlikely_checks == CHECKS_IN_A_ROW

    def _stays(self, duration_s: float, ratio: float) -> bool:
        if self._earlier is None:
            self._earlier = duration_s, ratio
        earlier_s, earlier_ratio = self._earlier
        if duration_s < 2 * earlier_s:
            return False
        if ratio <= FALLING_RATIO * earlier_ratio:
            self._earlier = duration_s, ratio
            return False
        return True


FIRST_CHECK_S = 0.2
CHECK_GROWTH = 1.3
"""Time of the first check of a loop's precision, and the factor from one check to the next. Checks become rarer because
each one takes a millisecond of the host and is another chance to stop by coincidence."""

NEXT_CHECK_GROWTH = 1.1
"""The factor after a check that found the target precision reached, or out of reach: the next check may end the loop.
Loops of about 10 s that cannot reach it end a quarter earlier, and no others (simulated, ``docs/log/eager.md``)."""

STOP_RATIO = 0.9
"""A loop stops at this share of the target relative error, at its first check or after two successive ones. Repeated
checks find a small error too early: with one check at 0.8 and times that scatter by 20 %, 92 % of intervals cover the
truth; with two at 0.9, 95 % do, after 20 % more time (``docs/log/simulated.md``)."""


def run_loop(workload: Workload, instruments: Instruments, protocol: MeasurementProtocol) -> Loop:
    """Warm up for ``warm_up_s`` after one round, then run chunks of equal size until the protocol is satisfied.

    The device is still at work on a last chunk, so that meters may be read meanwhile; then ``finish`` the workload.
    """
    workload.run(1)
    workload.finish()
    load_begin = _now(instruments)
    rounds = _warm_up(workload, instruments, protocol)
    loops = _growing_loop(workload, instruments, rounds, load_begin)
    if protocol.at_full_clocks:
        first = next(loops)
        load = Window(load_begin.epoch_s, first.end.epoch_s)
        if is_far_above_limit(instruments.log(), load, instruments.device.power_limit_w):
            return replace(first, is_too_heavy=True)
        loops = chain([first], loops)
    if protocol.relative_error is None:
        return next(loop for loop in loops if _is_long(loop, protocol.loop_s))
    return _precise_loop(loops, protocol, instruments)


LONGEST_PAIRS_S = 0.35
"""The longest time in which a workload is run beside its overhead."""


def run_pairs(
    workload: Workload, instruments: Instruments, relative_error: float, longest_s: float = LONGEST_PAIRS_S
) -> Loop:
    """Run a workload whose rounds last as long as they take beyond its overhead, until that time is precise.

    Then ``finish`` it. The loop's chunks are single rounds. Checks become rarer, and two in a row must find it precise.
    """
    workload.run(1)
    workload.finish()
    begin = now = _now(instruments)
    durations_s: list[float] = []
    iterations: list[int] = []
    next_check, precise_checks = MINIMUM_PRECISE_CHUNKS, 0
    while True:
        ended = workload.run(1)
        now = _now(instruments)
        if ended and workload.ended_s is not None:
            durations_s.append(workload.ended_s)
            iterations.append(ended * workload.iterations_per_round)
        loop, rounds = Loop(begin, begin, now, tuple(durations_s), tuple(iterations)), len(durations_s)
        if rounds >= next_check:
            next_check = math.ceil(NEXT_CHECK_GROWTH * rounds)
            precise_checks = precise_checks + 1 if is_within(loop.time_s, rounds, STOP_RATIO * relative_error) else 0
        if precise_checks == CHECKS_IN_A_ROW or (loop.duration_s >= longest_s and rounds >= MINIMUM_CHUNKS):
            return loop


def _now(instruments: Instruments) -> ClockReading:
    now = instruments.clock.read()
    for observer in instruments.observers:
        observer.during()
    return now


def _precise_loop(loops: Iterator[Loop], protocol: MeasurementProtocol, instruments: Instruments) -> Loop:
    """Return a loop as soon as it has reached its target precision, will not reach it, or is throttled.

    A throttled loop is cut to the part before, if that is precise enough. If only a loop's later half is, the first
    half is left out: it had a disturbance, or a load that settled. Differences between placements are not considered,
    because a longer loop does not reduce them.
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
        power, _ = power_and_check(trace, loop.load_begin.epoch_s, loop.window)
        # Without its power it is unknown whether a young load is throttled, or still the load before.
        is_known = is_due or power.mean.estimate_w is not None
        if protocol.at_full_clocks and is_known and is_throttled(device_state(trace, loop.window)):
            before = loop.until(full_clocks_until_s(trace, loop.window))
            wanted = protocol.relative_error or 0.0
            return before if before and _is_part_precise(before, trace, wanted) else loop
        if is_due:
            checks += len(loop.chunk_durations_s) >= MINIMUM_PRECISE_CHUNKS
            is_enough = is_precise(loop.in_one_placement, power, relative_error)
            precise_checks = precise_checks + 1 if is_enough else 0
            if precise_checks and precise_checks >= min(checks, CHECKS_IN_A_ROW):
                return loop
            half = None if is_enough else loop.later_half
            precise_halves = precise_halves + 1 if half and _is_part_precise(half, trace, relative_error) else 0
            if half and precise_halves >= CHECKS_IN_A_ROW:
                return half
            if forecast.is_hopeless(loop.in_one_placement, power):
                return loop
            is_near = precise_checks or precise_halves or forecast.is_unlikely
            check_s = loop.duration_s * (NEXT_CHECK_GROWTH if is_near else CHECK_GROWTH)


def _is_part_precise(part: Loop, trace: PowerTrace, relative_error: float) -> bool:
    power, _ = power_and_check(trace, part.load_begin.epoch_s, part.window)
    return is_precise(part.in_one_placement, power, relative_error)


def _is_long(loop: Loop, loop_s: float) -> bool:
    return loop.duration_s >= loop_s and len(loop.chunk_durations_s) >= MINIMUM_CHUNKS


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

    Short chunks take more time per round, so the number comes from a chunk with at least half as many rounds. The chunk
    that was started last has that number of rounds, too: a device may report the end of a chunk one chunk later.
    """
    begin = now = _now(instruments)
    rounds = 1
    while True:
        ended = workload.run(rounds)
        previous, now = now, _now(instruments)
        if ended:
            per_round_s = max(_ended_s(workload, previous, now) / ended, 1e-9)
            wanted = max(1, round(protocol.chunk_s / per_round_s))
            if wanted <= 2 * min(ended, rounds) and _is_warm(begin, now, instruments, protocol):
                return rounds
            rounds = min(wanted, 10 * rounds)


def _is_warm(begin: ClockReading, now: ClockReading, instruments: Instruments, protocol: MeasurementProtocol) -> bool:
    """Return whether a warm-up was long enough, also for the device to recover from the load before."""
    passed_s = now.monotonic_s - begin.monotonic_s
    if passed_s < protocol.warm_up_s:
        return False
    may_recover = protocol.at_full_clocks and passed_s < protocol.warm_up_s + RECOVERY_S
    return not (may_recover and is_recovering(instruments.log(), begin.epoch_s))


def _ended_s(workload: Workload, previous: ClockReading, now: ClockReading) -> float:
    return now.monotonic_s - previous.monotonic_s if workload.ended_s is None else workload.ended_s


# Throttling by the power limit within a loop

HARDLY_THROTTLED_RATIO = 0.02
"""Throttling for this share of a loop changes its time by 0.7 % at most, because clocks fall by a quarter at most
(H200). In a short loop a single row of the log is a larger share."""

STATE_PERIOD_S = 0.1
"""The longest time until a log shows a change of the clocks: nvidia-smi repeats their state for 0.1 s (H100, H200)."""

RECOVERY_S = 0.4
"""The longest extension of a warm-up. H100s report throttling until 0.24 s to 0.45 s after a throttled load, whether
they then rest or run a load with pauses (12 of 14, ``docs/log/power_limit.md``)."""


def is_far_above_limit(trace: PowerTrace, load: Window, power_limit_w: float | None) -> bool:
    """Return whether two readings of a load or more are far above the power limit; False if that is unknown."""
    if power_limit_w is None:
        return False
    return int(np.count_nonzero(fresh_readings(trace, load) >= FAR_ABOVE_LIMIT_RATIO * power_limit_w)) > 1


def is_throttled(state: DeviceState) -> bool:
    """Return whether the power limit throttled the device for a relevant share of the time; False if unknown."""
    return (state.power_capped_ratio or 0.0) > HARDLY_THROTTLED_RATIO


def is_recovering(trace: PowerTrace, load_begin_s: float) -> bool:
    """Return whether a device was throttled when a load began (epoch), and the log still reports that."""
    for logged in (trace, *trace.checks):
        is_known = ~np.isnan(logged.power_capped)
        capped = logged.power_capped[is_known] > 0
        # The log may begin before the load, or one row after its begin.
        at_begin = max(0, int(np.searchsorted(logged.epoch_s[is_known], load_begin_s, side="right")) - 1)
        if len(capped) and capped[at_begin] and capped[-1]:
            return True
    return False


def full_clocks_until_s(trace: PowerTrace, window: Window) -> float:
    """Return the moment (epoch), ``STATE_PERIOD_S`` before the first sign of throttling, until which there was none."""
    ends_s = [window.end_s + STATE_PERIOD_S]
    for logged in (trace, *trace.checks):
        inside = window.holds(logged.epoch_s)
        clock_hz: FloatArray = logged.sm_clock_hz[inside]
        # The highest of the known clocks; comparisons with an unknown value are False.
        slow = (logged.power_capped[inside] > 0) | (clock_hz < np.fmax.reduce(clock_hz, initial=-math.inf))
        ends_s += map(float, logged.epoch_s[inside][slow][:1])
    return min(ends_s) - STATE_PERIOD_S
