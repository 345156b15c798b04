"""Operators and models that run n times, on inputs drawn for them, under a chosen precision."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import MultiScaleRoIAlign

from opcost.errors import CannotMeasureError
from opcost.measuring.flags import Flag
from opcost.measuring.workload import Calls
from opcost.operators.tuples import (
    Constant,
    OperatorTuple,
    Phase,
    PlainValue,
    Structure,
    TensorSpec,
    channels_last_strides,
)
from opcost.operators.values import CONSTANT, NORMAL, NORMAL_DATA, ZEROS, ZEROS_DATA, InputData, InputValues, kind_of
from opcost.torch_backend.cost_counter import CostCounter, OperationCost
from opcost.torch_backend.inputs import DrawnInputs, input_statistics, operator_inputs
from opcost.torch_backend.operators import function_tuple, module_tuple
from opcost.torch_backend.passes import in_phase
from opcost.torch_backend.repeated_calls import AS_IT_IS, ELSEWHERE, IN_TURN, Operation, elsewhere, repeatable
from opcost.torch_backend.switches import autocast, torch_state
from opcost.torch_backend.values import plain_value
from opcost.torch_backend.workload import EagerWorkload, flags_of_output, operator_call, operator_workload


def tuple_of(module: nn.Module, *args: Any, **kwargs: Any) -> OperatorTuple:
    return module_tuple(module.eval(), args, kwargs)


def drawn(*values: PlainValue) -> tuple[Any, ...]:
    return DrawnInputs("cpu").values(values)


# Running


@pytest.mark.parametrize("iterations", [0, 1, 7])
def test_a_workload_runs_as_often_as_asked_in_inference_mode(iterations: int) -> None:
    modes: list[bool] = []
    EagerWorkload(Calls(lambda: modes.append(torch.is_inference_mode_enabled())), "cpu").run(iterations)
    assert modes == [True] * iterations


@pytest.mark.parametrize(
    "error", [RuntimeError, ValueError, AssertionError, IndexError, TypeError, NotImplementedError]
)
def test_what_torch_refuses_cannot_be_measured(error: type[Exception]) -> None:
    def call() -> None:
        raise error("first line\nsecond line")

    with pytest.raises(CannotMeasureError) as caught:
        EagerWorkload(Calls(call), "cpu").run(1)
    assert str(caught.value) == f"{error.__name__}: first line ..."


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_no_failure_of_the_workload(interrupt: type[BaseException]) -> None:
    def call() -> None:
        raise interrupt

    with pytest.raises(interrupt):
        EagerWorkload(Calls(call), "cpu").run(1)


@pytest.mark.parametrize(
    "operator",
    [
        tuple_of(nn.ReLU(inplace=True), torch.zeros(3, 4)),
        tuple_of(nn.SiLU(inplace=True), torch.zeros(3, 4)),
        tuple_of(nn.Hardswish(inplace=True), torch.zeros(3, 4)),
        tuple_of(nn.ReLU6(inplace=True), torch.zeros(3, 4).t()),
        function_tuple(
            torch.Tensor.add_, (torch.zeros(3, 4, dtype=torch.uint8), torch.zeros(4, dtype=torch.uint8)), {}
        ),
        function_tuple(torch.Tensor.mul_, (torch.zeros(3, 4), torch.zeros(3, 1)), {}),
    ],
    ids=lambda operator: operator.short_name,
)
def test_an_in_place_operator_does_the_same_again_and_again_elsewhere(operator: OperatorTuple) -> None:
    workload = operator_workload(operator, "cpu")
    workload.run(5)
    again = workload.calls.cycle()
    function, args, kwargs = operator_call(operator, "cpu")
    in_model = function(*args, **kwargs)
    assert isinstance(again, torch.Tensor)
    assert isinstance(in_model, torch.Tensor)
    assert torch.equal(again, in_model)
    assert again.stride() == in_model.stride()
    assert workload.notes == ELSEWHERE


@pytest.mark.parametrize(
    ("other", "alpha"), [(torch.randn(3, 4), 1), (torch.randn(4), 2), (2.5, 1), (torch.randn(3, 1), -0.5)]
)
@pytest.mark.parametrize("name", ["add_", "sub_"])
def test_what_adds_in_place_adds_and_subtracts_in_turn(name: str, other: torch.Tensor | float, alpha: float) -> None:
    target = torch.randn(3, 4)
    before, added = target.clone(), getattr(target.clone(), name)(other, alpha=alpha)
    seen = []
    again = repeatable(lambda: seen.append(getattr(target, name)(other, alpha=alpha)), [target])
    assert torch.equal(target, before)
    assert (again.notes, again.period) == (IN_TURN, 2)
    for _ in range(1000):
        again.cycle()
    assert torch.allclose(target, before, atol=1e-4)
    assert not torch.allclose(added, before, atol=1e-4)


def test_an_addition_in_place_is_two_calls_a_round_unless_it_would_not_be_undone() -> None:
    operator = function_tuple(torch.Tensor.add_, (torch.zeros(3, 4), torch.zeros(3, 4)), {})
    workload = operator_workload(operator, "cpu")
    assert (workload.iterations_per_round, workload.notes) == (2, IN_TURN)
    assert workload.run(3) == 3
    x, y = torch.randn(3), torch.zeros(3, dtype=torch.uint8)
    assert repeatable(lambda: x.add_(x), [x]).notes == ELSEWHERE
    assert repeatable(lambda: x.add_(x[:1]), [x]).notes == ELSEWHERE
    assert repeatable(lambda: y.add_(1), [y]).notes == ELSEWHERE


@pytest.mark.parametrize(
    ("operator", "notes"),
    [
        (function_tuple(torch.Tensor.zero_, (torch.zeros(3, 4),), {}), AS_IT_IS),
        (function_tuple(torch.Tensor.__setitem__, (torch.zeros(3, 4), slice(1, None), torch.zeros(4)), {}), AS_IT_IS),
        (tuple_of(nn.Dropout(inplace=True), torch.zeros(3, 4)), ""),
    ],
    ids=["zero_", "__setitem__", "Dropout"],
)
def test_what_writes_the_same_each_time_runs_as_it_is(operator: OperatorTuple, notes: str) -> None:
    workload = operator_workload(operator, "cpu")
    workload.run(3)
    assert workload.notes == notes


def test_an_in_place_operator_with_company_is_refused() -> None:
    x = torch.zeros(3)
    with pytest.raises(CannotMeasureError, match="it cannot be repeated: add_ modifies its input"):
        repeatable(lambda: x.add_(x * 2), [x])
    with pytest.raises(CannotMeasureError, match="has no variant that does not"):
        elsewhere(Operation(torch.ops.torchvision.nms.default, (x,), {}))


def test_what_an_operator_writes_into_tensors_of_its_own_needs_no_note() -> None:
    x = torch.ones(3)
    again = repeatable(lambda: (x * 2).add_(1).relu_(), [x])
    assert (again.notes, again.period) == ("", 1)
    assert torch.equal(again.cycle(), torch.full((3,), 3.0))  # type: ignore[arg-type]
    assert operator_workload(tuple_of(nn.ReLU(), torch.zeros(3)), "cpu").notes == ""


def test_a_view_of_an_input_is_the_input() -> None:
    x = torch.ones(2, 3)
    again = repeatable(lambda: x[0].mul_(2), [x])
    assert again.notes == ELSEWHERE
    again.cycle()
    assert torch.equal(x, torch.ones(2, 3))


def test_an_operator_runs_with_keyword_inputs_and_in_its_mode() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.zeros(2, 3, 8)
    without, with_weights = (
        operator_workload(tuple_of(attention, x, x, x, need_weights=need_weights), "cpu").calls.cycle()
        for need_weights in (False, True)
    )
    assert isinstance(without, tuple)
    assert isinstance(with_weights, tuple)
    assert without[1] is None
    assert with_weights[1].shape == (2, 3, 3)


@pytest.mark.parametrize(
    "operator",
    [
        tuple_of(nn.Linear(4, 3), torch.zeros(2, 5)),
        tuple_of(nn.SiLU(), torch.zeros(2, dtype=torch.int64)),
        OperatorTuple("torch.nn.ReLU", (), (TensorSpec((2,), "float32"), 7)),
        OperatorTuple("torch.nn.ReLU", (), ("<Mapping>",)),
        OperatorTuple("torch.nn.Linear", (("in_features", 2**40), ("out_features", 2**20))),
        OperatorTuple("torch.nn.ReLU", (), (TensorSpec((2**50,), "float32"),)),
    ],
    ids=str,
)
def test_an_operator_that_does_not_run_on_its_inputs_cannot_be_measured(operator: OperatorTuple) -> None:
    with pytest.raises(CannotMeasureError):
        operator_workload(operator, "cpu").run(1)


# Inputs

SIZES = st.lists(st.integers(0, 4), min_size=4, max_size=4).map(tuple)


@given(SIZES, st.sampled_from(["float16", "bfloat16", "float32", "float64"]), st.booleans())
def test_inputs_have_the_shape_type_and_layout_of_their_spec(
    shape: tuple[int, ...], dtype: str, is_channels_last: bool
) -> None:
    strides = channels_last_strides(shape) if is_channels_last else None
    (tensor,) = drawn(TensorSpec(shape, dtype, strides))
    assert tuple(tensor.shape) == shape
    assert tensor.dtype == getattr(torch, dtype)
    assert strides is None or tensor.stride() == strides
    assert strides is not None or tensor.is_contiguous()


def test_inputs_are_normal_the_same_in_every_run_and_one_for_an_identity() -> None:
    (tensor,) = drawn(TensorSpec((100_000,), "float32"))
    assert tensor.mean().item() == pytest.approx(0, abs=0.02)
    assert tensor.std().item() == pytest.approx(1, abs=0.02)
    spec = TensorSpec((3, 4), "float32")
    assert torch.equal(drawn(spec)[0], drawn(spec)[0])
    first, second, third = drawn(
        TensorSpec((3,), "float32", identity=0), TensorSpec((3,), "float32", identity=1), TensorSpec((3,), "float32")
    )
    assert first is third
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    "kind",
    [
        *(InputValues(zeros_ratio=tenths / 10) for tenths in range(10)),
        *(InputValues(zeros_ratio=0.3, spread=spread) for spread in (16.0, 64.0)),
        ZEROS,
        CONSTANT,
    ],
    ids=str,
)
def test_what_is_drawn_for_a_kind_of_values_is_of_that_kind(kind: InputValues) -> None:
    operator = OperatorTuple(
        "torch.add", (), (TensorSpec((99, 99), "float32"), TensorSpec((99, 99), "bfloat16", None, 1))
    )
    args, _ = operator_inputs(operator, "cpu", InputData((kind, NORMAL)))
    assert [kind_of(seen) for seen in input_statistics(args, {})] == [kind, NORMAL]


def test_plain_values_stay_tensors_in_tuples_are_drawn_and_whole_numbers_are_small() -> None:
    nested, *others = drawn((TensorSpec((2,), "float32"), (3, None)), "text", None, True)
    assert nested[0].shape == (2,)
    assert nested[1] == [3, None]
    assert others == ["text", None, True]
    numbers, mask = drawn(TensorSpec((100,), "int64", identity=0), TensorSpec((100,), "bool", identity=1))
    assert (numbers.dtype, mask.dtype) == (torch.int64, torch.bool)
    assert set(numbers.tolist()) == {0, 1}
    assert 0 < mask.sum() < 100


@pytest.mark.parametrize(
    "index",
    [
        torch.zeros(9, dtype=torch.int64),
        (slice(None), torch.zeros(9, dtype=torch.int64)),
        (..., torch.zeros(9, dtype=torch.int64)),
        (None, torch.zeros(9, dtype=torch.int64), 0),
        (torch.zeros(7, 5, dtype=torch.bool), torch.zeros(1, dtype=torch.int64)),
        torch.zeros(7, dtype=torch.bool),
    ],
    ids=str,
)
def test_indices_are_valid_in_the_dimension_that_they_index(index: object) -> None:
    table = torch.zeros(7, 5, 3)
    function, args, kwargs = operator_call(function_tuple(torch.Tensor.__getitem__, (table, index), {}), "cpu")
    assert isinstance(function(*args, **kwargs), torch.Tensor)


def test_boxes_are_boxes_in_their_image() -> None:
    pooling = MultiScaleRoIAlign(["0", "1"], 7, 2)
    maps = {"0": torch.zeros(2, 4, 50, 50), "1": torch.zeros(2, 4, 25, 25)}
    operator = tuple_of(pooling, maps, [torch.zeros(300, 4), torch.zeros(200, 4)], [(200, 200), (200, 190)])
    (_, boxes, _), _ = operator_inputs(operator, "cpu")
    assert isinstance(boxes, list)
    for tensor in boxes:
        assert tensor.min() >= 0
        assert tensor.max() <= 190
        assert (tensor[:, :2] < tensor[:, 2:]).all()
        assert (tensor[:, :2] + tensor[:, 2:]).mean() / 2 == pytest.approx(95, rel=0.15), "centres are anywhere"
    sizes = (boxes[0][:, 2:] - boxes[0][:, :2]).prod(1).sqrt()
    assert sizes.max() / sizes.min() > 5, "so that all levels of a feature pyramid get some"
    operator_workload(operator, "cpu").run(2)


def test_dicts_slices_constants_and_image_lists_come_back() -> None:
    images = ImageList(torch.zeros(2, 3, 8, 8), [(8, 8), (7, 6)])
    values = ({"0": torch.zeros(2), "pool": torch.zeros(3)}, slice(1, None), torch.float16, ..., images)
    identities: dict[int, int] = {}
    plain = tuple(plain_value(value, identities) for value in values)
    maps, piece, dtype, dots, again = drawn(*plain)
    assert {name: x.shape for name, x in maps.items()} == {"0": (2,), "pool": (3,)}
    assert (piece, dtype, dots) == (slice(1, None), torch.float16, ...)
    assert isinstance(again, ImageList)
    assert (again.tensors.shape, again.image_sizes) == (images.tensors.shape, [[8, 8], [7, 6]])


@pytest.mark.parametrize("value", ["<Generator>", Constant("torch.os"), Structure("os.system", ())], ids=str)
def test_what_was_no_plain_value_is_not_made_up(value: PlainValue) -> None:
    with pytest.raises(CannotMeasureError):
        drawn(value)


# Outputs that are not finite

X = torch.zeros(64, 3)


@pytest.mark.parametrize(
    ("operator", "data"),
    [
        (function_tuple(torch.sqrt, (X,), {}), NORMAL_DATA),
        (function_tuple(torch.log, (X,), {}), ZEROS_DATA),
        (function_tuple(torch.div, (X, 0.0), {}), NORMAL_DATA),
        (function_tuple(torch.Tensor.exp, (X.to(torch.float16) * 20,), {}), InputData((InputValues(0.0, 0.0, 64.0),))),
        (function_tuple(torch.sqrt, (X,), {"out": torch.zeros(64, 3)}), NORMAL_DATA),
    ],
    ids=["NaN", "-inf", "both", "float16", "out"],
)
def test_an_operator_whose_output_holds_nan_or_infinity_is_measured_and_says_so(
    operator: OperatorTuple, data: InputData
) -> None:
    workload = operator_workload(operator, "cpu", data)
    assert Flag.NOT_FINITE in workload.flags
    assert workload.run(3) == 3


@pytest.mark.parametrize(
    "operator",
    [
        function_tuple(torch.exp, (X,), {}),
        function_tuple(torch.masked_fill, (X, X > 0, -math.inf), {}),
        function_tuple(torch.Tensor.new_full, (X, (4,), math.nan), {}),
        function_tuple(torch.argmax, (X,), {}),
        function_tuple(torch.isnan, (X,), {}),
        function_tuple(torch.Tensor.__setitem__, (X, slice(1), 0.0), {}),
        function_tuple(torch.index_select, (X, 0, torch.zeros(0, dtype=torch.int64)), {}),
        tuple_of(nn.LSTM(3, 3), X),
    ],
    ids=lambda operator: operator.short_name,
)
def test_finite_outputs_integers_and_what_was_asked_for_are_not_reported(operator: OperatorTuple) -> None:
    assert Flag.NOT_FINITE not in operator_workload(operator, "cpu").flags


def test_memory_that_was_only_allocated_may_hold_anything() -> None:
    # Then torch fills uninitialised memory with NaN.
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()
        for function in (torch.Tensor.new_empty, torch.empty):
            arguments = (X, (3,)) if function is torch.Tensor.new_empty else ((3,),)
            assert operator_workload(function_tuple(function, arguments, {}), "cpu").notes == ""
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.complex64], ids=str)
def test_one_value_among_many_is_seen_wherever_it_is(bad: float, dtype: torch.dtype) -> None:
    for place in (0, 5000, 99_999):
        output = torch.ones(100_000, dtype=dtype)
        output[place] = bad
        assert flags_of_output({"a": (torch.ones(3), output)}, (torch.ones(3), 2.0)) == (Flag.NOT_FINITE,)
        assert flags_of_output(output, [output]) == ()


def test_what_cannot_be_looked_at_is_not_reported() -> None:
    sparse = torch.tensor([0.0, math.nan]).to_sparse()
    assert flags_of_output((sparse, torch.ones(3).to(torch.float8_e4m3fn)), ()) == ()


# Precision


@pytest.mark.parametrize(("name", "dtype"), [("amp-bf16", torch.bfloat16), ("bf16", None), ("tf32", None)])
def test_only_amp_uses_autocast(name: str, dtype: torch.dtype | None) -> None:
    with autocast(name, "cpu"):
        assert torch.is_autocast_enabled("cpu") == (dtype is not None)
        assert dtype in (None, torch.get_autocast_dtype("cpu"))


@pytest.mark.parametrize("phase", Phase)
def test_only_an_inference_pass_and_a_forward_use_autocast(phase: Phase) -> None:
    product = function_tuple(torch.mm, (torch.zeros(4, 4), torch.zeros(4, 4)), {})
    with in_phase(phase):
        workload = operator_workload(product, "cpu", context=partial(autocast, "amp-bf16", "cpu", keeps_casts=False))
        costs: list[OperationCost] = []
        with CostCounter(costs.append):
            workload.run(1)
    assert ("_to_copy" in {cost.operation for cost in costs}) == (phase in (Phase.INFERENCE, Phase.FORWARD))


def test_each_call_under_autocast_casts_the_weights_again() -> None:
    linear = tuple_of(nn.Linear(8, 8), torch.zeros(2, 8))
    context = partial(autocast, "amp-bf16", "cpu", keeps_casts=False)
    workload = operator_workload(linear, "cpu", context=context)
    operations: list[OperationCost] = []
    with CostCounter(operations.append):
        workload.run(4)
    casts = [cost for cost in operations if "_to_copy" in cost.operation]
    # Input, weight and bias.
    assert len(casts) == 3 * 4 * workload.iterations_per_round


def test_a_loop_enters_its_context_once_and_not_in_each_call_which_would_take_longer_than_a_kernel() -> None:
    entered = []

    @contextmanager
    def context() -> Iterator[None]:
        entered.append(torch.is_inference_mode_enabled())
        yield

    workload = operator_workload(tuple_of(nn.ReLU(), torch.zeros(3)), "cpu", context=context)
    entered.clear()
    workload.run(100)
    assert entered == [True]
    workload.annotated("a note").run(100)
    assert entered == [True] * 2


def test_the_cpu_has_threads_and_no_cuda() -> None:
    state = torch_state("cpu")
    assert state["cpu_threads"] == torch.get_num_threads()
    assert state["cuda_version"] is None
    assert state["cudnn_version"] is None
    assert state["torch_version"] == torch.__version__
