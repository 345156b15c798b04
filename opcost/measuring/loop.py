"""The loop: warm a workload up, run it chunk by chunk, and end when that is long or precise enough."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from opcost.estimates import Estimate, FloatArray, half_width_ratio, mean_over_places, without_places
from opcost.measuring.instruments import Instruments
from opcost.measuring.ports import Workload
from opcost.measuring.protocol import MINIMUM_CHUNKS, MeasurementProtocol
from opcost.power.mean import MeteredPower, power_and_check
from opcost.power.ports import ClockReading
from opcost.power.trace import DeviceState, Window, device_state

MINIMUM_PRECISE_CHUNKS = 10
"""Before that the spread of chunks says too little to stop by."""

FIRST_LOOK_S = 0.2
LOOK_GROWTH = 1.3
"""When a loop looks whether its figures are precise enough: ever more rarely, since each look is another chance to stop
by luck, and takes a millisecond of the host's."""

DOUBTED_GROWTH = 1.1
"""After a look that says that a loop will not become precise the next one comes sooner: where that is so loops of some
10 s end a quarter earlier, and no more of those that would become precise (simulated, ``docs/log/eager.md``)."""

STOP_RATIO = 0.9
LOOKS_IN_A_ROW = 2
"""A loop stops at this share of the error asked for, after the first look or when two in a row have found it so small:
what is looked at again and again is found small too early. With one look at 0.8 and times that scatter by 20 %, 92 % of
intervals hold the truth, with two at 0.9 95 %, a fifth of the time later (``benchmarks/simulated_coverage.py``)."""

GIVE_UP_AFTER_S = 2.0
"""From then on a loop ends, too, if it would take longer than it may."""

FALLING_RATIO = 0.9
"""By a doubling of a loop's time errors fall to 0.7. Where they stay above this share the load wanders: a launch of
Python takes another time from second to second, and no loop of 30 s knows its mean to 1 %."""

HARDLY_SLOWED_RATIO = 0.02
"""Low clocks for this share of a loop change its time by 0.7 % at most: they are lower by a quarter at most (H200). In
a short loop any row of the log that tells of them is more."""

NO_KERNEL_S = 5e-8
"""Calls that take less run no kernel: the shortest takes twenty times as long (H200, in a graph)."""

NEAR_RATIO = 1.5
"""What is so near to the error asked for may stay where it is for a while: errors are known to some 20 %."""


@dataclass(frozen=True)
class Loop:
    """The raw result of a loop: two or more consecutive chunks between two clock readings, and when the load began.

    ``chunk_iterations`` are how many iterations each chunk held; the chunks ran in so many ``places`` in turn."""

    load_begin: ClockReading
    begin: ClockReading
    end: ClockReading
    chunk_durations_s: tuple[float, ...]
    chunk_iterations: tuple[int, ...]
    places: int = 1

    @property
    def iterations(self) -> int:
        return sum(self.chunk_iterations)

    @property
    def time_s(self) -> Estimate:
        """The time of one iteration."""
        return mean_over_places(np.array(self.chunk_durations_s), np.array(self.chunk_iterations), self.places)

    @property
    def runs_nothing(self) -> bool:
        """Whether its calls are over before a device could do anything."""
        return self.time_s.value < NO_KERNEL_S

    @property
    def independent_chunks(self) -> int:
        """How many chunks tell something of their own: in places that were seen before they do not."""
        chunks = len(self.chunk_durations_s)
        return chunks if self.places == 1 else min(chunks, self.places)

    @property
    def times_s(self) -> FloatArray:
        """The time of one iteration, chunk by chunk."""
        times_s: FloatArray = np.array(self.chunk_durations_s) / np.array(self.chunk_iterations)
        return times_s

    @property
    def in_one_place(self) -> Loop:
        """The loop as if it had run in one place, as far as it tells what its places differ by."""
        left_s = without_places(np.array(self.chunk_durations_s), np.array(self.chunk_iterations), self.places)
        return replace(self, chunk_durations_s=tuple(map(float, left_s)), places=1)

    @property
    def duration_s(self) -> float:
        """How long the loop has run."""
        return self.end.monotonic_s - self.begin.monotonic_s

    @property
    def window(self) -> Window:
        """The loop's time by the wall clock."""
        return Window(self.begin.epoch_s, self.end.epoch_s)


