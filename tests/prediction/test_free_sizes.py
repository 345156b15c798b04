"""Free sizes of operator tuples: which places change together, and the tuples with other sizes."""

import random

import pytest
from committed_tables import committed
from hypothesis import assume, given
from hypothesis import strategies as st

from opcost.operators.texts import parse_tuple
from opcost.operators.tuples import OperatorTuple, tensor_specs
from opcost.prediction.sampling import FreeSize, free_sizes, sizes_of, with_sizes
from opcost.running.shipped_counts import counts_in, counts_of_operators


@pytest.fixture(scope="module")
def operators() -> list[OperatorTuple]:
    found = counts_of_operators(counts_in(committed().model_operators))
    return sorted((count.operator for count in found.values()), key=str)


def changed(text: str, **values: int) -> str:
    """Return a tuple with other values of its free sizes, by their names; a space is written as two underscores."""
    operator = parse_tuple(text)
    free = {size.name: size for size in free_sizes(operator)}
    old = sizes_of(operator)
    new: dict[tuple[int | str, int | None], int] = {}
    for name, value in values.items():
        size = free[name.replace("__", " ")]
        new |= {place: value * (old[place] // size.value) for place in size.places}
    return str(with_sizes(operator, new))


CONV = (
    "torch.nn.Conv2d(in_channels=64, out_channels=128, kernel_size=3, stride=2, padding=1) on (float32[32, 64, 56, 56])"
)
DEPTHWISE = (
    "torch.nn.Conv2d(in_channels=88, out_channels=176, kernel_size=3, groups=88) on (float32[32, 88, 56, 28]) eval"
)


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        (
            f"{CONV} eval",
            {"in_channels": 7, "out_channels": 9, "kernel_size": 5, "stride": 3, "batch": 2, "side__2__of__4": 33},
            "torch.nn.Conv2d(in_channels=7, out_channels=9, kernel_size=5, stride=3, padding=1) on "
            "(float32[2, 7, 33, 33]) eval",
        ),
        (
            DEPTHWISE,
            {"groups": 5, "side__3__of__4": 6},
            "torch.nn.Conv2d(in_channels=5, out_channels=10, kernel_size=3, groups=5) on (float32[32, 5, 56, 6]) eval",
        ),
        (
            "torch.nn.Conv2d(in_channels=64, out_channels=32, kernel_size=(1, 7), groups=8) "
            "on (float32[2, 64, 17, 17]) eval",
            {"kernel_size__1": 3, "groups": 4},
            "torch.nn.Conv2d(in_channels=64, out_channels=32, kernel_size=(1, 3), groups=4) "
            "on (float32[2, 64, 17, 17]) eval",
        ),
        (
            "torch.nn.Linear(in_features=96, out_features=384) on (float32[32, 56, 56, 96]) eval",
            {"in_features": 5, "out_features": 6, "side__1__of__4": 7},
            "torch.nn.Linear(in_features=5, out_features=6) on (float32[32, 7, 7, 5]) eval",
        ),
        (
            "torch.nn.LayerNorm(normalized_shape=(96,)) on (float32[32, 56, 56, 96]:strides(301056, 56, 1, 3136)) eval",
            {"normalized_shape__0": 10, "side__1__of__4": 7},
            "torch.nn.LayerNorm(normalized_shape=(10,)) on (float32[32, 7, 7, 10]:strides(490, 7, 1, 49)) eval",
        ),
        (
            "torchvision.models.convnext.LayerNorm2d(normalized_shape=(96,)) "
            "on (float32[32, 96, 56, 56]:channels_last) eval",
            {"normalized_shape__0": 10},
            "torchvision.models.convnext.LayerNorm2d(normalized_shape=(10,)) "
            "on (float32[32, 10, 56, 56]:channels_last) eval",
        ),
        (
            "torch.nn.MultiheadAttention(embed_dim=768, num_heads=12, batch_first=True) on (float32[32, 50, 768]#0, "
            "float32[32, 50, 768]#0, float32[32, 50, 768]#0) eval",
            {"embed_dim": 24, "side__1__of__3": 7},
            "torch.nn.MultiheadAttention(embed_dim=24, num_heads=12, batch_first=True) on (float32[32, 7, 24]#0, "
            "float32[32, 7, 24]#0, float32[32, 7, 24]#0) eval",
        ),
        (
            "torch.Tensor.add on (float32[32, 24, 64, 64], float32[1, 24, 64, 64], alpha=2)",
            {"batch": 3, "side__1__of__4": 4, "side__2__of__4": 5},
            "torch.Tensor.add on (float32[3, 4, 5, 5], float32[1, 4, 5, 5], alpha=2)",
        ),
        (
            "torch.Tensor.mul on (float32[32, 24, 1, 1], float32[32, 24, 64, 64])",
            {"batch": 3, "side__1__of__4": 4, "side__2__of__4": 5},
            "torch.Tensor.mul on (float32[3, 4, 1, 1], float32[3, 4, 5, 5])",
        ),
        (
            "torch.cat on ((float32[8, 64, 7, 7], float32[8, 32, 7, 7], float32[8, 32, 7, 7]), 1)",
            {"batch": 3, "side__1__of__4": 4, "side__2__of__4": 5},
            "torch.cat on ((float32[3, 64, 5, 5], float32[3, 4, 5, 5], float32[3, 4, 5, 5]), 1)",
        ),
        (
            "torch.Tensor.matmul on (float32[8, 3, 49, 32]:strides(4704, 32, 96, 1), "
            "float32[8, 3, 32, 49]:strides(14112, 32, 1, 288))",
            {"batch": 2, "side__1__of__4": 5, "side__2__of__4": 7, "side__3__of__4": 11},
            "torch.Tensor.matmul on (float32[2, 5, 7, 32]:strides(1120, 32, 160, 1), "
            "float32[2, 5, 32, 11]:strides(5280, 32, 1, 480))",
        ),
        (
            "torch.nn.functional.linear on (float32[32, 49, 768], float32[2304, 768], float32[2304])",
            {"batch": 2, "side__2__of__3": 5, "side__0__of__2": 7},
            "torch.nn.functional.linear on (float32[2, 49, 5], float32[7, 5], float32[7])",
        ),
        (
            "torch.cat "
            "on ((float32[32, 1, 1024]:strides(0, 1024, 1), float32[32, 49, 1024]:strides(50176, 1, 49)), dim=1)",
            {"batch": 2, "side__2__of__3": 5},
            "torch.cat on ((float32[2, 1, 5]:strides(0, 5, 1), float32[2, 49, 5]:strides(245, 1, 49)), dim=1)",
        ),
    ],
)
def test_places_of_one_size_change_together(text: str, values: dict[str, int], expected: str) -> None:
    assert changed(text, **values) == expected


