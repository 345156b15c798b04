"""Features of calls: the product that a call is, its kind, and the time that a card's rates give."""

from dataclasses import replace

import numpy as np
import pytest

from opcost.operators.counts import OperatorCount
from opcost.operators.texts import parse_operator, parse_value
from opcost.operators.values import NORMAL_DATA, parse_input_data
from opcost.prediction.samples import (
    CONVOLUTION,
    DEPTHWISE,
    GROUPED,
    POINTWISE,
    RAW,
    Card,
    feature_names,
    features,
    is_small,
    kind_of,
    raw_features,
)

CARD = Card(multiprocessors=100, convolution_rate=4e14, product_rate=1e14, byte_rate=4e12, launch_s=1e-6)


def count(operator: str, parameters: str, inputs: str, outputs: str, **others: object) -> OperatorCount:
    """Return a count of one call; the mode of functions is None."""
    mode = "eval" if parameters else None
    given = {"flop": 0, "memory_bytes": 4, "operations": (), **others}
    return OperatorCount(
        parse_operator(operator, parameters, inputs, mode),
        1,
        outputs=parse_value(outputs),
        **given,  # type: ignore[arg-type]
    )


def convolution(groups: int = 1, batch: int = 32, operation: str = "convolution") -> OperatorCount:
    parameters = "in_channels=64, out_channels=128, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1)"
    return count(
        "torch.nn.Conv2d",
        parameters + (f", groups={groups}" if groups > 1 else ""),
        f"float32[{batch}, 64, 56, 56]",
        f"float32[{batch}, 128, 28, 28]",
        flop=2 * batch * 128 * 28 * 28 * 64 * 9 // groups,
        memory_bytes=10**8,
        operations=((operation, 1),),
    )


def of(one: OperatorCount, data: str = "normal") -> dict[str, float]:
    return dict(zip(RAW, raw_features(one, parse_input_data(data)), strict=True))


@pytest.mark.parametrize("groups", [1, 8, 64])
def test_a_convolution_is_a_product_of_its_pixels_and_filters(groups: int) -> None:
    found = of(convolution(groups))
    assert (found["m"], found["n"], found["k"]) == (32 * 28 * 28, 128 / groups, 64 * 9 / groups)
    assert found["groups"] == groups
    assert found["weights"] == 128 * 64 * 9 / groups
    assert (found["kernel_height"], found["stride"], found["padding"], found["channels"]) == (3, 2, 1, 64)


@pytest.mark.parametrize(
    ("operator", "parameters", "inputs", "operation"),
    [
        ("torch.nn.Linear", "in_features=96, out_features=288", "float32[2048, 49, 96]", "addmm"),
        ("torch.nn.functional.linear", "", "float32[2048, 49, 96], float32[288, 96], float32[288]", "addmm"),
    ],
)
def test_a_linear_layer_is_one_product_in_each_spelling(
    operator: str, parameters: str, inputs: str, operation: str
) -> None:
    flop = 2 * 2048 * 49 * 96 * 288
    found = of(count(operator, parameters, inputs, "float32[2048, 49, 288]", flop=flop, operations=((operation, 1),)))
    assert (found["m"], found["n"], found["k"], found["groups"]) == (2048 * 49, 288, 96, 1)
    assert found["weights"] == 96 * 288


def test_a_batched_product_has_as_many_products_and_no_weights() -> None:
    inputs, outputs = "float32[8, 12, 50, 64], float32[8, 12, 64, 50]", "float32[8, 12, 50, 50]"
    operations = (("bmm", 1), ("clone", 2))
    found = of(count("torch.Tensor.matmul", "", inputs, outputs, flop=2 * 96 * 50 * 50 * 64, operations=operations))
    assert (found["m"], found["n"], found["k"], found["groups"]) == (50, 50, 64, 96)
    assert (found["weights"], found["kernels"]) == (0, 3)


