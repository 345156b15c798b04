import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.estimates import Estimate, error_of_beating, independent_averages, mean_of_readings
from opcost.power.ports import PowerSource
from opcost.power.trace import (
    MINIMUM_READINGS,
    DeviceState,
    MeanPower,
    PowerTrace,
    Window,
    device_state,
    fresh_readings,
    joined,
    mean_power,
    no_trace,
)

INSTANT = PowerSource("instant", rise_time_s=0.0, averaging_time_s=0.0)
EVERY_TWO_SECONDS = PowerSource("slow", rise_time_s=0.0, averaging_time_s=0.0, update_period_s=2.0)
NAN = math.nan

# Times are multiples of 1/64 s, so that adding whole seconds to them is exact.
TICK_S = 1 / 64
rows = st.lists(st.tuples(st.integers(0, 320), st.integers(1, 700)), max_size=40).map(
    lambda pairs: [(time * TICK_S, float(power)) for time, power in sorted(pairs)]
)


def trace_of(pairs, source=INSTANT, **columns):
    epoch_s, power_w = np.array(pairs, dtype=float).reshape(-1, 2).T
    unknown = np.full(len(epoch_s), NAN)
    names = ("temperature_c", "memory_temperature_c", "sm_clock_hz", "power_capped", "thermal_slowdown", "busy_ratio")
    state = {name: np.array(columns.get(name, unknown), dtype=float) for name in names}
    return PowerTrace(source, epoch_s, power_w, **state)


STEADY = PowerSource("steady", rise_time_s=0.0, averaging_time_s=0.0, update_period_s=1.0)


def every_second(*power_w):
    return [(float(index), power) for index, power in enumerate(power_w)]


def readings_of(pairs, begin_s=-math.inf, end_s=math.inf, source=INSTANT):
    return fresh_readings(trace_of(pairs, source), Window(begin_s, end_s)).tolist()


def every_half_second(*values_and_rows):
    """Rows of a meter with a new reading every 2 s: each value in some rows."""
    values = [value for value, number in values_and_rows for _ in range(number)]
    return [(index / 2, value) for index, value in enumerate(values)]


# 100, 200, 200, 200, 300, 300 and 100 W; and a value that appears at 2 s and lasts. Its equal readings are noticed half
# a period after they must have come, at 5 and 7 s.
LASTING = every_half_second((100, 4), (200, 12), (300, 8), (100, 4))
APPEARING = every_half_second((100, 4), (200, 12))
GAP = [(0, 100), (1, 200), (1.25, 200)]


@pytest.mark.parametrize(
    ("pairs", "window", "source", "expected"),
    [
        pytest.param(every_second(100, 200, 200, 300, 300, 300, 200), (), INSTANT, [200, 300, 200], id="first rows"),
        pytest.param(every_second(100), (), INSTANT, [], id="a first row may repeat a value from before the log"),
        pytest.param([], (), INSTANT, [], id="no rows"),
        pytest.param(every_second(100, 200, 300, 400, 500), (1, 3), INSTANT, [200, 300, 400], id="both ends belong"),
        pytest.param(every_second(100, 200, 300, 400, 500), (1.01, 2.99), INSTANT, [300], id="inside"),
        pytest.param(every_second(100, 200, 200, 300), (2, 3), INSTANT, [300], id="appeared before"),
        pytest.param(every_second(NAN, 100, NAN, 100, 200, NAN, 300), (), INSTANT, [200, 300], id="without a value"),
        pytest.param(every_second(NAN, NAN), (), INSTANT, [], id="without any value"),
        pytest.param(LASTING, (), EVERY_TWO_SECONDS, [200, 200, 200, 300, 300, 100], id="equal readings"),
        pytest.param(LASTING, (), INSTANT, [200, 300, 100], id="of an unknown period"),
        pytest.param(APPEARING, (2, 4.9), EVERY_TWO_SECONDS, [200], id="an equal reading lies where its row does"),
        pytest.param(APPEARING, (2.1, 5), EVERY_TWO_SECONDS, [200], id="the second one"),
        pytest.param(APPEARING, (5.1, 7), EVERY_TWO_SECONDS, [200], id="the third one"),
        pytest.param(APPEARING, (7.1, 9), EVERY_TWO_SECONDS, [], id="no fourth one"),
        pytest.param(every_half_second((100, 4), (200, 5), (300, 3)), (), EVERY_TWO_SECONDS, [200, 300], id="late"),
        pytest.param(every_half_second((100, 11)), (), EVERY_TWO_SECONDS, [100, 100], id="from the second reading on"),
        *(
            pytest.param(
                [*GAP, (60, after), (60.25, after), (60.5, after), (61, 400)],
                (),
                EVERY_TWO_SECONDS,
                [200, after, 400],
                id=f"a gap before {after} W does not multiply the value before it",
            )
            for after in (200, 300)
        ),
    ],
)
def test_fresh_readings_are_the_first_rows_of_values_and_equal_readings(pairs, window, source, expected):
    assert readings_of(pairs, *window, source=source) == expected


