import math
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.estimates import (
    BATCHES,
    Estimate,
    combined,
    error_of_beating,
    half_width_ratio,
    independent_averages,
    is_within,
    mean_of_chunks,
    mean_of_readings,
    mean_over_placements,
    mean_without_outliers,
    median,
    student_quantile,
    sum_of_independent,
    weighted_mean,
    without_placement_effects,
)

values = st.floats(-1e6, 1e6)
positive = st.floats(1e-3, 1e6)
estimates = st.builds(Estimate, positive, positive)
reading_lists = st.lists(positive, min_size=2, max_size=60).map(np.array)


def wandering(seed, count, memory):
    """Return a series with mean 0 in which each value keeps ``memory`` of the one before."""
    shocks = np.random.default_rng(seed).standard_normal(count)
    shocks[1:] *= math.sqrt(1 - memory**2)
    return np.array(list(accumulate(shocks, lambda value, shock: memory * value + shock)))


def coverage(estimate_of_seed, truth, seeds=400, quantile=1.96):
    """Return the share of seeds whose interval holds the truth."""
    results = [estimate_of_seed(seed) for seed in range(seeds)]
    return np.mean([abs(result.value - truth) <= quantile * result.standard_error for result in results])


def approximately(estimate):
    return Estimate(pytest.approx(estimate.value), pytest.approx(estimate.standard_error, rel=1e-9, abs=1e-12))


def test_a_weighted_mean_is_nearer_to_what_is_known_better():
    assert weighted_mean([Estimate(1.0, 0.1), Estimate(2.0, 0.1)]) == approximately(Estimate(1.5, 0.1 / math.sqrt(2)))
    assert weighted_mean([Estimate(1.0, 0.1), Estimate(2.0, 0.2)]).value == pytest.approx(1.2)


@given(st.lists(estimates, min_size=1, max_size=5))
def test_a_weighted_mean_lies_among_the_values_and_is_known_at_least_as_well_as_the_best(several):
    mean = weighted_mean(several)
    among = [estimate.value for estimate in several]
    assert min(among) * (1 - 1e-9) <= mean.value <= max(among) * (1 + 1e-9)
    assert mean.standard_error <= min(estimate.standard_error for estimate in several) * (1 + 1e-9)


def test_what_was_measured_several_times_is_known_as_well_as_it_repeats():
    assert combined([Estimate(1.0, 0.0)]) == Estimate(1.0, 0.0)
    alike, unlike = ([Estimate(1.0, 0.1), Estimate(1.0 + apart, 0.1)] for apart in (0.1, 1.0))
    assert combined(alike) == approximately(weighted_mean(alike))
    # Half of what two differ by, which is ten times their error.
    assert combined(unlike) == approximately(Estimate(1.5, 0.5))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # All calls share one mean.
        (Estimate(2.0, 0.1).times(9), Estimate(18.0, pytest.approx(0.9))),
        (Estimate(2.0, 0.1).times(-1), Estimate(-2.0, 0.1)),
        # Relative errors of products and ratios add in quadrature, and are positive whatever the signs.
        (Estimate(10.0, 1.0).multiplied_by(Estimate(4.0, 0.3)), Estimate(40.0, 5.0)),
        (Estimate(20.0, 4.0).divided_by(Estimate(5.0, 0.75)), Estimate(4.0, 1.0)),
        (Estimate(20.0, 3.0).divided_by(Estimate(-5.0, 1.0)), Estimate(-4.0, 1.0)),
        (Estimate(-20.0, 3.0).divided_by(Estimate(5.0, 1.0)), Estimate(-4.0, 1.0)),
        (sum_of_independent([Estimate(1.0, 3.0), Estimate(2.0, 4.0), Estimate(4.0, 12.0)]), Estimate(7.0, 13.0)),
        (sum_of_independent([]), Estimate(0.0, 0.0)),
    ],
)
def test_errors_propagate_through_sums_products_and_ratios(found, expected):
    assert found == expected