def run_loop(workload: Workload, instruments: Instruments, protocol: MeasurementProtocol) -> Loop:
    """Warm up for at least ``warm_up_s``, then run chunks of equal size until the protocol is satisfied.

    A first round comes before the warm-up: it may take seconds (libraries load, algorithms are chosen) in which the
    device idles.
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
    """Return the energy of one iteration in J, None where the power is unknown.

    Power and time are taken to be independent: where a device slows down, time rises as power falls, and the error is
    too large.
    """
    return None if power.mean.estimate_w is None else power.mean.estimate_w.multiplied_by(loop.time_s)


def _now(instruments: Instruments) -> ClockReading:
    """Read the clock, and let observers know that something has ended."""
    now = instruments.clock.read()
    for observer in instruments.observers:
        observer.during()
    return now


def _precise_loop(loops: Iterator[Loop], protocol: MeasurementProtocol, instruments: Instruments) -> Loop:
    """Return a loop as soon as its figures are precise enough, or will not be, or full clocks are not to be had.

    How much its places differ is not counted here: a longer loop would find the same.
    """
    relative_error, look_s = STOP_RATIO * (protocol.relative_error or 0.0), FIRST_LOOK_S
    prospect = Prospect(relative_error, protocol.loop_s)
    looks = looks_in_a_row = 0
    while True:
        loop = next(loops)
        if _is_long(loop, protocol.loop_s):
            return loop
        if loop.duration_s >= look_s:
            trace = instruments.log()
            power, _ = power_and_check(trace, loop.load_begin.epoch_s, loop.window)
            looks += len(loop.chunk_durations_s) >= MINIMUM_PRECISE_CHUNKS
            is_enough = is_precise(loop.in_one_place, power, relative_error)
            looks_in_a_row = looks_in_a_row + 1 if is_enough else 0
            if looks_in_a_row and looks_in_a_row >= min(looks, LOOKS_IN_A_ROW):
                return loop
            if prospect.is_bad(loop.in_one_place, power):
                return loop
            if protocol.at_full_clocks and is_slowed(device_state(trace, loop.window)):
                return loop
            look_s = loop.duration_s * (DOUBTED_GROWTH if prospect.is_doubted else LOOK_GROWTH)


def _is_long(loop: Loop, loop_s: float) -> bool:
    return loop.duration_s >= loop_s and len(loop.chunk_durations_s) >= MINIMUM_CHUNKS


def is_slowed(state: DeviceState) -> bool:
    """Return whether the power limit held clocks down for more than hardly any of the time; False if nobody knows."""
    return (state.power_capped_ratio or 0.0) > HARDLY_SLOWED_RATIO


def is_precise(loop: Loop, power: MeteredPower, relative_error: float) -> bool:
    """Return whether the 95 % intervals of time and energy are within a relative error of them.

    Without a meter that says anything the time alone counts. Of calls that run nothing nothing more can be known.
    """
    if loop.runs_nothing:
        return True
    is_short = len(loop.chunk_durations_s) < MINIMUM_PRECISE_CHUNKS
    return not is_short and half_width_ratio_of(loop, power) <= relative_error


def half_width_ratio_of(loop: Loop, power: MeteredPower) -> float:
    """Return half the width of the 95 % interval of time or energy over its value, the larger of both.

    It is infinite where a meter that says something has not said enough; without one the time alone counts.
    """
    chunks = loop.independent_chunks
    time_ratio = half_width_ratio(loop.time_s, chunks)
    if power.trace.missing_reason is not None:
        return time_ratio
    energy_j = energy_of_iteration_j(loop, power)
    if energy_j is None:
        return math.inf
    return max(time_ratio, half_width_ratio(energy_j, min(chunks, power.mean.readings)))


class Prospect:
    """Whether a loop will become precise in time, by how its figures did so far."""

    def __init__(self, relative_error: float, loop_s: float) -> None:
        self._relative_error = relative_error
        self._loop_s = loop_s
        self._earlier: tuple[float, float] | None = None
        self._bad_looks = 0

    def is_bad(self, loop: Loop, power: MeteredPower) -> bool:
        """Return whether some looks in a row, this being the last, found that it will not.

        Nobody knows that of a loop that has hardly begun, or of a meter that has hardly said anything.
        """
        if loop.duration_s < GIVE_UP_AFTER_S or not _is_told_enough(loop, power):
            return False
        ratio = half_width_ratio_of(loop, power)
        # Errors fall with the root of the time, if they fall.
        is_out_of_reach = ratio * math.sqrt(loop.duration_s / self._loop_s) > self._relative_error
        is_near = ratio <= NEAR_RATIO * self._relative_error
        is_bad = is_out_of_reach or (self._stays(loop.duration_s, ratio) and not is_near)
        self._bad_looks = self._bad_looks + 1 if is_bad else 0
        return self._bad_looks == LOOKS_IN_A_ROW

    @property
    def is_doubted(self) -> bool:
        """Whether the last look found that it will not."""
        return self._bad_looks > 0

    def _stays(self, duration_s: float, ratio: float) -> bool:
        """Return whether figures are hardly more precise than in half of the time, or less."""
        if self._earlier is None:
            self._earlier = duration_s, ratio
        earlier_s, earlier_ratio = self._earlier
        if duration_s < 2 * earlier_s:
            return False
        if ratio <= FALLING_RATIO * earlier_ratio:
            self._earlier = duration_s, ratio
            return False
        return True


def _is_told_enough(loop: Loop, power: MeteredPower) -> bool:
    """Return whether chunks and a meter that says something have said enough to tell how precise a loop will be."""
    told = len(loop.chunk_durations_s)
    if power.trace.missing_reason is None:
        told = min(told, 0 if power.mean.estimate_w is None else power.mean.readings)
    return told >= MINIMUM_PRECISE_CHUNKS


def _growing_loop(
    workload: Workload, instruments: Instruments, rounds: int, load_begin: ClockReading
) -> Iterator[Loop]:
    """Run chunk after chunk; yield the loop so far after each from the second on: the first tells no error."""
    begin = now = _now(instruments)
    durations_s: list[float] = []
    iterations: list[int] = []
    while True:
        ended = workload.run(rounds)
        previous, now = now, _now(instruments)
        durations_s.append(_ended_s(workload, previous, now))
        iterations.append(ended * workload.iterations_per_round)
        if len(durations_s) > 1:
            yield Loop(load_begin, begin, now, tuple(durations_s), tuple(iterations), workload.places)


def _warm_up(workload: Workload, instruments: Instruments, protocol: MeasurementProtocol) -> int:
    """Run for at least the warm-up's time and return how many rounds make a chunk of the loop when warm.

    Short chunks cost more per round, so the answer comes from one with at least half as many as wanted. What is started
    last is such a chunk: a device may tell late what has ended, always by one chunk, so all must be equal.
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
    """Return how long what ended between two readings took, by the device's own clock where it has one."""
    return now.monotonic_s - previous.monotonic_s if workload.ended_s is None else workload.ended_s
