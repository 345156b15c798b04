"""Cases of a model's counts: operators, each on the kinds of values that it saw."""

from dataclasses import replace

import pytest
from simulated_machine import SIMULATED_CONDITIONS

from opcost.measuring.conditions import measurement_key
from opcost.operators.counts import (
    INPUT_DATA,
    Case,
    OperatorCount,
    OperatorCounts,
    as_counted,
    case_key,
    cases_of,
    conditions_key,
    tuple_key,
)
from opcost.operators.texts import parse_operator
from opcost.operators.tuples import OperatorTuple, Phase, TensorSpec, model_operator, short_hash
from opcost.operators.values import CONSTANT, NORMAL, NORMAL_DATA, ZEROS_DATA, InputData, InputStatistics, InputValues

SCALES = OperatorTuple(
    "torch.Tensor.mul",
    inputs=(
        TensorSpec((4, 8, 9), "float32"),
        TensorSpec((8, 1), "float32", identity=1),
        TensorSpec((3,), "int64", None, 2),
    ),
    mode=None,
)
SEEN_HALF, SEEN_NORMAL, SEEN_ZEROS = (InputStatistics(ratio, 0.0, 1.0) for ratio in (0.5, 0.0, 1.0))
HALF = InputData((InputValues(zeros_ratio=0.5),))


def test_calls_are_distinguished_by_the_values_that_they_saw():
    calls = ((SEEN_HALF, SEEN_NORMAL), (SEEN_NORMAL, SEEN_NORMAL), (SEEN_HALF, SEEN_NORMAL))
    count = OperatorCount(SCALES, 3, 0, 1, statistics=calls)
    half = InputData((InputValues(zeros_ratio=0.5), NORMAL))
    assert cases_of([count], "captured") == {Case(SCALES, half): 2, Case(SCALES): 1}
    assert cases_of([count], "normal") == {Case(SCALES): 3}
    assert cases_of([count], "zeros") == {Case(SCALES, ZEROS_DATA): 3}


def spec(*shape: int, identity: int = 0) -> TensorSpec:
    return TensorSpec(shape, "float32", identity=identity)


def function(name: str, *inputs: object, **keyword_inputs: object) -> OperatorTuple:
    return OperatorTuple(name, (), inputs, tuple(keyword_inputs.items()), mode=None)


WRITTEN_HALF = InputData((NORMAL, InputValues(zeros_ratio=0.5)))


@pytest.mark.parametrize(
    ("operator", "seen", "data"),
    [
        pytest.param(SCALES, None, NORMAL_DATA, id="not looked at"),
        pytest.param(
            replace(SCALES, inputs=(spec(400, 8, 9), *SCALES.inputs[1:])),
            (SEEN_NORMAL, SEEN_ZEROS),
            NORMAL_DATA,
            id="a small input",
        ),
        *(
            (function(f"torch.Tensor.{name}", spec(9), spec(9, identity=1)), (SEEN_ZEROS, SEEN_HALF), WRITTEN_HALF)
            for name in ("copy_", "fill_")
        ),
        pytest.param(
            function("torch.add", spec(9), spec(9), out=spec(9, identity=1)),
            (SEEN_NORMAL, SEEN_ZEROS),
            NORMAL_DATA,
            id="where a result goes",
        ),
        pytest.param(
            function("torch.ops.torchvision.nms", spec(9, 4), spec(9, identity=1), 0.5),
            (InputStatistics(0.0, 300.0, 200.0), SEEN_NORMAL),
            NORMAL_DATA,
            id="boxes",
        ),
    ],
)
def test_what_does_not_affect_the_cost_is_normal(operator, seen, data):
    count = OperatorCount(operator, 1, 0, 1, statistics=(seen,) if seen else ())
    assert cases_of([count, count], "captured") == {Case(operator, data): 2}


def test_a_phase_and_a_state_part_cases_and_are_in_no_key_at_their_default():
    cases = {Case(SCALES), Case(SCALES, state="far"), *(Case(SCALES, phase=phase) for phase in Phase)}
    assert len({case.key for case in cases}) == len(cases) == 1 + len(Phase)
    assert Case(SCALES).key == f"{SCALES.key}-{short_hash('normal')}"
    assert {tuple_key(case.key) for case in cases} == {SCALES.key}


@pytest.mark.parametrize("input_data", INPUT_DATA)
def test_operators_without_floating_inputs_have_no_values_to_choose(input_data):
    embedding = OperatorTuple("torch.nn.Embedding", inputs=(TensorSpec((3,), "int64"),))
    count = OperatorCount(embedding, 2, 0, 1, statistics=((), ()))
    assert cases_of([count], input_data) == {Case(embedding): 2}


