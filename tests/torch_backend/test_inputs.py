"""Inputs of whole models are drawn as a config describes them, equally on every device."""

from __future__ import annotations

import pytest
import torch

from opcost.operators.model_inputs import DescribedInputs
from opcost.operators.tuples import OperatorTuple, PlainValue, Structure, TensorSpec, model_operator
from opcost.torch_backend.inputs import model_inputs


def drawn(values: PlainValue, dtype: str = "float32", shape: tuple[int, ...] = (40, 50), seed: int = 0) -> torch.Tensor:
    described = DescribedInputs((TensorSpec(shape, dtype),), (), (values,))
    model = described.given_to(model_operator("net.py:build", None, (), seed))
    ((tensor,), _) = model_inputs(model, "cpu", {})
    assert isinstance(tensor, torch.Tensor)
    assert (tensor.dtype, tensor.shape) == (getattr(torch, dtype), shape)
    return tensor


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_integers_are_all_of_their_range_without_its_end(dtype: str) -> None:
    assert drawn(("integers", 3, 9), dtype).unique().tolist() == [3, 4, 5, 6, 7, 8]


def test_integers_reach_the_ends_of_their_dtype() -> None:
    assert drawn(("integers", 0, 256), "uint8").unique().numel() == 256
    assert drawn(("integers", -128, 128), "int8").min() == -128


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_real_numbers_are_uniform_in_their_range(dtype: str) -> None:
    values = drawn(("uniform", -2.0, 6.0), dtype).double()
    assert -2 <= values.min() < -1.9
    assert 5.9 < values.max() <= 6
    assert values.mean() == pytest.approx(2, abs=0.3)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_named_values_are_those_of_all_elements(dtype: str) -> None:
    assert not drawn("zeros", dtype).any()
    assert drawn("ones", dtype).all()


def test_a_causal_mask_is_one_below_the_diagonal_or_added_to_scores() -> None:
    for dtype in ("bool", "int64"):
        mask = drawn("causal", dtype, (2, 3, 3))
        assert mask[1].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    added = drawn("causal", "float32", (3, 3))
    assert added.tolist() == [[0.0, -torch.inf, -torch.inf], [0.0, 0.0, -torch.inf], [0.0, 0.0, 0.0]]


def test_values_depend_on_the_seed_and_are_normal_if_nothing_is_said() -> None:
    first, again, other = (drawn("normal", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.std() == pytest.approx(1, abs=0.1)


def test_tensors_in_lists_and_dicts_have_their_own_values() -> None:
    inner = Structure("dict", (("a", TensorSpec((4,), "int64", identity=1)),))
    described = DescribedInputs(
        ((TensorSpec((2, 3), "float32"), 5), inner),
        (("mask", TensorSpec((2,), "bool", identity=2)), ("flag", True)),
        ("zeros", ("integers", 7, 8), "ones"),
    )
    (listed, given), keywords = model_inputs(described.given_to(OperatorTuple("file.build")), "cpu", {})
    assert torch.equal(listed[0], torch.zeros(2, 3))  # type: ignore[index]
    assert listed[1] == 5  # type: ignore[index]
    assert given["a"].tolist() == [7, 7, 7, 7]  # type: ignore[index]
    assert (keywords["mask"].tolist(), keywords["flag"]) == ([True, True], True)  # type: ignore[attr-defined]


def test_described_values_come_before_those_of_a_source() -> None:
    described = DescribedInputs((TensorSpec((3,), "int64"),), (), (("integers", 5, 6),))
    model = described.given_to(OperatorTuple("file.build"))
    ((tensor,), _) = model_inputs(model, "cpu", {0: ("integers", 9, 10)})
    assert tensor.tolist() == [5, 5, 5]  # type: ignore[attr-defined]


def test_on_shapes_alone_nothing_is_drawn() -> None:
    described = DescribedInputs((TensorSpec((2**20, 2**10, 2**10), "int64"),), (), (("integers", 0, 5),))
    ((tensor,), _) = model_inputs(described.given_to(OperatorTuple("file.build")), "meta", {})
    assert tensor.is_meta  # type: ignore[attr-defined]
