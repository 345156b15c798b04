"""Layers: the rows of all calls add up to the sum of operators, and a tree has the totals of its subtrees."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from simulated_machine import SIMULATED_CONDITIONS, declared_row

from opcost.comparing.layers import COMPUTES_NOTHING, NO_ROW, LayerNode, LayerRow, layers_of
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import CalledModule, Case, OperatorCount, OperatorCounts
from opcost.operators.training import Training
from opcost.operators.tuples import OperatorTuple, Phase, TensorSpec, model_operator
from opcost.operators.values import NORMAL_DATA, ZEROS_DATA, InputData, InputStatistics
from opcost.summing.summation import NOTHING_SUMMED, Measurements, ModelCost, sum_operators

INPUT, OUTPUT = TensorSpec((2, 4), "float32"), TensorSpec((2, 8), "float32")
LINEAR = OperatorTuple("torch.nn.Linear", (("in_features", 4), ("out_features", 8)), (INPUT,), mode="eval")
HEAD = OperatorTuple("torch.nn.Linear", (("in_features", 8), ("out_features", 2)), (OUTPUT,), mode="eval")
DROPOUT = OperatorTuple("torch.nn.Dropout", (), (INPUT,), mode="eval")
ADD = OperatorTuple("torch.Tensor.add", (), (INPUT, INPUT), mode=None)

STANDARD, ZEROS = InputStatistics(0.0, 0.0, 1.0), InputStatistics(1.0, 0.0, 0.0)
MODULES = tuple(
    CalledModule(path, name, weights)
    for path, name, weights in [
        *(("", "Net", 56), ("block", "Block", 40), ("block.linear", "Linear", 40)),
        *(("block.dropout", "Dropout", 0), ("head", "Linear", 18)),
    ]
)
NET, BLOCK, OF_LINEAR, OF_DROPOUT, OF_HEAD = range(5)


def called(count: OperatorCount, callers: dict[int, int], *statistics: InputStatistics) -> OperatorCount:
    """Return a count with the caller of each call by its position, and the statistics of its first input."""
    places = {"positions": tuple(callers), "callers": tuple(callers.values())}
    return replace(count, statistics=tuple((one,) for one in statistics), **places)


# block.linear, block.dropout, block.linear, add in block, add in the model, head
COUNTS = OperatorCounts(
    model=model_operator("net", None, (2, 4)),
    counts=(
        called(OperatorCount(LINEAR, 2, 128, 100, OUTPUT), {0: OF_LINEAR, 2: OF_LINEAR}, STANDARD, ZEROS),
        called(OperatorCount(DROPOUT, 1, 0, 0, INPUT), {1: OF_DROPOUT}, ZEROS),
        called(OperatorCount(ADD, 2, 8, 96, INPUT), {3: BLOCK, 4: NET}, STANDARD, STANDARD),
        called(OperatorCount(HEAD, 1, 64, 90), {5: OF_HEAD}, STANDARD),
    ),
    total_flop=336,
    total_memory_bytes=482,
    parameters=56,
    torch_version="2.11.0",
    device_type="cpu",
    modules=MODULES,
)


def row_of(
    operator: OperatorTuple, time_s: float, energy_j: float | None, data: InputData = NORMAL_DATA
) -> MeasurementRow:
    return declared_row(
        operator,
        input_data=data,
        time_s=time_s,
        time_standard_error_s=0.01 * time_s,
        energy_j=energy_j,
        energy_standard_error_j=None if energy_j is None else 0.01 * energy_j,
        energy_at_reference_j=None,
        energy_at_reference_standard_error_j=None,
    )


def summed(rows: Iterable[MeasurementRow], counts: OperatorCounts = COUNTS) -> ModelCost:
    return sum_operators(counts, Measurements(rows), SIMULATED_CONDITIONS)


@pytest.fixture
def cost() -> ModelCost:
    """The sum without a row for the head."""
    return summed([row_of(LINEAR, 1.0, 10.0), row_of(LINEAR, 3.0, 20.0, ZEROS_DATA), row_of(ADD, 0.5, 2.0)])


def named(rows: Iterable[LayerRow]) -> list[tuple[str, str, int]]:
    return [(row.path, row.layer, row.calls) for row in rows]


def total_s(rows: Iterable[LayerRow]) -> float:
    return math.fsum(row.time_s for row in rows if row.time_s is not None)


def nodes_of(node: LayerNode) -> Iterator[LayerNode]:
    yield node
    for child in node.children:
        yield from nodes_of(child)


def test_each_call_has_the_row_of_its_case_in_the_order_of_execution(cost: ModelCost) -> None:
    rows = layers_of(COUNTS, cost).rows
    assert named(rows) == [
        *(("block.linear", "Linear", 1), ("block.dropout", "Dropout", 1), ("block.linear", "Linear", 1)),
        *(("block", "add", 1), ("", "add", 1), ("head", "Linear", 1)),
    ]
    assert [row.time_s for row in rows] == [1.0, None, 3.0, 0.5, 0.5, None]
    assert [row.energy_j for row in rows] == [10.0, None, 20.0, 2.0, 2.0, None]
    assert total_s(rows) == pytest.approx(cost.time_s.value, rel=1e-12)
    assert sum(row.time_ratio or 0.0 for row in rows) == pytest.approx(1)
    assert sum(row.energy_ratio or 0.0 for row in rows) == pytest.approx(1)


def test_a_call_without_a_row_has_a_reason_and_no_figure(cost: ModelCost) -> None:
    rows = layers_of(COUNTS, cost).rows
    dropout, head = rows[1], rows[-1]
    assert (dropout.missing_reason, dropout.calls_without_row, dropout.memory_bytes) == (COMPUTES_NOTHING, 0, 0)
    assert (head.missing_reason, head.calls_without_row, head.time_ratio) == (NO_ROW, 1, None)
    assert (head.flop, head.memory_bytes) == (64, 90)
    assert {row.missing_reason for row in layers_of(COUNTS, NOTHING_SUMMED).rows} == {COMPUTES_NOTHING, NO_ROW}


def test_a_layer_has_its_operators_facts(cost: ModelCost) -> None:
    first, *_, add, head = layers_of(COUNTS, cost).rows
    assert (first.operator, first.key, first.parameters) == (
        *("torch.nn.Linear", LINEAR.key, "in_features=4, out_features=8"),
    )
    assert (first.input_sizes, first.output_sizes, first.weights, first.training_mode) == ("2x4", "2x8", 40, "eval")
    assert (add.weights, add.operator, head.output_sizes) == (None, "torch.Tensor.add", "")


def test_rows_to_a_depth_have_all_that_is_inside_them(cost: ModelCost) -> None:
    layers = layers_of(COUNTS, cost)
    assert named(layers.rows_to(1)) == [("block", "Block", 4), ("", "add", 1), ("head", "Linear", 1)]
    block, add, head = layers.rows_to(1)
    assert (block.time_s, block.energy_j, block.flop, block.weights) == (4.5, 32.0, 264, 40)
    assert (block.operator, block.key, block.parameters, block.input_sizes) == (None, None, None, None)
    assert (add.key, head.key) == (ADD.key, HEAD.key)
    assert named(layers.rows_to(2)) == [
        *(("block.linear", "Linear", 2), ("block.dropout", "Dropout", 1)),
        *(("block", "add", 1), ("", "add", 1), ("head", "Linear", 1)),
    ]
    assert layers.rows_to(9) == layers.rows_to(2)
    (whole,) = layers.rows_to(0)
    assert (whole.path, whole.layer, whole.calls, whole.calls_without_row) == ("", "Net", 6, 1)
    assert whole.missing_reason == f"1 of 6 calls {NO_ROW}"
    for depth in range(4):
        assert total_s(layers.rows_to(depth)) == pytest.approx(5.0, rel=1e-12)


def test_a_node_has_the_totals_of_its_subtree(cost: ModelCost) -> None:
    tree = layers_of(COUNTS, cost).tree
    assert [node.name for node in nodes_of(tree)] == ["", "block", "linear", "dropout", "add", "add", "head"]
    for node in nodes_of(tree):
        if node.children:
            rows = [child.row for child in node.children]
            assert node.row.time_s == pytest.approx(total_s(rows), rel=1e-12)
            assert node.row.calls == sum(row.calls for row in rows)
            assert node.row.memory_bytes == sum(row.memory_bytes for row in rows)
            assert node.row.position == rows[0].position
    assert tree.row == layers_of(COUNTS, cost).rows_to(0)[0]


def test_calls_of_shapes_only_share_the_mean_of_their_operators_rows(cost: ModelCost) -> None:
    on_shapes = replace(COUNTS, counts=tuple(replace(count, statistics=()) for count in COUNTS.counts))
    layers = layers_of(on_shapes, cost)
    assert [row.time_s for row in layers.rows] == [2.0, None, 2.0, 0.5, 0.5, None]
    assert layers.are_means
    assert not layers_of(COUNTS, cost).are_means


def test_other_values_than_those_of_the_sum_share_the_mean(cost: ModelCost) -> None:
    first, *others = COUNTS.counts
    other = replace(COUNTS, counts=(replace(first, statistics=((STANDARD,), (STANDARD,))), *others))
    layers = layers_of(other, cost)
    assert [row.time_s for row in layers.rows][:3] == [2.0, None, 2.0]
    assert layers.are_means


def test_an_energy_that_is_unknown_stays_so_with_its_reason() -> None:
    rows = [row_of(LINEAR, 1.0, 10.0), row_of(ADD, 0.5, None)]
    layers = layers_of(COUNTS, summed(rows))
    of_calls = layers.rows
    assert [row.energy_j for row in of_calls] == [10.0, None, 10.0, None, None, None]
    assert [row.energy_missing_reason for row in of_calls] == [None, None, None, "no meter", "no meter", None]
    assert {row.energy_ratio for row in of_calls} == {None}
    (whole,) = layers.rows_to(0)
    assert (whole.energy_j, whole.energy_missing_reason, whole.time_s) == (None, "no meter", 3.0)


def test_unknown_flops_stay_unknown(cost: ModelCost) -> None:
    first, *others = COUNTS.counts
    counts = replace(COUNTS, counts=(replace(first, flop=None, without_formula=("m::s",)), *others))
    assert [row.flop for row in layers_of(counts, cost).rows_to(1)] == [None, 8, 64]


def test_a_module_that_is_an_operator_may_have_called_modules_inside_it() -> None:
    """A layer of a composite that another module calls, too."""
    inner = CalledModule("block.dropout.own", "Linear", 40)
    count = replace(COUNTS.counts[0], callers=(len(MODULES), OF_DROPOUT))
    counts = replace(COUNTS, counts=(count,), modules=(*MODULES, inner))
    names = [node.name for node in nodes_of(layers_of(counts, NOTHING_SUMMED).tree)]
    assert names == ["", "block", "dropout", "own"]


def test_a_model_that_is_an_operator_is_its_only_layer() -> None:
    counts = replace(COUNTS, counts=(replace(COUNTS.counts[3], positions=(0,), callers=(NET,)),))
    layers = layers_of(counts, NOTHING_SUMMED)
    assert (named(layers.rows), layers.tree.children) == ([("", "Net", 1)], ())
    assert layers.rows_to(0)[0].key == HEAD.key


# A training step

MATRICES = OperatorTuple("torch.ops.aten.mm", (), (INPUT, OUTPUT), mode=None)
LOSS = OperatorTuple("torch.nn.functional.cross_entropy", (), (OUTPUT,), mode=None)
ONES = OperatorTuple("torch.ops.aten.ones_like", (), (), mode=None)
UPDATE = OperatorTuple("torch.ops.aten._foreach_add_", (), (INPUT, INPUT), mode=None)


def in_phase(operator: OperatorTuple, phase: Phase, callers: dict[int, int]) -> OperatorCount:
    return replace(called(OperatorCount(operator, len(callers), 8, 96), callers), phase=phase)


STEP_MODULES = (
    CalledModule("", "TrainingStep", 56, "2x4", ""),
    *(replace(one, path=f"model.{one.path}" if one.path else "model") for one in MODULES),
    CalledModule("loss", "DrawnLoss", 0, "2x8", ""),
)
STEP, MODEL, STEP_BLOCK, STEP_LINEAR, _, STEP_HEAD, STEP_LOSS = range(7)

# block.linear, add in block, head, loss; ones, of the loss, head, head, linear; the optimiser
STEP_COUNTS = replace(
    COUNTS,
    model=Training(optimizer="adamw").of(model_operator("net", None, (2, 4))),
    modules=STEP_MODULES,
    counts=(
        in_phase(LINEAR, Phase.FORWARD, {0: STEP_LINEAR}),
        in_phase(ADD, Phase.FORWARD, {1: STEP_BLOCK}),
        in_phase(HEAD, Phase.FORWARD, {2: STEP_HEAD}),
        in_phase(LOSS, Phase.FORWARD, {3: STEP_LOSS}),
        in_phase(ONES, Phase.BACKWARD, {4: STEP}),
        in_phase(MATRICES, Phase.BACKWARD, {5: STEP_LOSS, 6: STEP_HEAD, 7: STEP_HEAD, 8: STEP_LINEAR}),
        in_phase(UPDATE, Phase.OPTIMIZER, {9: STEP}),
    ),
)


@pytest.fixture
def step_cost() -> ModelCost:
    """The sum without a row for the head's forward."""
    rows = [
        replace(row_of(operator, time_s, 10 * time_s), phase=phase, key=key)
        for operator, phase, time_s in [
            *((LINEAR, Phase.FORWARD, 3.0), (ADD, Phase.FORWARD, 0.5), (LOSS, Phase.FORWARD, 0.25)),
            *((ONES, Phase.BACKWARD, 0.25), (MATRICES, Phase.BACKWARD, 1.0), (UPDATE, Phase.OPTIMIZER, 2.0)),
        ]
        for key in [f"{Case(operator, phase=phase).key}-{SIMULATED_CONDITIONS.key}"]
    ]
    return summed(rows, STEP_COUNTS)


