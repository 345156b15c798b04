"""Backward passes that a model runs in its own forward are counted by their operations."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from opcost.operators.counts import OperatorCounts
from opcost.operators.tuples import model_operator
from opcost.torch_backend.alone import difference
from opcost.torch_backend.capture import capture, run_first
from opcost.torch_backend.inputs import WithSeeds, operator_inputs
from opcost.torch_backend.operators import function_tuple
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.workload import operator_call


def by_grad(outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    (gradient,) = torch.autograd.grad(outputs.sum(), inputs)
    return gradient


def by_backward(outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    outputs.sum().backward()
    assert inputs.grad is not None
    return inputs.grad


def by_function(outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    torch.autograd.backward(outputs.sum())
    assert inputs.grad is not None
    return inputs.grad


Gradient = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Slope(nn.Module):
    """The gradient of a small network by its input."""

    def __init__(self, gradient: Gradient) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 4))
        self.gradient = gradient

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            inputs = inputs.detach().requires_grad_()
            return self.gradient(self.network(inputs), inputs)


def counts_of(gradient: Gradient, device: str = "cpu") -> OperatorCounts:
    with torch.device(device):
        ready = ReadyModel(Slope(gradient).requires_grad_(False).eval(), (torch.ones(32, 8),))
    return capture(run_first(ready), model_operator("slope", None, (32, 8)))


@pytest.mark.parametrize("gradient", [by_grad, by_backward, by_function])
def test_each_operation_of_a_backward_pass_is_an_operator(gradient: Gradient) -> None:
    counts = counts_of(gradient)
    names = {count.operator.operator: count.occurrences for count in counts.counts}
    assert names["torch.ops.aten.silu_backward"] == 1
    assert sum(count.occurrences for count in counts.counts if count.operator.operator == "torch.ops.aten.mm") == 2
    assert counts.outside == ()
    assert counts.flop == counts.total_flop == 2 * 2 * 32 * (8 * 16 + 16 * 4)
    assert counts.memory_bytes == counts.total_memory_bytes
    assert [difference(count, "cpu") for count in counts.counts if difference(count, "cpu") is not None] == []


def test_shapes_alone_have_the_operations_of_a_device() -> None:
    of_values, of_shapes = counts_of(by_grad), counts_of(by_grad, "meta")
    assert [(one.operator, one.memory_bytes) for one in of_shapes.counts] == [
        (one.operator, one.memory_bytes) for one in of_values.counts
    ]


class Own(nn.Module):
    """A model that is one function of its input."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(8, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            inputs = inputs.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.function(self.layer(inputs)).square().sum(), inputs)
        return gradient


def own_counts(model: nn.Module) -> OperatorCounts:
    return capture(run_first(ReadyModel(model.eval(), (torch.ones(32, 8),))), model_operator("own", None, (32, 8)))


