"""The ranking: the order of models, shares of kinds, expected errors of sums, and the share of the roof."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_machine import SIMULATED_CONDITIONS, declared_row

from opcost.comparing.corrections import METHOD_ERROR_RATIOS, Corrections, Curve
from opcost.comparing.model_result import ModelResult
from opcost.comparing.operator_costs import kind_costs, operator_costs, rank_of
from opcost.comparing.ranking import (
    ASSUMED_SUM_ERRORS,
    ENERGY,
    ENOUGH_WHOLES,
    FEWEST_WHOLES,
    NAME,
    POWER,
    SAVING,
    SORTS,
    TIME,
    Differences,
    RankingRow,
    SumErrors,
    ranked,
    ranking_row,
    sum_errors,
)
from opcost.comparing.roofline import Roofline, roof_share, roofline_of_rows, works_of
from opcost.estimates import Estimate
from opcost.measuring.conditions import GRAPH
from opcost.measuring.flags import Flag
from opcost.measuring.record import Excess, MeasurementRow
from opcost.operators.cache_chains import ELEMENTWISE
from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.model_inputs import Units
from opcost.operators.tuples import OperatorTuple, Phase, TensorSpec, model_operator
from opcost.reporting.ranking_notes import IDLE, doubt_lines, energies_line, is_cost_doubtful, is_sum_doubtful
from opcost.reporting.ranking_tables import table_of
from opcost.stages.ranking_data import board_differences
from opcost.stages.show import DeviceRanking, ShownModel
from opcost.summing.summation import Measurements, ModelCost, sum_beside

RELU, LINEAR, SILU = (
    OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((4,), "float32"),)) for name in ("ReLU", "Linear", "SiLU")
)
FLOPS = {RELU: 0, LINEAR: 10**12, SILU: 0}
BYTES = {RELU: 10**9, LINEAR: 10**8, SILU: 10**9}
COUNTS = {(one.key, Phase.INFERENCE): OperatorCount(one, 1, FLOPS[one], BYTES[one]) for one in (RELU, LINEAR, SILU)}

costs = st.floats(1e-6, 10.0)


def row_of(operator: OperatorTuple, time_s: float, energy_j: float | None) -> MeasurementRow:
    return declared_row(operator, time_s=time_s, energy_j=energy_j, energy_at_reference_j=None)


def sum_of(calls: dict[OperatorTuple, int], *rows: MeasurementRow) -> ModelCost:
    counts = tuple(
        OperatorCount(operator, number, FLOPS[operator], BYTES[operator]) for operator, number in calls.items()
    )
    model = model_operator("resnet18", None, (1, 3, 8, 8))
    counted = OperatorCounts(model, counts, 10**13, 10**13, 0, "2.11.0", "cuda")
    return sum_beside(None, counted, Measurements(rows), SIMULATED_CONDITIONS)


def ranked_row(model: ModelResult, roofline: Roofline | None = None) -> RankingRow:
    return ranking_row(model, None, roofline)


def whole(name: str, time_s: float = 1.0, energy_j: float | None = 1.0, batch: int = 1) -> ModelResult:
    row = row_of(model_operator(name, None, (batch, 3)), time_s, energy_j)
    return ModelResult(SIMULATED_CONDITIONS, row, name=name, input_size=(batch, 3), units=Units(batch))


@given(st.lists(st.tuples(costs, st.none() | costs, st.integers(1, 64)), min_size=1, max_size=8))
def test_the_smallest_comes_first_and_the_unknown_last(models: list[tuple[float, float | None, int]]) -> None:
    rows = [ranking_row(whole(f"m{index}", *model), None, None) for index, model in enumerate(models)]
    keys = {
        ENERGY: lambda row: row.energy_per_sample_j,
        TIME: lambda row: row.time_per_sample_s,
        POWER: lambda row: row.power_w,
        SAVING: lambda row: row.saving_energy_per_sample_j,
        NAME: lambda row: row.name,
    }
    for by in SORTS:
        found = ranked(rows, by)
        assert sorted(row.name for row in found) == sorted(row.name for row in rows)
        values = [keys[by](row) for row in found]
        known = [value for value in values if value is not None]
        assert values == [*sorted(known), *[None] * (len(values) - len(known))]


def with_sum(cost: ModelCost) -> ModelResult:
    return ModelResult(SIMULATED_CONDITIONS, None, cost, name="m", input_size=(2, 3), units=Units(2))


def test_a_corrected_sum_has_the_error_of_the_method_too() -> None:
    plain = with_sum(sum_of({RELU: 1}, row_of(RELU, 1.0, 2.0)))
    curve = Curve(((1, Excess(Estimate(0.5, 0.0), Estimate(1.0, 0.0))),))
    corrected = replace(plain, corrections=Corrections({ELEMENTWISE: curve}))
    row, before = ranked_row(corrected), ranked_row(plain)
    assert row.time_standard_error_s == pytest.approx(
        math.hypot(before.time_standard_error_s or 0.0, METHOD_ERROR_RATIOS["time"] * 1.5)
    )
    assert row.energy_standard_error_j == pytest.approx(
        math.hypot(before.energy_standard_error_j or 0.0, METHOD_ERROR_RATIOS["energy"] * 3.0)
    )


def test_a_sum_that_draws_more_than_the_power_limit_is_doubtful_and_its_error_is_unknown() -> None:
    limit_w = SIMULATED_CONDITIONS.device_power_limit_w or 0.0
    deviations = Differences(9, 0.01, 0.02)
    for power_ratio, is_above in ((1.0, False), (1.22, True)):
        model = with_sum(sum_of({RELU: 1}, row_of(RELU, 1.0, power_ratio * limit_w)))
        row = ranking_row(model, SumErrors(deviations, deviations), None)
        assert (row.is_above_power_limit, is_cost_doubtful(row)) == (is_above, is_above)
        assert (row.expected_time_error_ratio is None) == (row.expected_energy_error_ratio is None) == is_above
        assert any("power limit" in line for line in doubt_lines([row])) == is_above


def test_a_training_step_has_its_phases_and_the_share_of_the_idle_power() -> None:
    phases = tuple(whole("m", *costs) for costs in ((1.0, 100.0), (2.0, 300.0), (0.5, None)))
    step = replace(whole("m", 4.0, 400.0, batch=8), phases=phases)
    row, unqualified, pass_ = (
        ranking_row(one, None, None, idle_w) for one, idle_w in ((step, 25.0), (step, None), (whole("m"), 25.0))
    )
    assert (row.forward_time_s, row.backward_time_s, row.optimizer_time_s) == (1.0, 2.0, 0.5)
    assert (row.forward_energy_j, row.backward_energy_j, row.optimizer_energy_j) == (100.0, 300.0, None)
    assert (row.time_per_sample_s, row.samples_per_joule, row.idle_energy_ratio) == (0.5, 0.02, 0.25)
    assert (unqualified.idle_energy_ratio, pass_.forward_time_s, pass_.backward_energy_j) == (None, None, None)


def test_a_table_of_steps_has_their_phases_for_a_sample() -> None:
    phases = tuple(whole("m", *costs) for costs in ((1.0, 100.0), (2.0, 300.0), (0.5, None)))
    step = replace(whole("m", 4.0, 400.0, batch=8), phases=phases)
    shown = ShownModel(ranking_row(step, None, None, 25.0), None, (), (), step)
    ranking = DeviceRanking("card", (shown,), (), board_differences(()), step.conditions)
    table = table_of(ranking, ENERGY)
    assert table is not None
    assert table.title.startswith("Energy per sample of a training step on ")
    cells = {column.title: column.text(table.records[0]) for column in table.columns}
    assert (cells["backward ms/sample"], cells["backward mJ/sample"]) == ("250.0", "37500")
    assert (cells["samples/J"], cells["optimizer mJ/sample"], cells["idle share"]) == ("0.02000", "-", "25 %")
    assert IDLE in table.notes


def test_an_eager_whole_has_no_ratio_to_a_sum_of_graphs() -> None:
    cost = sum_of({RELU: 1}, row_of(RELU, 1.0, 1.0))
    compared = replace(whole("m", 2.0, 2.0), cost=cost)
    assert compared.corrected_ratios == (0.5, 0.5)
    row = replace(compared.whole, conditions=replace(compared.whole.conditions, execution=GRAPH))
    eager = replace(compared, whole=row)
    assert eager.corrected_ratios == (None, None)
    assert eager.time_s == compared.time_s


def test_without_energies_shares_are_those_of_the_time() -> None:
    cost = sum_of({RELU: 1, LINEAR: 1}, row_of(RELU, 3.0, None), row_of(LINEAR, 1.0, 1.0))
    kinds = kind_costs(with_sum(cost), None, ENERGY)
    assert [(kind.operator, kind.costs.energy_ratio, kind.costs.ratio(ENERGY)) for kind in kinds] == [
        ("ReLU", None, 0.75),
        ("Linear", None, 0.25),
    ]


@pytest.mark.parametrize("by", [ENERGY, POWER])
def test_if_one_energy_is_unknown_operators_and_kinds_are_in_the_order_of_time(by: str) -> None:
    # ReLU has 50 J, more than Linear has seconds.
    cost = sum_of({RELU: 1, LINEAR: 1}, row_of(RELU, 1.0, 50.0), row_of(LINEAR, 9.0, None))
    names = ["Linear", "ReLU"]
    assert [one.operator.rpartition(".")[2] for one in operator_costs(with_sum(cost), None, by)] == names
    kinds = kind_costs(with_sum(cost), None, by)
    assert [kind.operator for kind in sorted(kinds, key=lambda kind: rank_of(kind, by))] == names
    row = ranked_row(with_sum(cost))
    assert any("order are those of time" in line for line in doubt_lines([row]))


def test_if_one_energy_is_unknown_operators_are_in_the_order_of_the_time_that_they_save() -> None:
    best = [row_of(RELU, 0.001, 0.1), row_of(LINEAR, 0.01, 5.0)]
    roofline = roofline_of_rows(best, COUNTS)
    # ReLU would save 49.9 J of 0.999 s, SiLU 2.999 s.
    cost = sum_of({RELU: 1, SILU: 1}, row_of(RELU, 1.0, 50.0), row_of(SILU, 3.0, None))
    found = operator_costs(with_sum(cost), roofline, SAVING)
    assert [one.operator for one in found] == ["torch.nn.SiLU", "torch.nn.ReLU"]


@pytest.mark.parametrize(
    ("flags", "input_data"),
    [
        *(((flag,), "normal") for flag in (Flag.UNEVEN, Flag.NOT_AS_COUNTED, Flag.VALUE_DEPENDENT)),
        ((), "captured: normal; weights 0.9 zeros"),
    ],
)
def test_what_is_disturbed_does_other_work_or_has_zeros_in_weights_is_no_roof(
    flags: tuple[Flag, ...], input_data: str
) -> None:
    rows = [row_of(RELU, 0.001, 0.1), row_of(LINEAR, 0.01, 5.0)]
    fastest = row_of(SILU, 1e-9, 1e-9)
    other = replace(fastest, measurement=replace(fastest.measurement, flags=flags), input_data=input_data)
    assert roofline_of_rows([*rows, fastest], COUNTS) != roofline_of_rows(rows, COUNTS)
    assert roofline_of_rows([*rows, other], COUNTS) == roofline_of_rows(rows, COUNTS)


def test_an_operators_saving_is_its_cost_above_the_roof() -> None:
    best = [row_of(RELU, 0.001, 0.1), row_of(LINEAR, 0.01, 5.0)]
    roofline = roofline_of_rows(best, COUNTS)
    # SiLU moves as much as ReLU, at twice the time and four times the energy.
    model = with_sum(sum_of({RELU: 1, SILU: 3}, *best, row_of(SILU, 0.002, 0.4)))
    silu, relu = operator_costs(model, roofline, SAVING)
    assert (silu.operator, silu.bound, silu.costs.calls) == ("torch.nn.SiLU", "memory", 3)
    assert (silu.call_time_s, silu.call_energy_j) == (pytest.approx(0.002), pytest.approx(0.4))
    assert (silu.costs.roof_time_ratio, silu.costs.roof_energy_ratio) == (pytest.approx(0.5), pytest.approx(0.25))
    assert silu.costs.saving_time_s == pytest.approx(3 * 0.001)
    assert silu.costs.saving_energy_j == pytest.approx(3 * 0.3)
    assert relu.costs.saving_energy_j == pytest.approx(0)
    row = ranking_row(model, None, roofline)
    # Of a batch of two.
    assert row.saving_energy_per_sample_j == pytest.approx(3 * 0.3 / 2)
    assert row.saving_time_per_sample_s == pytest.approx(3 * 0.001 / 2)


# Errors of sums


def compared(deviation: float, **flags: tuple[Flag, ...]) -> ModelResult:
    """Return a model whose sum takes 1 s and 1 J and deviates from its whole by a ratio."""
    cost = sum_of({RELU: 1}, row_of(RELU, 1.0, 1.0))
    row = row_of(model_operator("m", None, (1, 3)), 1 / (1 + deviation), 1 / (1 + deviation))
    row = replace(row, measurement=replace(row.measurement, **flags))
    return ModelResult(SIMULATED_CONDITIONS, row, cost, name="m", input_size=(1, 3), units=Units(1))


def test_the_expected_error_is_a_high_quantile_of_deviations_to_either_side() -> None:
    models = [compared(sign * deviation / 100) for deviation in range(1, 11) for sign in (-1, 1)]
    errors = sum_errors(models)[False]
    assert not errors.is_assumed
    assert (errors.time.models, errors.energy.models) == (20, 20)
    assert errors.time.median_ratio == pytest.approx(0.06)
    assert errors.time.high_ratio == pytest.approx(0.10)
    assert errors.energy.high_ratio == pytest.approx(0.10)
    # Of ten models none is expected beyond the quantile, so that the errors of other sums count, too.
    few = sum_errors(models[:10])[False]
    assert (few.is_assumed, few.time.models, few.energy.models) == (False, 10, 10)
    assert few.time.high_ratio == ASSUMED_SUM_ERRORS[False].time.high_ratio > 0.05
    assert few.energy.high_ratio == pytest.approx(0.05)


def test_of_few_wholes_or_without_a_cache_correction_the_errors_of_other_sums_are_expected() -> None:
    few, none = [compared(0.01)] * (FEWEST_WHOLES - 1), [compared(0.01)] * FEWEST_WHOLES
    assert sum_errors(few)[False] == ASSUMED_SUM_ERRORS[False]
    assert sum_errors(none)[True] == ASSUMED_SUM_ERRORS[True]
    assert ASSUMED_SUM_ERRORS[True].time.high_ratio < ASSUMED_SUM_ERRORS[False].time.high_ratio
    assert ASSUMED_SUM_ERRORS[True].is_assumed


def test_flagged_wholes_say_nothing_of_the_error() -> None:
    models = [*[compared(0.01)] * ENOUGH_WHOLES, compared(9.0, flags=(Flag.UNEVEN,))]
    assert sum_errors(models)[False].time.high_ratio == pytest.approx(0.01)


def test_flagged_operators_make_the_sum_beside_a_sound_whole_doubtful() -> None:
    flagged = row_of(RELU, 1.0, 1.0)
    flagged = replace(flagged, measurement=replace(flagged.measurement, flags=(Flag.UNEVEN,)))
    row = ranked_row(replace(compared(0.01), cost=sum_of({RELU: 1}, flagged)))
    assert (row.is_flagged, row.is_sum_flagged, row.is_whole_flagged) == (True, True, False)
    assert is_sum_doubtful(row)
    assert not is_cost_doubtful(row)
    assert any("flagged operators" in line for line in doubt_lines([row]))


def test_a_flagged_whole_is_doubtful_and_its_sum_is_not() -> None:
    row = ranked_row(compared(0.01, flags=(Flag.UNEVEN,)))
    assert (row.is_flagged, is_cost_doubtful(row), is_sum_doubtful(row)) == (True, True, False)


@pytest.mark.parametrize("deviation", [-0.4, 0.4])
def test_a_sum_far_from_its_whole_is_doubtful(deviation: float) -> None:
    row = ranked_row(compared(deviation))
    assert (row.is_unexplained, is_cost_doubtful(row), is_sum_doubtful(row)) == (True, True, True)


def incomplete_sum(memory_bytes_ratio: float) -> ModelCost:
    return replace(sum_of({RELU: 1, SILU: 1}, row_of(RELU, 0.5, 0.5)), memory_bytes_ratio=memory_bytes_ratio)


def test_what_dominates_is_unknown_if_many_bytes_are_not_measured() -> None:
    model = replace(compared(0.0), cost=incomplete_sum(0.5))
    roofline = roofline_of_rows([row_of(LINEAR, 0.01, 5.0)], COUNTS)
    row = ranked_row(model, roofline)
    assert (row.is_missing, row.memory_bytes_ratio) == (True, 0.5)
    assert kind_costs(model, roofline, ENERGY) == ()
    assert (row.roof_time_ratio, row.roof_energy_ratio, row.saving_energy_per_sample_j) == (None, None, None)
    assert doubt_lines([row]) == [
        "(!) m (50.0 % of bytes measured): operators are missing from the sum; below 95 %, kinds, roof and saving are "
        "unknown."
    ]


def test_a_sum_with_nearly_all_bytes_has_kinds_and_a_doubt() -> None:
    model = replace(compared(0.0), cost=incomplete_sum(0.97))
    assert [kind.operator for kind in kind_costs(model, None, ENERGY)] == ["ReLU"]
    assert is_sum_doubtful(ranked_row(model))


def at_50_celsius(row: MeasurementRow, energy_j: float) -> MeasurementRow:
    return replace(row, measurement=replace(row.measurement, energy_at_reference_j=energy_j))


def test_a_wholes_energy_stays_normalised_if_an_operators_cannot_be() -> None:
    one = compared(0.0)
    assert one.whole is not None
    model = replace(one, whole=at_50_celsius(one.whole, 0.97))
    row = ranked_row(model)
    assert (row.energy_j, row.reference_temperature_c, row.sum_reference_temperature_c) == (0.97, 50.0, None)
    # Sum and whole are compared as measured, both 1 J.
    assert row.corrected_energy_ratio == pytest.approx(1)
    assert energies_line([row]) == "Energies are total, at 50 °C; those of operators as measured for m."


# The share of the roof


@given(costs, costs, costs, costs, st.integers(1, 9))
def test_the_share_of_the_roof_is_at_most_1(
    time_s: float, energy_j: float, other_s: float, other_j: float, calls: int
) -> None:
    cost = sum_of({RELU: calls, LINEAR: 1}, row_of(RELU, time_s, energy_j), row_of(LINEAR, other_s, other_j))
    shares = roof_share(works_of(cost), roofline_of_rows((part.row for part in cost.parts), COUNTS))
    assert all(0 < (share or 0) <= 1 + 1e-12 for share in shares)


def test_the_best_operators_are_at_the_roof_and_others_below() -> None:
    best = [row_of(RELU, 0.001, 0.1), row_of(LINEAR, 0.01, 5.0)]
    roofline = roofline_of_rows(best, COUNTS)
    at_roof = roof_share(works_of(sum_of({RELU: 5, LINEAR: 2}, *best)), roofline)
    assert at_roof == (pytest.approx(1), pytest.approx(1))
    # SiLU moves as much as ReLU, at twice the time and four times the energy: 1 + 1 of 1 + 2, and 1 + 1 of 1 + 4.
    below = roof_share(works_of(sum_of({RELU: 1, SILU: 1}, *best, row_of(SILU, 0.002, 0.4))), roofline)
    assert below == (pytest.approx(2 / 3), pytest.approx(2 / 5))


@pytest.mark.parametrize("loop_s", [0.5, 50.0])
@pytest.mark.parametrize("order", [1, -1])
def test_the_roof_is_the_best_rate_of_any_board_whatever_its_loop_and_place(loop_s: float, order: int) -> None:
    slow, fast = row_of(LINEAR, 0.02, 5.0), row_of(LINEAR, 0.01, 6.0)
    fast = replace(fast, measurement=replace(fast.measurement, loop_time_s=loop_s))
    fast = replace(fast, circumstances=replace(fast.circumstances, device_uuid="another"))
    roofline = roofline_of_rows([slow, fast][::order], COUNTS)
    assert (*roofline.time.flop_rates.values(), roofline.time.byte_rate) == (1e14, 1e10)
    assert (*roofline.energy.flop_rates.values(), roofline.energy.byte_rate) == (2e11, 2e7)


def test_without_rows_or_roofs_the_share_is_unknown() -> None:
    cost = sum_of({RELU: 1}, row_of(RELU, 0.001, 0.1))
    assert roofline_of_rows((part.row for part in cost.parts), COUNTS) is None
    assert roof_share(works_of(cost), None) == (None, None)


# Differences between boards in the time and energy of whole models


MODEL = model_operator("resnet18", None, (1, 3, 8, 8))


def whole_on(board: str, time_s: float, energy_j: float | None, at_reference_j: float | None = None) -> MeasurementRow:
    figures = {"time_s": time_s, "energy_j": energy_j, "energy_at_reference_j": at_reference_j, "flags": ()}
    return declared_row(MODEL, circumstances={"device_uuid": board}, **figures)


def test_a_difference_is_that_of_the_largest_to_the_smallest_figure_of_a_model() -> None:
    found = board_differences(
        [
            [whole_on("a", 1.0, 10.0), whole_on("b", 1.1, 10.5), whole_on("c", 1.05, 10.2)],
            [whole_on("a", 2.0, 20.0), whole_on("b", 2.06, 20.0)],
            [whole_on("d", 9.0, 90.0)],
        ]
    )
    assert found.boards == 4
    assert (found.time.models, found.energy.models) == (2, 2)
    assert (found.time.median_ratio, found.time.high_ratio) == pytest.approx((0.065, 0.1))
    assert (found.energy.median_ratio, found.energy.high_ratio) == pytest.approx((0.025, 0.05))


def test_energies_are_compared_on_the_same_basis() -> None:
    found = board_differences([[whole_on("a", 1.0, 10.0, 9.0), whole_on("b", 1.0, 20.0, 9.9)]])
    assert found.energy.high_ratio == pytest.approx(0.1)
    found = board_differences([[whole_on("a", 1.0, 10.0, 9.0), whole_on("b", 1.0, 20.0)]])
    assert found.energy.high_ratio == pytest.approx(1.0)


def test_without_two_boards_nothing_is_known_of_their_differences() -> None:
    flagged = whole_on("b", 5.0, 50.0)
    flagged = replace(flagged, measurement=replace(flagged.measurement, flags=(Flag.UNEVEN,)))
    found = board_differences([[whole_on("a", 1.0, None), flagged]])
    assert (found.boards, found.time, found.energy) == (1, None, None)
    assert board_differences([]).boards == 0
