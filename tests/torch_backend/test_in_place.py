"""In-place operators run again and again: as much work as is counted, and no drift of their values."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from opcost.errors import CannotMeasureError
from opcost.measuring.flags import Flag
from opcost.operators.tuples import OperatorTuple
from opcost.torch_backend.alone import replay
from opcost.torch_backend.cost_counter import CostCounter, OperationCost, operations_of, total
from opcost.torch_backend.operators import function_tuple
from opcost.torch_backend.repeated_calls import (
    AS_IT_IS,
    ELSEWHERE,
    IN_TURN,
    RESTORED,
    Layer,
    Operation,
    opposite,
    repeatable,
    repeated,
)
from opcost.torch_backend.workload import operator_call, operator_workload

TABLE, PLACES, ROWS = torch.zeros(1000, 8), torch.zeros(5, dtype=torch.int64), torch.ones(5, 8)
INDEX, MASK, COLUMN = PLACES.unsqueeze(1).repeat(1, 8), torch.zeros(1000, 8, dtype=torch.bool), torch.zeros(1000, 1)
SQUARE, STACK, VECTOR = torch.zeros(8, 8), torch.zeros(3, 8, 8), torch.zeros(8)


def of(name: str, *args: Any, **kwargs: Any) -> OperatorTuple:
    return function_tuple(getattr(torch.Tensor, name), args, kwargs)


ROWS_OF_A_TABLE = {
    AS_IT_IS: [
        of("index_copy_", TABLE, 0, PLACES, ROWS),
        of("index_fill_", TABLE, 0, PLACES, 2.0),
        of("index_put_", TABLE, (PLACES,), ROWS),
        of("put_", TABLE, PLACES, VECTOR[:5]),
        of("scatter_", TABLE, 0, INDEX, ROWS),
        of("scatter_", TABLE, 0, INDEX, 2.0),
        of("scatter_reduce_", TABLE, 0, INDEX, ROWS, "sum", include_self=False),
        of("scatter_reduce_", TABLE, 0, INDEX, ROWS, "mean"),
        of("scatter_reduce_", TABLE, 0, INDEX, ROWS, "amax"),
        of("index_reduce_", TABLE, 0, PLACES, ROWS, "prod", include_self=False),
        of("index_reduce_", TABLE, 0, PLACES, ROWS, "amin"),
        of("__setitem__", TABLE, PLACES, ROWS),
        of("__setitem__", TABLE, slice(3, 8), ROWS),
    ],
    IN_TURN: [
        of("index_add_", TABLE, 0, PLACES, ROWS),
        of("index_add_", TABLE, 0, PLACES, ROWS, alpha=0.5),
        of("index_add_", TABLE.to(torch.int64), 0, PLACES, ROWS.to(torch.int64)),
        of("index_put_", TABLE, (PLACES,), ROWS, accumulate=True),
        of("index_put_", TABLE, (PLACES,), VECTOR[:1].expand(5, 8), True),
        of("put_", TABLE, PLACES, VECTOR[:5], accumulate=True),
        of("scatter_add_", TABLE, 0, INDEX, ROWS),
        of("scatter_", TABLE, 0, INDEX, ROWS, reduce="add"),
        of("scatter_", TABLE, 0, INDEX, 2.0, reduce="add"),
        of("scatter_reduce_", TABLE, 0, INDEX, ROWS, "sum"),
    ],
}
"""Functions that write rows of a table, by how they run."""

OTHERS = {
    "addbmm_": (SQUARE, STACK, STACK),
    "addcdiv_": (TABLE, TABLE, TABLE),
    "addcmul_": (TABLE, TABLE, TABLE),
    "addmm_": (SQUARE, SQUARE, SQUARE),
    "addmv_": (VECTOR, SQUARE, VECTOR),
    "addr_": (SQUARE, VECTOR, VECTOR),
    "baddbmm_": (STACK, STACK, STACK),
    "clamp_": (TABLE, COLUMN),
    "clip_": (TABLE, COLUMN),
    "cumprod_": (TABLE, 0),
    "cumsum_": (TABLE, 0),
    "fill_": (TABLE, 2.0),
    "fill_diagonal_": (TABLE, 2.0),
    "geometric_": (TABLE, 0.5),
    "lerp_": (TABLE, TABLE, 0.5),
    "masked_fill_": (TABLE, MASK, 2.0),
    "masked_scatter_": (TABLE, MASK, TABLE),
    "mvlgamma_": (TABLE, 2),
    "polygamma_": (TABLE, 1),
    "renorm_": (TABLE, 2, 0, 1.0),
}
"""Further functions with their arguments. Those in neither list take one tensor, or two."""

OF_INTEGERS = (
    "bitwise_left_shift_ bitwise_right_shift_ bitwise_not_ bitwise_and_ bitwise_or_ bitwise_xor_ gcd_ lcm_".split()
)

NOT_MEASURED = set(
    "float_power_ apply_ as_strided_ detach_ map2_ map_ requires_grad_ resize_ resize_as_ resize_as_sparse_ set_ "
    "share_memory_ sparse_resize_ sparse_resize_and_clear_ squeeze_ swapaxes_ swapdims_ t_ transpose_ "
    "unsqueeze_".split()
)
"""Functions that are two operations, change shapes or memory, or call Python for each value."""


def functions_in_place() -> list[OperatorTuple]:
    """Return a call of each function in place of ``torch.Tensor``, and those of ``ROWS_OF_A_TABLE``."""
    of_tables = [operator for those in ROWS_OF_A_TABLE.values() for operator in those]
    known = {operator.short_name for operator in of_tables} | NOT_MEASURED
    names = [name for name in dir(torch.Tensor) if name.endswith("_") and not name.startswith("_")]
    return [*of_tables, *(_called(name) for name in names if name not in known)]


def _called(name: str) -> OperatorTuple:
    table = TABLE.to(torch.int64) if name in OF_INTEGERS else TABLE
    if name in OTHERS:
        # One tensor in several places would be one in the tuple.
        return of(name, *(one.clone() if isinstance(one, torch.Tensor) else one for one in OTHERS[name]))
    try:
        getattr(table.clone(), name)()
    except TypeError:
        return of(name, table, table.clone())
    return of(name, table)


FUNCTIONS = functions_in_place()
MULTIPLYING = [
    of("scatter_", TABLE, 0, INDEX, ROWS, reduce="multiply"),
    of("scatter_reduce_", TABLE, 0, INDEX, ROWS, "prod"),
    of("index_reduce_", TABLE, 0, PLACES, ROWS, "prod"),
    of("addmm_", SQUARE, SQUARE.clone(), SQUARE.clone(), beta=2),
    of("index_add_", TABLE.to(torch.uint8), 0, PLACES, ROWS.to(torch.uint8)),
]
"""Functions that nothing undoes without rounding, in all of their dtypes."""


def run_cost(call: Callable[[], object]) -> OperationCost:
    costs: list[OperationCost] = []
    with torch.inference_mode(), CostCounter(costs.append):
        call()
    return total(costs)


def copies(call: Callable[[], object]) -> int:
    """Return the number of copies that a call makes, also inside operations."""
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    return sum(event.name in ("aten::clone", "aten::copy_") for event in profiler.events())


@pytest.mark.parametrize("operator", FUNCTIONS, ids=str)
def test_an_iteration_moves_the_bytes_that_are_counted(operator: OperatorTuple) -> None:
    _, counted = replay(operator, "cpu")
    calls = operator_workload(operator, "cpu").calls
    assert run_cost(calls.cycle).memory_bytes == calls.period * total(counted).memory_bytes
    function, args, kwargs = operator_call(operator, "cpu")
    assert copies(calls.cycle) <= calls.period * copies(lambda: function(*args, **kwargs))
    assert Flag.NOT_AS_COUNTED not in calls.flags


@pytest.mark.parametrize(
    ("operator", "notes"), [(one, notes) for notes, those in ROWS_OF_A_TABLE.items() for one in those], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rows_of_a_table_do_not_drift(operator: OperatorTuple, notes: str, dtype: torch.dtype) -> None:
    function, args, kwargs = operator_call(operator, "cpu")
    table, *others = (
        one.to(dtype) if isinstance(one, torch.Tensor) and one.is_floating_point() else one for one in args
    )
    again = repeatable(lambda: function(table, *others, **kwargs), [table])
    assert again.notes == notes
    assert again.flags == (Flag.MODIFIES_INPUT,)
    assert isinstance(table, torch.Tensor)
    before = table.clone()
    for _ in range(1000):
        again.cycle()
    assert table.isfinite().all()
    if notes == IN_TURN:
        assert torch.allclose(table, before, atol=0.05)
    settled = table.clone()
    again.cycle()
    assert torch.allclose(table, settled, atol=0.05)


@pytest.mark.parametrize(
    "source", [torch.randn(2, 8, 4)[1].t(), torch.randn(8).expand(4, 8), torch.randn(4, 16)[:, ::2]]
)
def test_what_is_subtracted_has_the_layout_of_what_is_added(source: torch.Tensor) -> None:
    index = torch.arange(4).unsqueeze(1).expand(4, 8)
    undoing = opposite(Operation(torch.ops.aten.scatter_add_.default, (torch.zeros(9, 8), 0, index, source), {}))
    assert undoing is not None
    assert torch.equal(undoing.kwargs["src"], -source)
    assert undoing.kwargs["src"].stride() == source.stride()


@pytest.mark.parametrize("operator", MULTIPLYING, ids=str)
def test_what_copies_its_table_to_be_repeated_says_so(operator: OperatorTuple) -> None:
    calls = operator_workload(operator, "cpu").calls
    assert calls.flags == (Flag.MODIFIES_INPUT, Flag.NOT_AS_COUNTED)


def test_a_table_that_is_its_own_source_is_not_added_in_turn() -> None:
    table, places = torch.randn(5, 8), torch.arange(5)
    again = repeatable(lambda: table.index_add_(0, places, table), [table])
    assert Flag.NOT_AS_COUNTED in again.flags


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.relu_(),
        lambda x: torch.nn.functional.silu(x, inplace=True),
        lambda x: x[1:].mul_(x[1:]),
        lambda x: (x.mul_(2), x.add_(x * 3))[1],
    ],
)
def test_where_writes_may_be_undone_each_call_finds_the_same_values(call: Callable[[torch.Tensor], object]) -> None:
    x = torch.linspace(-1, 1, 9)
    before, expected = x.clone(), call(x.clone())
    again = repeatable(lambda: call(x), [x], restores=True)
    assert (again.notes, again.flags) == (RESTORED, (Flag.MODIFIES_INPUT,))
    for _ in range(3):
        result = again.cycle()
        assert isinstance(result, torch.Tensor)
        assert torch.equal(result, expected)
    assert again.overhead is not None
    again.overhead()
    assert torch.equal(x, before)


def test_what_is_restored_is_what_is_written() -> None:
    x, y = torch.full((4,), 2.0), torch.full((4,), 3.0)
    again = repeatable(lambda: torch.mul(y, x, out=x), [x, y], restores=True)
    for _ in range(3):
        again.cycle()
    assert (x.tolist(), y.tolist()) == (4 * [6.0], 4 * [3.0])


def test_calls_whose_writes_are_undone_stay_in_their_memory() -> None:
    calls = repeated(Layer(torch.relu_, (torch.ones(4),), {}), restores=True)
    assert calls.overhead is not None
    assert calls.relocated is None


def test_additions_are_undone_by_their_own_kernel_even_where_writes_may_be() -> None:
    x = torch.zeros(4)
    assert repeatable(lambda: x.add_(1.5), [x], restores=True).notes == IN_TURN


def weights_of(count: int = 3) -> list[torch.Tensor]:
    return [torch.rand(2, size) + 0.5 for size in range(1, count + 1)]


LISTS: dict[str, Callable[[list[torch.Tensor]], object]] = {
    "_foreach_mul_": lambda own: torch._foreach_mul_(own, 0.9),
    "_foreach_sqrt_": torch._foreach_sqrt_,
    "_foreach_lerp_": lambda own: torch._foreach_lerp_(own, weights_of(len(own)), 0.1),
    "_foreach_addcdiv_": lambda own: torch._foreach_addcdiv_(own, weights_of(len(own)), weights_of(len(own)), 0.1),
    "itself": lambda own: torch._foreach_add_(own, own),
    "_fused_sgd_": lambda own: torch.ops.aten._fused_sgd_(
        own[:1],
        own[1:2],
        own[2:3],
        weight_decay=0.1,
        momentum=0.9,
        lr=0.1,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    ),
}
"""Operations that return nothing and write lists of tensors."""


@pytest.mark.parametrize("restores", [False, True])
@pytest.mark.parametrize("name", LISTS)
def test_lists_that_are_written_have_their_values_again_before_each_call(name: str, restores: bool) -> None:
    own = [torch.rand(2, 3) + 0.5 for _ in range(3)] if name == "_fused_sgd_" else weights_of()
    before, expected = copy.deepcopy(own), copy.deepcopy(own)
    torch.manual_seed(1)
    LISTS[name](expected)

    def call() -> object:
        torch.manual_seed(1)
        return LISTS[name](own)

    again = repeatable(call, own, restores)
    assert all(map(torch.equal, own, before))
    assert (again.notes, again.flags) == (RESTORED, (Flag.MODIFIES_INPUT,))
    for _ in range(3):
        again.cycle()
        assert all(map(torch.equal, own, expected))
    assert again.overhead is not None
    again.overhead()
    assert all(map(torch.equal, own, before))


def test_a_list_of_hundreds_is_put_back_by_one_operation_for_each_width_of_its_memory() -> None:
    own = [torch.rand(size) for size in range(1, 200)] + [torch.rand(3).to(torch.float16) for _ in range(100)]
    again = repeatable(lambda: torch._foreach_mul_(own, 0.9), own)
    assert again.overhead is not None
    costs: list[OperationCost] = []
    with CostCounter(costs.append):
        again.overhead()
    assert operations_of(costs) == (("_foreach_copy_", 2),)


def test_what_a_call_does_not_change_is_not_put_back() -> None:
    own = [torch.rand(2, 3) for _ in range(3)]
    again, before = repeatable(lambda: LISTS["_fused_sgd_"](own), own), copy.deepcopy(own)
    torch._foreach_zero_(own)
    assert again.overhead is not None
    again.overhead()
    # Declared as written, gradients are only scaled if there is a scale.
    assert [torch.equal(*both) for both in zip(own, before, strict=True)] == [True, False, True]


@pytest.mark.parametrize(
    "call",
    [
        lambda own, others: torch._foreach_add_(own, others, alpha=-0.1),
        lambda own, others: torch._foreach_sub_(own, others, alpha=2),
        lambda own, _: torch._foreach_add_(own, 0.5),
        lambda own, _: torch._foreach_sub_(own, [0.5, 1.5, 2.5]),
        lambda own, _: torch._foreach_add_(own, torch.tensor(1.0), alpha=1.0),
    ],
)
@pytest.mark.parametrize("restores", [False, True])
def test_additions_to_lists_are_undone_by_their_own_kernel(call: Callable[..., object], restores: bool) -> None:
    own, others = weights_of(), weights_of()
    before, added = copy.deepcopy(own), copy.deepcopy(own)
    call(added, others)
    again = repeatable(lambda: call(own, others), own, restores)
    assert (again.notes, again.period, again.overhead) == (IN_TURN, 2, None)
    for _ in range(1000):
        again.cycle()
    assert all(torch.allclose(*both, atol=1e-4) for both in zip(own, before, strict=True))
    assert not any(torch.allclose(*both, atol=1e-4) for both in zip(added, before, strict=True))


@pytest.mark.parametrize("call", [torch._foreach_zero_, lambda own: torch._foreach_copy_(own, weights_of())])
def test_lists_that_are_only_written_run_as_they_are(call: Callable[[list[torch.Tensor]], object]) -> None:
    own = weights_of()
    assert repeatable(lambda: call(own), own, restores=True).notes == AS_IT_IS


def test_an_operation_of_a_user_that_writes_its_input_and_returns_another_tensor_finds_the_same_values() -> None:
    @torch.library.custom_op("opcost_lists::count_", mutates_args=("counter",))
    def count_(counter: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        counter += 1
        return x * counter

    counter, x = torch.zeros(1), torch.ones(3)
    again = repeatable(lambda: count_(counter, x), [counter, x])
    assert counter.item() == 0
    for _ in range(3):
        assert torch.equal(again.cycle(), x)  # type: ignore[arg-type]


def test_an_output_that_is_not_read_stays_as_it_is_and_one_that_is_read_does_not() -> None:
    x, y, out = torch.full((3,), 2.0), torch.full((3,), 3.0), torch.zeros(3)
    assert repeatable(lambda: torch.mul(x, y, out=out), [x, y, out], restores=True).notes == AS_IT_IS
    assert repeatable(lambda: torch.mul(y, x, out=x), [x, y], restores=True).notes == RESTORED
    # Here it is no input.
    assert repeatable(lambda: torch.mul(x, y, out=torch.empty(3)), [x, y]).notes == ""


@pytest.mark.parametrize("call", [lambda x: x.float_power_(2), lambda x: x.copy_(x * 2), lambda x: x[:2].copy_(x[2:])])
def test_what_is_computed_of_the_values_that_it_replaces_drifts(call: Callable[[torch.Tensor], object]) -> None:
    x = torch.full((4,), 3.0, dtype=torch.float64)
    try:
        notes = repeatable(lambda: call(x), [x]).notes
    except CannotMeasureError:
        return
    assert notes != AS_IT_IS


OTHER = torch.linspace(-1, 1, 12).reshape(3, 4)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.pow_(2),
        lambda x: x.pow_(OTHER),
        lambda x: x.clamp_(min=OTHER),
        lambda x: x.eq_(OTHER),
        lambda x: x.eq_(2.0),
        lambda x: x.polygamma_(1),
        lambda x: x.div_(3.0, rounding_mode="floor"),
    ],
)
def test_a_kernel_runs_elsewhere_with_the_arguments_and_dtype_that_it_has_in_place(
    call: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x = OTHER + 2
    expected = call(x.clone())
    again = repeatable(lambda: call(x), [x])
    result = again.cycle()
    assert again.notes == ELSEWHERE
    assert isinstance(result, torch.Tensor)
    assert result.dtype == expected.dtype
    assert torch.equal(result, expected)
    assert torch.equal(x, OTHER + 2)
