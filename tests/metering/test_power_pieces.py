"""Pieces of constant power: what they cover, and the energy of their parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.metering.window_energy import pieces_of_samples, pieces_of_ticks
from opcost.power.trace import Window

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
