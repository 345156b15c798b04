"""Grids: the product of their lists, names in shapes, and the tuple that stands for a grid."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.operators.grids import Grid, GridPoint, GridTensor, TupleList
from opcost.operators.texts import parse_tuple
from opcost.operators.tuples import Structure, TensorSpec

CONV = Grid(
    operator="torch.nn.Conv2d",
    inputs=(GridTensor(("batch", "in_channels", "side", 7)),),
    parameters=(("in_channels", (64, "wide")), ("kernel_size", (1, (1, 3)))),
    sizes=(("batch", (1, 32)), ("side", (14,)), ("wide", (128,))),
    dtypes=("float32", "bfloat16"),
    input_zeros=(0.0, 0.5),
    weight_zeros=(0.9,),
)
SIDES = st.lists(st.integers(1, 99), min_size=1, max_size=4, unique=True).map(tuple)
SHARES = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, unique=True).map(tuple)


def test_points_are_the_product_of_all_lists() -> None:
    points = list(CONV.points())
    assert len(points) == CONV.number == len(set(points)) == 2 * 2 * 2 * 2 * 2
    assert {point.dtype for point in points} == {"float32", "bfloat16"}
    assert {(point.input_zeros, point.weight_zeros) for point in points} == {(0.0, 0.9), (0.5, 0.9)}


def test_names_have_one_value_in_a_point() -> None:
    for point in CONV.points():
        parameters = dict(point.operator.parameters)
        (spec,) = point.operator.inputs
        assert spec == TensorSpec((spec.shape[0], parameters["in_channels"], 14, 7), point.dtype)
        assert parameters["in_channels"] in (64, 128)
        assert parameters["kernel_size"] in (1, (1, 3))


def test_a_name_stands_for_its_size_in_nested_values_too() -> None:
    nested = Structure("dict", (("sides", ("wide", 3)), ("mode", "same")))
    points = Grid("torch.nn.Conv2d", (GridTensor((8,)),), (("given", (nested,)),), CONV.sizes).points()
    found = {dict(point.operator.parameters)["given"] for point in points}
    assert found == {Structure("dict", (("sides", (128, 3)), ("mode", "same")))}


def test_a_point_is_named_by_its_values() -> None:
    *_, last = CONV.points()
    assert str(last) == (
        "torch.nn.Conv2d(in_channels=128, kernel_size=(1, 3)) on (bfloat16[32, 128, 14, 7]), inputs 0.5 zeros, "
        "weights 0.9 zeros"
    )


def test_tensors_with_a_dtype_of_their_own_keep_it() -> None:
    grid = Grid("torch.nn.Embedding", (GridTensor((4, 8), "int64"),), dtypes=("float16",))
    (point,) = grid.points()
    assert point.operator.inputs == (TensorSpec((4, 8), "int64"),)


def test_tensors_of_a_point_are_distinct() -> None:
    (point,) = Grid("torch.matmul", (GridTensor((2, 3)), GridTensor((3, 2)))).points()
    assert [spec.identity for spec in point.operator.inputs] == [0, 1]


@given(SIDES, SIDES, SHARES, SHARES)
def test_each_combination_is_one_point(
    rows: tuple[int, ...], columns: tuple[int, ...], inputs: tuple[float, ...], weights: tuple[float, ...]
) -> None:
    grid = Grid(
        "torch.nn.Linear",
        (GridTensor(("rows", "in_features")),),
        (("in_features", columns), ("out_features", (8,))),
        (("rows", rows),),
        input_zeros=inputs,
        weight_zeros=weights,
    )
    found = [(*point.operator.inputs[0].shape, point.input_zeros, point.weight_zeros) for point in grid.points()]
    assert found == list(product(rows, columns, inputs, weights))
    assert grid.number == len(found)


@pytest.mark.parametrize(
    "change",
    [
        {"operator": "torchvision.ops.Conv2d"},
        {"dtypes": ("float32",)},
        {"input_zeros": (0.0,)},
        {"weight_zeros": (0.0,)},
        {"sizes": (*CONV.sizes[1:], ("batch", (1, 16)))},
        {"parameters": CONV.parameters[:1]},
        {"inputs": (*CONV.inputs, GridTensor((1,)))},
    ],
)
def test_another_grid_has_another_tuple(change: dict[str, object]) -> None:
    other = replace(CONV, **change)  # type: ignore[arg-type]
    assert other.model != CONV.model
    assert CONV.model == replace(CONV).model
    assert CONV.model.is_model


RELU, ADD = map(parse_tuple, ("torch.nn.ReLU() on (float32[8]) eval", "torch.Tensor.add on (float32[8], 2)"))


def test_the_points_of_a_list_are_its_tuples() -> None:
    tuples = TupleList((RELU, ADD, RELU))
    assert [point.operator for point in tuples.points()] == [RELU, ADD, RELU]
    assert {*tuples.points()} == {GridPoint(RELU), GridPoint(ADD)}
    assert (tuples.number, str(tuples), str(CONV)) == (3, "3 operator tuples", "32 combinations of torch.nn.Conv2d")
    assert tuples.operators == {"tuples: item 1": "torch.nn.ReLU", "tuples: item 2": "torch.Tensor.add"}


def test_another_list_has_another_tuple() -> None:
    models = [TupleList(tuples).model for tuples in ((RELU,), (ADD,), (RELU, ADD), (ADD, RELU))]
    assert len({*models}) == 4
    assert all(model.is_model for model in models)
    assert TupleList((RELU,)).model == TupleList((RELU,)).model
