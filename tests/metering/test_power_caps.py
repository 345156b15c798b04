"""The fit of time and energy over power caps, and the proposed cap, on curves and simulated cards of another form."""

import itertools
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from simulated_caps import LARGEST_LOSS_RATIO, SimulatedCard, losses, swept

from opcost.metering.cap_rows import CapCost, CapPoint, Objective, Wish
from opcost.metering.power_caps import (
    best_cap,
    fit_caps,
    free_cap_w,
    further_cap,
    is_efficient,
    medians_of,
    propose,
    spread_caps,
)
from opcost.reporting.sweeps import print_cap_sweep

CAPS = (200.0, 239.0, 286.0, 342.0, 409.0, 489.0, 585.0, 700.0)


def points(time_at_500_s: float = 0.01, free_w: float = 400.0, full_w: float = 550.0) -> list[CapPoint]:
    """Return exact points: time rises below ``free_w``, power is the cap up to ``full_w``."""
    found = []
    for cap_w in CAPS:
        time_s = time_at_500_s * max(1.0, free_w / cap_w)
        found.append(CapPoint(cap_w, time_s, time_s * min(cap_w, full_w)))
    return found


@pytest.mark.parametrize("objective", list(Objective))
def test_proposed_caps_are_near_the_best_ones_of_cards_of_another_form(objective: Objective) -> None:
    found = losses(range(20), objective)
    assert sum(loss <= LARGEST_LOSS_RATIO for loss in found) >= 19, found


def test_simulated_cards_have_optima_inside_and_at_both_ends_and_loads_without_a_cap() -> None:
    kinds = {SimulatedCard(seed).kind for seed in range(40)}
    assert {"cycles", "memory", "mixed", "launch", "light"} == kinds
    best = {
        max(CAPS, key=lambda cap, seed=seed: -SimulatedCard(seed).loss_ratio(cap, Objective.ED2P)) for seed in range(40)
    }
    assert {CAPS[0], CAPS[-1]} < best


def test_the_kink_of_a_load_that_waits_for_memory_is_found_between_the_caps() -> None:
    fit, proposal = best_cap(points(), Wish(Objective.ED2P))
    assert free_cap_w(fit) == pytest.approx(400.0, rel=0.02)
    assert proposal.cap_w == pytest.approx(400.0, rel=0.02)
    assert proposal.time_ratio == pytest.approx(1.0, abs=0.01)
    assert proposal.energy_ratio == pytest.approx(400 / 550, rel=0.02)
    assert proposal.gains


def test_a_limit_that_never_binds_has_nothing_to_gain() -> None:
    flat = [CapPoint(cap_w, 0.01 * (1 + 0.005 * (-1) ** place), 1.5) for place, cap_w in enumerate(CAPS)]
    fit, proposal = best_cap(flat, Wish())
    assert not fit.binds
    assert proposal.never_binds
    assert not proposal.gains
    assert proposal.cap_w == free_cap_w(fit) == 200.0
    assert further_cap(flat, Wish()) is None


def test_a_load_that_waits_for_its_clock_keeps_the_highest_cap_for_time() -> None:
    slow = [CapPoint(cap_w, 7.0 / cap_w, 7.0) for cap_w in CAPS]
    assert best_cap(slow, Wish(Objective.ED2P))[1].cap_w == 700.0


def test_a_slowdown_is_kept_to() -> None:
    compute = [CapPoint(cap_w, (700 / cap_w) ** 0.4, cap_w * (700 / cap_w) ** 0.4) for cap_w in CAPS]
    wish = Wish(max_slowdown_ratio=0.05)
    proposal = best_cap(compute, wish)[1]
    assert 1.03 < proposal.time_ratio <= 1.0501
    assert proposal.energy_ratio < 0.95
    assert str(wish) == "energy within a slowdown of 5.0 %"


def test_one_wrong_measurement_of_three_changes_nothing() -> None:
    good = points()
    wrong = [CapPoint(342.0, 10.0, 1.0) if point.cap_w == 342.0 else point for point in good]
    assert propose(fit_caps([*good, *good, *wrong]), Wish()) == propose(fit_caps(good * 3), Wish())


def test_a_further_cap_is_near_the_optimum_and_not_one_that_is_known() -> None:
    further_w = further_cap(points(), Wish(Objective.ED2P))
    assert further_w is not None
    assert further_w == pytest.approx(400.0, rel=0.06)
    assert all(abs(further_w / cap_w - 1) > 0.02 for cap_w in CAPS)


