"""Which tuples compared models use, how often, and what is to be known of their figures."""

from dataclasses import replace
from typing import Any

import pytest
from simulated_machine import SIMULATED_CONDITIONS, declared_row

from opcost.comparing.comparison import RemarkKind
from opcost.comparing.model_result import Evidence, ModelResult
from opcost.comparing.operator_costs import TupleCost, TupleFlag, Use, tuple_costs
from opcost.comparing.roofline import Work, arithmetic_of
from opcost.estimates import Estimate
from opcost.measuring.conditions import EAGER, GRAPH, measurement_key
from opcost.measuring.flags import Flag
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import Case, OperatorCount, OperatorCounts, Selection
from opcost.operators.tuples import OperatorTuple, TensorSpec, model_operator
from opcost.summing.summation import Measurements

RELU, GELU, SILU, LINEAR, ERF, VIEW = (
    OperatorTuple(f"torch.nn.{name}", inputs=(TensorSpec((4,), "float32"),))
    for name in ("ReLU", "GELU", "SiLU", "Linear", "Erf", "View")
)
FIRST, SECOND = (model_operator("resnet18", None, (batch, 3, 8, 8)) for batch in (1, 2))
IN_GRAPHS = replace(SIMULATED_CONDITIONS, execution=GRAPH)
TIMES_S = {RELU: 0.001, GELU: 0.002, SILU: 0.004, FIRST: 0.01, SECOND: 0.02}


def row_of(operator: OperatorTuple, **measured: Any) -> MeasurementRow:
    figures = {"time_s": TIMES_S[operator], "energy_j": 0.5, "executed_as": GRAPH, **measured}
    return declared_row(operator, IN_GRAPHS, **figures)


def counts_of(model: OperatorTuple, **calls: int) -> OperatorCounts:
    operators = {operator.short_name: operator for operator in (RELU, GELU, SILU, LINEAR, ERF, VIEW)}
    costs = {name: (0, 0) if name == "View" else (30, 8) for name in calls}
    counts = tuple(OperatorCount(operators[name], number, *costs[name]) for name, number in calls.items())
    return OperatorCounts(model, counts, 100, 100, 0, "2.11.0", "cuda")


def compared(kept: OperatorCounts, dropped: OperatorCounts, *rows: MeasurementRow) -> ModelResult:
    return Evidence(Measurements(rows)).result(Selection(kept, dropped), [row_of(kept.model)])


def by_operator(*comparisons: ModelResult) -> dict[str, TupleCost]:
    return {cost.case.operator.short_name: cost for cost in tuple_costs(comparisons)}


def flags_of(row: MeasurementRow, calls: str = "kept") -> set[TupleFlag]:
    kept, dropped = (counts_of(FIRST, ReLU=1) if calls == name else counts_of(FIRST) for name in ("kept", "dropped"))
    return by_operator(compared(kept, dropped, row))["ReLU"].flags


def test_uses_are_the_calls_of_each_model_in_its_sum_and_out_of_it() -> None:
    rows = [row_of(operator) for operator in (RELU, GELU, SILU)]
    first = compared(counts_of(FIRST, ReLU=3, Linear=7, View=5), counts_of(FIRST, SiLU=2, Erf=4), *rows)
    second = compared(counts_of(SECOND, ReLU=1, GELU=1), counts_of(SECOND), *rows)
    assert {name: cost.uses for name, cost in by_operator(first, second).items()} == {
        "ReLU": [Use(0, 3), Use(1, 1)],
        "GELU": [Use(1, 1)],
        "SiLU": [Use(0, 2, is_summed=False)],
        "Linear": [Use(0, 7)],
        "Erf": [Use(0, 4, is_summed=False)],
    }


def test_those_come_first_that_cost_the_models_most_time() -> None:
    rows = [row_of(operator) for operator in (RELU, GELU, SILU)]
    calls = compared(counts_of(FIRST, Linear=9, SiLU=1, GELU=3, ReLU=3), counts_of(FIRST, ReLU=2), *rows)
    found = [cost.case.operator.short_name for cost in tuple_costs([calls])]
    assert found == ["GELU", "ReLU", "SiLU", "Linear"]


def test_a_tuple_that_is_not_measured_has_no_figures() -> None:
    first = compared(counts_of(FIRST, Linear=7), counts_of(FIRST, Erf=4), row_of(RELU))
    found = by_operator(first)
    assert found["Linear"].flags == {TupleFlag.NOT_MEASURED}
    assert found["Erf"].flags == {TupleFlag.NOT_MEASURED, TupleFlag.DROPPED}
    assert (found["Linear"].time_s, found["Linear"].energy_j, found["Linear"].work) == (None, None, None)


