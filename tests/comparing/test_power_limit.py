from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from simulated_machine import SIMULATED_CONDITIONS, simulated_row

from opcost.comparing import power_limit, remark_rules
from opcost.comparing.cache_chain_rows import Excess
from opcost.comparing.compare import Evidence, compare
from opcost.comparing.power_limit import OTHERS, PRODUCTS, Limit, at_limit, correction_of, limit_beside, limit_of
from opcost.comparing.remarks import RemarkKind
from opcost.estimates import Estimate
from opcost.measuring.conditions import measurement_key
from opcost.measuring.record import Measurement, MeasurementRow
from opcost.operators.cases import Case
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.operators.whitelist import Selection
from opcost.summing.energy import EnergyBasis
from opcost.summing.index import Measurements
from opcost.summing.summation import Part

LIMIT_W = 700.0
LIMIT = Limit(LIMIT_W)
GPU = replace(SIMULATED_CONDITIONS, device_product="NVIDIA H200", execution="graph", device_power_limit_w=LIMIT_W)
LINEAR, GELU = (
    OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((32, 64), "float32"),)) for name in ("Linear", "GELU")
)

loads = st.builds(
    power_limit.Load,
    time_s=st.floats(1e-6, 1e-2),
    energy_j=st.floats(1e-4, 10.0),
    exponent=st.sampled_from((PRODUCTS, OTHERS)),
)


def load(power_w: float, exponent: float = PRODUCTS) -> power_limit.Load:
    return power_limit.Load(0.001, 0.001 * power_w, exponent)


@given(st.lists(loads, min_size=1, max_size=5), st.floats(1.0, 1.3))
def test_a_model_at_the_limit_draws_the_limit(found: list[power_limit.Load], ratio: float) -> None:
    time_s, energy_j = (sum(getattr(one, name) for one in found) for name in ("time_s", "energy_j"))
    limit_w = energy_j / time_s / ratio
    added = at_limit(found, Limit(limit_w))
    # Far more powerful products among others need a larger ratio than any that was measured.
    assume(added is not None)
    assert added.energy_j is not None
    assert added.time_s.value >= 0
    assert added.energy_j.value <= 1e-5 * energy_j
    assert (energy_j + added.energy_j.value) / (time_s + added.time_s.value) == pytest.approx(limit_w, rel=1e-4)


def test_a_model_below_the_limit_is_not_changed() -> None:
    added = at_limit([load(690.0), load(705.0)], LIMIT)
    assert added is not None
    assert added.energy_j is not None
    assert (added.time_s.value, added.energy_j.value) == (0, 0)


def test_products_take_longer_and_others_do_not() -> None:
    products, others = (at_limit([load(800.0, exponent)], LIMIT) for exponent in (PRODUCTS, OTHERS))
    assert products is not None
    assert others is not None
    assert products.time_s == Estimate(pytest.approx(5e-5, rel=0.05), pytest.approx(8.4e-6, rel=0.05))
    assert others.time_s.value == 0
    assert others.energy_j is not None
    assert others.energy_j.value == pytest.approx(-0.1, rel=0.05)


def test_far_above_the_limit_nothing_is_known() -> None:
    assert at_limit([load(1000.0)], LIMIT) is not None
    assert at_limit([load(2000.0)], LIMIT) is None


@pytest.mark.parametrize(
    "changes", [{"device_product": "NVIDIA L4"}, {"execution": "eager"}, {"device_power_limit_w": None}]
)
def test_other_cards_and_eager_runs_are_unknown(changes: dict[str, str | None]) -> None:
    assert limit_of(GPU) == LIMIT
    assert limit_of(replace(GPU, **changes)) is None


def test_a_warm_board_draws_more_at_full_clocks_and_the_limit_when_throttled() -> None:
    """At 60 °C the operators' rows have 3 % more energy than at 50 °C; the whole ran at 70 °C."""
    found = compared(linear_w=800.0, whole_s=0.0115, whole_w=700.0)

    def warm(row: MeasurementRow, celsius: float, normal_ratio: float) -> MeasurementRow:
        measured_j = row.measurement.energy_j
        assert measured_j is not None
        normal = {"energy_at_reference_j": normal_ratio * measured_j, "energy_at_reference_standard_error_j": 0.0}
        return replace(row, measurement=replace(row.measurement, temperature_c=celsius, **normal))

    parts = tuple(
        replace(
            part,
            basis=EnergyBasis.NORMALISED,
            row=warm(replace(part.row, measurement=at_full_clocks(part)), 60.0, 0.97),
        )
        for part in found.cost.parts
    )
    cost = replace(found.cost, basis=EnergyBasis.NORMALISED, parts=parts)
    limit = limit_beside(warm(found.full, 70.0, 1.0), cost)
    assert limit == Limit(700.0, pytest.approx(1 / 0.94), 1.0)
    none = power_limit.Load(0.0, 0.0, OTHERS)
    added, cool = (power_limit.added_by_limit(cost, none, one) for one in (limit, LIMIT))
    assert added is not None
    assert cool is not None
    assert added.time_s.value > 1.5 * cool.time_s.value
    normal_j = sum(part.energy_j or 0.0 for part in parts)
    assert added.energy_j is not None
    assert normal_j + added.energy_j.value == pytest.approx(700.0 * (0.011 + added.time_s.value))