def test_pareto_front_and_medians() -> None:
    slow, fast, bad = CapPoint(200, 2.0, 1.0), CapPoint(700, 1.0, 2.0), CapPoint(600, 1.5, 2.5)
    assert [is_efficient(one, (slow, fast, bad)) for one in (slow, fast, bad)] == [True, True, False]
    again = CapPoint(200, 4.0, 3.0)
    assert medians_of([fast, slow, again]) == [CapPoint(200, 3.0, 2.0), fast]


@given(st.floats(50, 2000), st.floats(50, 2000))
def test_caps_are_whole_watts_within_the_range(one: float, other: float) -> None:
    lowest_w, highest_w = sorted((one, other))
    caps = spread_caps(lowest_w, highest_w)
    assert 1 <= len(caps) <= 8
    assert list(caps) == sorted(set(caps))
    assert caps[-1] <= highest_w
    assert all(cap >= lowest_w and (cap == int(cap) or len(caps) == 1) for cap in caps)


@example([(239.0, 2.0, 1.0), (286.0, 2.0, 1.0), (342.0, 1.0, 1.0), (409.0, 1.0, 1.0)], Objective.ENERGY, None)
@given(
    st.lists(st.tuples(st.sampled_from(CAPS), st.floats(1e-6, 1e3), st.floats(1e-6, 1e6)), min_size=2, max_size=30),
    st.sampled_from(list(Objective)),
    st.none() | st.floats(0.001, 0.9),
)
def test_any_measurements_have_a_fit_and_a_proposal_within_them(
    measured: list[tuple[float, float, float]], objective: Objective, slowdown: float | None
) -> None:
    found = [CapPoint(*one) for one in measured]
    fit, proposal = best_cap(found, Wish(objective, slowdown))
    assert min(one.cap_w for one in found) - 1e-6 <= proposal.cap_w <= max(one.cap_w for one in found) + 1e-6
    assert math.isfinite(proposal.time_ratio)
    assert math.isfinite(proposal.energy_ratio)
    # Time never falls, and power never rises, as the cap falls, also beyond the measured ones.
    caps = (50.0, 100.0, *CAPS, 1000.0)
    times, powers = ([of_cap(cap_w) for cap_w in caps] for of_cap in (fit.time_s, fit.power_w))
    assert all(one >= other * (1 - 1e-9) for one, other in itertools.pairwise(times))
    assert all(one <= other * (1 + 1e-9) for one, other in itertools.pairwise(powers))


def test_the_found_limit_is_first_and_last_and_no_cap_is_above_it() -> None:
    _, sweep = swept(3, Wish(), is_steady=False)
    caps = [row.cap_w for row in sweep.rows]
    assert caps[0] == caps[-1] == max(caps) == sweep.found_limit_w
    assert sorted(set(caps))[0] == 200.0
    assert caps[1:9] != sorted(caps[1:9]), "in order: drift would follow the cap"
    assert [row.place for row in sweep.rows] == list(range(1, len(caps) + 1))
    row = sweep.rows[4]
    assert row.energy_delay_squared_product == pytest.approx(row.energy_j * row.time_s**2)


def test_caps_above_the_power_of_a_steady_load_are_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    seed = next(seed for seed in range(100) if SimulatedCard(seed).kind == "light")
    _, sweep = swept(seed, Wish())
    assert {row.cap_w for row in sweep.rows} == {200.0, 700.0}
    assert sweep.proposal.never_binds
    print_cap_sweep(sweep)
    printed = capsys.readouterr().out
    assert "The cap never binds: nothing to gain. 200 W, the lowest cap, costs no time either." in printed
    assert "700 W is set." in printed


def test_a_row_of_unknown_energy_has_a_reason_and_no_power() -> None:
    sweep = {"sweep_started_at": "2026-11-28T00:00:00+00:00", "work": "model", "order_seed": 1}
    sweep |= {"device": "cuda:0", "device_uuid": "GPU-0", "found_limit_w": 700.0}
    unknown = CapCost(2.0, None, missing_reason="no meter").row(1, 400.0, **sweep)
    assert (unknown.power_w, unknown.energy_delay_product, unknown.energy_delay_squared_product) == (None, None, None)
    assert (unknown.time_s, unknown.energy_missing_reason) == (2.0, "no meter")
    known = CapCost(2.0, 600.0, 6.0).row(2, 400.0, **sweep)
    assert (known.power_w, known.energy_delay_product, known.energy_delay_squared_product) == (300.0, 1200.0, 2400.0)