@given(rows, st.data(), st.sampled_from([0.0, 0.25, 1.0]))
def test_repeated_rows_change_nothing(pairs, data, update_period_s):
    source = replace(INSTANT, update_period_s=update_period_s)
    repeats = data.draw(st.lists(st.integers(1, 4), min_size=len(pairs), max_size=len(pairs)))
    repeated = [pair for pair, count in zip(pairs, repeats, strict=True) for _ in range(count)]
    assert readings_of(repeated, 1, 4, source) == readings_of(pairs, 1, 4, source)


@given(rows, st.data(), st.sampled_from([0.0, 0.25, 1.0]))
def test_rows_without_a_value_change_nothing(pairs, data, update_period_s):
    source = replace(INSTANT, update_period_s=update_period_s)
    at_s = data.draw(st.lists(st.integers(0, 320), max_size=10))
    mixed = sorted([*pairs, *((time * TICK_S, NAN) for time in at_s)], key=lambda pair: pair[0])
    assert readings_of(mixed, 1, 4, source) == readings_of(pairs, 1, 4, source)


def test_mean_power_is_the_mean_of_the_fresh_readings():
    result = mean_power(trace_of(every_second(0, 10, 10, 20, 30, 40, 50, 0)), 0, Window(1, 6))
    assert result == MeanPower(mean_of_readings(np.array([10.0, 20.0, 30.0, 40.0, 50.0]), 5), 5)
    assert result.estimate_w.value == 30
    assert result.estimate_w.standard_error == pytest.approx(math.sqrt(250 / 5))


def test_rows_outside_the_window_or_within_the_rise_time_do_not_count():
    absurd = every_second(1e9, 1e9 + 1, 10, 20, 30, 40, 50, 1e9, 1e9 + 1)
    assert mean_power(trace_of(absurd), 0, Window(2, 6)).estimate_w.value == 30
    slow = PowerSource("slow", rise_time_s=2.0, averaging_time_s=0.0)
    pairs = every_second(0, 5, 6, 10, 20, 30, 40, 50, 0)
    assert mean_power(trace_of(pairs, slow), 1, Window(1, 7)).estimate_w.value == 30
    # A window that begins later needs no more waiting.
    assert mean_power(trace_of(pairs, slow), 0, Window(3, 7)).estimate_w.value == 30


@pytest.mark.parametrize("readings", range(MINIMUM_READINGS + 2))
def test_few_fresh_readings_give_no_power_but_the_reason(readings):
    pairs = every_second(*range(readings + 1))
    result = mean_power(trace_of(pairs), 0, Window(0, 10))
    assert result.readings == readings
    if readings < 5:
        assert result.estimate_w is None
        assert result.missing_reason == f"{readings} fresh readings of instant in the window, 5 needed"
    else:
        assert result.estimate_w is not None
        assert result.missing_reason is None


def test_one_single_value_gives_a_power_only_if_the_meter_moved_before():
    still = every_second(*[300] * 20)
    assert mean_power(trace_of(still), 0, Window(0, 20)).estimate_w is None
    reason = "steady showed a single value, 300 W, from begin to end: it may be stuck"
    assert mean_power(trace_of(still, STEADY), 0, Window(0, 20)) == MeanPower(None, 18, reason)
    moved = mean_power(trace_of(every_second(100, 99.5, 103, NAN, *[300] * 20), STEADY), 0, Window(5, 25))
    # To within its smallest step.
    assert moved == MeanPower(Estimate(300.0, pytest.approx(0.5 / math.sqrt(12))), 18)
    assert mean_power(trace_of(every_second(*[300, 301] * 10)), 0, Window(0, 20)).estimate_w is not None


@pytest.mark.parametrize(
    ("correlation_time_s", "independent"),
    [(1e-3, 18), (2.0, 5), (10.0, 1), (100.0, 1)],
    ids="long short once less".split(),
)
def test_one_single_value_has_the_noise_that_a_qualification_saw(correlation_time_s, independent):
    known = replace(STEADY, correlation_time_s=correlation_time_s, noise_ratio=0.01)
    result = mean_power(trace_of(every_second(100, 99.5, 103, NAN, *[300] * 20), known), 0, Window(5, 25))
    assert result == MeanPower(Estimate(300.0, pytest.approx(3.0 / math.sqrt(independent))), 18)


