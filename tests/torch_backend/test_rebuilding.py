"""Operator tuples and modules: the way there and back, and texts and keys that never change by accident."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torchvision import ops
from torchvision.models.resnet import BasicBlock
from torchvision.models.video.resnet import Conv3DNoTemporal

from opcost.errors import CannotMeasureError
from opcost.operators.tuples import META, OperatorTuple, TensorSpec, model_operator, stored_as
from opcost.sources.models import resolve
from opcost.torch_backend.capture import capture
from opcost.torch_backend.inputs import operator_inputs
from opcost.torch_backend.operators import (
    UNKNOWN,
    build_module,
    find_function,
    function_tuple,
    module_tuple,
)
from opcost.torch_backend.ready_model import store_weights, weight_dtype
from opcost.torch_backend.values import public_name

GOLDEN = Path(__file__).parents[1] / "golden" / "operator_texts.txt"
IMAGE = torch.zeros(2, 4, 16, 16)
SEQUENCE = torch.zeros(2, 5, 8)


def tuple_of(module: nn.Module, *args: Any, **kwargs: Any) -> OperatorTuple:
    return module_tuple(module.eval(), args, kwargs)


def rebuilt(operator: OperatorTuple) -> OperatorTuple:
    """Return the tuple of the module that is built from a tuple, called with inputs drawn for it."""
    args, kwargs = operator_inputs(operator, "cpu")
    return module_tuple(build_module(operator, "cpu"), args, kwargs)


class Scale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))


# There and back


@pytest.mark.parametrize("is_channels_last", [False, True])
@pytest.mark.parametrize(("name", "size"), [("mobilenet_v3_small", 32), ("swin_t", 32), ("vit_b_16", 224)])
def test_weights_are_rebuilt_as_they_are_stored_in_the_model(name: str, size: int, is_channels_last: bool) -> None:
    operator = stored_as(model_operator(name, None, (2, 3, size, size)), "bfloat16", is_channels_last)
    ready = resolve(operator).with_inputs("meta")
    counts = capture(ready, operator)
    modules = [count.operator for count in counts.counts if not count.operator.is_function]
    assert [rebuilt(one) for one in modules] == modules
    weights = [weight for one in modules for weight in build_module(one, META).parameters()]
    assert {weight.dtype for weight in weights} == {torch.bfloat16}
    forms = {dict(one.parameters).get("memory_format") for one in modules if "Conv2d" in one.operator}
    assert ("channels_last" in forms) == is_channels_last


POINT = torch.zeros(2, 8, 1, 1)
HALF = torch.zeros(2, 16, 4, 4)[:, :8]


@pytest.mark.parametrize("image", [POINT, POINT.to(memory_format=torch.channels_last), HALF, HALF.contiguous()])
@pytest.mark.parametrize("make", [lambda: nn.Conv2d(8, 4, 1), lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8)])
def test_filters_are_rebuilt_in_the_layout_by_which_torch_chooses_the_kernel_unless_the_image_decides(
    make: Callable[[], nn.Conv2d], image: torch.Tensor
) -> None:
    contiguous, layer = make(), store_weights(make(), torch.float32, is_channels_last=True)
    operator = tuple_of(layer, image)
    assert operator != tuple_of(contiguous, image)
    alone = build_module(operator, "cpu")
    assert alone.weight.stride() == layer.weight.stride() != contiguous.weight.stride()
    assert alone(image).stride() == layer(image).stride()


@pytest.mark.parametrize("layer", [nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, groups=4)])
def test_an_image_in_channels_last_says_how_filters_of_one_value_or_channel_are_stored(layer: nn.Module) -> None:
    image = IMAGE.to(memory_format=torch.channels_last)
    contiguous = tuple_of(layer, image)
    assert tuple_of(store_weights(layer, torch.float32, is_channels_last=True), image) == contiguous


def test_one_module_may_have_filters_for_images_and_for_videos() -> None:
    both = nn.ModuleList([nn.Conv2d(4, 4, 3), nn.Conv3d(4, 4, 3)])
    store_weights(both, torch.float16, is_channels_last=True)
    assert both[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert both[1].weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert [weight_dtype(one) for one in both] == [torch.float16] * 2


class NeedsValues(nn.Linear):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.sign = 1.0 if self.weight.sum() < 1e9 else -1.0


def test_on_shapes_weights_are_not_drawn_unless_the_constructor_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []
    draw = nn.init.kaiming_uniform_

    def drawn(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        devices.append(tensor.device.type)
        return draw(tensor, *args, **kwargs)

    monkeypatch.setattr(nn.init, "kaiming_uniform_", drawn)
    operator = OperatorTuple("torch.nn.Linear", (("in_features", 4), ("out_features", 8)))
    assert build_module(operator, META).weight.shape == (8, 4)
    assert set(devices) == {"meta"}
    monkeypatch.setattr(nn, "Linear", NeedsValues)
    assert build_module(operator, META).weight.is_meta
    assert devices[-1] == "cpu"


def test_complex_weights_and_frozen_norms_are_rebuilt_in_their_dtype() -> None:
    operator = tuple_of(nn.Linear(4, 4, dtype=torch.complex64), torch.zeros(2, 4, dtype=torch.complex64))
    assert dict(operator.parameters)["dtype"] == "complex64"
    assert build_module(operator, "cpu").weight.dtype == torch.complex64
    norm = ops.FrozenBatchNorm2d(4).to(torch.bfloat16)
    operator = tuple_of(norm, IMAGE.bfloat16())
    assert dict(operator.parameters)["dtype"] == "bfloat16"
    assert build_module(operator, "cpu").running_mean.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", ["float12", "load", 3])
def test_an_unknown_dtype_of_weights_is_refused(dtype: str | int) -> None:
    parameters = (("in_features", 4), ("out_features", 4), ("dtype", dtype))
    with pytest.raises(CannotMeasureError, match=f"no dtype {dtype}$"):
        build_module(OperatorTuple("torch.nn.Linear", parameters), "cpu")


@pytest.mark.parametrize(
    ("module", "args"),
    [
        (
            nn.Conv2d(4, 6, (3, 5), stride=(2, 1), padding="valid", groups=2, bias=False, padding_mode="reflect"),
            [IMAGE],
        ),
        (nn.Conv2d(4, 6, 3, dtype=torch.float64), [IMAGE.double()]),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), [IMAGE]),
        (nn.Linear(8, 3, bias=False), [SEQUENCE]),
        (nn.BatchNorm2d(4, eps=1e-3, momentum=None, affine=False, track_running_stats=False), [IMAGE]),
        (nn.LayerNorm((5, 8), elementwise_affine=False), [SEQUENCE]),
        (nn.LayerNorm(8, bias=False), [SEQUENCE]),
        (nn.GELU(approximate="tanh"), [SEQUENCE]),
        (nn.MaxPool2d(3, stride=2, ceil_mode=True), [IMAGE]),
        (nn.AvgPool2d((2, 4), count_include_pad=False, divisor_override=3), [IMAGE]),
        (nn.AdaptiveAvgPool2d((None, 7)), [IMAGE]),
        (nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), [IMAGE]),
        (nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True, add_zero_attn=True), [SEQUENCE] * 3),
        (nn.MultiheadAttention(8, 2, bias=False, add_bias_kv=True, kdim=8, vdim=8), [SEQUENCE] * 3),
        (nn.MultiheadAttention(8, 2, kdim=4, vdim=6), [SEQUENCE, torch.zeros(2, 7, 4), torch.zeros(2, 7, 6)]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_arguments_that_differ_from_the_default_are_rebuilt(module: nn.Module, args: list[torch.Tensor]) -> None:
    operator = tuple_of(module, *args)
    assert UNKNOWN not in operator.parameters_text
    assert rebuilt(operator) == operator


def test_a_rebuilt_module_computes_what_the_first_one_does_in_the_same_mode() -> None:
    norm = nn.BatchNorm2d(4).train()
    operator = module_tuple(norm, (IMAGE,), {})
    assert build_module(operator, "cpu").training
    assert not build_module(tuple_of(norm, IMAGE), "cpu").training


# One spelling


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (nn.Conv2d(4, 6, 3), nn.Conv2d(4, 6, (3, 3))),
        (nn.Conv2d(4, 6, 3, 1, 1), nn.Conv2d(4, 6, (3, 3), stride=(1, 1), padding=(1, 1), dilation=1, bias=True)),
        (nn.MaxPool2d(2), nn.MaxPool2d((2, 2), stride=2)),
        (nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d((1, 1))),
        (nn.LayerNorm(16), nn.LayerNorm([16])),
        (nn.ReLU(), nn.ReLU(inplace=False)),
        (nn.LayerNorm(16, elementwise_affine=False), nn.LayerNorm(16, elementwise_affine=False, bias=False)),
        (nn.Upsample(scale_factor=2), nn.Upsample(scale_factor=2.0)),
    ],
    ids=lambda module: type(module).__name__,
)
def test_arguments_that_mean_the_same_are_spelt_alike(one: nn.Module, other: nn.Module) -> None:
    assert tuple_of(one, IMAGE) == tuple_of(other, IMAGE)
    assert tuple_of(one, IMAGE).key == tuple_of(other, IMAGE).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (nn.Conv2d(4, 6, 3), nn.Conv2d(4, 6, (3, 5))),
        (nn.Conv2d(4, 6, 3), nn.Conv2d(4, 6, 3, bias=False)),
        (nn.Conv2d(4, 6, 3), nn.ConvTranspose2d(4, 6, 3)),
        (nn.ReLU(), nn.ReLU(inplace=True)),
        (nn.GELU(), nn.GELU(approximate="tanh")),
        (nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d(2)),
        (nn.MaxPool2d(2), nn.MaxPool2d(2, return_indices=True)),
        (nn.AvgPool2d(2), nn.AvgPool2d(2, ceil_mode=True)),
        (
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        ),
        (ops.Permute([0, 2, 1]), ops.Permute([0, 1, 2])),
        (ops.StochasticDepth(0.1, "row"), ops.StochasticDepth(0.2, "row")),
        (ops.StochasticDepth(0.1, "row"), ops.StochasticDepth(0.1, "batch")),
        (ops.RoIAlign(7, 1.0, 2), ops.RoIAlign(7, 0.5, 2)),
        (ops.RoIAlign(7, 1.0, 2), ops.RoIAlign(7, 1.0, 2, aligned=True)),
        (ops.MultiScaleRoIAlign(["0"], 7, 2), ops.MultiScaleRoIAlign(["1"], 7, 2)),
        (ops.MultiScaleRoIAlign(["0"], 7, 2), ops.MultiScaleRoIAlign(["0"], 7, 2, canonical_level=5)),
        (ops.FrozenBatchNorm2d(4), nn.BatchNorm2d(4)),
        (nn.Linear(16, 4), nn.Linear(16, 4, dtype=torch.float64)),
        (nn.BatchNorm2d(4), nn.BatchNorm2d(4, dtype=torch.float16)),
        (nn.LSTM(16, 3), nn.LSTM(16, 5)),
        (Scale(3), Scale(4)),
    ],
    ids=lambda module: type(module).__name__,
)
def test_modules_that_compute_something_else_are_kept_apart(one: nn.Module, other: nn.Module) -> None:
    assert tuple_of(one, IMAGE) != tuple_of(other, IMAGE)
    assert tuple_of(one, IMAGE).key != tuple_of(other, IMAGE).key


def test_defaults_and_arguments_without_effect_are_left_out() -> None:
    operator = tuple_of(nn.Conv2d(4, 6, 3, stride=1, padding=0), IMAGE)
    assert operator.parameters == (("in_channels", 4), ("out_channels", 6), ("kernel_size", 3))
    # Only newer versions of torch have the argument, and None for it there.
    assert tuple_of(nn.InstanceNorm2d(4), IMAGE).parameters == (("num_features", 4),)
    assert tuple_of(nn.Identity(), IMAGE).parameters == ()


def test_a_subclass_is_its_base_unless_it_has_a_forward_of_its_own() -> None:
    convolution = Conv3DNoTemporal(4, 6, stride=2)
    operator = tuple_of(convolution, torch.zeros(1, 4, 2, 8, 8))
    same = nn.Conv3d(4, 6, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1), bias=False)
    assert operator == tuple_of(same, torch.zeros(1, 4, 2, 8, 8))
    assert operator.short_name == "Conv3d"
    assert tuple_of(Doubled(16, 3), IMAGE).short_name == "Doubled"


class Doubled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


@pytest.mark.parametrize(
    ("tensor", "strides"),
    [
        (IMAGE, None),
        (IMAGE.contiguous(memory_format=torch.channels_last), (1024, 1, 64, 4)),
        (IMAGE[:, :1].contiguous(memory_format=torch.channels_last), None),
        (torch.zeros(3, 5).t(), (1, 5)),
        (torch.zeros(5).expand(3, 5), (0, 1)),
        (torch.zeros(()), None),
        # One image from tokens: torch takes the first as contiguous, the second as channels last.
        (torch.zeros(196, 4).t().reshape(1, 4, 14, 14), (4, 1, 56, 4)),
        (torch.zeros(788).as_strided((1, 4, 14, 14), (788, 1, 56, 4)), (784, 1, 56, 4)),
    ],
)
def test_a_layout_is_kept_where_it_is_not_contiguous(tensor: torch.Tensor, strides: tuple[int, ...] | None) -> None:
    operator = tuple_of(nn.ReLU(), tensor)
    assert operator.inputs == (TensorSpec(tuple(tensor.shape), "float32", strides),)
    assert rebuilt(operator) == operator


# Functions


def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> OperatorTuple:
    return function_tuple(function, args, kwargs)


@pytest.mark.parametrize(
    "operator",
    [
        called(torch.Tensor.add_, IMAGE, IMAGE.clone()),
        called(torch.cat, [IMAGE, IMAGE[:1]], dim=0),
        called(torch.Tensor.to, IMAGE, dtype=torch.float16, device=torch.device("cpu")),
        called(torch.Tensor.contiguous, IMAGE, memory_format=torch.channels_last),
        called(torch.Tensor.__getitem__, IMAGE, (..., slice(1, None), torch.zeros(2, dtype=torch.int64))),
        called(torch.Tensor.__setitem__, IMAGE, (slice(None), 0), 1.5),
        called(nn.functional.interpolate, IMAGE, scale_factor=2.0),
        called(nn.functional.scaled_dot_product_attention, SEQUENCE, SEQUENCE, SEQUENCE),
        called(torch.functional.einsum, "bij,bkj->bik", SEQUENCE, SEQUENCE),
        called(torch.ops.torchvision.nms, torch.zeros(5, 4), torch.zeros(5), 0.5),
        called(torch.zeros, 3, device=torch.device("cpu"), dtype=torch.int64),
        called(torch._grouped_mm, IMAGE[0, 0], IMAGE[:, 0, :, :8], offs=torch.zeros(2, dtype=torch.int32)),
    ],
    ids=lambda operator: operator.short_name,
)
def test_a_function_is_found_and_called_again_with_arguments_that_give_the_same_tuple(operator: OperatorTuple) -> None:
    function = find_function(operator.operator)
    args, kwargs = operator_inputs(operator, "cpu")
    assert function_tuple(function, args, kwargs) == operator
    function(*args, **kwargs)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ([0, 2], "((0, 2),)"),
        ((0, 2), "(0, 2)"),
        ([True, False, True, True], "((True, False, True, True),)"),
        ([], "((),)"),
        ((slice(None), [0, 2]), "(slice(start=None, stop=None, step=None), (0, 2))"),
        # torch takes lists of these as tuples.
        ([slice(1, 3), 0], "(slice(start=1, stop=3, step=None), 0)"),
        ([torch.tensor([0, 1]), torch.tensor([2, 3])], "(int64[2], int64[2])"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_a_list_as_index_chooses_rows_and_a_tuple_one_place(index: object, text: str) -> None:
    image = torch.arange(64.0).view(4, 4, 4)
    operator = called(torch.Tensor.__getitem__, image, index)
    assert operator.inputs_text == f"float32[4, 4, 4], {text}"
    (_, again), _ = operator_inputs(operator, "cpu")
    assert image[again].shape == image[index].shape  # type: ignore[index]
    assert called(torch.Tensor.__getitem__, image, again) == operator


@pytest.mark.parametrize(
    ("left", "right", "last"), [((9, 16), (4, 16, 8), 9), ((4, 8, 16), (16, 9), 9), ((8, 9), (9, 8), 9)]
)
def test_ends_of_groups_are_drawn_in_order_up_to_the_last(
    left: tuple[int, ...], right: tuple[int, ...], last: int
) -> None:
    offs = torch.zeros(4, dtype=torch.int32)
    operator = called(torch._grouped_mm, torch.zeros(left), torch.zeros(right), offs=offs)
    _, kwargs = operator_inputs(operator, "cpu")
    assert kwargs["offs"].tolist() == [2, 4, 6, last]
    assert kwargs["offs"].dtype == torch.int32


def test_the_order_of_keywords_is_of_no_account() -> None:
    scaled = called(nn.functional.interpolate, IMAGE, scale_factor=2.0, mode="area")
    assert scaled == called(nn.functional.interpolate, IMAGE, mode="area", scale_factor=2.0)
    attention = nn.MultiheadAttention(8, 2)
    given = {"need_weights": False, "average_attn_weights": False}
    turned = dict(reversed(given.items()))
    one, other = (tuple_of(attention, *[SEQUENCE] * 3, **keywords) for keywords in (given, turned))
    assert one == other


def test_a_keyword_that_equals_its_default_is_left_out_if_it_is_of_its_type() -> None:
    plain = called(nn.functional.hardtanh, IMAGE)
    assert called(nn.functional.hardtanh, IMAGE, max_val=1.0) == plain
    assert called(nn.functional.hardtanh, IMAGE, max_val=1) != plain


@pytest.mark.parametrize(
    "name",
    [
        "torch.os.system",
        "torch.load",
        "torch.hub.load",
        "torch.ops.load_library",
        "torch.ops.no_such.operation",
        "torch.ops.image.write_file",
        "torch.ops.image.write_file.default",
        "torch.ops.image.read_file.default",
        "torch.ops.aten.from_file",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.save",
        "torch.ops.prims.device_put",
        "torch.Tensor",
        "torch.Tensor.no_such_method",
        "torch.nn.Linear",
        "torch",
        "os.system",
        "add",
        "",
    ],
)
def test_what_torch_does_not_list_as_its_function_is_not_called(name: str) -> None:
    with pytest.raises(CannotMeasureError, match="this version of torch has no function"):
        find_function(name)


# What cannot be rebuilt


def test_classes_of_other_packages_and_modules_of_unknown_arguments_are_not_rebuilt() -> None:
    with pytest.raises(CannotMeasureError, match="not an operator of torch or torchvision"):
        build_module(tuple_of(Scale(3), IMAGE), "cpu")
    operator = tuple_of(BasicBlock(4, 4), IMAGE)
    with pytest.raises(CannotMeasureError, match="BasicBlock cannot be rebuilt: it does not keep inplanes, planes"):
        build_module(operator, "cpu")


@pytest.mark.parametrize(
    "module",
    [
        nn.LSTM(8, 3, num_layers=2, batch_first=True, bidirectional=True, proj_size=2),
        nn.GRU(8, 3, bias=False),
        nn.RNN(8, 3, nonlinearity="relu"),
    ],
    ids=lambda module: type(module).__name__,
)
def test_a_recurrent_module_is_rebuilt_though_it_hides_its_arguments(module: nn.Module) -> None:
    operator = tuple_of(module, SEQUENCE)
    assert UNKNOWN not in operator.parameters_text
    assert rebuilt(operator) == operator
    assert tuple_of(type(module)(8, 3), SEQUENCE) != operator


@pytest.mark.parametrize(
    "operator",
    [
        OperatorTuple("os.system", (("command", "false"),)),
        OperatorTuple("torch.os.system", (("command", "false"),)),
        OperatorTuple("torchevil.nn.Linear"),
        OperatorTuple("torch.load", (("f", "/dev/null"),)),
        OperatorTuple("torch.nn.functional.relu"),
        OperatorTuple("torch.nn.NoSuchClass"),
        OperatorTuple("torch.no_such_package.Linear"),
        OperatorTuple("torch"),
        OperatorTuple(""),
        OperatorTuple("torch.nn.Linear", (("no_such_argument", 3),)),
        OperatorTuple("torch.nn.Conv2d", (("in_channels", 3), ("out_channels", 4), ("kernel_size", 3), ("groups", 2))),
    ],
    ids=lambda operator: f"{operator.operator}({operator.parameters_text})",
)
def test_what_is_no_module_of_torch_cannot_be_measured(operator: OperatorTuple) -> None:
    with pytest.raises(CannotMeasureError):
        build_module(operator, "cpu")


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (nn.Conv2d, "torch.nn.Conv2d"),
        (nn.MultiheadAttention, "torch.nn.MultiheadAttention"),
        (Scale, f"{__name__}.Scale"),
    ],
)
def test_a_class_goes_by_its_shortest_name(cls: type, name: str) -> None:
    assert public_name(cls) == name


# Texts and keys are stored in databases: a change here makes every stored row unknown.


def golden_tuples() -> list[OperatorTuple]:
    image, sequence, boxes = torch.zeros(32, 3, 56, 56), torch.zeros(32, 197, 768), torch.zeros(5, 4)
    channels_last = image.contiguous(memory_format=torch.channels_last)
    return [
        tuple_of(nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), image),
        tuple_of(nn.Conv2d(3, 64, (1, 3), padding=(0, 1), groups=1, dtype=torch.float16), image.half()),
        tuple_of(nn.Conv2d(3, 96, 4, stride=4), channels_last),
        tuple_of(nn.Linear(768, 3072), sequence),
        tuple_of(nn.BatchNorm2d(3, eps=0.001), image),
        tuple_of(nn.LayerNorm(768, eps=1e-6), sequence),
        tuple_of(nn.ReLU(inplace=True), image),
        tuple_of(nn.GELU(), sequence.transpose(1, 2)),
        tuple_of(nn.MaxPool2d(3, stride=2, padding=1), image),
        tuple_of(nn.AdaptiveAvgPool2d((1, 1)), image),
        tuple_of(nn.MultiheadAttention(768, 12, batch_first=True), sequence, sequence, sequence, need_weights=False),
        module_tuple(nn.Dropout(0.2).train(), (sequence,), {}),
        module_tuple(
            ops.MultiScaleRoIAlign(["0", "pool"], 7, 2).eval(), ({"0": image, "pool": image}, [boxes, boxes]), {}
        ),
        function_tuple(torch.Tensor.add_, (image, image), {}),
        function_tuple(torch.cat, ([image, channels_last], 1), {}),
        function_tuple(torch.Tensor.to, (image,), {"dtype": torch.float16, "device": torch.device("cpu")}),
        function_tuple(torch.Tensor.contiguous, (image,), {"memory_format": torch.channels_last}),
        function_tuple(torch.Tensor.__getitem__, (image, (..., slice(1, None), torch.zeros(2, dtype=torch.int64))), {}),
        function_tuple(nn.functional.interpolate, (image,), {"scale_factor": 2.0, "mode": "nearest", "size": None}),
        function_tuple(torch.ops.torchvision.nms, (boxes, boxes[:, 0], 0.5), {}),
        model_operator("resnet34", None, (32, 3, 56, 56)),
        model_operator("ssd300_vgg16", None, (2, 3, 300, 300), seed=3),
        model_operator("resnet50", "IMAGENET1K_V2", (32, 3, 224, 224)),
    ]


def test_texts_and_keys_are_as_they_were(request: pytest.FixtureRequest) -> None:
    text = "".join(f"{operator.key}  {operator}\n" for operator in golden_tuples())
    if request.config.getoption("--renew-golden"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), "meant? then: pytest --renew-golden"
