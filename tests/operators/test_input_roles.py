"""Roles of inputs: which values an operator can have, and that what is drawn lets it run."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from opcost.operators.input_roles import described_values, integer_bounds
from opcost.operators.tuples import OperatorTuple
from opcost.operators.values import NORMAL_DATA, ZEROS_DATA, InputData, InputValues
from opcost.torch_backend.alone import difference
from opcost.torch_backend.capture import capture
from opcost.torch_backend.operators import build_operator, function_tuple, module_tuple
from opcost.torch_backend.passes import running_calls
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.workload import operator_call

TABLE = torch.zeros(50, 4)
PLACES = torch.zeros(300, dtype=torch.int64)
WIDE_PLACES = torch.zeros(300, 4, dtype=torch.int64)
ROWS = torch.zeros(300, 4)


def bounds(function: Callable[..., object], *args: object, **kwargs: object) -> list[int]:
    return [bound for _, bound in integer_bounds(function_tuple(function, args, kwargs))]


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "bound"),
    [
        (torch.index_select, (TABLE, 0, PLACES), {}, 50),
        (torch.index_select, (TABLE, -1, PLACES), {}, 4),
        (torch.Tensor.index_select, (TABLE,), {"dim": 0, "index": PLACES}, 50),
        (torch.gather, (TABLE, 0, WIDE_PLACES), {}, 50),
        (torch.Tensor.scatter_add_, (TABLE, 0, WIDE_PLACES, ROWS), {}, 50),
        (torch.Tensor.index_copy_, (TABLE, 0, PLACES, ROWS), {}, 50),
        (torch.index_select, (torch.tensor(1.0), 0, PLACES), {}, 1),
        (torch.take, (TABLE, PLACES), {}, 200),
        (torch.take_along_dim, (TABLE, WIDE_PLACES), {"dim": 0}, 50),
        (F.embedding, (PLACES, TABLE), {}, 50),
        (F.embedding, (), {"input": PLACES, "weight": TABLE}, 50),
        (torch.embedding, (TABLE, PLACES), {}, 50),
        (torch.ops.aten.embedding, (TABLE, PLACES), {}, 50),
        (torch.ops.aten.index, (TABLE, [PLACES]), {}, 50),
        (torch.ops.aten.index, (TABLE, [None, PLACES]), {}, 4),
        (torch.ops.aten.gather, (TABLE, 0, WIDE_PLACES), {}, 50),
        (torch.Tensor.index_add_, (TABLE, 0, PLACES, ROWS), {}, 50),
        (F.nll_loss, (ROWS,), {"target": PLACES}, 4),
        (F.embedding_bag, (PLACES, TABLE), {}, 50),
        (torch.embedding_bag, (TABLE, PLACES, torch.tensor([0, 9])), {}, 50),
        (torch.Tensor.index_put_, (TABLE, (PLACES,), ROWS), {}, 50),
        (torch.Tensor.index_put_, (TABLE, (None, PLACES), torch.zeros(50, 300)), {}, 4),
        (F.cross_entropy, (ROWS, PLACES), {}, 4),
        (F.cross_entropy, (torch.zeros(2, 7, 5), torch.zeros(2, 5, dtype=torch.int64)), {}, 7),
        (F.cross_entropy, (torch.zeros(7), torch.tensor(1)), {}, 7),
    ],
)
def test_an_index_is_below_the_size_that_it_indexes(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object], bound: int
) -> None:
    assert bounds(function, *args, **kwargs) == [bound]


def test_probabilities_as_labels_and_dimensions_that_are_not_named_have_no_bound() -> None:
    assert bounds(F.cross_entropy, ROWS, ROWS) == []
    assert bounds(torch.add, PLACES, PLACES) == []


def drawn(function: Callable[..., object], *args: object, **kwargs: object) -> tuple[object, ...]:
    """Return the arguments that are drawn for a call, which runs on them."""
    built, again, named = operator_call(function_tuple(function, args, kwargs), "cpu")
    with running_calls():
        built(*again, **named)
    return again


def test_indices_are_spread_over_the_whole_table() -> None:
    _, _, places = drawn(torch.index_select, TABLE, 0, PLACES)
    assert isinstance(places, torch.Tensor)
    assert places.min() == 0
    assert places.max() == 49
    assert len(places.unique()) > 45


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (torch.bernoulli, (torch.full((9,), 0.5),), {}),
        (torch.multinomial, (torch.full((9,), 0.5), 2), {}),
        (F.binary_cross_entropy, (torch.full((9,), 0.5), torch.ones(9)), {}),
        (F.gaussian_nll_loss, (torch.ones(9), torch.ones(9), torch.ones(9)), {}),
        (F.gaussian_nll_loss, (torch.ones(9), torch.ones(9)), {"var": torch.ones(9)}),
        (torch.normal, (torch.ones(9), torch.ones(9)), {}),
        (torch.linalg.cholesky, (torch.eye(9).expand(2, 9, 9),), {}),
        (torch.linalg.lu_solve, (*torch.linalg.lu_factor(torch.eye(9)), torch.ones(9, 2)), {}),
        (torch.lu_solve, (torch.ones(9, 2), *torch.linalg.lu_factor(torch.eye(9))), {}),
        (torch.lu_unpack, torch.linalg.lu_factor(torch.eye(9)), {}),
        (F.embedding_bag, (PLACES, TABLE), {"offsets": torch.tensor([0, 7, 9])}),
        (F.embedding_bag, (), {"input": PLACES, "weight": TABLE, "offsets": torch.tensor([0, 7, 9])}),
        (torch.embedding_bag, (TABLE, PLACES, torch.tensor([0, 7, 9])), {}),
        (torch.bernoulli, (), {"input": torch.full((9,), 0.5)}),
        (F.binary_cross_entropy, (), {"input": torch.full((9,), 0.5), "target": torch.ones(9)}),
        (torch.lu_unpack, (), dict(zip(("LU_data", "LU_pivots"), torch.linalg.lu_factor(torch.eye(9)), strict=True))),
        (torch.Tensor.lu_solve, (torch.ones(9, 2), *torch.linalg.lu_factor(torch.eye(9))), {}),
        (torch.index_select, (torch.zeros(0, 3), 0, torch.zeros(0, dtype=torch.int64)), {}),
    ],
)
def test_restricted_values_are_drawn_so_that_the_function_runs(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    drawn(function, *args, **kwargs)


def test_groups_start_at_0_and_have_one_size() -> None:
    operator = function_tuple(F.embedding_bag, (PLACES, TABLE, torch.tensor([0, 7, 9])), {})
    _, (_, _, offsets), _ = operator_call(operator, "cpu")
    assert torch.equal(offsets, torch.tensor([0, 100, 200]))


@pytest.mark.parametrize(
    ("segments", "axis", "name", "drawn_values"),
    [
        (torch.tensor([9, 1, 0]), 0, "lengths", [3, 3, 4]),
        (torch.tensor([0, 9, 10, 10]), 0, "offsets", [0, 3, 6, 10]),
        (torch.tensor([[3, 1]] * 10), 1, "lengths", [[2, 2]] * 10),
    ],
)
def test_segments_take_up_all_rows(segments: torch.Tensor, axis: int, name: str, drawn_values: list[int]) -> None:
    operator = function_tuple(torch.segment_reduce, (torch.ones(10, 4), "sum"), {name: segments, "axis": axis})
    function, args, kwargs = operator_call(operator, "cpu")
    assert kwargs[name].tolist() == drawn_values
    assert function(*args, **kwargs).sum() == pytest.approx(args[0].sum())


def test_a_module_of_bags_has_ids_of_its_table_and_offsets_of_groups() -> None:
    operator = module_tuple(torch.nn.EmbeddingBag(50, 4).eval(), (PLACES, torch.tensor([0, 7])), {})
    module, (ids, offsets), _ = operator_call(operator, "cpu")
    assert ids.max() == 49
    assert torch.equal(offsets, torch.tensor([0, 150]))
    module(ids, offsets)


def test_most_functions_restrict_nothing() -> None:
    assert list(described_values(function_tuple(torch.add, (ROWS, ROWS), {}))) == []


def test_values_of_8_bits_are_drawn() -> None:
    small = torch.zeros(4, 4).to(torch.float8_e4m3fn)
    operator = function_tuple(torch.Tensor.float, (small,), {})
    for data in (NORMAL_DATA, ZEROS_DATA, InputData((InputValues(zeros_ratio=0.5, spread=16.0),))):
        _, (again,), _ = operator_call(operator, "cpu", data)
        assert again.dtype == torch.float8_e4m3fn
    (again,) = drawn(torch.Tensor.float, small)
    assert isinstance(again, torch.Tensor)
    assert (again.dtype, bool(again.float().any())) == (torch.float8_e4m3fn, True)


# Matrices that require gradients

VECTOR = torch.nn.Parameter(torch.zeros(4))

MATRIX = torch.nn.Parameter(torch.zeros(4, 8))
BATCH = torch.zeros(2, 8, 5)


@pytest.mark.parametrize(
    ("args", "parameters"),
    [
        ((MATRIX, BATCH), (("requires_grad", 0),)),
        ((MATRIX.detach(), BATCH), ()),
        # Folded anyway, or two matrices.
        ((torch.zeros(2, 5, 4), MATRIX), ()),
        ((torch.zeros(5, 4), MATRIX), ()),
        # Not folded otherwise, because of its strides.
        ((torch.zeros(5, 2, 4).transpose(0, 1), MATRIX), (("requires_grad", 1),)),
        # A vector times a batch, which torch transposes.
        ((VECTOR, torch.zeros(2, 4, 3)), (("requires_grad", 0),)),
    ],
)
def test_a_matrix_that_changes_what_runs_is_part_of_the_tuple(
    args: tuple[torch.Tensor, ...], parameters: tuple[tuple[str, int], ...]
) -> None:
    operator = function_tuple(torch.matmul, args, {})
    assert operator.parameters == parameters
    _, again, _ = operator_call(operator, "cpu")
    assert [value.requires_grad for value in again if isinstance(value, torch.Tensor)] == [
        ("requires_grad", place) in parameters for place in range(2)
    ]


@pytest.mark.parametrize("args", [(MATRIX, BATCH), (VECTOR, torch.zeros(2, 4, 3)), (BATCH.mT, MATRIX.mT)])
def test_such_a_product_runs_alone_as_in_the_model(args: tuple[torch.Tensor, ...]) -> None:
    class Product(torch.nn.Module):
        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return torch.matmul(left, right)

    (count,) = capture(ReadyModel(Product(), args), OperatorTuple("test.product")).counts
    assert difference(count, "cpu") is None


def test_a_product_by_keyword_is_described() -> None:
    assert function_tuple(torch.matmul, (BATCH,), {"other": BATCH.mT}).parameters == ()
    assert function_tuple(torch.matmul, (), {"input": BATCH, "other": BATCH.mT}).parameters == ()


@pytest.mark.parametrize(
    "name", ["torch.hann_window", "torch.randn_like", "torch.nn.functional.hardswish", "torch.normal", "torch.logspace"]
)
def test_functions_that_torch_does_not_list_are_found(name: str) -> None:
    assert callable(build_operator(OperatorTuple(name, mode=None), "cpu"))