@pytest.mark.parametrize(
    ("operator", "parameters", "operation"),
    [
        ("torch.nn.ReLU", "inplace=True", "relu_"),
        ("torch.nn.functional.relu", "", "relu"),
        ("torch.Tensor.relu_", "", "relu_"),
    ],
)
def test_all_spellings_of_an_operation_are_one_kind(operator: str, parameters: str, operation: str) -> None:
    assert kind_of(count(operator, parameters, "float32[8]", "float32[8]", operations=((operation, 1),))) == "relu"


def test_convolutions_in_groups_are_kinds_of_their_own_on_each_device() -> None:
    assert kind_of(convolution()) == kind_of(convolution(operation="cudnn_convolution")) == "convolution"
    assert (kind_of(convolution(8)), kind_of(convolution(64))) == (GROUPED, DEPTHWISE)


def test_the_convolution_of_a_scripted_module_has_the_features_of_the_module() -> None:
    bare = count(
        "torch.ops.aten._convolution", "",
        "float32[32, 64, 56, 56], float32[128, 8, 3, 3], float32[128], (2, 2), (1, 1), (1, 1), False, (0, 0), 8, True",
        "float32[32, 128, 28, 28]", flop=2 * 32 * 128 * 28 * 28 * 8 * 9, memory_bytes=10**8,
        operations=(("_convolution", 1),),
    )  # fmt: skip
    names = ("m", "n", "k", "groups", "weights", "kernel_height", "kernel_width", "stride", "padding")
    assert kind_of(bare) == kind_of(convolution(8))
    twice = count(
        "torch.ops.aten.convolution", "", "int32[2, 2, 3, 3]#0, int32[2, 2, 3, 3]#0, None, (2, 2)", "int32[2, 2, 1, 1]"
    )
    assert of(twice)["kernel_height"] == 3
    assert [of(bare)[name] for name in names] == [of(convolution(8))[name] for name in names]


@pytest.mark.parametrize("bias", ["(128,), ", "None, "])
def test_the_backward_of_a_convolution_has_its_products_and_a_kind_of_its_own(bias: str) -> None:
    def backward(groups: int) -> OperatorCount:
        shapes = f"float32[32, 128, 28, 28], float32[32, 64, 56, 56], float32[128, {64 // groups}, 3, 3]"
        form = f"[2, 2], [1, 1], [1, 1], False, [0, 0], {groups}, [True, True, False]"
        inputs, outputs = f"{shapes}, {bias}{form}".replace("[2, ", "(2, "), "float32[32, 64, 56, 56]"
        for size in ("2, 2", "1, 1", "0, 0", "True, True, False"):
            inputs = inputs.replace(f"[{size}]", f"({size})").replace(f"({size}]", f"({size})")
        flop = 2 * 2 * 32 * 128 * 28 * 28 * 64 // groups * 9
        operations = (("convolution_backward", 1),)
        name = "torch.ops.aten.convolution_backward"
        return count(name, "", inputs, outputs, flop=flop, operations=operations)

    found = of(backward(8))
    of_forward = of(convolution(8))
    for name in ("m", "n", "groups", "kernel_height", "stride", "padding"):
        assert found[name] == of_forward[name]
    assert found["k"] == 2 * of_forward["k"]
    assert [kind_of(backward(groups)) for groups in (1, 8, 64)] == [
        "convolution_backward",
        "convolution_backward in groups",
        "convolution_backward depthwise",
    ]


def test_the_backward_of_attention_is_another_kind_than_its_forward_and_has_three_outputs() -> None:
    heads = "float32[8, 12, 50, 64]"
    name = "_scaled_dot_product_efficient_attention"
    flop = 5 * 2 * 96 * 50 * 50 * 64
    backward = count(
        f"torch.ops.aten.{name}_backward", "", f"{heads}, {heads}", f"({heads}, {heads}, {heads})",
        flop=flop, operations=((f"{name}_backward", 1),),
    )  # fmt: skip
    forward = count("torch.nn.functional.scaled_dot_product_attention", "", heads, heads, operations=((name, 1),))
    assert (kind_of(forward), kind_of(backward)) == ("attention", "attention_backward")
    found = of(backward)
    assert 2 * found["m"] * found["n"] * found["k"] * found["groups"] == flop