@pytest.mark.parametrize(
    ("rise_s", "averaging_s", "seconds", "first", "independent"),
    [
        # 12 s hold 3 averaging times, which makes 3.4 independent readings.
        pytest.param(0.0, 4.0, 12, 1, independent_averages(12, 4), id="a smoothing meter"),
        pytest.param(6.0, 2.0, 12, 6, independent_averages(6, 2), id="none in the rise time"),
        pytest.param(0.0, 0.025, 6, 1, 6, id="no more than readings"),
    ],
)
def test_readings_of_a_smoothing_meter_are_not_all_independent(rise_s, averaging_s, seconds, first, independent):
    trace = trace_of(every_second(*range(seconds + 1)), PowerSource("smooth", rise_s, averaging_s))
    expected = mean_of_readings(np.arange(float(first), seconds + 1.0), independent)
    assert mean_power(trace, 0, Window(0, seconds)) == MeanPower(expected, math.floor(independent))


SCATTERED = (99.2, 100.4, 98.5, 100.9, 101.3, 99.7, 100.6, 100.5, 99.8, 99.3, 98.2, 101.6)
"""Neighbours differ by as much as independent values do: the mean is 100, and the variance ``SCATTER_W2``."""
SCATTER_W2 = float(np.var(SCATTERED, ddof=1))


def in_lasting_noise(correlation_time_s, noise_ratio, values=SCATTERED, averaging_time_s=0.0):
    source = PowerSource(
        "lasting", 0.0, averaging_time_s, correlation_time_s=correlation_time_s, noise_ratio=noise_ratio
    )
    return mean_power(trace_of(every_second(0, *values), source), 0, Window(0, 12))


def test_noise_that_lasts_averages_out_as_slowly_as_it_forgets_itself():
    quick_w = math.sqrt(SCATTER_W2 / 11)
    for correlation_time_s, independent in ((1.5, 4), (6.0, 1), (60.0, 1)):
        result = in_lasting_noise(correlation_time_s, noise_ratio=0.05)
        expected_w = math.hypot(quick_w, 0.05 * 100 / math.sqrt(independent))
        assert result.estimate_w.standard_error == pytest.approx(expected_w)
        assert result.readings == 12
        assert result.missing_reason is None


def test_slow_noise_averages_out_no_faster_than_the_meter_smooths():
    quick_w2, slow = SCATTER_W2, independent_averages(12, 5.0) - 1
    result = in_lasting_noise(0.5, noise_ratio=0.05, averaging_time_s=5.0)
    assert result.estimate_w.standard_error == pytest.approx(math.sqrt(quick_w2 / slow + 25 / slow))
    assert result.readings == 2


BEATING = tuple(100 + 5 * np.sin(2.4 * np.arange(1, 61)) + np.tile([0.3, -0.4, 0.1], 20))


def test_known_noise_adds_to_a_beat_that_is_too_short_to_show_it():
    beat = np.array(BEATING)
    error_w, degrees = error_of_beating(beat)
    for correlation_time_s, independent in ((2.0, 15), (10.0, 3), (100.0, 1)):
        source = PowerSource("beaten", 0.0, 0.0, correlation_time_s=correlation_time_s, noise_ratio=0.01)
        result = mean_power(trace_of(every_second(0, *BEATING), source), 0, Window(0, 60))
        expected_w = math.hypot(error_w, 0.01 * beat.mean() / math.sqrt(independent))
        assert result == MeanPower(Estimate(beat.mean(), pytest.approx(expected_w)), degrees + 1)


def test_a_power_that_changes_has_half_of_its_change_as_its_error():
    settling = [100.0, 101.0] * 6 + [110.0, 111.0] * 6
    result = mean_power(trace_of(every_second(0, *settling)), 0, Window(0, 24))
    assert result.estimate_w == Estimate(105.5, 5.0)


RISING = tuple(np.arange(-5.5, 6.5))


def test_slow_noise_that_is_more_than_the_meters_rests_on_few_readings():
    values = tuple(100 + value for value in RISING)
    spread_w2, quick_w2 = 13.0, 0.5
    for correlation_time_s, slow, readings in ((1.5, 4, 4), (6.0, 1, 2), (60.0, 1, 2)):
        result = in_lasting_noise(correlation_time_s, noise_ratio=0.01, values=values)
        expected_w = math.sqrt(quick_w2 / 11 + (spread_w2 - quick_w2) / slow)
        assert result.estimate_w == Estimate(100.0, pytest.approx(expected_w))
        assert result.readings == readings


