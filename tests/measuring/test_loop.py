"""When a loop ends: chunks are scripted, so that each look finds what is declared."""

import math
from dataclasses import dataclass, field, replace

import pytest

from opcost.estimates import Estimate, half_width_ratio
from opcost.measuring.conditions import EAGER
from opcost.measuring.instruments import Instruments
from opcost.measuring.loop import Forecast, Loop, is_precise, is_throttled, run_loop
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import MINIMUM_CHUNKS, MeasurementProtocol
from opcost.measuring.workload import Workload
from opcost.power.ports import ClockReading, PowerSource
from opcost.power.trace import DeviceState, MeanPower, MeteredPower, PowerTrace, no_trace

CHUNK_S = 0.0201
"""A little more than a chunk is to last, so that ten of them are beyond the first look."""

SAYS_NOTHING = MeteredPower(no_trace("no meter"), MeanPower(None, 0, "no meter"))


@dataclass
class Script:
    """Plays workload, clock and meter: each chunk takes as long as is declared, the others ``CHUNK_S``.

    No chunk holds more than one round of one iteration.
    """

    chunks_s: tuple[float, ...] = ()
    calls: list[str] = field(default_factory=list)
    now_s: float = 0.0

    execution = EAGER
    iterations_per_round = 1
    placements = 1
    waits = call_memory_peak_bytes = far_launches_s = None
    notes = ""
    flags = ()
    overhead: Workload | None = None
    ended_s: float | None = None

    def run(self, rounds: int) -> int:
        self.calls.append("run")
        # One first round, and one of the warm-up.
        chunk = len(self.calls) - len(("run", "finish", "run")) - 1
        self.now_s += self.chunks_s[chunk] if 0 <= chunk < len(self.chunks_s) else CHUNK_S
        return rounds

    def finish(self) -> None:
        self.calls.append("finish")

    def read(self) -> ClockReading:
        return ClockReading(self.now_s, self.now_s)

    def start(self) -> None:
        """There is nothing to start."""

    def log(self) -> PowerTrace:
        return no_trace("no meter")

    stop = log


def chunks_until(relative_error: float, script: Script) -> int:
    """Return after how many chunks a loop ends that is to be as precise."""
    loop = run_loop(script, Instruments(script, script), MeasurementProtocol(0.0, 30.0, relative_error))
    return len(loop.chunk_durations_s)


def test_a_loop_ends_when_it_is_a_tenth_more_precise_than_asked_at_the_first_look_or_at_two_in_a_row() -> None:
    """Looks are after 0.2 s and after 30 % more time each: after 10, 13, 17 chunks; 10 % more to confirm one."""
    scattered = (0.9 * CHUNK_S, 1.09 * CHUNK_S)
    script = Script(scattered)
    loop = run_loop(script, Instruments(script, script), MeasurementProtocol(0.0, 30.0, 1.0))
    assert loop.chunk_durations_s[:3] == pytest.approx((*scattered, CHUNK_S))
    assert len(loop.chunk_durations_s) == 10
    found = half_width_ratio(loop.time_s, 10)
    assert chunks_until(1.001 * found / 0.9, Script(scattered)) == 10
    # Precise enough at the second look and the third one.
    assert chunks_until(0.999 * found / 0.9, Script(scattered)) == 15
    # Precise enough at the second look, no more at the third one, after 15 chunks, and again after 20 and 22.
    late = (*scattered, *[CHUNK_S] * 12, 0.75 * CHUNK_S)
    assert chunks_until(0.999 * found / 0.9, Script(late)) == 22


def test_the_device_is_idle_when_a_measurement_has_ended() -> None:
    script = Script()
    measure(script, Instruments(script, script), MeasurementProtocol(0.0, 0.5))
    assert script.calls.count("finish") == 2
    assert script.calls[-1] == "finish"


def loop_of(duration_s: float, spread_ratio: float, chunks: int = 15, placements: int = 1) -> Loop:
    """Return a loop whose times of chunks are above and below their mean in turn, by a share of it."""
    times_s = [1 + spread_ratio * (-1) ** chunk for chunk in range(chunks)]
    end = ClockReading(duration_s, duration_s)
    return Loop(ClockReading(0.0, 0.0), ClockReading(0.0, 0.0), end, tuple(times_s), (1,) * chunks, placements)


@pytest.mark.parametrize(
    ("placements", "readings", "is_enough"), [(1, 15, True), (1, 3, False), (3, 15, False), (1, 1000, True)]
)
def test_an_energy_is_as_uncertain_as_the_fewer_of_chunks_and_readings_make_it(
    placements: int, readings: int, is_enough: bool
) -> None:
    """Its error is 1 %: half the interval's width is 2.1 % with 15 of them, 4.3 % with 3 (Student)."""
    power = MeteredPower(
        replace(no_trace(""), source=PowerSource("meter", 0.0, 0.0), missing_reason=None),
        MeanPower(Estimate(100.0, 1.0), readings),
    )
    assert is_precise(loop_of(1.0, 0.0, placements=placements), power, 0.03) == is_enough


@pytest.mark.parametrize(
    ("nearness", "is_hopeless"), [(1.3, [False, False, False, False]), (1.7, [False, False, False, True])]
)
def test_a_loop_near_what_was_asked_for_goes_on_though_it_becomes_no_more_precise(
    nearness: float, is_hopeless: list[bool]
) -> None:
    """Two checks in a row must have found it so. Errors are known to some 20 %."""
    loop = loop_of(2.0, 0.01)
    ratio = half_width_ratio(loop.time_s, 15)
    forecast = Forecast(ratio / nearness, 1000.0)
    checks_s = (2.0, 3.0, 4.1, 4.6)
    assert [forecast.is_hopeless(loop_of(check_s, 0.01), SAYS_NOTHING) for check_s in checks_s] == is_hopeless


def test_one_good_look_between_bad_ones_keeps_a_loop_going() -> None:
    relative_error = half_width_ratio(loop_of(2.0, 0.01).time_s, 15)
    forecast = Forecast(relative_error, 1000.0)
    checks = [(2.0, 0.02), (4.1, 0.02), (4.6, 0.012), (9.3, 0.02), (10.3, 0.02)]
    found = [
        forecast.is_hopeless(loop_of(duration_s, spread_ratio), SAYS_NOTHING) for duration_s, spread_ratio in checks
    ]
    assert found == [False, False, False, False, True]


@pytest.mark.parametrize(("ratio", "expected"), [(None, False), (0.0, False), (0.015, False), (0.03, True)])
def test_clocks_that_were_low_for_hardly_any_of_the_time_slow_nothing_down(ratio: float | None, expected: bool) -> None:
    assert is_throttled(DeviceState(50.0, 1.98e9, ratio, 0.0)) == expected


def test_a_loop_of_a_length_has_at_least_five_chunks() -> None:
    script = Script((1.0,))
    loop = run_loop(script, Instruments(script, script), MeasurementProtocol(0.0, 0.03))
    assert len(loop.chunk_durations_s) == MINIMUM_CHUNKS
    assert math.isclose(loop.duration_s, sum(loop.chunk_durations_s))