def at_full_clocks(part: Part) -> Measurement:
    return replace(part.row.measurement, power_capped_ratio=0.0)


def test_a_whole_that_was_not_throttled_has_no_part_of_the_limit() -> None:
    added = compared(linear_w=800.0, whole_s=0.011, whole_w=770.0, capped_ratio=0.0).gap.power_limit
    assert added == power_limit.UNCHANGED


def compared(
    linear_w: float,
    whole_s: float,
    whole_w: float,
    *,
    flop: int | None = 100,
    energy: bool = True,
    capped_ratio: float = 1.0,
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

    def row(operator, time_s, power_w):
        known = simulated_row(operator, conditions=GPU)
        energy_j = time_s * power_w if energy else None
        measured = replace(
            known.measurement,
            time_s=time_s,
            energy_j=energy_j,
            executed_as="graph",
            power_capped_ratio=capped_ratio,
            loop_time_s=loop_s,
        )
        return replace(known, key=measurement_key(Case(operator), GPU), measurement=measured)

    def at_full_clocks(operator, power_w):
        known = row(operator, 0.001, power_w)
        return replace(known, measurement=replace(known.measurement, power_capped_ratio=rows_capped))

    rows = Measurements([at_full_clocks(LINEAR, linear_w), at_full_clocks(GELU, 500.0)])
    selection = Selection(counts, replace(counts, counts=()))
    return compare(selection, row(model, whole_s, whole_w), Evidence(rows))


def test_a_sum_above_the_limit_has_a_part_that_explains_the_whole() -> None:
    found = compared(linear_w=800.0, whole_s=0.0115, whole_w=700.0)
    added, rest = found.gap.power_limit, found.gap.unexplained
    assert added is not None
    assert added.energy_j is not None
    assert added.time_s.value == pytest.approx(0.0004, rel=0.2)
    assert added.time_s.standard_error > 0
    assert 0.011 + added.time_s.value + rest.time_s == pytest.approx(0.0115)
    assert found.cost.energy_j.value + added.energy_j.value == pytest.approx(700.0 * (0.011 + added.time_s.value))


def test_without_products_only_the_energy_changes() -> None:
    added = compared(linear_w=800.0, whole_s=0.011, whole_w=700.0, flop=0).gap.power_limit
    assert added is not None
    assert added.time_s.value == pytest.approx(0.0, abs=5e-5)


def test_a_sum_without_energy_has_no_known_part_of_the_limit() -> None:
    assert compared(linear_w=800.0, whole_s=0.0115, whole_w=700.0, energy=False).gap.power_limit is None


@pytest.mark.parametrize("is_whole_known", [True, False])
def test_the_correction_of_a_ranked_sum_has_the_part_of_the_limit(is_whole_known: bool) -> None:
    found = compared(linear_w=800.0, whole_s=0.0115, whole_w=700.0)
    cache = Excess(Estimate(0.0001, 0.00003), Estimate(0.01, 0.003))
    added = correction_of(cache, found.cost, found.full if is_whole_known else None, GPU)
    assert added.time_s.value == pytest.approx(0.0004, rel=0.2)
    assert added.energy_j is not None
    assert added.energy_j.value == pytest.approx(-0.47, rel=0.2)
    assert correction_of(cache, found.cost, None, replace(GPU, execution="eager")) == cache
    without_energy = replace(cache, energy_j=None)
    assert correction_of(without_energy, found.cost, None, GPU) == without_energy


def test_a_loop_too_short_for_clocks_to_settle_has_an_unknown_part() -> None:
    assert compared(linear_w=800.0, whole_s=0.0112, whole_w=725.0, loop_s=0.4).gap.power_limit is None


def test_throttled_rows_are_not_throttled_again() -> None:
    assert compared(linear_w=700.0, whole_s=0.0115, whole_w=700.0, rows_capped=1.0).gap.power_limit is None


@pytest.mark.parametrize(("linear_w", "is_explained"), [(800.0, True), (650.0, False)])
def test_a_throttled_whole_has_a_bound_where_no_part_explains_it(linear_w: float, is_explained: bool) -> None:
    found = compared(linear_w=linear_w, whole_s=0.0115, whole_w=700.0)
    slower = replace(found.full, measurement=replace(found.full.measurement, sm_clock_hz=1.7e9))
    kinds = [one.kind for one in remark_rules.remarks_on(replace(found, full=slower), Measurements([]))]
    assert (RemarkKind.LOWER_CLOCKS not in kinds) == is_explained


def test_the_energy_at_the_limit_is_on_the_basis_of_the_sum() -> None:
    added = at_limit([load(800.0)], Limit(LIMIT_W, normalised=0.98))
    assert added is not None
    assert added.energy_j is not None
    assert 0.8 + added.energy_j.value == pytest.approx(0.98 * LIMIT_W * (0.001 + added.time_s.value))
    assert added.energy_j.standard_error == pytest.approx(0.98 * LIMIT_W * added.time_s.standard_error)


def test_temperatures_do_not_matter_to_energies_as_measured() -> None:
    found = compared(linear_w=800.0, whole_s=0.0115, whole_w=700.0)
    hot = replace(found.full, measurement=replace(found.full.measurement, temperature_c=90.0))
    assert found.cost.basis is EnergyBasis.MEASURED
    assert limit_beside(hot, found.cost) == LIMIT