@pytest.mark.parametrize("function", [lambda x: x.unbind(0)[0], lambda x: x[:, :4], lambda x: x.cumprod(1)])
def test_operations_that_only_a_backward_pass_has_are_rebuilt(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    counts = own_counts(Own(function))
    assert counts.flop_missing_reason is None
    assert [difference(count, "cpu") for count in counts.counts if difference(count, "cpu") is not None] == []


def test_a_module_that_runs_again_in_the_backward_pass_is_counted_again() -> None:
    model = Own(torch.relu)
    model.function = lambda x: checkpoint(model.again, x, use_reentrant=False)
    model.again = nn.Tanh()
    counts = own_counts(model)
    assert [count.occurrences for count in counts.counts if count.operator.short_name == "Tanh"] == [2]


def test_a_backward_pass_under_autocast_is_counted() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        counts = own_counts(Own(nn.functional.silu))
    assert "silu_backward" in {count.operator.short_name for count in counts.counts}


def test_indices_of_a_backward_pass_are_within_the_table() -> None:
    words = torch.arange(300)
    operation = torch.ops.aten.embedding_dense_backward
    operator = function_tuple(operation, (torch.ones(300, 4), words, 1000, -1, False), {})
    args, _ = operator_inputs(operator, "cpu")
    assert isinstance(args[1], torch.Tensor)
    assert args[1].unique().numel() > 200


LOGITS, IMAGES = torch.randn(400, 300).log_softmax(1), torch.randn(2, 300, 8, 8).log_softmax(1)
LABELS, ONE = torch.zeros(400, dtype=torch.int64), torch.tensor(1.0)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("nll_loss_backward", (ONE, LOGITS, LABELS, None, 1, -100, ONE.clone())),
        ("nll_loss2d_backward", (ONE, IMAGES, torch.zeros(2, 8, 8, dtype=torch.int64), None, 1, -100, ONE.clone())),
        ("multi_margin_loss_backward", (ONE, LOGITS, LABELS, 1, 1.0)),
        ("nll_loss_forward", (LOGITS, LABELS, None, 1, -100)),
        ("nll_loss2d_forward", (IMAGES, torch.zeros(2, 8, 8, dtype=torch.int64), None, 1, -100)),
        (
            "multilabel_margin_loss_backward",
            (ONE, LOGITS, LABELS.expand(300, 400).t().clone(), 1, LOGITS.gt(-6).float()),
        ),
    ],
)
def test_labels_of_a_loss_are_classes(name: str, args: tuple[object, ...]) -> None:
    function, drawn, _ = operator_call(function_tuple(getattr(torch.ops.aten, name), args, {}), "cpu")
    (labels,) = (one for one in drawn if isinstance(one, torch.Tensor) and one.dtype == torch.int64)
    assert (int(labels.min()) < 20, int(labels.max()) > 280, labels.unique().numel() > 90) == (True, True, True)
    result = function(*drawn)
    assert isinstance(result, tuple) or result.count_nonzero() >= 0.8 * labels.numel()


def within_windows(indices: torch.Tensor, plane: torch.Tensor, windows: torch.Tensor) -> bool:
    """Return whether each index is a place of its own window, a last dimension of the plane's places from 1."""
    assert 0 <= int(indices.min()) <= int(indices.max()) < plane.numel()
    return bool((windows == (indices + 1).unsqueeze(-1)).any(-1).all())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("sides", "kernel", "stride", "padding", "dilation", "ceil"),
    [
        ((112, 110), [3, 3], [2, 2], [1, 1], [1, 1], False),
        ((28, 27), [2], [], [0], [1], False),
        ((28, 27), [2, 3], [1, 2], [0, 1], [1, 1], True),
        ((13, 12), [5, 5], [1, 1], [2, 2], [1, 1], False),
        ((55, 56), [1, 1], [2, 2], [0, 0], [1, 1], False),
        ((30, 31), [3, 3], [3, 2], [1, 1], [2, 2], False),
    ],
)
def test_what_was_pooled_is_within_its_window(
    sides: tuple[int, int],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil: bool,
    layout: torch.memory_format,
) -> None:
    images, form = torch.randn(2, 3, *sides).to(memory_format=layout), (kernel, stride, padding, dilation, ceil)
    pooled, indices = torch.ops.aten.max_pool2d_with_indices(images, *form)
    operation = torch.ops.aten.max_pool2d_with_indices_backward
    function, args, _ = operator_call(function_tuple(operation, (pooled, images, *form, indices), {}), "cpu")
    drawn = args[-1]
    assert isinstance(drawn, torch.Tensor)
    assert drawn.stride() == indices.stride()
    plane = torch.arange(1, sides[0] * sides[1] + 1).reshape(sides)
    windows = nn.functional.pad(plane, 4 * [8])
    for place, (size, step, side, apart) in enumerate(
        zip(2 * kernel, 2 * (stride or kernel), 2 * padding, 2 * dilation, strict=False)
    ):
        if place < 2:
            windows = windows.narrow(place, 8 - side, windows.shape[place] - 8 + side)
            windows = windows.unfold(place, (size - 1) * apart + 1, step)[..., ::apart]
            windows = windows.narrow(place, 0, pooled.shape[2 + place])
    assert within_windows(drawn, plane, windows.flatten(2))
    assert torch.allclose(function(*args).sum((2, 3)), args[0].sum((2, 3)), atol=1e-3)  # type: ignore[attr-defined]


