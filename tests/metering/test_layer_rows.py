"""Time and energy of a loop, divided over its layers: the rows add up to the meter's totals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.metering.layers import (
    BETWEEN,
    NO_LAYER,
    KnownCost,
    LayerShare,
    LayerTimes,
    LoopTotals,
    MarkedSpans,
    backward_slot,
    forward_slot,
    kind_rows,
    layer_rows,
    slots_of,
)
from opcost.running.layer_loop import MarkingBudget

TIMES_S = st.one_of(st.none(), st.floats(1e-7, 1.0))
KNOWN = st.one_of(st.none(), st.builds(KnownCost, st.floats(1e-7, 1.0), st.floats(1e-6, 1e3)))
LAYERS = st.lists(
    st.builds(LayerShare, st.just("layer"), st.sampled_from(["Conv2d", "ReLU"]), st.just(1.0), TIMES_S, TIMES_S)
    | st.builds(
        LayerShare,
        st.just("known"),
        st.just("Linear"),
        st.just(1.0),
        TIMES_S,
        TIMES_S,
        known=KNOWN,
        known_backward=KNOWN,
    ),
    max_size=8,
)
TOTALS = st.builds(LoopTotals, st.floats(1e-3, 1e3), st.floats(1e-3, 1e6), st.integers(1, 10_000), st.just(1))


@given(TOTALS, LAYERS)
def test_rows_add_up_to_the_meters_totals(totals: LoopTotals, layers: list[LayerShare]) -> None:
    rows = layer_rows(totals, layers, None)
    assert rows[-1].layer == BETWEEN
    is_scaled = math.fsum(layer.time_s for layer in layers) > totals.time_s / totals.iterations
    assert (rows[-1].time_s is None) == (rows[-1].energy_j is None) == is_scaled
    assert math.fsum(row.time_s or 0.0 for row in rows) * totals.iterations == pytest.approx(totals.time_s, rel=1e-9)
    for name in ("energy_j", "energy_by_time_j"):
        total_j = math.fsum(getattr(row, name) or 0.0 for row in rows) * totals.iterations
        assert total_j == pytest.approx(totals.energy_j, rel=1e-9)
    for row in rows[:-1]:
        passes_j = (row.forward_energy_j or 0.0) + (row.backward_energy_j or 0.0)
        assert passes_j == pytest.approx(row.energy_j, rel=1e-9)
    kinds = kind_rows(rows)
    assert math.fsum(kind.time_s or 0.0 for kind in kinds) * totals.iterations == pytest.approx(totals.time_s, rel=1e-9)
    assert sum(kind.layers for kind in kinds) == len(rows)


def test_known_powers_divide_the_energy_and_others_have_their_mean() -> None:
    layers = [
        LayerShare("hot", "Linear", 1.0, 0.2, None, known=KnownCost(0.1, 60.0)),
        LayerShare("cool", "ReLU", 1.0, 0.2, None, known=KnownCost(0.1, 20.0)),
        LayerShare("other", "Own", 1.0, 0.2, 0.2),
    ]
    hot, cool, other, between = layer_rows(LoopTotals(1.0, 500.0, 1, 1), layers, None)
    assert (hot.energy_j, cool.energy_j) == pytest.approx((150.0, 50.0))
    assert (other.forward_energy_j, other.backward_energy_j, between.energy_j) == pytest.approx((100.0, 100.0, 100.0))
    assert hot.energy_by_time_j == pytest.approx(100.0)
    assert (hot.database_energy_j, other.database_energy_j) == (60.0, None)


def test_a_known_power_of_a_backward_divides_it_apart_from_its_forward() -> None:
    layer = LayerShare("hot", "Linear", 1.0, 0.2, 0.4, known=KnownCost(0.1, 60.0), known_backward=KnownCost(0.2, 60.0))
    found, between = layer_rows(LoopTotals(1.0, 480.0, 1, 1), [layer], None)
    # 600 W and 300 W, of 0.2 s and 0.4 s; the rest, of 0.4 s, has their mean, 400 W.
    assert (found.forward_energy_j, found.backward_energy_j, between.energy_j) == pytest.approx((144.0, 144.0, 192.0))
    assert (found.database_power_w, found.database_backward_power_w) == pytest.approx((600.0, 300.0))
    assert (found.database_energy_j, found.database_backward_energy_j) == (60.0, 60.0)


def test_layers_that_are_scaled_leave_the_time_between_unknown_with_the_factor() -> None:
    layers = [LayerShare("one", "ReLU", 1.0, 0.75, None), LayerShare("two", "ReLU", 1.0, 0.5, None)]
    one, two, between = layer_rows(LoopTotals(2.0, 200.0, 2, 1), layers, None)
    assert (one.time_s, two.time_s, one.energy_j) == pytest.approx((0.6, 0.4, 60.0))
    figures = (between.time_s, between.time_ratio, between.energy_j, between.energy_by_time_j, between.power_w)
    assert {*figures, between.energy_ratio} == {None}
    assert "scaled by 0.8" in (between.energy_missing_reason or "")
    assert [kind.time_s for kind in kind_rows([one, two, between])] == [pytest.approx(1.0), None]


def test_without_energy_the_reason_stands_in_each_row() -> None:
    rows = layer_rows(LoopTotals(1.0, None, 4, 2), [LayerShare("one", "ReLU", 1.0, 0.1, 0.05)], "no meter")
    assert [row.time_s for row in rows] == pytest.approx([0.15, 0.1])
    assert {(row.energy_j, row.power_w, row.energy_missing_reason) for row in rows} == {(None, None, "no meter")}
    assert kind_rows(rows)[0].energy_j is None


def spans(times_s: dict[int, float], own_s: float = 0.0) -> MarkedSpans:
    own = np.zeros(slots_of(2))
    own[forward_slot(0)] = own_s
    return MarkedSpans([*times_s, NO_LAYER], [*times_s.values(), 5.0], own, np.ones(2))


def test_the_first_iteration_counts_only_if_it_is_alone() -> None:
    times = LayerTimes(2)
    times.add(spans({forward_slot(0): 9.0}), is_first=True)
    assert (times.time_s(forward_slot(0)), times.standard_error_s(forward_slot(0))) == (9.0, None)
    for time_s in (1.0, 2.0, 3.0):
        times.add(spans({forward_slot(0): time_s, backward_slot(0): 4.0}), is_first=False)
    assert times.marked == 3
    assert times.time_s(forward_slot(0)) == pytest.approx(2.0)
    assert times.standard_error_s(forward_slot(0)) == pytest.approx(1 / math.sqrt(3))
    assert times.standard_error_s(backward_slot(0)) == 0.0
    assert times.time_s(forward_slot(1)) is None


def test_marking_is_subtracted_as_far_as_it_made_iterations_longer() -> None:
    for longer_s, expected_s in ((0.0, 3.0), (0.5, 2.5), (4.0, 2.0)):
        times = LayerTimes(2)
        for _ in range(3):
            times.add(spans({forward_slot(0): 3.0}, own_s=1.0), is_first=False)
            times.add_period(10.0 + longer_s, is_marked=True)
            times.add_period(10.0, is_marked=False)
        assert times.excess_s == pytest.approx(longer_s)
        assert times.time_s(forward_slot(0)) == pytest.approx(expected_s)


@given(st.floats(0.001, 1.0), st.floats(0.01, 3.0))
def test_marks_keep_to_their_budget_and_some_are_made_in_any_case(period_s: float, cost_ratio: float) -> None:
    budget, marked = MarkingBudget(), []
    for iteration in range(3000):
        if budget.wants(iteration, iteration * period_s):
            marked.append(iteration)
            budget.spend(cost_ratio * period_s)
    forced = {0, 2, 8, 26}
    assert forced <= set(marked)
    within = 0.01 * 3000 * period_s + (len(forced) + 1) * cost_ratio * period_s
    assert budget.spent_s <= within
    assert len(marked) * cost_ratio >= 0.9 * 0.01 * 3000 - 2 * cost_ratio
