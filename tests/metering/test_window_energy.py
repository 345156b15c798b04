"""The energy of windows at any moment, compared with the declared truth of simulated GPUs."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seeds import Seeds
from simulated_energy import SimulatedGpu, pulsed_gpu

from opcost.estimates import NORMAL_QUANTILE
from opcost.metering.window_energy import (
    NO_PIECES,
    Readings,
    WindowEnergy,
    pieces_of_samples,
    pieces_of_ticks,
    window_energy,
)
from opcost.power.trace import Window

SEEDS = Seeds(300)
LENGTHS_S = (0.2, 0.5, 1.0, 3.0)


def window_in(gpu: SimulatedGpu, random: np.random.Generator, length_s: float) -> Window:
    begin_s = gpu.begin_s + random.uniform(1.2, gpu.end_s - gpu.begin_s - length_s - 0.4)
    return Window(begin_s, begin_s + length_s)


def on_off_gpu(seed: int) -> tuple[SimulatedGpu, np.random.Generator]:
    """A GPU under a load that is on and off for 20 ms to 0.6 s each."""
    random = np.random.default_rng(seed + 1000)
    return pulsed_gpu(seed, *np.exp(random.uniform(np.log(0.02), np.log(0.6), 2))), random


def is_within(energy: WindowEnergy, true_j: float) -> bool:
    assert energy.energy_j is not None, energy.missing_reason
    return abs(energy.energy_j.value - true_j) <= NORMAL_QUANTILE * energy.energy_j.standard_error


@pytest.fixture(scope="module")
def of_many_boards() -> list[tuple[float, WindowEnergy, float]]:
    """Lengths, results and true energies of windows at random phases of on-off loads."""
    found = []
    for seed in SEEDS:
        gpu, random = on_off_gpu(seed)
        for length_s in LENGTHS_S:
            window = window_in(gpu, random, length_s)
            found.append((length_s, window_energy(gpu.readings(window), window), gpu.true_energy_j(window)))
    return found


def test_the_truth_is_in_95_percent_of_the_intervals(of_many_boards):
    known = [(energy, true_j) for _, energy, true_j in of_many_boards if energy.energy_j is not None]
    assert len(known) >= 0.98 * len(of_many_boards)
    assert SEEDS.at_least(0.93) <= np.mean([is_within(*each) for each in known]) <= SEEDS.at_most(0.97)


@pytest.mark.parametrize(("length_s", "largest_ratio"), [(0.2, 0.01), (0.5, 0.01), (1.0, 0.005), (3.0, 0.005)])
def test_sums_of_windows_have_no_bias(of_many_boards, length_s, largest_ratio):
    known = [(e.energy_j.value, true_j) for s, e, true_j in of_many_boards if s == length_s and e.energy_j is not None]
    metered_j, true_j = np.sum(known, axis=0)
    assert metered_j == pytest.approx(true_j, rel=largest_ratio)


@pytest.mark.parametrize("seed", range(5))
def test_windows_side_by_side_sum_to_the_window_around_them(seed):
    gpu, _ = on_off_gpu(seed)
    around = Window(gpu.begin_s + 1.5, gpu.begin_s + 3.5)
    readings = gpu.readings(around)
    moments_s = np.linspace(around.begin_s, around.end_s, 6)
    parts = [window_energy(readings, Window(a, b)) for a, b in itertools.pairwise(moments_s)]
    whole = window_energy(readings, around)
    # Each part is scaled by a span of its own.
    assert sum(part.energy_j.value for part in parts) == pytest.approx(whole.energy_j.value, rel=0.03)


@pytest.mark.parametrize(("on_s", "off_s"), [(1.0, 0.0), (0.3, 0.29)])
def test_a_counter_alone_places_energy_as_far_as_its_ticks_do(on_s, off_s):
    within, errors = [], []
    for seed in range(60):
        gpu = pulsed_gpu(seed, on_s, off_s)
        window = Window(gpu.begin_s + 1.4, gpu.begin_s + 4.9)
        energy = window_energy(replace(gpu.readings(window), samples=NO_PIECES), window)
        within.append(is_within(energy, gpu.true_energy_j(window)))
        errors.append(energy.energy_j.standard_error / energy.energy_j.value)
        assert energy.meter == "counter"
    assert np.mean(within) >= 0.93
    assert np.median(errors) < 0.1


def test_without_a_counter_pulses_are_uncertain_and_steady_loads_are_not():
    errors = []
    for on_s, off_s in ((1.0, 0.0), (0.05, 0.07)):
        gpu = pulsed_gpu(1, on_s, off_s)
        window = Window(gpu.begin_s + 1.5, gpu.begin_s + 3.5)
        energy = window_energy(replace(gpu.readings(window), ticks=()), window)
        assert energy.meter == "samples"
        errors.append(energy.energy_j.standard_error / energy.energy_j.value)
    assert errors[0] < 0.01
    assert errors[1] > 0.05


def test_a_counter_that_stands_still_scales_nothing():
    gpu = pulsed_gpu(1, 1.0, 0.0)
    window = Window(gpu.begin_s + 1.5, gpu.begin_s + 3.5)
    readings = gpu.readings(window)
    still = replace(readings, ticks=[(epoch_s, 7.0) for epoch_s, _ in readings.ticks])
    assert window_energy(still, window).meter == "samples"
    alone = window_energy(replace(still, samples=NO_PIECES), window)
    assert (alone.energy_j, alone.missing_reason) == (None, "counter stands still")


@pytest.mark.parametrize(
    ("begin_s", "length_s", "coverage_ratio", "reason"),
    [
        *((2, length_s, 0.0, "is shorter than samples resolves, 40 ms") for length_s in (0.0, 0.001, 0.03)),
        (-1, 2, 0.5, "samples has readings for 51% of the window only"),
    ],
)
def test_what_cannot_be_resolved_has_a_reason_and_no_figure(begin_s, length_s, coverage_ratio, reason):
    gpu = pulsed_gpu(3, 0.3, 0.3)
    window = Window(gpu.begin_s + begin_s, gpu.begin_s + begin_s + length_s)
    energy = window_energy(gpu.readings(window), window)
    assert energy.energy_j is None
    assert energy.coverage_ratio == pytest.approx(coverage_ratio, abs=0.02)
    assert reason in energy.missing_reason


def test_samples_that_were_lost_are_not_made_up():
    gpu = pulsed_gpu(3, 0.3, 0.3)
    window = Window(gpu.begin_s + 2, gpu.begin_s + 3)
    readings = gpu.readings(window)
    middle = (readings.samples.end_s > window.begin_s + 0.3) & (readings.samples.end_s < window.begin_s + 0.6)
    kept = replace(
        readings.samples,
        begin_s=readings.samples.begin_s[~middle],
        end_s=readings.samples.end_s[~middle],
        power_w=readings.samples.power_w[~middle],
    )
    energy = window_energy(replace(readings, samples=kept), window)
    assert energy.energy_j is None
    assert energy.coverage_ratio == pytest.approx(0.7, abs=0.05)


def test_a_device_without_a_meter_keeps_its_reason():
    energy = window_energy(Readings(missing_reason="MIG is on"), Window(0.0, 1.0))
    assert (energy.energy_j, energy.coverage_ratio, energy.missing_reason) == (None, 0.0, "MIG is on")


def steady_readings(samples_s: np.ndarray, ticks_s: Sequence[float] = (), tick_error_s: float = 0.0) -> Readings:
    """Samples of 100 W, each the mean of 20 ms, and a counter of 110 W; they show a change at once."""
    samples = pieces_of_samples(samples_s, np.full(len(samples_s), 100.0), 0.02)
    ticks = [(moment_s, 110.0 * moment_s) for moment_s in ticks_s]
    return Readings(samples, ticks, "samples", "counter", 0.04, tick_error_s, 0.0)


SAMPLES_S = np.arange(100.02, 110.0, 0.02)


def test_a_part_without_readings_may_have_drawn_nothing_or_twice_as_much():
    seen, whole = (window_energy(steady_readings(SAMPLES_S), Window(108.0, end_s)) for end_s in (109.98, 110.02))
    assert whole.energy_j.value == pytest.approx(202)
    assert whole.coverage_ratio == pytest.approx(0.99, abs=0.002)
    extra_j = 100 * 2.02 * (1 - whole.coverage_ratio)
    assert whole.energy_j.standard_error == pytest.approx(np.hypot(extra_j, seen.energy_j.standard_error), rel=0.05)


def test_a_short_window_is_scaled_over_a_second_of_ticks():
    error_s = 0.0013
    energy = window_energy(steady_readings(SAMPLES_S, np.arange(100.0, 109.0, 0.1), error_s), Window(105.03, 105.17))
    assert energy.energy_j.value == pytest.approx(110 * 0.14)
    assert energy.energy_j.standard_error == pytest.approx(np.sqrt(2) * error_s / 1.1 * 110 * 0.14, rel=0.15)


@pytest.mark.parametrize(
    ("last_s", "lost_s", "meter"),
    [
        (108.0, (), "samples, scaled by counter"),
        (104.6, (), "samples, scaled by counter"),
        (104.4, (), "samples"),
        (108.0, (103.2, 103.6), "samples"),
        (108.0, (102.2, 102.6), "samples, scaled by counter"),
    ],
    ids=["ticks around it", "ticks in more than half", "ticks in less than half", "lost in the span", "lost before"],
)
def test_a_span_that_says_little_of_its_window_scales_nothing(last_s, lost_s, meter):
    is_lost = (lost_s[0] < SAMPLES_S) & (lost_s[1] > SAMPLES_S) if lost_s else np.zeros(len(SAMPLES_S), dtype=bool)
    readings = steady_readings(SAMPLES_S[~is_lost], [100.0, 101.0, 102.0, 103.0, last_s])
    energy = window_energy(readings, Window(104.0, 105.0))
    assert (energy.meter, energy.energy_j.value) == (meter, pytest.approx(100 if meter == "samples" else 110))


# Pieces of constant power: what they cover, and the energy of their parts


POWERS_W = st.lists(st.floats(1.0, 700.0), min_size=2, max_size=40)


def samples(powers_w: list[float]):
    return pieces_of_samples(10.0 + 0.02 * np.arange(len(powers_w)), np.array(powers_w), 0.02)


@given(POWERS_W, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_energies_are_between_the_bounds_and_grow_with_the_window(powers_w, begin, middle, end):
    pieces = samples(powers_w)
    moments_s = np.sort(9.98 + 0.02 * len(powers_w) * np.array([begin, middle, end]))
    part, whole = (pieces.energy_j(Window(moments_s[0], until_s)) for until_s in moments_s[1:])
    length_s = moments_s[2] - moments_s[0]
    assert min(powers_w) * length_s * 0.999 - 1e-9 <= whole.value <= max(powers_w) * length_s * 1.001 + 1e-9
    assert part.value <= whole.value + 1e-6
    assert whole.standard_error >= 0


@given(POWERS_W)
def test_whole_pieces_have_no_error(powers_w):
    energy = samples(powers_w).energy_j(Window(9.98, 9.98 + 0.02 * len(powers_w)))
    assert energy.value == pytest.approx(0.02 * sum(powers_w))
    assert energy.standard_error == pytest.approx(0.0, abs=1e-3)


def test_a_step_within_a_piece_is_placed_by_its_neighbours():
    # Half of the third piece is high, and high powers follow: its second half.
    pieces = samples([100.0, 100.0, 300.0, 500.0, 500.0])
    first, second = (pieces.energy_j(Window(10.02 + 0.01 * half, 10.03 + 0.01 * half)) for half in (0, 1))
    assert first.value == pytest.approx(1.0)
    assert second.value == pytest.approx(5.0)


def test_a_short_pulse_may_be_anywhere_in_its_piece():
    pieces = samples([100.0, 100.0, 300.0, 100.0, 100.0, 100.0, 100.0, 500.0])
    energy = pieces.energy_j(Window(10.0, 10.03))
    assert energy.value == pytest.approx(0.02 * 100 + 0.01 * 300)
    assert energy.standard_error == pytest.approx(0.01 * 200, rel=0.01)


def test_after_a_gap_a_sample_holds_for_its_averaging_time():
    pieces = pieces_of_samples(np.array([1.0, 1.02, 2.0, 2.02]), np.full(4, 100.0), 0.02)
    assert pieces.covered_s(Window(0.0, 3.0)) == pytest.approx(0.08)


def test_samples_that_go_back_in_time_or_have_no_power_are_left_out():
    pieces = pieces_of_samples(np.array([1.0, 1.02, 0.5, 1.04, 1.06]), np.array([1.0, 2.0, 3.0, np.nan, 4.0]), 0.02)
    assert pieces.power_w.tolist() == [1.0, 2.0, 4.0]


def test_ticks_become_pieces_of_mean_power():
    pieces = pieces_of_ticks([(1.0, 50.0), (2.0, 150.0), (4.0, 250.0)])
    assert pieces.power_w.tolist() == [100.0, 50.0]
    assert pieces_of_ticks([(1.0, 50.0)]).covered_s(Window(0.0, 2.0)) == 0