def test_lists_that_an_optimiser_writes_into_are_its_outputs() -> None:
    lists = "(float32[512, 512], float32[512]), (float32[512, 512], float32[512])"
    found = of(count("torch._foreach_add_", "", lists, "None", operations=(("_foreach_add_", 1),)))
    assert found["output_elements"] == 512 * 512 + 512


@pytest.mark.parametrize(
    ("kernel_size", "kind"), [("1", POINTWISE), ("(1, 1)", POINTWISE), ("(1, 7)", CONVOLUTION), ("3", CONVOLUTION)]
)
def test_a_convolution_of_single_pixels_is_a_kind_of_its_own(kernel_size: str, kind: str) -> None:
    parameters = f"in_channels=4, out_channels=8, kernel_size={kernel_size}"
    operations = (("convolution", 1),)
    one = count(
        "torch.nn.Conv2d", parameters, "float32[2, 4, 9, 9]", "float32[2, 8, 9, 9]", flop=1, operations=operations
    )
    assert kind_of(one) == kind


def test_zeros_and_constants_are_those_of_the_inputs() -> None:
    add = count("torch.Tensor.add", "", "float32[8, 4], float32[8, 4]", "float32[8, 4]", operations=(("add", 1),))
    assert (of(add, "captured: 0.5 zeros, normal")["first_zeros"], of(add)["second_zeros"]) == (0.5, 0)
    assert of(add, "captured: normal, constant")["second_zeros"] == 0.9


def test_a_function_called_by_position_has_its_arguments() -> None:
    pool = count(
        "torch.nn.functional.max_pool2d", "", "float32[2, 3, 9, 9], 3, 2, 1", "float32[2, 3, 5, 5]",
        operations=(("max_pool2d_with_indices", 1),),
    )  # fmt: skip
    found = of(pool)
    assert (found["kernel_height"], found["kernel_width"], found["stride"], found["padding"]) == (3, 3, 2, 1)


def base_of(kind: str, **sizes: float) -> float:
    """Return the time in s that the card's rates give to a product."""
    raw = np.zeros((1, len(RAW)))
    for name, value in {"groups": 1, "kernels": 1, **sizes}.items():
        raw[0, RAW.index(name)] = value
    return float(np.exp(features(raw, CARD, [kind])[1][0]))


def test_a_wave_more_takes_a_wave_longer() -> None:
    """One tile of 256 x 128 more than there are multiprocessors doubles the time of products."""
    full_s, more_s = (base_of("addmm", m=tiles * 256, n=128, k=10_000) - CARD.launch_s for tiles in (100, 101))
    assert full_s == pytest.approx(2 * 100 * 256 * 128 * 10_064 / CARD.product_rate)
    assert more_s > 1.3 * full_s


def test_a_long_sum_of_few_tiles_takes_its_length_in_a_convolution_only() -> None:
    """Other products split it among the multiprocessors that have no tile."""
    product, convolution = (
        base_of(kind, m=64, n=64, k=64_000) / base_of(kind, m=64, n=64, k=6_400) for kind in ("addmm", "convolution")
    )
    assert convolution > 5
    assert product < 3


def test_several_products_take_the_time_of_their_flops() -> None:
    """Their output has fewer tiles than they have together, so that it shows no waves."""
    attention = count(
        "torch.nn.MultiheadAttention", "embed_dim=768, num_heads=12", "float32[32, 197, 768]",
        "float32[32, 197, 768]", flop=4 * 10**10, operations=(("_native_multi_head_attention", 1),),
    )  # fmt: skip
    _, base = features(np.array([raw_features(attention, NORMAL_DATA)]), CARD, [kind_of(attention)])
    assert float(np.exp(base[0])) - CARD.launch_s == pytest.approx(4e10 / CARD.product_rate, rel=1e-3)