def test_ratio_to_zero_is_refused():
    with pytest.raises(ZeroDivisionError):
        Estimate(1.0, 0.1).divided_by(Estimate(0.0, 0.1))


@given(estimates, estimates)
def test_dividing_undoes_multiplying_but_for_the_error(one, other):
    back = one.multiplied_by(other).divided_by(other)
    assert back.value == pytest.approx(one.value)
    assert back.standard_error >= one.standard_error * (1 - 1e-9)


@given(st.lists(estimates, max_size=10), positive, st.randoms(use_true_random=False))
def test_a_sum_scales_with_its_terms_and_does_not_depend_on_their_order(terms, factor, random):
    scaled = sum_of_independent(term.times(factor) for term in random.sample(terms, len(terms)))
    assert scaled == approximately(sum_of_independent(terms).times(factor))


@given(estimates, st.integers(2, 1000))
def test_n_calls_that_share_a_mean_are_less_certain_than_n_independent_ones(term, count):
    shared, independent = term.times(count), sum_of_independent([term] * count)
    assert shared.value == pytest.approx(independent.value)
    assert shared.standard_error == pytest.approx(math.sqrt(count) * independent.standard_error)


@pytest.mark.parametrize(
    # The variance of the four is 2.5; of one independent reading more than one, its whole is left.
    ("independent", "error"),
    [(4, math.sqrt(2.5 / 3)), (2, math.sqrt(2.5)), (1.5, math.sqrt(5.0))],
)
def test_the_error_of_readings_is_their_spread_over_the_root_of_the_independent_ones(independent, error):
    assert mean_of_readings(np.array([9.0, 11.0, 8.0, 12.0]), independent) == Estimate(10.0, pytest.approx(error))


def test_error_of_a_power_that_fluctuates_comes_from_batches():
    readings = np.repeat([90.0, 110.0, 100.0] * 5, 20)
    batch_means = np.array([90.0, 110.0, 100.0] * 5)
    result = mean_of_readings(readings, len(readings))
    assert result == Estimate(100.0, pytest.approx(np.std(batch_means, ddof=1) / math.sqrt(15)))


@pytest.mark.parametrize(("count", "independent"), [(0, 0), (1, 1), (5, 1), (5, 0), (5, -1), (5, 5.5), (5, 6)])
def test_impossible_numbers_of_readings_are_refused(count, independent):
    with pytest.raises(ValueError, match=f"^{count} readings, {independent} of them independent$"):
        mean_of_readings(np.ones(count), independent)


@given(reading_lists, positive, values)
def test_mean_of_readings_follows_scale_and_offset(readings, factor, offset):
    plain = mean_of_readings(readings, len(readings))
    moved = mean_of_readings(factor * readings + offset, len(readings))
    tolerance = 1e-9 * (factor * readings.max() + abs(offset))
    assert moved.value == pytest.approx(factor * plain.value + offset, abs=tolerance)
    assert moved.standard_error == pytest.approx(factor * plain.standard_error, rel=1e-6, abs=tolerance)


@given(reading_lists)
def test_mean_of_readings_lies_among_them(readings):
    value = mean_of_readings(readings, len(readings)).value
    assert readings.min() * (1 - 1e-12) <= value <= readings.max() * (1 + 1e-12)
    assert mean_of_readings(np.full(20, 7.0), 20) == Estimate(7.0, 0.0)


@pytest.mark.parametrize(("count", "quantile"), [(5, 2.776), (10, 2.262), (30, 2.045), (300, 1.968)])
def test_interval_of_white_readings_holds_the_truth(count, quantile):
    """With Student's quantile for so many readings; from 16 on the larger of two errors widens it a little."""

    def estimate(seed):
        return mean_of_readings(100 + wandering(seed, count, memory=0), count)

    assert 0.93 <= coverage(estimate, 100, quantile=quantile) <= 0.98