def test_what_was_pooled_to_a_size_or_in_space_is_within_its_window() -> None:
    images, plane = torch.randn(2, 3, 13, 10), torch.arange(1, 131).reshape(13, 10)
    pooled, indices = torch.ops.aten.adaptive_max_pool2d(images, [5, 4])
    operation = torch.ops.aten.adaptive_max_pool2d_backward
    _, args, _ = operator_call(function_tuple(operation, (pooled, images, indices), {}), "cpu")
    assert isinstance(args[-1], torch.Tensor)
    for place in torch.cartesian_prod(torch.arange(5), torch.arange(4)).tolist():
        rows, columns = (
            slice(one * size // parts, -(-(one + 1) * size // parts))
            for one, size, parts in zip(place, (13, 10), (5, 4), strict=True)
        )
        assert within_windows(args[-1][..., place[0], place[1]], plane, plane[rows, columns].flatten())
    form = ([2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False)
    videos, space = torch.randn(2, 3, 4, 6, 8), torch.arange(1, 193).reshape(4, 6, 8)
    pooled, indices = torch.ops.aten.max_pool3d_with_indices(videos, *form)
    operation = torch.ops.aten.max_pool3d_with_indices_backward
    _, args, _ = operator_call(function_tuple(operation, (pooled, videos, *form, indices), {}), "cpu")
    assert isinstance(args[-1], torch.Tensor)
    windows = space.unfold(0, 2, 2).unfold(1, 2, 2).unfold(2, 2, 2).flatten(3)
    assert within_windows(args[-1], space, windows)


def test_squares_that_an_optimiser_keeps_are_not_negative() -> None:
    own = [torch.ones(2, 3), torch.ones(4)]
    lists = [[one.clone() for one in own] for _ in range(4)]
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "eps": 1e-8}
    flags = {"amsgrad": False, "maximize": False}
    steps = [torch.ones(()), torch.ones(())]
    fused = function_tuple(torch.ops.aten._fused_adamw_, (*lists, [], steps), {**options, **flags})
    root = function_tuple(torch.ops.aten._foreach_sqrt, (own,), {})
    for operator, in_place in (fused, True), (root, False):
        function, args, kwargs = operator_call(operator, "cpu")
        result = function(*args, **kwargs)
        assert all(one.isfinite().all() for one in (args[0] if in_place else result))  # type: ignore[attr-defined]


class Attending(nn.Module):
    """The gradients of an attention, which torch computes by what its forward saved."""

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            given = [one.detach().requires_grad_() for one in inputs]
            return torch.autograd.grad(nn.functional.scaled_dot_product_attention(*given).sum(), given)


def test_the_backward_of_an_attention_finds_what_its_forward_saves() -> None:
    ready = ReadyModel(Attending().eval(), tuple(torch.randn(2, 3, 16, 8) for _ in range(3)))
    counts = capture(run_first(ready), model_operator("attending", None, (2, 3, 16, 8)))
    (count,) = (one for one in counts.counts if one.operator.short_name.endswith("attention_for_cpu_backward"))
    function, args, kwargs = operator_call(count.operator, "cpu")
    found, (gradient, *given) = function(*args, **kwargs), args[:4]
    given = [one.clone().requires_grad_() for one in given]
    expected = torch.autograd.grad(nn.functional.scaled_dot_product_attention(*given), given, gradient)
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other)


def test_seeds_are_on_the_gpu_only_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    host, device = torch.tensor(1), torch.tensor(2)
    seeded = WithSeeds(lambda *args: args, {1: device})
    for is_captured, expected in ((False, host), (True, device)):
        monkeypatch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda answer=is_captured: answer)
        assert seeded(0, host) == (0, expected)