def channels_of(text: str) -> set[str]:
    return {size.name for size in free_sizes(parse_tuple(text)) if size.is_channels}


def test_numbers_of_channels_are_distinguished_from_sides_of_images_and_kernels() -> None:
    assert channels_of(f"{CONV} eval") == {"in_channels", "out_channels"}
    assert channels_of(DEPTHWISE) >= {"groups"}
    assert channels_of("torch.nn.GELU() on (float32[32, 56, 56, 384]) eval") == {"side 3 of 4"}
    assert channels_of("torch.nn.ReLU() on (float32[32, 64, 56, 56]) eval") == {"side 1 of 4"}


def test_a_tuple_without_tensors_or_sizes_has_none() -> None:
    assert free_sizes(parse_tuple("torch.nn.ReLU() on (3) eval")) == ()
    assert free_sizes(parse_tuple("torch.nn.ReLU() on (float32[1, 1]) eval")) == ()


def test_the_sizes_that_a_tuple_has_give_the_same_tuple(operators: list[OperatorTuple]) -> None:
    assert len(operators) > 2000
    assert [str(one) for one in operators if with_sizes(one, sizes_of(one)) != one] == []


@given(st.integers(0, 2**32), st.integers(2, 500))
def test_one_size_that_is_changed_leaves_all_others(operators: list[OperatorTuple], seed: int, value: int) -> None:
    source = random.Random(seed)
    operator = source.choice(operators)
    assume(free_sizes(operator))
    size: FreeSize = source.choice(free_sizes(operator))
    old = sizes_of(operator)
    new = {place: value * (old[place] // size.value) for place in size.places}
    other = with_sizes(operator, new)
    assert sizes_of(other) == old | new
    assert [len(spec.shape) for spec in tensor_specs(other.inputs)] == [
        len(spec.shape) for spec in tensor_specs(operator.inputs)
    ]
