from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from simulated_machine import SIMULATED_CONDITIONS, declared_row

from opcost.comparing.cache_chain_rows import Excess
from opcost.comparing.comparison import Evidence, compare
from opcost.comparing.gap import OTHERS, PRODUCTS, Load, at_limit, correction_of, limit_of
from opcost.comparing.remarks import RemarkKind, remarks_on
from opcost.estimates import Estimate
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.operators.whitelist import Selection
from opcost.summing.summation import Measurements

LIMIT_W = 700.0
GPU = replace(SIMULATED_CONDITIONS, device_product="NVIDIA H200", execution="graph", device_power_limit_w=LIMIT_W)
LINEAR, GELU = (
    OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((32, 64), "float32"),)) for name in ("Linear", "GELU")
)

loads = st.builds(
    Load,
    time_s=st.floats(1e-6, 1e-2),
    energy_j=st.floats(1e-4, 10.0),
    exponent=st.sampled_from((PRODUCTS, OTHERS)),
)


def load(power_w: float, exponent: float = PRODUCTS) -> Load:
    return Load(0.001, 0.001 * power_w, exponent)


@given(st.lists(loads, min_size=1, max_size=5), st.floats(1.0, 1.3))
def test_a_model_at_the_limit_draws_the_limit(found: list[Load], ratio: float) -> None:
    time_s, energy_j = (sum(getattr(one, name) for one in found) for name in ("time_s", "energy_j"))
    limit_w = energy_j / time_s / ratio
    added = at_limit(found, limit_w)
    # Far more powerful products among others need a larger ratio than any that was measured.
    assume(added is not None)
    assert added.time_s.value >= 0
    assert added.energy_j.value <= 1e-5 * energy_j
    assert (energy_j + added.energy_j.value) / (time_s + added.time_s.value) == pytest.approx(limit_w, rel=1e-4)


def test_a_model_below_the_limit_is_not_changed() -> None:
    added = at_limit([load(690.0), load(705.0)], LIMIT_W)
    assert (added.time_s.value, added.energy_j.value) == (0, 0)


def test_products_take_longer_and_others_do_not() -> None:
    products, others = (at_limit([load(800.0, exponent)], LIMIT_W) for exponent in (PRODUCTS, OTHERS))
    assert products.time_s == Estimate(pytest.approx(5e-5, rel=0.05), pytest.approx(8.4e-6, rel=0.05))
    assert others.time_s.value == 0
    assert others.energy_j.value == pytest.approx(-0.1, rel=0.05)


def test_far_above_the_limit_nothing_is_known() -> None:
    assert at_limit([load(1000.0)], LIMIT_W) is not None
    assert at_limit([load(2000.0)], LIMIT_W) is None


@pytest.mark.parametrize(
    "changes", [{"device_product": "NVIDIA L4"}, {"execution": "eager"}, {"device_power_limit_w": None}]
)
def test_other_cards_and_eager_runs_are_unknown(changes: dict[str, str | None]) -> None:
    assert limit_of(GPU) == LIMIT_W
    assert limit_of(replace(GPU, **changes)) is None


def compared(
    linear_w: float,
    whole_s: float,
    whole_w: float,
    *,
    flop: int | None = 100,
    energy: bool = True,
    capped_ratio: float | None = 1.0,
    loop_s: float = 3.0,
    rows_capped: float = 0.0,
):
    """Compare a model of ten linear layers and one GELU of 1 ms each."""
    model = model_operator("a_model", None, (32, 64))
    counts = OperatorCounts(
        model=model,
        counts=(OperatorCount(LINEAR, 10, flop, 1), OperatorCount(GELU, 1, 0, 1)),
        total_flop=1000,
        total_memory_bytes=11,
        parameters=1,
        torch_version="2.11.0",
        device_type="cuda",
    )

    def row(operator, time_s, power_w, power_capped_ratio):
        figures = {"time_s": time_s, "energy_j": time_s * power_w if energy else None, "executed_as": "graph"}
        return declared_row(operator, GPU, power_capped_ratio=power_capped_ratio, loop_time_s=loop_s, **figures)

    rows = Measurements([row(LINEAR, 0.001, linear_w, rows_capped), row(GELU, 0.001, 500.0, rows_capped)])
    selection = Selection(counts, replace(counts, counts=()))
    return compare(selection, row(model, whole_s, whole_w, capped_ratio), Evidence(rows))


def test_a_sum_above_the_limit_has_a_part_that_explains_the_whole() -> None:
    found = compared(linear_w=800.0, whole_s=0.0115, whole_w=700.0)
    added, rest = found.gap.power_limit, found.gap.unexplained
    assert added.time_s.value == pytest.approx(0.0004, rel=0.2)
    assert added.time_s.standard_error > 0
    assert 0.011 + added.time_s.value + rest.time_s == pytest.approx(0.0115)
    assert found.cost.energy_j.value + added.energy_j.value == pytest.approx(700.0 * (0.011 + added.time_s.value))


@pytest.mark.parametrize("unknown", [{"energy": False}, {"linear_w": 700.0, "rows_capped": 1.0}])
def test_a_sum_without_energy_or_of_throttled_rows_has_no_known_part_of_the_limit(unknown: dict[str, float]) -> None:
    assert compared(**{"linear_w": 800.0, "whole_s": 0.0115, "whole_w": 700.0, **unknown}).gap.power_limit is None


def test_without_products_only_the_energy_changes() -> None:
    added = compared(linear_w=800.0, whole_s=0.011, whole_w=700.0, flop=0).gap.power_limit
    assert added.time_s.value == pytest.approx(0.0, abs=5e-5)


def test_the_correction_of_a_ranked_sum_has_the_part_of_the_limit() -> None:
    found = compared(linear_w=800.0, whole_s=0.0115, whole_w=700.0)
    cache = Excess(Estimate(0.0001, 0.00003), Estimate(0.01, 0.003))
    added = correction_of(cache, found.cost, GPU)
    assert added.time_s.value == pytest.approx(0.0004, rel=0.2)
    assert added.energy_j.value == pytest.approx(-0.47, rel=0.2)
    assert correction_of(cache, found.cost, replace(GPU, execution="eager")) == cache
    without_energy = replace(cache, energy_j=None)
    assert correction_of(without_energy, found.cost, GPU) == without_energy


@pytest.mark.parametrize(
    "whole", [{"capped_ratio": 0.0}, {"loop_s": 0.3}, {"whole_w": 600.0}, {"whole_s": 0.010}, {"capped_ratio": None}]
)
def test_the_part_of_a_sum_is_the_same_whatever_its_whole_did(whole: dict[str, float | None]) -> None:
    known = {"linear_w": 800.0, "whole_s": 0.0115, "whole_w": 700.0}
    assert compared(**known | whole).gap.power_limit == compared(**known).gap.power_limit


@pytest.mark.parametrize(("linear_w", "is_explained"), [(800.0, True), (650.0, False)])
def test_a_throttled_whole_has_a_bound_where_no_part_explains_it(linear_w: float, is_explained: bool) -> None:
    found = compared(linear_w=linear_w, whole_s=0.0115, whole_w=700.0)
    slower = replace(found.full, measurement=replace(found.full.measurement, sm_clock_hz=1.7e9))
    kinds = [one.kind for one in remarks_on(replace(found, full=slower), Measurements([]))]
    assert (RemarkKind.LOWER_CLOCKS not in kinds) == is_explained