def test_a_tuple_has_the_figures_of_its_row() -> None:
    row = row_of(RELU, time_standard_error_s=0.1, energy_standard_error_j=0.2)
    found = by_operator(compared(counts_of(FIRST, ReLU=3), counts_of(FIRST), row))["ReLU"]
    assert found.row == row
    assert (found.time_s, found.energy_j) == (Estimate(0.001, 0.1), Estimate(0.5, 0.2))
    assert found.work == Work(30, 8, 0.001, 0.5, arithmetic_of(RELU, SIMULATED_CONDITIONS))


@pytest.mark.parametrize(
    ("measured", "flag"),
    [
        ({"flags": (Flag.METERS_DISAGREE,)}, TupleFlag.FLAGGED),
        ({"flags": (Flag.IMPRECISE,)}, TupleFlag.NOT_PRECISE),
        ({"flags": (Flag.NOT_AS_COUNTED,)}, TupleFlag.OTHER_WORK),
        ({"flags": (Flag.VALUE_DEPENDENT,)}, TupleFlag.OTHER_WORK),
        ({"flags": (Flag.DUTY_CYCLE,)}, TupleFlag.DUTY_CYCLE),
        ({"flags": (Flag.AT_POWER_LIMIT,)}, TupleFlag.POWER_LIMIT),
        ({"flags": (Flag.POWER_CAPPED,)}, TupleFlag.POWER_LIMIT),
        ({"executed_as": EAGER}, TupleFlag.EAGER),
        ({"energy_j": None, "energy_standard_error_j": None}, TupleFlag.NO_ENERGY),
    ],
)
def test_what_is_to_be_known_of_a_row_is_a_flag(measured: dict[str, Any], flag: TupleFlag) -> None:
    assert flags_of(row_of(RELU)) == set()
    assert flags_of(row_of(RELU, **measured)) == {flag}
    assert flags_of(row_of(RELU, **measured), "dropped") == {flag, TupleFlag.DROPPED}


def test_a_power_that_the_board_cannot_draw_is_flagged_and_remarked_on() -> None:
    impossible = row_of(RELU, power_w=2000.0)
    assert flags_of(impossible) == {TupleFlag.FLAGGED, TupleFlag.IMPOSSIBLE}
    comparison = compared(counts_of(FIRST, ReLU=1), counts_of(FIRST), impossible)
    (remark,) = [one for one in comparison.remarks if one.kind is RemarkKind.FLAGGED_OPERATORS]
    assert (remark.figures["time_ratio"], remark.figures["flags"]) == (1.0, ("impossible-power",))


def test_more_than_the_card_s_memory_moves_is_flagged_but_its_time_is_not_doubtful() -> None:
    counts = counts_of(FIRST, ReLU=1)
    whole_table = replace(counts.counts[0], memory_bytes=10**12)
    on_card = replace(IN_GRAPHS, device_product="NVIDIA H200")
    row = replace(row_of(RELU), conditions=on_card, key=measurement_key(Case(RELU), on_card))
    full = replace(row_of(FIRST), conditions=on_card, key=measurement_key(Case(FIRST), on_card))
    selection = Selection(replace(counts, counts=(whole_table,)), counts_of(FIRST))
    comparison = Evidence(Measurements([row])).result(selection, [full])
    (cost,) = tuple_costs([comparison])
    assert cost.flags == {TupleFlag.IMPOSSIBLE}
    assert RemarkKind.FLAGGED_OPERATORS not in {one.kind for one in comparison.remarks}


def test_a_row_of_another_board_is_flagged() -> None:
    row = row_of(RELU)
    other = replace(row, circumstances=replace(row.circumstances, device_uuid="another board"))
    assert flags_of(other) == {TupleFlag.OTHER_BOARD}


def test_a_flag_of_one_model_is_one_of_the_tuple() -> None:
    row = row_of(RELU)
    of_dropped = compared(counts_of(FIRST), counts_of(FIRST, ReLU=1), row)
    of_summed = compared(counts_of(SECOND, ReLU=1), counts_of(SECOND), row)
    assert by_operator(of_dropped, of_summed)["ReLU"].flags == {TupleFlag.DROPPED}
