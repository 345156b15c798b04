"""Features of operator calls: what decides their cost, from the operator tuple and the card alone.

Kernels of matrix products work on tiles of the output, one multiprocessor per tile; the last wave of tiles may leave
multiprocessors idle (NVIDIA, Matrix Multiplication Background User's Guide, "Tile Quantization" and "Wave
Quantization"). Sizes that are no multiple of a vector or a tile take other kernels, so features have the powers of two
that divide a size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from opcost.estimates import FloatArray
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple, PlainValue, TensorSpec, tensor_specs
from opcost.operators.values import InputData

CONVOLUTION = "convolution"
DEPTHWISE, GROUPED, POINTWISE = "convolution depthwise", "convolution in groups", "convolution pointwise"
ATTENTION = "attention"
BATCHED_PRODUCTS = frozenset({"bmm", "baddbmm", ATTENTION})

SEVERAL_PRODUCTS = frozenset({"_native_multi_head_attention", "_transformer_encoder_layer_fwd"})
"""Operations that are several products of different sizes, so that no tiles are known."""

NO_KERNELS = frozenset({"scalar_tensor"})
"""Operations that make numbers for the host, and run no kernel of their own."""

RECURRENT, RECURRENT_KIND = frozenset({"GRU", "LSTM", "RNN"}), "_cudnn_rnn"
"""Modules that are one operation on a GPU, and some for each time step elsewhere, with the name of the one."""

SAME_OPERATIONS = {
    "_convolution": CONVOLUTION,
    "cudnn_convolution": CONVOLUTION,
    "cudnn_batch_norm": "native_batch_norm",
}
"""Operations of one device by the name that they have on the others."""

ATTENTIONS = "_scaled_dot_product"
"""The beginning of the names of fused attention; the rest names the kernel, which depends on the device."""

OPERATIONS_OF = {
    name: operation
    for operation, names in {
        CONVOLUTION: ("Conv1d", "Conv2d", "Conv3d"),
        ATTENTIONS: ("scaled_dot_product_attention",),
        "_native_multi_head_attention": ("MultiheadAttention",),
        "_softmax": ("softmax",),
        "_to_copy": ("float", "to"),
        "addmm": ("Linear", "linear"),
        "avg_pool2d": ("AvgPool2d",),
        "bmm": ("matmul",),
        "clone": ("contiguous", "reshape"),
        "constant_pad_nd": ("pad",),
        "fill": ("__setitem__",),
        "hardtanh": ("ReLU6",),
        "index": ("__getitem__",),
        "max_pool2d_with_indices": ("MaxPool2d", "max_pool2d"),
        "mean": ("AdaptiveAvgPool2d", "adaptive_avg_pool2d"),
        "native_batch_norm": ("BatchNorm2d",),
        "native_layer_norm": ("LayerNorm", "LayerNorm2d", "layer_norm"),
    }.items()
    for name in names
}
"""The usual operation of modules and functions, for counts of earlier versions, which have none. That of others has
their name."""

BARE = ("convolution", "_convolution")
"""torch's operations, as scripted modules run them."""

POSITIONAL = {
    **dict.fromkeys(BARE, ("stride", "padding", "dilation", "transposed", "output_padding", "groups")),
    "conv1d": ("stride", "padding", "dilation", "groups"),
    "conv2d": ("stride", "padding", "dilation", "groups"),
    "conv3d": ("stride", "padding", "dilation", "groups"),
    "avg_pool2d": ("kernel_size", "stride", "padding"),
    "max_pool2d": ("kernel_size", "stride", "padding", "dilation"),
}
"""The names of the arguments behind the tensors, for functions that are called with them by position."""

SIZES = (
    *("flop", "memory_bytes", "input_elements", "output_elements", "second_elements", "weights"),
    *("m", "n", "k", "groups", "batch", "channels", "positions", "last_input", "last_output", "height", "width"),
)
"""Features that are sizes: their logarithms are used."""