def test_interval_of_wandering_readings_holds_the_truth_if_the_window_is_long():
    """A known limit: what does not change within a window cannot be seen in it."""

    def estimate(seed, count, memory):
        return mean_of_readings(100 + wandering(seed, count, memory), count)

    # The spread alone would hold it for less than half of the seeds.
    assert 0.88 <= coverage(lambda seed: estimate(seed, 300, 0.8), 100) <= 0.97
    assert coverage(lambda seed: estimate(seed, 30, 0.99), 100) < 0.5


@pytest.mark.parametrize("duration", [0.1, 0.5, 1.0, 2.0, 30.0])
def test_independent_averages_predict_the_error_of_a_moving_average(duration):
    """Moving averages over 100 steps of white noise, one at each step of the window."""
    steps = round(100 * duration)
    noise = np.random.default_rng(1).standard_normal((2000, steps + 100))
    sums = np.cumsum(noise, axis=1)
    averages = (sums[:, 100:] - sums[:, :-100]) / 100
    predicted = (1 / 100) / independent_averages(duration, 1.0)
    assert averages.mean(axis=1).var() == pytest.approx(predicted, rel=0.12)


@pytest.mark.parametrize("duration", [0.5, 1.0, 3.0])
def test_error_of_a_moving_average_is_honest_on_average(duration):
    """In windows of few averaging times the readings are so alike that their spread alone says too little."""
    steps = round(100 * duration)
    noise = np.random.default_rng(2).standard_normal((1000, steps + 100))
    sums = np.cumsum(noise, axis=1)
    averages = (sums[:, 100:] - sums[:, :-100])[:, ::5]
    results = [mean_of_readings(row, independent_averages(duration, 1.0)) for row in averages]
    expected_variance = np.mean([result.standard_error**2 for result in results])
    assert expected_variance == pytest.approx(np.var([result.value for result in results]), rel=0.2)


def test_mean_of_chunks_weighs_iterations_equally():
    result = mean_of_chunks(np.array([1.0, 6.0]), np.array([1, 3]))
    # Batch means 1 and 2, mean 7/4, weights 1/4 and 3/4.
    assert result == Estimate(1.75, pytest.approx(math.sqrt((1 / 16 * 9 / 16 + 9 / 16 * 1 / 16) * 2)))


