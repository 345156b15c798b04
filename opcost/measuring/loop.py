"""The loop: warm a workload up, run it chunk by chunk, and stop at the requested length or precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from opcost.measuring.instruments import Instruments
from opcost.measuring.protocol import MINIMUM_CHUNKS, MeasurementProtocol
from opcost.measuring.recorded_loop import CHECKS_IN_A_ROW, MINIMUM_PRECISE_CHUNKS, Forecast, Loop, is_precise
from opcost.measuring.throttling import (
    RECOVERY_S,
    full_clocks_until_s,
    is_far_above_limit,
    is_recovering,
    is_throttled,
)
from opcost.measuring.workload import Workload
from opcost.power.ports import ClockReading
from opcost.power.trace import PowerTrace, Window, device_state, power_and_check

FIRST_CHECK_S = 0.2
CHECK_GROWTH = 1.3
"""Time of the first check of a loop's precision, and the factor from one check to the next. Checks become rarer because
each one takes a millisecond of the host and is another chance to stop by coincidence."""

NEXT_CHECK_GROWTH = 1.1
"""The factor after a check that found the target precision reached, or out of reach: the next check may end the loop.
Loops of about 10 s that cannot reach it end a quarter earlier; no other loops are ended early (simulated,
``docs/log/eager.md``)."""

STOP_RATIO = 0.9
"""A loop stops at this share of the target relative error, at its first check or after two successive ones. Repeated
checks find a small error too early: with one check at 0.8 and times that scatter by 20 %, 92 % of intervals cover the
truth; with two at 0.9, 95 % do, after 20 % more time (``docs/log/simulated.md``)."""


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
    is_too_heavy = False
    if protocol.at_full_clocks:
        load = Window(load_begin.epoch_s, instruments.clock.read().epoch_s)
        is_too_heavy = is_far_above_limit(instruments.log(), load, instruments.device.power_limit_w)
    if is_too_heavy:
        loop = replace(next(loops), is_too_heavy=True)
    elif protocol.relative_error is None:
        loop = next(loop for loop in loops if _is_long(loop, protocol.loop_s))
    else:
        loop = _precise_loop(loops, protocol, instruments)
    workload.finish()
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
            if wanted <= 2 * ended and _is_warm(begin, now, instruments, protocol):
                workload.run(wanted)
                return wanted
            rounds = min(wanted, 10 * rounds)


def _is_warm(begin: ClockReading, now: ClockReading, instruments: Instruments, protocol: MeasurementProtocol) -> bool:
    """Return whether a warm-up was long enough, also for the device to recover from the load before."""
    passed_s = now.monotonic_s - begin.monotonic_s
    if passed_s < protocol.warm_up_s:
        return False
    may_recover = protocol.at_full_clocks and passed_s < protocol.warm_up_s + RECOVERY_S
    return not (may_recover and is_recovering(instruments.log(), begin.epoch_s))


def _ended_s(workload: Workload, previous: ClockReading, now: ClockReading) -> float:
    """Return the time of the rounds that ended between two readings, by the device's clock if it has one."""
    return now.monotonic_s - previous.monotonic_s if workload.ended_s is None else workload.ended_s
