"""FLOPs and bytes of backward passes and optimizers, against counts by hand."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from opcost.torch_backend.cost_counter import CostCounter, OperationCost, least_flop

FLOAT = 4


def costs_of(step) -> list[OperationCost]:
    found: list[OperationCost] = []
    with CostCounter(found.append):
        step()
    return found


def backward_of(function, *tensors: torch.Tensor, wanted: tuple[int, ...] = (0, 1)) -> list[OperationCost]:
    for place, tensor in enumerate(tensors):
        tensor.requires_grad_(place in wanted)
    result = function(*tensors)
    return costs_of(lambda: result.backward(torch.ones_like(result)))


CONVOLUTIONS = [
    # Inputs, weights, options.
    ((2, 8, 9, 9), (6, 8, 3, 3), {"padding": 1}),
    ((2, 8, 9, 9), (8, 1, 3, 3), {"padding": 1, "groups": 8}),
    ((2, 8, 9, 9), (16, 1, 5, 5), {"padding": 2, "groups": 8, "stride": 2}),
    ((3, 12, 8, 8), (6, 4, 1, 1), {"groups": 3}),
    ((1, 4, 16, 16), (4, 2, 3, 3), {"groups": 2, "dilation": 2}),
    ((2, 6, 20), (9, 2, 3), {"groups": 3}),
    ((1, 4, 5, 6, 7), (8, 2, 2, 2, 2), {"groups": 2}),
]


@pytest.mark.parametrize(("shape", "weights", "options"), CONVOLUTIONS)
@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
def test_each_gradient_of_a_convolution_takes_its_products_once(shape, weights, options, wanted) -> None:
    function = (F.conv1d, F.conv2d, F.conv3d)[len(shape) - 3]
    x, weight = torch.randn(shape), torch.randn(weights)
    places = math.prod(function(x, weight, **options).shape[2:])
    found = backward_of(lambda a, b: function(a, b, **options), x, weight, wanted=wanted)
    assert least_flop(found) == len(wanted) * 2 * shape[0] * places * math.prod(weights)


@pytest.mark.parametrize("groups", [1, 4])
def test_each_gradient_of_a_transposed_convolution_takes_its_products_once(groups: int) -> None:
    x, weight = torch.randn(2, 8, 5, 5), torch.randn(8, 3, 3, 3)
    found = backward_of(lambda a, b: F.conv_transpose2d(a, b, stride=2, groups=groups), x, weight)
    assert least_flop(found) == 2 * 2 * 2 * 25 * weight.numel()


def test_gradients_of_products_take_twice_the_product() -> None:
    x, weight = torch.randn(5, 7), torch.randn(3, 7)
    assert least_flop(backward_of(F.linear, x, weight)) == 2 * 2 * 5 * 7 * 3
    one, other = torch.randn(4, 5, 7), torch.randn(4, 7, 3)
    assert least_flop(backward_of(torch.bmm, one, other)) == 2 * 2 * 4 * 5 * 7 * 3


def test_gradients_of_recurrent_layers_take_twice_their_products() -> None:
    layer, x = nn.LSTM(6, 5, batch_first=True), torch.randn(3, 4, 6, requires_grad=True)
    result, _ = layer(x)
    found = costs_of(lambda: result.backward(torch.ones_like(result)))
    assert least_flop(found) == 2 * 2 * 3 * 4 * sum(one.numel() for one in layer.parameters() if one.dim() > 1)


@pytest.mark.parametrize(
    "function",
    [
        *(F.hardswish, F.hardsigmoid, F.silu, F.gelu, F.mish, F.softplus, F.softshrink, F.elu, F.glu, F.leaky_relu),
        *(F.logsigmoid, F.hardtanh, F.relu6, lambda x: F.adaptive_avg_pool2d(x, 2), lambda x: F.max_pool2d(x, 2)),
        *(lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), lambda x: F.avg_pool2d(x, 2)),
        *(lambda x: F.batch_norm(x, None, None, training=True), lambda x: F.group_norm(x, 2), lambda x: x.softmax(1)),
        lambda x: F.nll_loss(x.flatten(1), torch.tensor([1, 0])),
        lambda x: F.binary_cross_entropy(x.sigmoid(), torch.ones_like(x)),
        *(lambda x, loss=loss: loss(x, torch.ones_like(x)) for loss in (F.mse_loss, F.l1_loss, F.huber_loss)),
        *(lambda x, loss=loss: loss(x, torch.ones_like(x)) for loss in (F.smooth_l1_loss, F.soft_margin_loss)),
    ],
)
def test_gradients_without_products_have_no_flops_and_none_is_unknown(function) -> None:
    found = backward_of(function, torch.randn(2, 4, 6, 6), wanted=(0,))
    assert found
    assert [(one.flop, one.without_formula) for one in found] == len(found) * [(0, ())]


@pytest.mark.parametrize("form", [{"foreach": True}, {"foreach": False}, {"fused": True}])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_an_optimizer_has_no_products_and_writes_all_weights(kind, form) -> None:
    weights = [nn.Parameter(torch.randn(100, 10)) for _ in range(3)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimizer = kind(weights, lr=0.1, **form)
    optimizer.step()
    found = costs_of(optimizer.step)
    assert least_flop(found) == 0
    assert not any(one.without_formula for one in found)
    # It reads weights and gradients, and writes weights; Adam has two states of each.
    states = 0 if kind is torch.optim.SGD else 2
    assert sum(one.memory_bytes for one in found) >= (3 + 2 * states) * 3 * 1000 * FLOAT
    if "fused" in form:
        read, written = (2 + states) * 3 * 1000 * FLOAT, (1 + states) * 3 * 1000 * FLOAT
        # The numbers of steps are a few bytes.
        assert sum(one.memory_bytes for one in found) == pytest.approx(read + written, abs=100)
