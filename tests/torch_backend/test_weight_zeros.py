"""Zeros in weights: the right share, at the same positions each time, and nothing else changes."""

import pytest
import torch
from torch import nn

from opcost.errors import CannotMeasureError
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.operators.values import InputData
from opcost.torch_backend.operators import module_tuple
from opcost.torch_backend.workload import matrices_of, operator_call, operator_workload

CONV = module_tuple(nn.Conv2d(32, 64, 3).eval(), (torch.empty(2, 32, 8, 8),), {})
ATTENTION = module_tuple(nn.MultiheadAttention(64, 4).eval(), tuple(torch.empty(3, 5, 2, 64)), {})
LINEAR = OperatorTuple(
    "torch.nn.functional.linear",
    inputs=(
        TensorSpec((8, 128), "float32"),
        TensorSpec((256, 128), "float32", identity=1),
        TensorSpec((256,), "float32", identity=2),
    ),
    mode=None,
)
HALF_CONV = module_tuple(nn.Conv2d(32, 64, 3).eval().to(torch.bfloat16), (torch.empty(2, 32, 8, 8).bfloat16(),), {})


def share_of_zeros(tensor: torch.Tensor) -> float:
    return float((tensor == 0).float().mean())


@pytest.mark.parametrize("operator", [CONV, HALF_CONV, ATTENTION, LINEAR], ids=lambda one: one.short_name)
@pytest.mark.parametrize("zeros_ratio", [0.1, 0.5, 0.9, 1.0])
def test_weights_have_the_share_of_zeros(operator: OperatorTuple, zeros_ratio: float) -> None:
    function, args, _ = operator_call(operator, "cpu", InputData(weight_zeros_ratio=zeros_ratio))
    weights = matrices_of(function, args)
    assert weights
    # Three standard errors of a share of 4096 values.
    assert [share_of_zeros(weight) for weight in weights] == pytest.approx([zeros_ratio] * len(weights), abs=0.025)
    others = [one for one in args if isinstance(one, torch.Tensor) and all(one is not weight for weight in weights)]
    assert all(share_of_zeros(one) == 0 for one in others)


def test_positions_of_zeros_are_the_same_each_time() -> None:
    data = InputData(weight_zeros_ratio=0.5)
    one, other = (operator_call(CONV, "cpu", data)[0] for _ in range(2))
    assert isinstance(one, nn.Conv2d)
    assert isinstance(other, nn.Conv2d)
    assert torch.equal(one.weight == 0, other.weight == 0)
    assert one.bias is not None
    assert share_of_zeros(one.bias) == 0


def test_an_operator_runs_with_zeros_and_as_initialised_without() -> None:
    function, args, _ = operator_call(CONV, "cpu")
    assert [share_of_zeros(weight) for weight in matrices_of(function, args)] == [0]
    assert operator_workload(CONV, "cpu", InputData(weight_zeros_ratio=0.5)).run(2) == 2


@pytest.mark.parametrize("module", [nn.ReLU(), nn.LayerNorm(8), nn.BatchNorm2d(8)])
def test_an_operator_without_a_matrix_of_weights_has_no_zeros_in_them(module: nn.Module) -> None:
    operator = module_tuple(module.eval(), (torch.empty(2, 8, 4, 8),), {})
    with pytest.raises(CannotMeasureError, match="no weights"):
        operator_call(operator, "cpu", InputData(weight_zeros_ratio=0.5))