NUMBERS = (
    *("kernel_height", "kernel_width", "stride", "padding", "dilation", "bias"),
    *("tensors", "strided_tensors", "kernels", "first_zeros", "second_zeros", "in_place"),
)
"""Features that are used as they are."""

ALIGNED = ("channels", "m", "n", "k", "positions", "width", "last_input", "last_output")
"""Sizes of which it matters whether vectors and tiles fit."""

LARGEST_ALIGNMENT = 128

TILES = ((256, 128, 1.0), (128, 128, 0.85), (128, 64, 0.65), (64, 64, 0.45), (64, 32, 0.3))
"""Tiles of products, in rows and columns of the output, with the share of the highest rate that they reach: a tile of
m x n loads m + n numbers for m n products. The shares order the tiles; they need no precision, because what is learned
is the rest."""

SPLIT_LENGTH = 256
"""The shortest part of a sum that is computed by a multiprocessor of its own, where there are fewer tiles than
multiprocessors. Kernels of convolutions do not split sums: their time grows with the length of the sum at any size."""

SMALL_TILE, THREADS = 64, 2048
"""The sides of a small tile, and the threads that a multiprocessor of NVIDIA holds at once: a call of fewer tiles or
outputs than fill all multiprocessors is small."""

TILE_START = 64
"""The start and the end of a tile, as a length of the sum."""

RAW = (*SIZES, *NUMBERS)
SMALLEST_TIME_S = 1e-8


@dataclass(frozen=True)
class Card:
    """A card: the rates that its rows reach, and its number of multiprocessors.

    ``flop_rates`` are the highest rates in FLOP/s of convolutions and of other products, ``byte_rate`` that of the
    memory in B/s, ``launch_s`` the shortest time of any call.
    """

    multiprocessors: int
    convolution_rate: float
    product_rate: float
    byte_rate: float
    launch_s: float


def kind_of(count: OperatorCount) -> str:
    """Return the kind of an operator: the names of its ATen operations, so that all spellings of one are alike.

    Depthwise, grouped and pointwise convolutions are kinds of their own, as their kernels are.
    """
    if count.operator.short_name in RECURRENT:
        return RECURRENT_KIND
    names = sorted(_names(count) - NO_KERNELS)
    if names != [CONVOLUTION]:
        return " ".join(names) or "nothing"
    arguments = _arguments(count.operator)
    groups = _number(arguments.get("groups"), 1)
    if groups == 1:
        return POINTWISE if _pair(arguments.get("kernel_size"), 0) == (1, 1) else CONVOLUTION
    shape = count.operator.floating_inputs[0].shape
    return DEPTHWISE if groups == (shape[1] if len(shape) > 1 else shape[0]) else GROUPED


def raw_features(count: OperatorCount, data: InputData) -> list[float]:
    """Return the features of ``RAW``; 0 where one does not apply."""
    operator = count.operator
    specs = _distinct([*operator.inputs, *(value for _, value in operator.keyword_inputs)])
    outputs = _distinct([count.outputs])
    arguments = _arguments(operator)
    first, last = (specs or outputs or [TensorSpec((), "float32")])[0], (outputs or [TensorSpec((), "float32")])[0]
    shape = first.shape
    inputs, made = sum(spec.elements for spec in specs), sum(spec.elements for spec in outputs)
    m, n, k, groups = _product(count, last, made, arguments)
    kernel = _pair(arguments.get("kernel_size"), 0)
    spatial = shape[2:]
    kernels = sum(number for operation, number in count.operations if operation not in NO_KERNELS) or 1
    moved: float = count.memory_bytes
    if operator.short_name in RECURRENT:
        elements = inputs + made
        steps = first.shape[1 if len(first.shape) > 2 and arguments.get("batch_first") is True else 0]
        rows = first.elements / max(1, first.shape[-1])
        weights = (count.flop or 0) / (2 * max(1.0, rows))
        item_bytes = first.floating_bytes / max(1, first.elements)
        kernels, moved = steps * int(_number(arguments.get("num_layers"), 1)), item_bytes * (elements + weights)
    second = data.kind(min(1, len(operator.floating_inputs) - 1) if operator.floating_inputs else 0)
    # Constants cost about as much as 90 % zeros.
    zeros = [kind.zeros_ratio if kind.spread else 0.9 for kind in (data.kind(0), second)]
    return [
        *(count.flop or 0, moved, inputs, made, specs[1].elements if len(specs) > 1 else 0),
        k * n * groups if groups and not (BATCHED_PRODUCTS & _names(count)) else 0,
        *(m, n, k, groups, shape[0] if shape else 1, shape[1] if len(shape) > 1 else 1, math.prod(spatial)),
        *(shape[-1] if shape else 1, last.shape[-1] if last.shape else 1),
        *((spatial[0], spatial[-1]) if spatial else (0, 0)),
        *kernel,
        *(_pair(arguments.get(name), usual)[0] for name, usual in (("stride", 0), ("padding", 0), ("dilation", 1))),
        float(arguments.get("bias", True) is not False),
        *(len(specs), sum(spec.strides is not None for spec in specs)),
        *(kernels, *zeros, float(arguments.get("inplace") is True)),
    ]