def test_small_planes_are_distinguished_by_their_number() -> None:
    """A kernel with a block for each plane takes as long for planes of 1 pixel as of 49."""
    place = feature_names().index("log planes")
    raw = np.zeros((1, len(RAW)))
    raw[0, [RAW.index("batch"), RAW.index("channels")]] = 32, 512
    assert features(raw, CARD, ["native_batch_norm"])[0][0, place] == pytest.approx(np.log1p(32 * 512))


def test_features_have_names_and_are_finite() -> None:
    raw = np.array([raw_features(one, NORMAL_DATA) for one in (convolution(), convolution(8))])
    found, base = features(raw, CARD, ["convolution", GROUPED])
    assert found.shape == (2, len(feature_names()))
    assert np.isfinite(found).all()
    assert np.isfinite(base).all()


def test_counts_of_earlier_versions_have_the_kind_and_the_product_of_the_usual_operation() -> None:
    with_operation = convolution()
    without = replace(with_operation, operations=())
    assert kind_of(without) == kind_of(with_operation) == CONVOLUTION
    assert of(without) == of(with_operation)
    spec = "float32[8, 64]"
    for operator, kind in (("torch.nn.SiLU", "silu"), ("torch.Tensor.add_", "add"), ("torch.Tensor.matmul", "bmm")):
        assert kind_of(count(operator, "", spec, spec)) == kind
    for bias, kind in (("", "addmm"), (", bias=False", "mm")):
        assert kind_of(count("torch.nn.Linear", f"in_features=64, out_features=64{bias}", spec, spec)) == kind


@pytest.mark.parametrize(("name", "gates"), [("GRU", 3), ("LSTM", 4)])
def test_a_recurrent_layer_is_the_same_counted_on_shapes_and_on_a_gpu(name: str, gates: int) -> None:
    parameters = "input_size=512, hidden_size=512, num_layers=2, batch_first=True"
    flop = 2 * 32 * 128 * 2 * gates * 512 * 1024
    shared = (f"torch.nn.{name}", parameters, "float32[32, 128, 512]", "(float32[32, 128, 512], float32[2, 32, 512])")
    on_gpu = count(*shared, flop=flop, memory_bytes=5 * 10**7, operations=(("_cudnn_rnn", 1), ("zeros", 1)))
    operations = (("addmm", 512), ("sigmoid_", 512), ("add_", 768), ("stack", 3))
    on_shapes = count(*shared, flop=flop, memory_bytes=2 * 10**9, operations=operations)
    assert kind_of(on_gpu) == kind_of(on_shapes) == "_cudnn_rnn"
    assert of(on_gpu) == of(on_shapes)
    # A kernel for each step of each layer, and each weight read once.
    assert of(on_gpu)["kernels"] == 2 * 128
    weights = 2 * gates * 512 * 1024
    assert of(on_gpu)["memory_bytes"] == pytest.approx(4 * (2 * 32 * 128 * 512 + 2 * 32 * 512 + weights))


def test_a_call_is_small_if_its_tiles_or_outputs_leave_multiprocessors_without_work() -> None:
    linear = [
        count(
            "torch.nn.Linear", "in_features=768, out_features=768", f"float32[{rows}, 768]", f"float32[{rows}, 768]",
            flop=2 * rows * 768 * 768, operations=(("addmm", 1),),
        )
        for rows in (64, 640)
    ]  # fmt: skip
    shapes = (f"float32[{rows}, 2048]" for rows in (99, 100))
    relu = [count("torch.nn.ReLU", "", shape, shape, operations=(("relu", 1),)) for shape in shapes]
    raw = np.array([raw_features(one, NORMAL_DATA) for one in (*linear, *relu)])
    assert list(is_small(raw, CARD)) == [True, False, True, False]