def test_a_step_has_forward_and_backward_of_a_layer_side_by_side(step_cost: ModelCost) -> None:
    rows = layers_of(STEP_COUNTS, step_cost).rows
    assert named(rows) == [
        *(("block.linear", "Linear", 2), ("block", "Block", 1), ("head", "Linear", 3), ("(loss)", "cross_entropy", 2)),
        *(("(no layer)", "backward", 1), ("(optimizer)", "adamw", 1)),
    ]
    assert [row.forward_time_s for row in rows] == [3.0, 0.5, None, 0.25, None, None]
    assert [row.backward_energy_j for row in rows] == [10.0, None, 20.0, 10.0, 2.5, None]
    assert [row.time_s for row in rows] == [4.0, 0.5, 2.0, 1.25, 0.25, 2.0]
    assert total_s(rows) == pytest.approx(step_cost.time_s.value, rel=1e-12)
    assert (rows[0].forward_time_ratio, rows[0].backward_energy_ratio, rows[0].time_ratio) == (0.3, 0.1, 0.4)
    assert [row.calls_without_row for row in rows] == [0, 0, 1, 0, 0, 0]
    linear, block, *_, optimizer = rows
    assert (linear.key, linear.input_sizes, linear.weights) == (LINEAR.key, "2x4", 40)
    # Its own calls, without those of its children.
    assert (block.weights, optimizer.weights) == (None, None)


def test_layers_of_a_step_have_the_depths_of_the_model(step_cost: ModelCost) -> None:
    layers = layers_of(STEP_COUNTS, step_cost)
    assert named(layers.rows_to(1)) == [
        *(("block", "Block", 3), ("head", "Linear", 3), ("(loss)", "cross_entropy", 2)),
        *(("(no layer)", "backward", 1), ("(optimizer)", "adamw", 1)),
    ]
    assert layers.rows_to(1)[0].weights == 40
    assert layers.rows_to(9) == layers.rows
    assert layers.rows_to(0)[0].layer == "Net"
    assert [node.name for node in nodes_of(layers.tree)] == [
        *("", "block", "linear", "head", "(loss)", "(no layer)", "(optimizer)")
    ]


def test_an_inference_pass_has_no_forward_and_backward(cost: ModelCost) -> None:
    layers = layers_of(COUNTS, cost)
    assert not layers.are_of_step
    assert {(row.forward_time_s, row.backward_time_s) for row in layers.rows} == {(None, None)}
