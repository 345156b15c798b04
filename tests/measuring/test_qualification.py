"""The quality of meters, found again on a machine whose meters have declared faults."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from simulated_machine import Device, Load, MeterModel, SimulatedMachine

from opcost.measuring.known_device import GOOD, REFERENCE, STEADY_ONLY, UNCHECKED, MeterQuality
from opcost.measuring.qualification import (
    Timeline,
    idle_power_w,
    qualities,
    ratio_of_means,
    reference_among,
    run_loads,
    run_with_rare_reads,
)
from opcost.measuring.qualification import power_temperature_coefficient_per_kelvin as coefficient_per_kelvin
from opcost.power.ports import PowerSource
from opcost.power.trace import PowerTrace, Window, joined, no_trace, trace_of_power

HEAVY = Load(time_s=0.01, power_w=600.0)


def meter(name: str, repeats: bool = True, **settings: float) -> MeterModel:
    model = MeterModel(**settings)  # type: ignore[arg-type]
    truth = model.power_source
    source = PowerSource(name, truth.rise_time_s, truth.averaging_time_s, truth.update_period_s, repeats)
    return replace(model, source=source)


COUNTER = meter("counter", update_period_s=0.1, averaging_time_s=0.1)
SAMPLES = meter("samples", repeats=False, update_period_s=0.02, averaging_time_s=0.02)
AVERAGE = meter("average", update_period_s=0.1, averaging_time_s=1.0)
DEAD = meter("dead", update_period_s=0.1, scale=0.0)
INSTANT = meter("instant", update_period_s=0.1, averaging_time_s=0.025)


def course_of(*meters: MeterModel, device: Device | None = None, seed: int = 0) -> tuple[Timeline, PowerTrace]:
    first, *others = meters
    machine = SimulatedMachine(HEAVY, device or Device(), first, seed=seed, checks=tuple(others))
    return run_loads(machine, machine, machine, machine.idle)


def found(
    *meters: MeterModel, reference: str | None = "counter", device: Device | None = None
) -> dict[str, MeterQuality]:
    return {quality.meter: quality for quality in qualities(*course_of(*meters, device=device), reference)}


def test_declared_meters_are_found_again() -> None:
    by_name = found(SAMPLES, COUNTER, AVERAGE, INSTANT)
    periods = {name: quality.update_period_s for name, quality in by_name.items()}
    assert periods == pytest.approx({"samples": 0.02, "counter": 0.1, "average": 0.1, "instant": 0.1}, rel=0.01)
    rises = {name: quality.rise_time_s for name, quality in by_name.items()}
    assert rises["samples"] == pytest.approx(0.03, abs=0.02)
    assert rises["counter"] == pytest.approx(0.15, abs=0.06)
    assert rises["average"] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("meters", [(COUNTER, DEAD), (DEAD, COUNTER), (DEAD,)])
def test_a_meter_that_shows_no_power_is_worth_nothing_and_no_reference(meters: tuple[MeterModel, ...]) -> None:
    timeline, trace = course_of(*meters)
    by_name = {quality.meter: quality for quality in qualities(timeline, trace, None)}
    assert not by_name["dead"].is_right_when_steady
    assert by_name["dead"].noise_ratio is None
    assert len(by_name) == len(meters)
    if meters[0] is DEAD:
        assert coefficient_per_kelvin(timeline, trace) is None


def test_averages_are_distinguished_from_meters_that_are_only_late() -> None:
    late = replace(meter("late", repeats=False, update_period_s=0.02, averaging_time_s=0.02), lag_s=0.3)
    half = meter("half", update_period_s=0.1, averaging_time_s=0.5)
    by_name = found(SAMPLES, COUNTER, AVERAGE, INSTANT, half, late)
    averaging_s = {name: quality.averaging_time_s for name, quality in by_name.items()}
    assert averaging_s["average"] == pytest.approx(1.0, rel=0.05)
    assert averaging_s["half"] == pytest.approx(0.5, rel=0.05)
    assert {name for name, time_s in averaging_s.items() if time_s is None} == {"samples", "counter", "instant", "late"}
    assert by_name["average"].lag_s == pytest.approx(0.0, abs=0.06)


def test_what_a_real_card_showed_after_a_step() -> None:
    """An H200 with driver 580: power.draw is an average over one second, the other meters are quick."""
    folder = Path(__file__).parents[1] / "recordings"
    smi = pd.read_csv(folder / "step_580_h200_smi.csv")
    samples = pd.read_csv(folder / "step_580_h200_samples.csv")
    traces = [
        trace_of_power(PowerSource(name, 0.0, 0.0, period_s, repeats), table["epoch_s"].to_numpy(), power.to_numpy())
        for name, table, power, period_s, repeats in (
            ("samples", samples, samples["power_w"], 0.02, False),
            ("average", smi, smi["power_average_w"], 0.1, True),
            ("instant", smi, smi["power_instant_w"], 0.1, True),
        )
    ]
    begin_s, step_s, end_s = samples["epoch_s"].iloc[0], 1795302703.04, samples["epoch_s"].iloc[-1]
    timeline = Timeline(Window(begin_s, step_s), Window(step_s, end_s), (), Window(end_s, end_s))
    by_name = {quality.meter: quality for quality in qualities(timeline, joined(traces), None)}
    assert by_name["average"].averaging_time_s == pytest.approx(1.0, rel=0.03)
    assert by_name["samples"].averaging_time_s is by_name["instant"].averaging_time_s is None
    assert by_name["samples"].rise_time_s == pytest.approx(0.06, abs=0.02)


def test_a_load_whose_own_power_rises_slowly_is_no_average() -> None:
    """Three samples of an H100 are between the two powers; successive samples of loads are independent."""
    samples = pd.read_csv(Path(__file__).parents[1] / "recordings" / "step_580_h100_samples.csv")
    epoch_s = samples["epoch_s"].to_numpy()
    trace = recorded("samples", epoch_s, samples["power_w"].to_numpy())
    step_s, end_s = 1795468190.545, epoch_s[-1]
    timeline = Timeline(Window(epoch_s[0], step_s), Window(step_s, end_s), (), Window(end_s, end_s))
    (quality,) = qualities(timeline, trace, None)
    assert quality.averaging_time_s is quality.lag_s is None
    assert quality.rise_time_s == pytest.approx(0.06, abs=0.02)


def test_verdicts_distinguish_part_time_meters_from_whole_ones() -> None:
    by_name = found(SAMPLES, COUNTER, AVERAGE, INSTANT)
    verdicts = {name: quality.verdict for name, quality in by_name.items()}
    assert verdicts == {"samples": GOOD, "counter": REFERENCE, "average": GOOD, "instant": STEADY_ONLY}
    worst = by_name["instant"].pulsed_deviation_ratio
    assert worst is not None
    assert abs(worst) > 0.2


@pytest.mark.parametrize("scale", [0.9, 0.975, 1.03, 2.0])
def test_a_meter_that_is_wrong_by_more_than_two_percent_is_never_good(scale: float) -> None:
    wrong = found(replace(SAMPLES, scale=scale), COUNTER)["samples"]
    assert wrong.steady_deviation_ratio == pytest.approx(scale - 1, abs=0.003)
    assert wrong.verdict == f"{wrong.steady_deviation_ratio:+.1%} off under a steady load"


def recorded(name: str, epoch_s: np.ndarray, power_w: np.ndarray, repeats: bool = False) -> PowerTrace:
    """Return a log of a meter without delays."""
    return trace_of_power(PowerSource(name, 0.0, 0.0, 0.1, repeats), epoch_s, power_w)


COURSE = Timeline(Window(0.0, 2.0), Window(2.0, 14.0), (Window(14.05, 17.0),), Window(17.0, 19.0))


@pytest.mark.parametrize(("ratio", "verdict"), [(0.7, STEADY_ONLY), (0.96, GOOD), (1.04, GOOD), (1.3, STEADY_ONLY)])
def test_a_good_meter_is_near_the_reference_under_pulses_to_either_side(ratio: float, verdict: str) -> None:
    epoch_s = np.arange(190) * 0.1
    power_w = 600.0 + epoch_s
    right, other = (recorded(name, epoch_s, power_w) for name in ("right", "other"))
    other = replace(other, power_w=np.where(epoch_s > COURSE.step.end_s, ratio * power_w, power_w))
    quality = qualities(COURSE, joined([other, right]), "right")[0]
    assert quality.pulsed_deviation_ratio == pytest.approx(ratio - 1)
    assert (quality.meter, quality.verdict) == ("other", verdict)


def test_the_update_period_is_the_time_from_one_value_to_the_next_where_half_of_them_are_repeated() -> None:
    epoch_s = np.arange(140) * 0.1
    power_w = 600.0 + np.array([0.0, 1.0, 1.0])[np.arange(140) % 3]
    (quality,) = qualities(COURSE, recorded("ticking", epoch_s, power_w, repeats=True), None)
    assert quality.update_period_s == pytest.approx(0.1)


def test_noise_is_found_with_its_memory() -> None:
    white = found(SAMPLES, COUNTER, device=Device(white_noise_w=12.0))["samples"]
    # A sample averages four steps of the noise.
    assert white.noise_ratio == pytest.approx(6.0 / 600, rel=0.15)
    assert white.correlation_time_s == pytest.approx(0.01, abs=0.01)
    slow = found(SAMPLES, COUNTER, device=Device(white_noise_w=1.0, correlated_noise_w=6.0, correlation_time_s=0.1))
    assert slow["samples"].correlation_time_s == pytest.approx(0.1, rel=0.5)


@pytest.mark.parametrize("cold_ratio", [0.9, 0.95, 0.99, 1.0])
def test_the_power_temperature_coefficient_is_found(cold_ratio: float) -> None:
    """The declared device loses (1 - cold ratio) of its power over its 20 K: so much per kelvin, of the mean power."""
    device = Device(cold_power_ratio=cold_ratio, warming_time_s=3.0, white_noise_w=2.0)
    timeline, trace = course_of(SAMPLES, COUNTER, device=device)
    slope = coefficient_per_kelvin(timeline, trace)
    assert slope is not None
    kelvin = device.busy_temperature_c - device.idle_temperature_c
    assert slope.value == pytest.approx((1 - cold_ratio) / kelvin, abs=0.0003)


def test_each_degree_counts_for_a_slope_as_much_as_it_has_readings() -> None:
    """Worked out by hand: 10, 20 and 30 readings at 40, 41 and 42 degrees, of 100, 102 and 101 W."""
    readings = [10, 20, 30]
    epoch_s = COURSE.step.begin_s + 0.5 + 0.1 * np.arange(60)
    trace = recorded("meter", epoch_s, np.repeat([100.0, 102.0, 101.0], readings))
    slope = coefficient_per_kelvin(COURSE, replace(trace, temperature_c=np.repeat([40.0, 41.0, 42.0], readings)))
    mean_w = 6070 / 60
    assert slope is not None
    assert slope.value == pytest.approx(0.2 / mean_w)
    # Residuals of -0.9, 0.9 and -0.3 W, and a step of the power of 0.5 % within 2 K.
    assert slope.standard_error == pytest.approx(math.hypot(0.9 / mean_w, 0.005 / 2))


def test_a_power_temperature_coefficient_needs_a_temperature_that_changes() -> None:
    still = Device(idle_temperature_c=50.0, busy_temperature_c=50.5)
    assert coefficient_per_kelvin(*course_of(SAMPLES, device=still)) is None


def test_a_power_at_its_cap_has_no_slope() -> None:
    capped = Device(cold_power_ratio=0.99, warming_time_s=3.0, white_noise_w=2.0, power_limit_w=595.0)
    assert coefficient_per_kelvin(*course_of(SAMPLES, COUNTER, device=capped)) is None


def test_the_error_of_a_slope_is_honest() -> None:
    device = Device(cold_power_ratio=0.95, warming_time_s=3.0, white_noise_w=5.0)
    slopes = [coefficient_per_kelvin(*course_of(SAMPLES, device=device, seed=seed)) for seed in range(12)]
    deviations = [(slope.value - 0.0025) / slope.standard_error for slope in slopes if slope is not None]
    assert len(deviations) == 12
    assert math.sqrt(sum(z**2 for z in deviations) / 12) < 2.5


def test_a_step_of_the_power_within_a_few_degrees_is_in_the_error_of_a_slope() -> None:
    """An H200 drew 0.45 % less from one moment to the next, within 4 K: its slope seemed to be -0.02 % per kelvin."""
    device = Device(cold_power_ratio=0.99, idle_temperature_c=45.0, busy_temperature_c=49.0, warming_time_s=2.0)
    timeline, trace = course_of(SAMPLES, device=device)
    is_late = trace.epoch_s > timeline.step.begin_s + 5.0
    slope = coefficient_per_kelvin(
        timeline, replace(trace, power_w=np.where(is_late, 0.9955 * trace.power_w, trace.power_w))
    )
    assert slope is not None
    assert abs(slope.value - 0.0025) > 0.0005
    assert abs(slope.value - 0.0025) < 2.5 * slope.standard_error


def test_the_first_second_of_a_step_bends_a_slope_but_little() -> None:
    """On an H200 power is up to 1.5 % low there, at the temperatures that the fewest readings have."""
    device = Device(cold_power_ratio=0.95, warming_time_s=1.5, white_noise_w=2.0)
    timeline, trace = course_of(SAMPLES, device=device)
    is_early = trace.epoch_s < timeline.step.begin_s + 1.0
    slope = coefficient_per_kelvin(
        timeline, replace(trace, power_w=np.where(is_early, 0.99 * trace.power_w, trace.power_w))
    )
    assert slope is not None
    assert 0.0025 < slope.value < 1.25 * 0.0025


def test_a_meter_that_is_not_there_is_left_out() -> None:
    assert set(found(SAMPLES, COUNTER, MeterModel(missing_reason="none"))) == {"samples", "counter"}


def test_without_the_reference_the_first_meter_is_it() -> None:
    by_name = found(SAMPLES, replace(INSTANT, scale=0.5), reference=None)
    assert by_name["samples"].steady_deviation_ratio == 0.0
    assert by_name["samples"].verdict == UNCHECKED
    assert by_name["samples"].is_right_when_steady
    assert by_name["instant"].verdict not in (GOOD, REFERENCE)


@pytest.mark.parametrize(
    ("scale", "reference"),
    [(0.8, "samples"), (0.97, "samples"), (0.99, "counter"), (1.01, "counter"), (1.2, "samples")],
)
def test_a_reference_that_two_others_agree_is_wrong_is_none(scale: float, reference: str) -> None:
    timeline, trace = course_of(SAMPLES, INSTANT, replace(COUNTER, scale=scale))
    assert reference_among(timeline, trace, "counter") == reference
    by_name = {quality.meter: quality for quality in qualities(timeline, trace, reference)}
    assert by_name[reference].verdict == REFERENCE
    assert by_name["counter"].is_right_when_steady == (reference == "counter")
    assert by_name["samples"].is_right_when_steady


def test_a_reference_stays_where_the_others_do_not_agree_or_there_is_one_other() -> None:
    apart = course_of(replace(SAMPLES, scale=1.1), replace(INSTANT, scale=0.9), COUNTER)
    assert reference_among(*apart, "counter") == "counter"
    assert reference_among(*course_of(replace(SAMPLES, scale=1.1), COUNTER), "counter") == "counter"
    assert reference_among(*course_of(SAMPLES, INSTANT), "counter") is None


@pytest.mark.parametrize("scale", [0.97, 1.0, 1.02])
def test_a_meter_that_reads_rarely_is_compared_with_another(scale: float) -> None:
    once_a_second = meter("counter", update_period_s=1.0, averaging_time_s=1.0, row_period_s=1.0, scale=scale)
    machine = SimulatedMachine(HEAVY, Device(white_noise_w=2.0), SAMPLES, checks=(once_a_second,))
    load, trace = run_with_rare_reads(machine, machine, machine)
    assert ratio_of_means(trace, load, "counter", "samples") == pytest.approx(scale, abs=0.003)
    assert not machine.is_logging


def test_meters_that_show_nothing_have_no_ratio() -> None:
    timeline, trace = course_of(SAMPLES)
    assert ratio_of_means(trace, timeline.step, "counter", "samples") is None
    late = replace(meter("counter"), source=PowerSource("counter", 99.0, 1.0))
    timeline, trace = course_of(SAMPLES, late)
    assert ratio_of_means(trace, timeline.step, "counter", "samples") is None


def test_idle_power_is_that_of_the_pause_and_of_the_rest() -> None:
    timeline, trace = course_of(SAMPLES, device=Device(idle_power_w=80.0, white_noise_w=1.0))
    assert idle_power_w(trace, timeline.pause) == pytest.approx(80.0, rel=0.01)
    assert idle_power_w(trace, timeline.rest) == pytest.approx(80.0, rel=0.01)
    assert idle_power_w(no_trace("none"), timeline.rest) is None


def test_idle_power_is_that_of_a_device_that_has_come_to_rest() -> None:
    epoch_s = 17.0 + 0.1 * np.arange(20)
    trace = recorded("meter", epoch_s, np.where(epoch_s < 17.45, 300.0, 80.0))
    assert idle_power_w(trace, COURSE.rest) == pytest.approx(80.0)


def test_a_reading_is_compared_with_all_of_the_time_that_it_averages() -> None:
    """Power rises by 50 W a second: the mean over the second before a reading is 25 W lower than at it."""
    epoch_s = 0.02 * np.arange(250)
    quick = recorded("quick", epoch_s, 100.0 + 50.0 * epoch_s)
    ends_s = np.array([1.5, 2.5, 3.5, 4.5])
    source = PowerSource("slow", 1.0, 1.0, 1.0, repeats_values=False)
    slow = trace_of_power(source, ends_s, 100.0 + 50.0 * (ends_s - 0.5))
    ratio = ratio_of_means(joined([slow, quick]), Window(0.0, 5.0), "slow", "quick")
    assert ratio == pytest.approx(1.0, abs=0.001)


def test_the_log_is_that_of_the_course() -> None:
    machine = SimulatedMachine(HEAVY, meter=SAMPLES)
    machine.idle(60.0)
    timeline, trace = run_loads(machine, machine, machine, machine.idle)
    assert timeline.pause.begin_s - 1.0 < trace.epoch_s[0] < timeline.pause.begin_s
    assert timeline.rest.end_s < trace.epoch_s[-1] < timeline.rest.end_s + 1.0


def test_the_meter_is_stopped_when_the_load_fails() -> None:
    machine = SimulatedMachine(HEAVY)

    def fail(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_loads(machine, machine, machine, fail)
    assert not machine.is_logging


def test_wrong_meters_that_read_too_little_and_too_much_do_not_outvote_the_preferred_one() -> None:
    epoch_s = np.arange(190) * 0.1
    readings = {"low": 480.0, "high": 720.0, "right": 600.0}
    traces = [recorded(name, epoch_s, power_w + epoch_s) for name, power_w in readings.items()]
    assert reference_among(COURSE, joined(traces), "right") == "right"
