"""Which operators a whitelist needs: what is measured counts as measured, the rest by FLOPs and bytes."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_machine import SIMULATED_CONDITIONS, Load, MeterModel, SimulatedMachine, simulated_row

from opcost.comparing.corrections import Piece
from opcost.comparing.coverage import (
    CoveredCost,
    CoveredShare,
    costs_of,
    missing_operators,
    over_all,
    share_of,
    smallest_whitelist,
    to_add,
    total,
)
from opcost.comparing.model_result import predicted_piece
from opcost.measuring.flags import Flag
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.prediction.rates import CostModel, KnownCost, Rates, fitted, kind_of, known_costs, quartiles
from opcost.stages.advise import smallest_cover
from opcost.summing.summation import Measurements, sum_operators


def operator(name: str, width: int = 4) -> OperatorTuple:
    return OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((width,), "float32"),))


def counts_of(*counts: OperatorCount) -> OperatorCounts:
    return OperatorCounts(model_operator("small", None, (1, 4)), counts, 0, 0, 0, "2.11.0", "cuda")


def costs(**times_and_energies: tuple[float, float | None]) -> dict[str, CoveredCost]:
    return {name: CoveredCost(time_s, energy_j) for name, (time_s, energy_j) in times_and_energies.items()}


def known_cost(
    flop: int, memory_bytes: int, time_s: float, energy_j: float | None = None, name: str = "ReLU"
) -> KnownCost:
    return KnownCost(OperatorCount(operator(name), 1, flop, memory_bytes), time_s, energy_j)


# Rates


@given(
    rates=st.tuples(st.floats(1e-15, 1e-11), st.floats(1e-13, 1e-9), st.floats(1e-7, 1e-4)),
    sizes=st.lists(
        st.tuples(st.integers(10**6, 10**11), st.integers(10**4, 10**9)), min_size=6, max_size=30, unique=True
    ),
)
def test_declared_rates_explain_the_costs_that_they_make(
    rates: tuple[float, float, float], sizes: list[tuple[int, int]]
) -> None:
    declared = Rates(*rates)
    known = [known_cost(flop, size, declared.cost(flop, size), 5 * declared.cost(flop, size)) for flop, size in sizes]
    found = fitted(known)
    for one in known:
        work = one.count.flop, one.count.memory_bytes
        assert found.time.cost(*work) == pytest.approx(one.time_s, rel=1e-3)
        assert found.energy.cost(*work) == pytest.approx(one.energy_j, rel=1e-3)


def test_costs_that_scatter_by_a_share_of_themselves_are_right_together() -> None:
    random = np.random.default_rng(1)
    declared = Rates(1e-14, 4e-13, 2e-6)
    sizes = zip(10 ** random.uniform(6, 10, 2000), 10 ** random.uniform(4, 8, 2000), strict=True)
    known = []
    for flop, size in sizes:
        time_s = declared.cost(int(flop), int(size)) * random.gamma(2.0, 0.5)
        known.append(known_cost(int(flop), int(size), time_s))
    found = fitted(known).time
    for rate, truth in zip((found.per_flop, found.per_byte, found.per_call), (1e-14, 4e-13, 2e-6), strict=True):
        assert rate == pytest.approx(truth, rel=0.15)
    estimated_s = sum(found.cost(one.count.flop, one.count.memory_bytes) for one in known)
    assert estimated_s == pytest.approx(sum(one.time_s for one in known), rel=0.1)


@given(
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 10**9), st.floats(1e-7, 1.0)), min_size=3, max_size=20)
)
def test_no_rate_is_below_zero(known: list[tuple[int, int, float]]) -> None:
    """For any measurements: an operator that does more never costs less."""
    found = fitted([known_cost(flop, size, time_s) for flop, size, time_s in known])
    assert min(found.time.per_flop, found.time.per_byte, found.time.per_call) >= 0
    assert found.energy is None


def test_a_kind_of_which_enough_is_measured_has_its_own_rates() -> None:
    cheap = [known_cost(0, size, 1e-9 * size, 1e-7 * size) for size in range(100, 1300, 100)]
    dear = [known_cost(0, size, 9e-9 * size, name="SiLU") for size in range(100, 1200, 100)]
    found = fitted([*cheap, *dear])
    assert set(found.of_kind) == {"ReLU"}
    relu, silu, gelu = (OperatorCount(operator(name), 1, 0, 1000) for name in ("ReLU", "SiLU", "GELU"))
    assert found.cost(relu, 2) == (pytest.approx(2e-6), pytest.approx(2e-4))
    assert found.cost(silu, 1)[0] == found.cost(gelu, 1)[0] == pytest.approx(5e-6, rel=0.4)
    assert quartiles(found, cheap) == pytest.approx((1.0, 1.0, 1.0))


def test_an_operator_of_unknown_flop_has_no_predicted_cost_and_trains_no_rates() -> None:
    known = [known_cost(size, size, 1e-9 * size, 1e-7 * size) for size in range(100, 500, 100)]
    unknown = replace(known[0].count, flop=None, without_formula=("mine::scale",))
    assert fitted(known).cost(unknown, 3) == (None, None)
    assert predicted_piece([known[0].count, unknown], fitted(known)) == Piece(None, None)
    assert fitted([*known, replace(known[0], count=unknown, time_s=1e9)]) == fitted(known)


def test_depthwise_and_grouped_convolutions_are_kinds_of_their_own() -> None:
    plain, grouped, depthwise = (
        replace(operator("Conv2d"), parameters=(("in_channels", 8), ("groups", groups))) for groups in (1, 4, 8)
    )
    assert [kind_of(one) for one in (plain, grouped, depthwise, operator("Conv2d"))] == [
        "Conv2d",
        "Conv2d, in groups",
        "Conv2d, depthwise",
        "Conv2d",
    ]


def test_operators_without_a_kernel_or_of_other_work_than_was_counted_give_no_rates() -> None:
    """Views in a graph have a row of 4 ns, which made a call of anything cost 4 ns."""
    counts = [OperatorCount(operator("ReLU", width), 1, 0, 100 * width) for width in (1, 2, 3)]
    view = OperatorCount(operator("Flatten"), 1, 0, 0)
    rows = [simulated_row(count.operator) for count in (*counts, view)]
    rows[0] = replace(rows[0], measurement=replace(rows[0].measurement, flags=(Flag.VALUE_DEPENDENT,)))
    known = known_costs([*counts, view], Measurements(rows), SIMULATED_CONDITIONS)
    assert [one.count for one in known] == counts[1:]


# Costs


def test_costs_are_as_measured_and_else_estimated() -> None:
    relu, gelu = operator("ReLU"), operator("GELU")
    row = simulated_row(relu, Load(time_s=0.001, power_w=300.0), SimulatedMachine())
    measurements = Measurements([row])
    counts = counts_of(
        OperatorCount(relu, 3, 0, 100), OperatorCount(gelu, 2, 10, 100), OperatorCount(operator("GELU", 5), 1, 0, 50)
    )
    model = CostModel(Rates(1e-4, 1e-5, 0.0), Rates(0.1, 0.0, 0.0))
    found = costs_of(sum_operators(counts, measurements, SIMULATED_CONDITIONS), model)
    assert found["ReLU"].time_s == found["ReLU"].measured_time_s == pytest.approx(0.003, rel=0.01)
    assert found["ReLU"].energy_j == pytest.approx(0.9, rel=0.02)
    assert total(found.values()).doubtful_ratio == 0.0
    assert found["GELU"] == CoveredCost(pytest.approx(2 * 2e-3 + 5e-4), pytest.approx(2.0), 0.0)
    assert total(found.values()).measured_ratio == pytest.approx(0.003 / 0.0075, rel=0.01)
    (known,) = known_costs(counts.counts, measurements, SIMULATED_CONDITIONS)
    assert (known.count.memory_bytes, known.time_s) == (100, row.measurement.time_s)


def test_a_measured_operator_without_energy_has_the_estimated_one() -> None:
    relu = operator("ReLU")
    row = simulated_row(relu, Load(time_s=0.001), SimulatedMachine(meter=MeterModel(missing_reason="no meter")))
    counts = counts_of(OperatorCount(relu, 3, 10, 100))
    model = CostModel(Rates(1.0, 0.0, 0.0), Rates(0.1, 0.0, 0.0))
    (cost,) = costs_of(sum_operators(counts, Measurements([row]), SIMULATED_CONDITIONS), model).values()
    assert (cost.time_s, cost.energy_j) == (pytest.approx(0.003, rel=0.01), pytest.approx(3.0))


def test_without_one_energy_no_share_of_energy_is_reported() -> None:
    model = CostModel(Rates(0.0, 1e-5, 0.0), None)
    counts = counts_of(OperatorCount(operator("ReLU"), 1, 0, 100))
    found = costs_of(sum_operators(counts, Measurements([]), SIMULATED_CONDITIONS), model)
    assert share_of(found, ["ReLU"]) == CoveredShare(1.0, None)
    assert share_of(found, ["ReLU"]).reaches(0.99)


# What to add

MODEL = costs(Conv2d=(6.0, 3.0), add=(1.0, 5.0), ReLU=(2.5, 1.5), view=(0.5, 0.5))


@pytest.mark.parametrize(
    ("whitelist", "target", "added"),
    [
        (["Conv2d"], 0.35, ["add"]),
        (["Conv2d"], 0.25, []),
        (["Conv2d"], 0.9, ["add", "ReLU"]),
        (["Conv2d"], 0.96, ["add", "ReLU", "view"]),
        (["Conv2d", "add", "ReLU"], 0.9, []),
        ([], 0.5, ["Conv2d", "add"]),
    ],
)
def test_operators_are_added_until_both_reach_the_target(whitelist: list[str], target: float, added: list[str]) -> None:
    assert [one.operator for one in to_add(MODEL, whitelist, target)] == added
    # The operator that contributes most to time or energy comes first.
    missing = missing_operators(MODEL, ["Conv2d"])
    assert [(one.operator, one.share.larger) for one in missing] == [("add", 0.5), ("ReLU", 0.25), ("view", 0.05)]


def test_over_all_models_shares_are_means() -> None:
    other = costs(Conv2d=(1.0, 1.0), roll=(1.0, 1.0))
    found = {one.operator: one.share for one in over_all([MODEL, other], ["Conv2d"])}
    assert list(found) == ["add", "roll", "ReLU", "view"]
    assert found["roll"] == CoveredShare(0.25, 0.25)
    assert found["add"] == CoveredShare(0.05, 0.25)
    # Those of energy are over the models that have one.
    one, without = costs(Conv2d=(0.95, 0.2), add=(0.05, 0.8)), costs(Conv2d=(0.5, None), add=(0.5, None))
    (addition,) = over_all([one, without], ["Conv2d"])
    assert addition.share == CoveredShare(pytest.approx(0.275), pytest.approx(0.8))


# The smallest whitelist


def test_the_smallest_whitelist_reaches_the_target_in_each_model_and_names_the_largest_first() -> None:
    """Greedy choices would take add, which is largest in energy, though two others do without it."""
    one = costs(add=(0.4, 0.6), left=(0.3, 0.2), right=(0.3, 0.2))
    other = costs(left=(0.5, 0.5), right=(0.5, 0.5))
    assert smallest_whitelist([one, other], 0.35, smallest_cover) == ("left", "right")
    assert set(smallest_whitelist([one, other], 0.9, smallest_cover)) == {"add", "left", "right"}


def test_a_whitelist_begins_with_what_takes_longest_on_average() -> None:
    models = [costs(a=(0.2, 0.8), b=(0.7, 0.1), c=(0.1, 0.1)), costs(a=(0.3, 0.3), b=(0.4, 0.4), c=(0.3, 0.3))]
    assert smallest_whitelist(models, 1.0, smallest_cover) == ("b", "a", "c")
    # Without energies the time counts.
    assert smallest_whitelist([costs(a=(0.6, None), b=(0.4, None))], 0.5, smallest_cover) == ("a",)


def test_a_list_that_a_solver_finds_enough_is_enough() -> None:
    """A solver is content with what is a millionth too little."""
    model = costs(a=(0.9 - 5e-7, 0.9 - 5e-7), b=(0.1 + 5e-7, 0.1 + 5e-7))
    assert share_of(model, smallest_whitelist([model], 0.9, smallest_cover)).reaches(0.9)


@st.composite
def matrices(draw: Any) -> np.ndarray:
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    weights = np.array(
        draw(st.lists(st.lists(st.integers(0, 20), min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    )
    weights[:, 0] += 1
    return weights / weights.sum(axis=1, keepdims=True)


@given(shares=matrices(), target=st.sampled_from([0.5, 0.9, 0.99]))
def test_a_cover_is_as_small_as_any(shares: np.ndarray, target: float) -> None:
    """Compared with all choices of columns."""
    chosen = smallest_cover(shares, target)
    assert (shares[:, list(chosen)].sum(axis=1) >= target - 1e-6).all()
    fewer = combinations(range(shares.shape[1]), len(chosen) - 1)
    assert all((shares[:, list(columns)].sum(axis=1) < target - 1e-9).any() for columns in fewer)


@pytest.mark.parametrize(
    # Of equally small covers the one that reaches most; a cover is never empty.
    ("shares", "target", "cover"),
    [([[0.51, 0.0, 0.52], [0.5, 0.9, 0.6]], 0.5, (2,)), ([[0.4, 0.6]], 1e-12, (1,))],
)
def test_the_cover_that_reaches_most_is_taken(shares: list[list[float]], target: float, cover: tuple[int]) -> None:
    assert smallest_cover(np.array(shares), target) == cover


def test_what_cannot_be_reached_is_reported() -> None:
    with pytest.raises(ValueError, match="no columns reach 0.9"):
        smallest_cover(np.array([[0.3, 0.3]]), 0.9)
