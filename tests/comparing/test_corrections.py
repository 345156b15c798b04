"""Products with a matrix: which are measured with weights from memory, and when both rows are a pair."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from simulated_machine import SIMULATED_CONDITIONS, declared_row

from opcost.comparing.corrections import excesses_from_memory, matrix_bytes
from opcost.estimates import Estimate
from opcost.measuring.conditions import COLD, WARM
from opcost.measuring.flags import Flag
from opcost.measuring.record import Excess, MeasurementRow
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.operators.values import InputStatistics
from opcost.summing.summation import Measurements

GRAPHS = replace(SIMULATED_CONDITIONS, execution="graph")
TOKENS = TensorSpec((64, 512), "float32", identity=0)


def linear(inputs: int, outputs: int, *dtype: tuple[str, str], flop: int = 5) -> OperatorCount:
    parameters = (("in_features", inputs), ("out_features", outputs), *dtype)
    return OperatorCount(OperatorTuple("torch.nn.Linear", parameters, (TOKENS,)), 4, flop, 10)


def function(name: str, *shapes: tuple[int, ...]) -> OperatorTuple:
    tensors = tuple(TensorSpec(shape, "bfloat16", identity=place) for place, shape in enumerate(shapes))
    return OperatorTuple(name, (), tensors, mode=None)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (linear(512, 100).operator, 4 * 51_200),
        (linear(512, 100, ("dtype", "bfloat16")).operator, 2 * 51_200),
        (function("torch.nn.functional.linear", (8, 9), (7, 9), (7,)), 2 * 63),
        (function("torch.addmm", (7,), (8, 9), (9, 7)), 2 * 63),
        (function("torch.bmm", (2, 8, 9), (2, 9, 7)), None),
        (function("torch.nn.functional.linear", (8, 9)), None),
        (OperatorTuple("torch.nn.Conv2d", (("in_channels", 3), ("out_channels", 8)), (TOKENS,)), None),
    ],
)
def test_a_product_with_one_matrix_has_the_bytes_of_it(operator: OperatorTuple, expected: int | None) -> None:
    assert matrix_bytes(operator) == expected


COUNT = linear(512, 512)


def row(cache: str, time_s: float, energy_j: float | None = None) -> MeasurementRow:
    return declared_row(
        COUNT.operator,
        replace(GRAPHS, cache=cache),
        time_s=time_s,
        time_standard_error_s=0.3,
        energy_j=energy_j,
        energy_standard_error_j=None if energy_j is None else 4.0,
        energy_at_reference_j=None,
        executed_as="graph",
        flags=(),
    )


WARM_ROW, COLD_ROW = row(WARM, 2.0, 20.0), row(COLD, 5.0, 70.0)


def found_of(*rows: MeasurementRow, board: str | None = None, **conditions: str) -> Excess | None:
    measurements = Measurements(rows).preferring(board)
    return excesses_from_memory([COUNT], measurements, replace(GRAPHS, **conditions)).get(COUNT.operator)  # type: ignore[arg-type]


def test_the_difference_of_both_rows_has_the_errors_of_both() -> None:
    time_s, energy_j = Estimate(3.0, pytest.approx(0.3 * 2**0.5)), Estimate(50.0, pytest.approx(4.0 * 2**0.5))
    assert found_of(WARM_ROW, COLD_ROW) == Excess(time_s, energy_j)
    # A pair without energies has a time; one that lacks an energy, and a row alone, is no pair.
    assert found_of(row(WARM, 2.0), row(COLD, 5.0)) == Excess(time_s, None)
    assert found_of(WARM_ROW, row(COLD, 5.0)) is found_of(WARM_ROW) is found_of(COLD_ROW) is None


def flagged(flag: Flag) -> Callable[[MeasurementRow], MeasurementRow]:
    return lambda row: replace(row, measurement=replace(row.measurement, flags=(flag,)))


def on_board(board: str) -> Callable[[MeasurementRow], MeasurementRow]:
    return lambda row: replace(row, circumstances=replace(row.circumstances, device_uuid=board))


@pytest.mark.parametrize(
    "changed",
    [
        flagged(Flag.RAN_WARM),
        flagged(Flag.POWER_CAPPED),
        flagged(Flag.UNEVEN),
        flagged(Flag.NOT_AS_COUNTED),
        on_board("another"),
        lambda row: replace(row, input_data="zeros"),
        lambda row: replace(row, measurement=replace(row.measurement, executed_as="eager")),
    ],
)
def test_rows_that_differ_in_more_than_the_cache_are_no_pair(
    changed: Callable[[MeasurementRow], MeasurementRow],
) -> None:
    assert found_of(WARM_ROW, changed(COLD_ROW)) is None
    assert found_of(changed(WARM_ROW), COLD_ROW) is None


@pytest.mark.parametrize("conditions", [{"cache": COLD}, {"execution": "eager"}])
def test_only_graphs_of_warm_operators_have_a_difference(conditions: dict[str, str]) -> None:
    assert found_of(WARM_ROW, COLD_ROW, **conditions) is None


def test_the_pair_of_the_whole_models_board_comes_first_and_else_any() -> None:
    other, ours = on_board("another"), WARM_ROW.circumstances.device_uuid
    slower = other(replace(WARM_ROW, measurement=replace(WARM_ROW.measurement, time_s=2.5)))
    for rows, board, time_s in (
        ((WARM_ROW, COLD_ROW, slower, other(COLD_ROW)), "another", 2.5),
        ((WARM_ROW, COLD_ROW, slower, other(COLD_ROW)), ours, 3.0),
        ((WARM_ROW, slower, other(COLD_ROW)), ours, 2.5),
        # A row without its pair hides no other pair.
        *(((WARM_ROW, COLD_ROW, other(COLD_ROW)), board, 3.0) for board in (None, "another", ours)),
    ):
        assert found_of(*rows, board=board).time_s.value == time_s


def test_of_several_input_data_those_of_most_calls_count() -> None:
    few, many = InputStatistics(0.0, 0.0, 1.0), InputStatistics(0.5, 0.0, 1.0)
    count = replace(COUNT, statistics=((few,), (many,), (many,), (many,)))
    data = max(count.captured_data, key=lambda one: count.captured_data[one])
    on_most = [replace(one, input_data=str(data)) for one in (WARM_ROW, row(COLD, 9.0, 70.0))]
    for rows in ((WARM_ROW, COLD_ROW, *on_most), (*on_most, WARM_ROW, COLD_ROW)):
        found = excesses_from_memory([count], Measurements(rows), GRAPHS)[count.operator]
        assert found.time_s.value == 7.0
