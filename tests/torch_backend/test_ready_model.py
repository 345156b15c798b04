"""Example inputs as users give them become the arguments of a run, by one rule."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import pytest
import torch
from torch import nn

from opcost.torch_backend.ready_model import ReadyModel

X, Y = torch.ones(2, 3), torch.zeros(4)
Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize(
    ("examples", "positional", "keyword"),
    [
        (X, (X,), {}),
        ((X, 2), (X, 2), {}),
        ([X, 2], (X, 2), {}),
        (Pair(X, Y), (X, Y), {}),
        (([X, Y],), ([X, Y],), {}),
        ((), (), {}),
        ({"x": X, "scale": 2.0}, (), {"x": X, "scale": 2.0}),
        (OrderedDict(x=X), (), {"x": X}),
        (UserDict(x=X), (), {"x": X}),
        ({0: X}, ({0: X},), {}),
        (({"x": X},), ({"x": X},), {}),
    ],
)
def test_examples_are_arguments(examples: Any, positional: tuple[Any, ...], keyword: dict[str, Any]) -> None:
    ready = ReadyModel.of(nn.Identity(), examples)
    assert type(ready.keyword_inputs) is dict
    assert str((ready.inputs, ready.keyword_inputs)) == str((positional, keyword))


def test_the_encoding_of_a_tokenizer_has_arguments_by_keyword() -> None:
    encoding = pytest.importorskip("transformers").BatchEncoding({"input_ids": X, "attention_mask": X})
    ready = ReadyModel.of(nn.Identity(), encoding)
    assert list(ready.keyword_inputs) == ["input_ids", "attention_mask"]
    assert ready.tensors == [X, X]


def test_a_tensor_that_is_there_twice_stays_one() -> None:
    ready = ReadyModel.of(nn.Identity(), ([X, X], {"more": Y}, 3)).with_tensors(torch.clone)
    (first, second), more, number = ready.inputs
    assert first is second
    assert first is not X
    assert (more["more"].shape, number) == (Y.shape, 3)