WIDE_HALF, WIDE, CONSTANTS = (
    InputStatistics(0.5, 0.0, 20.0),
    InputStatistics(0.0, 0.0, 20.0),
    InputStatistics(0.0, 3.0, 0.0),
)


@pytest.mark.parametrize(
    ("operator", "parameters", "shows"),
    [
        ("torch.nn.Conv2d", (), False),
        ("torch.Tensor.add_", (), False),
        ("torch.cat", (), False),
        ("torch.nn.GELU", (), False),
        ("torch.nn.GELU", (("approximate", "tanh"),), True),
        ("torch.softmax", (), True),
        ("torch.nn.SiLU", (), True),
        ("torch.nn.MultiheadAttention", (), True),
        ("torch.nn.NobodyKnows", (), True),
    ],
)
def test_spread_distinguishes_calls_unless_it_is_known_to_change_nothing(operator, parameters, shows):
    tuple_ = OperatorTuple(operator, parameters, inputs=(spec(9),))
    count = OperatorCount(tuple_, 4, 0, 1, statistics=((WIDE,), (SEEN_NORMAL,), (WIDE_HALF,), (SEEN_HALF,)))
    cases = cases_of([count], "captured")
    distinct = (InputData((InputValues(zeros_ratio=ratio, spread=16.0),)) for ratio in (0.0, 0.5))
    narrow = {Case(tuple_), Case(tuple_, HALF)}
    assert cases.keys() == (narrow | {Case(tuple_, data) for data in distinct} if shows else narrow)
    assert cases.total() == 4


def test_zeros_and_constants_count_where_the_spread_does_not():
    relu = OperatorTuple("torch.nn.ReLU", inputs=(TensorSpec((9,), "float32"),))
    count = OperatorCount(relu, 3, 0, 1, statistics=((CONSTANTS,), (SEEN_ZEROS,), (WIDE,)))
    assert cases_of([count], "captured") == {
        Case(relu, InputData((CONSTANT,))): 1,
        Case(relu, ZEROS_DATA): 1,
        Case(relu): 1,
    }


def test_zeros_in_weights_part_the_cases_of_a_tuple() -> None:
    seen = ((SEEN_HALF,), (SEEN_HALF,), (SEEN_NORMAL,))
    relu = OperatorTuple("torch.nn.ReLU", (), (TensorSpec((100,), "float32"),))
    count = OperatorCount(relu, 3, 0, 1, statistics=seen, weight_zeros=(0.9, 0.0, 0.9))
    found = {str(case.input_data): calls for case, calls in cases_of([count], "captured").items()}
    assert found == {
        "captured: 0.5 zeros; weights 0.9 zeros": 1,
        "captured: 0.5 zeros": 1,
        "captured: normal; weights 0.9 zeros": 1,
    }
    assert cases_of([count], "normal") == {Case(relu): 3}


def test_a_case_with_its_count_is_the_same_case_and_the_count_has_no_calls() -> None:
    calls = ((SEEN_HALF, SEEN_NORMAL), (SEEN_NORMAL, SEEN_NORMAL))
    count = OperatorCount(
        *(SCALES, 2, 7, 9), statistics=calls, positions=(0, 1), callers=(0, 0), operations=(("mul", 1),)
    )
    counts = OperatorCounts(model_operator("resnet18", None, (1, 3, 8, 8)), (count,), 14, 18, 0, "2.11.0", "meta")
    cases = cases_of(counts.counts, "captured")
    found = as_counted(cases, counts)
    assert found == tuple(cases)
    assert [case.key for case in found] == [case.key for case in cases]
    for case in found:
        assert case.counted is not None
        assert case.counted_on == "meta"
        assert case.counted == OperatorCount(SCALES, 2, 7, 9, operations=(("mul", 1),))


# The parts of a row's key


def test_the_parts_of_a_key_are_what_it_was_put_together_from() -> None:
    case = Case(parse_operator("torch.nn.modules.activation.ReLU", "inplace=True", "float32[2, 3]", "inference"))
    key = measurement_key(case, SIMULATED_CONDITIONS)
    assert (tuple_key(key), case_key(key), conditions_key(key)) == (
        case.operator.key,
        case.key,
        SIMULATED_CONDITIONS.key,
    )
    assert tuple_key(case.key) == case.operator.key