def test_many_chunks_are_taken_together_in_batches():
    batch_means = np.array([1.0, 2.0, 3.0] * (BATCHES // 3))
    durations_s = np.repeat(batch_means, 4) + np.tile([-0.5, 0.5, 0.25, -0.25], BATCHES)
    result = mean_of_chunks(durations_s, np.ones(4 * BATCHES, dtype=np.int64))
    assert result == approximately(Estimate(2.0, np.std(batch_means, ddof=1) / math.sqrt(BATCHES)))


@pytest.mark.parametrize("chunks", [10, 15, 20, 150, 428])
def test_error_of_chunks_in_places_is_that_of_the_places_however_often_they_are_seen(chunks):
    """Ten placements are drawn, and are visited in turn: the mean of all is known to a tenth's root of their spread."""
    random = np.random.default_rng(0)
    deviations = []
    for _ in range(400):
        times_s = np.resize(1 + 0.01 * random.standard_normal(10), chunks)
        time_s = mean_over_placements(times_s, np.full(chunks, 1), 10)
        deviations.append((time_s.value - 1) / time_s.standard_error)
    within = np.mean(np.abs(deviations) < student_quantile(9))
    assert 0.92 < within < 0.98


def test_fewer_chunks_than_places_and_one_place_are_plain_chunks():
    durations_s, iterations = np.array([1.0, 1.1, 0.9, 1.3]), np.array([10, 10, 10, 12])
    plain = mean_of_chunks(durations_s, iterations)
    assert mean_over_placements(durations_s, iterations, 1) == plain
    few = mean_over_placements(durations_s[:3], iterations[:3], 10)
    assert few.standard_error == pytest.approx(mean_of_chunks(durations_s[:3], iterations[:3]).standard_error)


@given(st.integers(2, 12), st.integers(2, 9), st.floats(0.0, 0.1), st.integers(0, 2**32 - 1))
def test_what_places_differ_by_can_be_left_out(placements, rounds, spread, seed):
    random = np.random.default_rng(seed)
    noise_s = 0.001 * random.standard_normal(placements * rounds)
    times_s = 1 + np.resize(spread * random.standard_normal(placements), placements * rounds)
    iterations = np.full(placements * rounds, 3)
    left_s = without_placement_effects(3 * (times_s + noise_s), iterations, placements)
    of_one_place_s = without_placement_effects(3 * (1 + noise_s), iterations, placements) + 3 * (times_s.mean() - 1)
    np.testing.assert_allclose(left_s, of_one_place_s, rtol=1e-9)
    assert left_s.mean() == pytest.approx(3 * (times_s + noise_s).mean())


def test_without_places_noise_is_as_large_as_in_one():
    noise_s = np.random.default_rng(0).standard_normal((2000, 20))
    iterations = np.full(20, 1)
    variances = [without_placement_effects(100 + one, iterations, 10).var() for one in noise_s]
    assert np.mean(variances) == pytest.approx(1.0, rel=0.05)
    assert list(without_placement_effects(noise_s[0][:19], iterations[:19], 10)) == list(noise_s[0][:19])


def test_noise_within_places_stays_in_the_error():
    times_s = np.array([1.0, 1.0, 1.2, 1.2, 1.0, 1.0, 1.2, 1.2])
    assert mean_over_placements(times_s, np.full(8, 1), 2).standard_error == pytest.approx(
        mean_of_chunks(times_s, np.full(8, 1)).standard_error
    )


@given(st.lists(st.tuples(positive, st.integers(1, 1000)), min_size=2, max_size=80), positive)
def test_mean_of_chunks_follows_scale(chunks, factor):
    durations_s, iterations = np.array([chunk[0] for chunk in chunks]), np.array([chunk[1] for chunk in chunks])
    plain = mean_of_chunks(durations_s, iterations)
    scaled = mean_of_chunks(factor * durations_s, iterations)
    assert plain.value == pytest.approx(durations_s.sum() / iterations.sum())
    assert scaled.value == pytest.approx(factor * plain.value)
    assert scaled.standard_error == pytest.approx(factor * plain.standard_error, abs=1e-9 * scaled.value)


@pytest.mark.parametrize("chunks", [0, 1])
def test_the_error_of_a_mean_needs_two_chunks(chunks):
    with pytest.raises(ValueError, match="^the error of a mean needs at least two chunks$"):
        mean_of_chunks(np.ones(chunks), np.ones(chunks, dtype=np.int64))


def test_error_of_chunks_is_honest_though_neighbours_are_alike():
    def estimate(seed):
        return mean_of_chunks(1 + 0.01 * wandering(seed, 300, memory=0.8), np.ones(300, dtype=np.int64))

    assert 0.88 <= coverage(estimate, 1) <= 0.97


@pytest.mark.parametrize(
    ("degrees", "quantile", "error_ratio"),
    [
        (3, 3.182446, 1.3e-3),
        (4, 2.776445, 4e-4),
        (5, 2.570582, 1.2e-4),
        (9, 2.262157, 1e-5),
        (14, 2.144787, 1e-6),
        (30, 2.042272, 1e-6),
        (10**6, 1.959966, 1e-6),
    ],
)
def test_student_quantiles_are_those_of_the_tables(degrees, quantile, error_ratio):
    assert student_quantile(degrees) == pytest.approx(quantile, rel=error_ratio)


@pytest.mark.parametrize(
    ("estimate", "readings", "relative_error", "is_enough"),
    [
        (Estimate(100.0, 0.5), 1000, 0.0108, True),
        (Estimate(-100.0, 0.5), 1000, 0.0108, True),
        (Estimate(100.0, 0.5), 1000, half_width_ratio(Estimate(100.0, 0.5), 1000), True),
        (Estimate(100.0, 0.5), 1000, 0.0105, False),
        (Estimate(100.0, 0.5), 4, 0.0108, False),
        (Estimate(100.0, 0.0), 1, 0.5, False),
        # About zero an interval is infinitely wide, unless it has no width.
        (Estimate(0.0, 0.5), 1000, 1e9, False),
        (Estimate(0.0, 0.0), 1000, 0.0, True),
    ],
)
def test_an_interval_is_within_a_relative_error(estimate, readings, relative_error, is_enough):
    assert is_within(estimate, readings, relative_error) == is_enough


@pytest.mark.parametrize("outlier", [100.0, -100.0])
def test_an_outlier_to_either_side_is_left_out_of_a_mean_and_does_not_move_a_median(outlier):
    values = np.array([1.0] * 50 + [1.2] * 49 + [outlier])
    assert mean_without_outliers(values) == pytest.approx((50 + 1.2 * 49) / 99)
    assert median(values) == pytest.approx(1.1 if outlier > 0 else 1.0)


@given(st.floats(-1e9, 1e9), st.integers(1, 50))
def test_equal_values_are_no_outliers(value, number):
    assert mean_without_outliers(np.full(number, value)) == pytest.approx(value)
    assert median(np.full(number, value)) == value


def beating(seed, count):
    """Return a beat of a random phase with a little noise, as of pauses that a meter's looks meet out of step."""
    generator = np.random.default_rng(seed)
    phase, period = generator.uniform(0, 2 * math.pi), generator.uniform(2.5, 10)
    return np.sin(phase + 2 * math.pi * np.arange(count) / period) + 0.2 * generator.normal(size=count)


@pytest.mark.parametrize("count", [15, 30, 100])
def test_the_error_of_a_beat_is_smaller_than_that_of_independent_values_and_its_interval_holds_the_mean(count):
    found = [(beating(seed, count), error_of_beating(beating(seed, count))) for seed in range(400)]
    known = [(values, *error) for values, error in found if error is not None]
    assert len(known) > 360
    held = [abs(values.mean()) <= student_quantile(degrees) * error for values, error, degrees in known]
    assert np.mean(held) > 0.93
    ratios = [error * math.sqrt(count) / values.std(ddof=1) for values, error, _ in known]
    assert np.median(ratios) < 0.6


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_values_that_do_not_beat_have_no_error_of_a_beat(memory):
    found = [error_of_beating(wandering(seed, 30, memory)) for seed in range(400)]
    assert np.mean([error is not None for error in found]) < 0.2


@pytest.mark.parametrize("count", [10, 12, 30])
def test_intervals_of_independent_values_hold_the_mean_though_some_happen_to_beat(count):
    held = []
    for seed in range(3000):
        values = wandering(seed, count, memory=0.0)
        found = error_of_beating(values)
        error, degrees = (values.std(ddof=1) / math.sqrt(count), count - 1) if found is None else found
        held.append(abs(values.mean()) <= student_quantile(degrees) * error)
    assert 0.935 < np.mean(held) < 0.965


def test_a_trend_does_not_beat():
    assert error_of_beating(np.arange(20.0)) is None
    assert error_of_beating(np.full(20, 7.0)) is None


@given(st.integers(0, 1000), st.floats(0.01, 100), st.floats(-1e3, 1e3))
def test_the_error_of_a_beat_scales_with_its_values(seed, factor, offset):
    values = beating(seed, 40)
    plain, moved = error_of_beating(values), error_of_beating(factor * values + offset)
    assert (plain is None) == (moved is None)
    if plain is not None and moved is not None:
        assert moved == (pytest.approx(factor * plain[0], rel=1e-4), plain[1])