@pytest.mark.parametrize("correlation_time_s", [1.5, 60.0])
def test_a_little_more_slow_noise_is_worth_a_little_less(correlation_time_s):
    found = [
        in_lasting_noise(correlation_time_s, 0.05, tuple(100 + drift_w * rise for rise in RISING))
        for drift_w in np.arange(0.1, 10.0, 0.01)
    ]
    readings = [one.readings for one in found]
    assert (readings[0], readings[-1]) == (12, 4 if correlation_time_s == 1.5 else 2)
    assert set(np.diff(readings)) <= {0, -1, -2}
    assert np.all(np.diff([one.estimate_w.standard_error for one in found]) >= -1e-9)


def test_an_error_is_no_less_than_the_noise_that_a_qualification_saw():
    readings = every_second(0, *[100.0, 100.1] * 6)
    quiet = mean_power(trace_of(readings, PowerSource("quiet", 0.0, 0.0)), 0, Window(0, 12))
    noisy = mean_power(trace_of(readings, PowerSource("noisy", 0.0, 0.0, noise_ratio=0.05)), 0, Window(0, 12))
    assert noisy.estimate_w.value == quiet.estimate_w.value
    assert noisy.estimate_w.standard_error == pytest.approx(0.05 * 100.05 / math.sqrt(12), rel=0.01)
    assert quiet.estimate_w.standard_error < 0.02


def test_a_missing_meter_keeps_its_reason():
    trace = no_trace("no nvidia-smi on the PATH")
    assert mean_power(trace, 0, Window(0, 1)) == MeanPower(None, 0, "no nvidia-smi on the PATH")
    assert device_state(trace, Window(0, 1)) == DeviceState(None, None, None, None)
    assert trace.source == PowerSource("none", 0.0, 0.0, 0.0)
    assert trace.log_name is None
    assert [len(rows) for rows in (trace.epoch_s, trace.power_w, trace.temperature_c)] == [0, 0, 0]


def test_a_reason_outweighs_the_rows_that_are_there():
    trace = replace(trace_of(every_second(*range(10))), missing_reason="nvidia-smi ended")
    assert mean_power(trace, 0, Window(0, 10)) == MeanPower(None, 0, "nvidia-smi ended")


def test_device_state_is_the_mean_of_the_rows_inside_the_window():
    trace = trace_of(
        every_second(1, 1, 1, 1, 1),
        temperature_c=[999, 40, 50, NAN, 999],
        sm_clock_hz=[0, 1e9, 2e9, 3e9, 0],
        power_capped=[0, 1, 1, 0, 0],
        thermal_slowdown=[1, 0, 0, 1, 1],
        memory_temperature_c=[999, NAN, 60, 62, 999],
        busy_ratio=[0, 1, 0.5, 0.9, 0],
    )
    expected = DeviceState(45.0, 2e9, pytest.approx(2 / 3), pytest.approx(1 / 3), 61.0, pytest.approx(0.8))
    assert device_state(trace, Window(1, 3)) == expected


def test_device_state_is_unknown_where_the_log_says_nothing():
    trace = trace_of(every_second(1, 2, 3), power_capped=[0, 0, 0])
    assert device_state(trace, Window(0, 2)) == DeviceState(None, None, 0.0, None)
    assert device_state(trace, Window(5, 9)) == DeviceState(None, None, None, None)


def meter_named(name, missing_reason=None, log_name=None, checks=()):
    source = PowerSource(name, rise_time_s=0.0, averaging_time_s=0.0)
    return replace(
        trace_of(every_second(1, 2), source), missing_reason=missing_reason, log_name=log_name, checks=checks
    )


def names_of(trace):
    return [logged.source.name for logged in (trace, *trace.checks)]


def test_joined_meters_keep_their_order_and_those_that_say_nothing_come_last():
    nested = meter_named("b", log_name="b.csv", checks=(meter_named("c", "silent"), meter_named("d")))
    trace = joined([meter_named("a", "gone"), nested])
    assert names_of(trace) == ["b", "d", "a", "c"]
    assert all(check.checks == () for check in trace.checks)
    assert (trace.log_name, trace.missing_reason) == ("b.csv", None)


def test_a_rank_comes_before_everything_else():
    traces = [meter_named("a"), meter_named("b"), meter_named("c", "gone")]
    trace = joined(traces, lambda logged: "cab".index(logged.source.name))
    assert names_of(trace) == ["c", "a", "b"]
    assert trace.missing_reason == "gone"


def test_where_no_meter_says_anything_all_say_why():
    assert joined([meter_named("a", "gone"), meter_named("b", "hangs")]).missing_reason == "gone; hangs"