def is_small(raw: FloatArray, card: Card) -> npt.NDArray[np.bool_]:
    """Return whether each call leaves multiprocessors without work; ``raw`` has a row of ``raw_features`` for each."""
    of = dict(zip(RAW, raw.T, strict=True))
    tiles = np.ceil(of["m"] / SMALL_TILE) * np.ceil(of["n"] / SMALL_TILE) * np.maximum(1, of["groups"])
    found: npt.NDArray[np.bool_] = np.where(of["m"] > 0, tiles, of["output_elements"] / THREADS) < card.multiprocessors
    return found


def feature_names() -> tuple[str, ...]:
    """Return the names of the columns of ``features``."""
    names = [f"log {name}" for name in (*SIZES, "planes", "rows")] + list(NUMBERS)
    names += [f"alignment of {name}" for name in ALIGNED]
    names += [f"{what} of {rows}x{columns} tiles" for rows, columns, _ in TILES for what in ("waves", "last wave")]
    names += ["log tile time", "log memory time", "log tile over memory time", "log intensity"]
    return (*names, "log input over output", "log weights over input")


def features(raw: FloatArray, card: Card, kinds: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """Return the features of calls, and the logarithm of the time that the card's rates give.

    ``raw`` has a row of ``raw_features`` for each call. The shapes are (calls, features) and (calls,).
    """
    of = dict(zip(RAW, raw.T, strict=True))
    is_convolution = np.array([kind.startswith(CONVOLUTION) for kind in kinds], dtype=bool)
    waves, tile_s = _tiles(of, card, is_convolution)
    memory_s = of["memory_bytes"] / card.byte_rate
    log_tile, log_memory = np.log(tile_s + SMALLEST_TIME_S), np.log(memory_s + SMALLEST_TIME_S)
    # The power of two that divides a size, as its logarithm.
    powers = [2**power for power in range(1, LARGEST_ALIGNMENT.bit_length())]
    whole = [np.floor(of[name]) for name in ALIGNED]
    alignments = [np.sum([(sizes % power == 0) & (sizes > 0) for power in powers], axis=0) for sizes in whole]
    columns = [
        *(np.log1p(of[name]) for name in SIZES),
        # Some kernels have a block of threads for each plane of an image, or for each row, however small it is.
        np.log1p(of["batch"] * of["channels"]),
        np.log1p(of["input_elements"] / np.maximum(1, of["last_input"])),
        *(of[name] for name in NUMBERS),
        *alignments,
        *waves,
        *(log_tile, log_memory, log_tile - log_memory),
        np.log1p(of["flop"] / np.maximum(1, of["memory_bytes"])),
        np.log((of["input_elements"] + 1) / (of["output_elements"] + 1)),
        np.log((of["weights"] + 1) / (of["input_elements"] + 1)),
    ]
    base = np.log(card.launch_s * np.maximum(1, of["kernels"]) + tile_s + memory_s)
    # Trees compare numbers of 32 bits.
    return np.column_stack(columns).astype(np.float32).astype(np.float64), base


def _tiles(
    of: dict[str, FloatArray], card: Card, is_convolution: npt.NDArray[np.bool_]
) -> tuple[list[FloatArray], FloatArray]:
    """Return the waves of each tile and the share of their multiprocessors that work, and the least time in s."""
    rates = np.where(is_convolution, card.convolution_rate, card.product_rate)
    groups, is_product = np.maximum(1, of["groups"]), of["m"] > 0
    columns, best = [], np.full(len(is_product), np.inf)
    for height, width, share in TILES:
        tiles = np.ceil(of["m"] / height) * np.ceil(of["n"] / width) * groups
        waves = np.ceil(tiles / card.multiprocessors)
        free = np.floor(card.multiprocessors / np.maximum(1, tiles))
        parts = np.where(is_convolution, 1, np.clip(free, 1, np.maximum(1, of["k"] // SPLIT_LENGTH)))
        tile_flop = 2.0 * height * width * (of["k"] / parts + TILE_START)
        best = np.minimum(best, waves * tile_flop / (rates / card.multiprocessors * share))
        columns += [np.log1p(waves), tiles / np.maximum(1, waves) / card.multiprocessors]
    return columns, np.where(is_product, best, of["flop"] / rates)


def _product(
    count: OperatorCount, output: TensorSpec, elements: int, arguments: dict[str, PlainValue]
) -> tuple[float, float, float, float]:
    """Return rows, columns and length of the matrix product that a call is, and the number of such products."""
    names = _names(count)
    if not count.flop or not elements or not output.shape or SEVERAL_PRODUCTS & names:
        return 0, 0, 0, 0
    length = count.flop / (2 * elements)
    if CONVOLUTION in names:
        groups = _number(arguments.get("groups"), 1)
        channels = output.shape[1] if len(output.shape) > 1 else 1
        return elements / channels, channels / groups, length, groups
    columns = output.shape[-1]
    if BATCHED_PRODUCTS & names and len(output.shape) > 1:
        return output.shape[-2], columns, length, math.prod(output.shape[:-2])
    return elements / columns, columns, length, 1


def _arguments(operator: OperatorTuple) -> dict[str, PlainValue]:
    """Return an operator's parameters, and a function's arguments by name."""
    names = POSITIONAL.get(operator.short_name, ())
    given = [value for value in operator.inputs if not isinstance(value, TensorSpec) and value is not None]
    if operator.short_name in BARE:
        _, weight, *_ = tensor_specs(operator.inputs)
        names, given = ("kernel_size", *names), [weight.shape[2:], *given]
    return {**dict(zip(names, given, strict=False)), **dict(operator.keyword_inputs), **dict(operator.parameters)}


def _names(count: OperatorCount) -> set[str]:
    if count.operations:
        return {_name(operation) for operation, _ in count.operations}
    name = count.operator.short_name
    has_bias = dict(count.operator.parameters).get("bias", True) is not False
    return {_name(OPERATIONS_OF.get(name, name.lower())) if has_bias or name != "Linear" else "mm"}


@cache
def _name(operation: str) -> str:
    """Return an operation's name without what does not change the kernel: the underscore of in-place ones."""
    if operation.startswith(ATTENTIONS):
        return ATTENTION
    name = operation.rstrip("_") or operation
    return SAME_OPERATIONS.get(name, name)


def _distinct(values: Sequence[PlainValue]) -> list[TensorSpec]:
    return list({spec.identity: spec for spec in tensor_specs(values)}.values())


def _number(value: PlainValue, usual: int) -> int:
    return value if isinstance(value, int) else usual


def _pair(value: PlainValue, usual: int) -> tuple[float, float]:
    if isinstance(value, (int, float)):
        return float(value), float(value)
    numbers = [part for part in value if isinstance(part, (int, float))] if isinstance(value, tuple) else []
    return (float(numbers[0]), float(numbers[-1])) if numbers else (float(usual), float(usual))
