"""Samples that predictors learn from: features of operator calls, and their measured costs at a mean board.

Features are what decides the cost of a call, from the operator tuple and the card alone. Kernels of matrix products
work on tiles of the output, one multiprocessor per tile; the last wave of tiles may leave multiprocessors idle (NVIDIA,
Matrix Multiplication Background User's Guide, "Tile Quantization" and "Wave Quantization"). Sizes that are no multiple
of a vector or a tile take other kernels, so features have the powers of two that divide a size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

import numpy as np
import numpy.typing as npt

from opcost.columns import grouped
from opcost.errors import UserError
from opcost.estimates import FloatArray, value_of
from opcost.measuring.conditions import Conditions
from opcost.measuring.data_sheets import DataSheet
from opcost.measuring.record import MeasurementRow, does_other_work, is_doubtful
from opcost.operators.counts import CountsByPhase, OperatorCount, tuple_key
from opcost.operators.tuples import FLOAT32, OperatorTuple, PlainValue, TensorSpec, distinct_specs, tensor_specs
from opcost.operators.values import InputData, has_zeros_in_weights, parse_input_data
from opcost.summing.summation import common_basis

CONVOLUTION = "convolution"
DEPTHWISE, GROUPED, POINTWISE = "convolution depthwise", "convolution in groups", "convolution pointwise"
ATTENTION = "attention"
CONVOLUTION_BACKWARD, ATTENTION_BACKWARD = (f"{name}_backward" for name in (CONVOLUTION, ATTENTION))
BATCHED_PRODUCTS = frozenset({"bmm", "baddbmm", ATTENTION, ATTENTION_BACKWARD})

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
    "cudnn_batch_norm_backward": "native_batch_norm_backward",
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

BARE = (CONVOLUTION, "_convolution", CONVOLUTION_BACKWARD)
"""torch's operations, as scripted modules and backward passes run them."""

OF_CONVOLUTION = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
POSITIONAL = {
    **dict.fromkeys(BARE, OF_CONVOLUTION),
    CONVOLUTION_BACKWARD: (*OF_CONVOLUTION, "output_mask"),
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

BOARD_DEVIATION = 0.025
"""The standard deviation of the logarithm of energy between boards of one product, where fewer than
``ENOUGH_BOARDS`` boards are compared: that of nine H200 (2026-11-25, ``benchmarks/prediction.py``)."""

ENOUGH_BOARDS = 4
SHARED_CASES = 5
"""The fewest boards, and cases on a board and another, for a comparison of boards."""

LARGE_BYTES = 64e6
"""Calls that move more show the memory's rate, since no cache of a GPU holds so much."""

TOP_QUANTILE = 0.95

RELATED_FAMILIES = {"wide": "resnet", "resnext": "resnet"}
"""Families of models that consist of the same layers as another one."""


@dataclass(frozen=True)
class Card:
    """A card in a precision: the rates in FLOP/s and B/s that its rows reach, and the shortest time of a call.

    Powers are learned as shares of ``power_limit_w``, 1 where it is unknown.
    """

    multiprocessors: int
    convolution_rate: float
    product_rate: float
    byte_rate: float
    launch_s: float
    power_limit_w: float = 1.0

    def scaled(self, own: DataSheet, own_precision: str, other: DataSheet, precision: str) -> Card:
        """Return another card in a precision, whose rates are to these as those of the data sheets are.

        Raises UserError: one of them has no products in it.
        """
        rates, others = own.rates_in(own_precision), other.rates_in(precision)
        if rates is None or others is None:
            raise UserError(f"--precision {precision}: {other.product} has no products in it; choose another one")
        convolution, product, memory = (there / here for here, there in zip(rates, others, strict=True))
        return Card(
            multiprocessors=other.multiprocessors,
            convolution_rate=self.convolution_rate * convolution,
            product_rate=self.product_rate * product,
            byte_rate=self.byte_rate * memory,
            launch_s=self.launch_s,
            power_limit_w=other.power_limit_w,
        )


def kind_of(count: OperatorCount) -> str:
    """Return a call's kind by its ATen operations, which all spellings share; convolutions are of four kinds.

    So are their backward passes.
    """
    if count.operator.short_name in RECURRENT:
        return RECURRENT_KIND
    names = sorted(_names(count) - NO_KERNELS)
    if names not in ([CONVOLUTION], [CONVOLUTION_BACKWARD]):
        return " ".join(names) or "nothing"
    arguments = _arguments(count.operator)
    groups = _number(arguments.get("groups"), 1)
    if groups == 1:
        kind = POINTWISE if kernel_of(count.operator) == (1, 1) else CONVOLUTION
    else:
        # A backward has the gradient before the input.
        shape = count.operator.floating_inputs[int(names == [CONVOLUTION_BACKWARD])].shape
        kind = DEPTHWISE if groups == (shape[1] if len(shape) > 1 else shape[0]) else GROUPED
    return kind.replace(CONVOLUTION, names[0])


def raw_features(count: OperatorCount, data: InputData) -> list[float]:
    """Return the features of ``RAW``; 0 where one does not apply."""
    operator = count.operator
    specs, outputs = distinct_specs(operator.arguments), distinct_specs([count.outputs])
    if not outputs and operator.is_in_place:
        # Lists that an optimiser writes into are returned by no operation.
        outputs = distinct_specs(operator.inputs[:1])
    arguments = _arguments(operator)
    first, last = (*specs, *outputs, TensorSpec((), FLOAT32))[0], (*outputs, TensorSpec((), FLOAT32))[0]
    shape = first.shape
    inputs, made = sum(spec.elements for spec in specs), sum(spec.elements for spec in outputs)
    m, n, k, groups = _product(count, last, made, arguments)
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
        *kernel_of(operator),
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
    names = [f"log {name}" for name in (*SIZES, "planes", "rows")] + list(NUMBERS)
    names += [f"alignment of {name}" for name in ALIGNED]
    names += [f"{what} of {rows}x{columns} tiles" for rows, columns, _ in TILES for what in ("waves", "last wave")]
    names += ["log tile time", "log memory time", "log tile over memory time", "log intensity"]
    names += ["log input over output", "log weights over input"]
    return (*names, "log convolution rate", "log product rate", "log byte rate")


def features(raw: FloatArray, card: Card, kinds: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    """Return the features of calls, and the logarithm of the time that the card's rates give.

    ``raw`` has a row of ``raw_features`` for each call. The shapes are (calls, features) and (calls,).
    """
    of = dict(zip(RAW, raw.T, strict=True))
    is_convolution = np.array([kind.startswith(CONVOLUTION) for kind in kinds], dtype=bool)
    rates = np.where(is_convolution, card.convolution_rate, card.product_rate)
    groups, is_product = np.maximum(1, of["groups"]), of["m"] > 0
    # The waves of each tile and the share of their multiprocessors that work, and the least time.
    of_waves, best_s = [], np.full(len(is_product), np.inf)
    for height, width, share in TILES:
        tiles = np.ceil(of["m"] / height) * np.ceil(of["n"] / width) * groups
        waves = np.ceil(tiles / card.multiprocessors)
        free = np.floor(card.multiprocessors / np.maximum(1, tiles))
        parts = np.where(is_convolution, 1, np.clip(free, 1, np.maximum(1, of["k"] // SPLIT_LENGTH)))
        tile_flop = 2.0 * height * width * (of["k"] / parts + TILE_START)
        best_s = np.minimum(best_s, waves * tile_flop / (rates / card.multiprocessors * share))
        of_waves += [np.log1p(waves), tiles / np.maximum(1, waves) / card.multiprocessors]
    tile_s = np.where(is_product, best_s, of["flop"] / rates)
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
        *of_waves,
        *(log_tile, log_memory, log_tile - log_memory),
        np.log1p(of["flop"] / np.maximum(1, of["memory_bytes"])),
        np.log((of["input_elements"] + 1) / (of["output_elements"] + 1)),
        np.log((of["weights"] + 1) / (of["input_elements"] + 1)),
        *(np.full(len(raw), math.log(rate)) for rate in (card.convolution_rate, card.product_rate, card.byte_rate)),
    ]
    base = np.log(card.launch_s * np.maximum(1, of["kernels"]) + tile_s + memory_s)
    # Trees compare numbers of 32 bits.
    return np.column_stack(columns).astype(np.float32).astype(np.float64), base


def _product(
    count: OperatorCount, output: TensorSpec, elements: int, arguments: dict[str, PlainValue]
) -> tuple[float, float, float, float]:
    """Return rows, columns and length of the matrix product that a call is, and the number of such products."""
    names = _names(count)
    if not count.flop or not elements or not output.shape or SEVERAL_PRODUCTS & names:
        return 0, 0, 0, 0
    length = count.flop / (2 * elements)
    if not names.isdisjoint((CONVOLUTION, CONVOLUTION_BACKWARD)):
        # The products of a backward are together as one on the forward's output, which its first input is like.
        output = count.operator.floating_inputs[0] if CONVOLUTION_BACKWARD in names else output
        groups = _number(arguments.get("groups"), 1)
        channels = output.shape[1] if len(output.shape) > 1 else 1
        return output.elements / channels, channels / groups, count.flop / (2 * output.elements), groups
    columns = output.shape[-1]
    if BATCHED_PRODUCTS & names and len(output.shape) > 1:
        # A backward of attention has three such outputs.
        return output.shape[-2], columns, count.flop / (2 * output.elements), math.prod(output.shape[:-2])
    return elements / columns, columns, length, 1


def _arguments(operator: OperatorTuple) -> dict[str, PlainValue]:
    names = POSITIONAL.get(operator.short_name, ())
    given = [value for value in operator.inputs if not isinstance(value, TensorSpec) and value is not None]
    if operator.short_name in BARE:
        # A backward has the gradient first, and perhaps the size of the bias before the rest.
        is_backward = operator.short_name == CONVOLUTION_BACKWARD
        weight = tensor_specs(operator.inputs)[2 if is_backward else 1]
        names, given = ("kernel_size", *names), [weight.shape[2:], *(given[-len(names) :] if is_backward else given)]
    return {**dict(zip(names, given, strict=False)), **dict(operator.keyword_inputs), **dict(operator.parameters)}


def kernel_of(operator: OperatorTuple) -> tuple[float, float]:
    """Return the height and the width of a kernel, its first and last side; 0 if there is none."""
    return _pair(_arguments(operator).get("kernel_size"), 0)


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
        return ATTENTION_BACKWARD if operation.endswith("_backward") else ATTENTION
    name = operation.rstrip("_") or operation
    return SAME_OPERATIONS.get(name, name)


def _number(value: PlainValue, usual: int) -> int:
    return value if isinstance(value, int) else usual


def _pair(value: PlainValue, usual: int) -> tuple[float, float]:
    if isinstance(value, (int, float)):
        return float(value), float(value)
    numbers = [part for part in value if isinstance(part, (int, float))] if isinstance(value, tuple) else []
    return (float(numbers[0]), float(numbers[-1])) if numbers else (float(usual), float(usual))


@dataclass(frozen=True)
class Boards:
    """The energies of boards: the logarithm of each one's over that of a mean board, and their deviation."""

    offsets: Mapping[str | None, float]
    deviation: float


@dataclass(frozen=True)
class Samples:
    """Measured costs of calls on a mean board.

    ``raw`` are the features of ``RAW``. ``shapes`` are the same for calls that differ in values only.
    ``families`` are those of the models that a call is of, none if it is of no model. Energies are NaN if unknown.
    """

    raw: FloatArray
    kinds: tuple[str, ...]
    shapes: tuple[str, ...]
    families: tuple[frozenset[str], ...]
    times_s: FloatArray
    energies_j: FloatArray
    boards: Boards

    def __len__(self) -> int:
        return len(self.kinds)


def samples_of(
    cases: Mapping[str, Sequence[MeasurementRow]],
    counts: CountsByPhase,
    families: Mapping[str, frozenset[str]],
) -> Samples:
    """Return a sample for each case; repeats and boards give their median.

    Energies are at the reference temperature where that is known. ``families`` of the models that an operator is of are
    by the operator's key.
    """
    boards = boards_of(cases.values())
    found = [(counts[tuple_key(rows[0].key), rows[0].phase], rows) for rows in cases.values()]
    kinds = tuple(kind_of(count) for count, _ in found)
    energies_j = []
    for _, rows in found:
        energies = [
            (value_of(common_basis([row]).energy_of(row)), boards.offsets.get(row.circumstances.device_uuid, 0.0))
            for row in rows
        ]
        of_boards = [energy_j * math.exp(-offset) for energy_j, offset in energies if energy_j is not None]
        energies_j.append(median(of_boards) if of_boards else math.nan)
    return Samples(
        raw=np.array([raw_features(count, parse_input_data(rows[0].input_data)) for count, rows in found], dtype=float),
        kinds=kinds,
        shapes=tuple(shape_of(kind, count.operator) for kind, (count, _) in zip(kinds, found, strict=True)),
        families=tuple(families.get(count.operator.key, frozenset()) for count, _ in found),
        times_s=np.array([median(row.measurement.time_s for row in rows) for _, rows in found]),
        energies_j=np.array(energies_j),
        boards=boards,
    )


def cases_of(
    rows: Iterable[MeasurementRow], counts: CountsByPhase, conditions: Conditions
) -> dict[str, list[MeasurementRow]]:
    """Return the sound rows of each case that was measured under these conditions and computes something, by key."""
    own = (row for row in rows if row.conditions == conditions)
    return grouped((row for row, count in sound_rows(own, counts) if count.computes), lambda row: row.key)


def sound_rows(rows: Iterable[MeasurementRow], counts: CountsByPhase) -> Iterator[tuple[MeasurementRow, OperatorCount]]:
    """Yield the rows with their counts, without flagged ones and those of other work than counted.

    Rows with zeros in weights are left out: no feature shows these, and they draw less power than any model does.
    """
    for row in rows:
        count = counts.get((tuple_key(row.key), row.phase))
        is_usual = not (is_doubtful(row) or does_other_work(row.measurement) or has_zeros_in_weights(row.input_data))
        if is_usual and count is not None:
            yield row, count


def boards_of(cases: Iterable[Sequence[MeasurementRow]]) -> Boards:
    """Return the energies of boards, from the rows of each case that was measured on several."""
    differences: dict[str | None, list[float]] = {}
    for rows in cases:
        by_board: dict[str | None, list[float]] = {}
        for row in rows:
            energy_j = value_of(common_basis([row]).energy_of(row))
            if energy_j is not None:
                by_board.setdefault(row.circumstances.device_uuid, []).append(math.log(energy_j))
        if len(by_board) > 1:
            middles = {board: median(values) for board, values in by_board.items()}
            centre = median(middles.values())
            for board, middle in middles.items():
                differences.setdefault(board, []).append(middle - centre)
    offsets = {board: median(values) for board, values in differences.items() if len(values) >= SHARED_CASES}
    is_known = len(offsets) >= ENOUGH_BOARDS
    deviation = float(np.std(list(offsets.values()), ddof=1)) if is_known else BOARD_DEVIATION
    return Boards(offsets, deviation)


def card_of(samples: Samples, multiprocessors: int, power_limit_w: float | None = None) -> Card:
    """Return a card's rates: the highest of products, or of the other ones, and nearly the highest of large calls."""
    flop, memory_bytes = samples.raw[:, 0], samples.raw[:, 1]
    rates = flop / samples.times_s
    is_convolution = np.array([kind.startswith(CONVOLUTION) for kind in samples.kinds], dtype=bool)
    is_attention = np.array([kind in (ATTENTION, ATTENTION_BACKWARD) for kind in samples.kinds], dtype=bool)
    convolution, product = (
        float(np.max(rates[chosen], initial=0.0)) for chosen in (is_convolution, ~is_convolution & ~is_attention)
    )
    large = memory_bytes >= min(LARGE_BYTES, float(np.quantile(memory_bytes, TOP_QUANTILE)))
    byte_rate = float(np.quantile(memory_bytes[large] / samples.times_s[large], TOP_QUANTILE))
    highest = max(convolution, product) or byte_rate
    launch_s = float(samples.times_s.min())
    return Card(multiprocessors, convolution or highest, product or highest, byte_rate, launch_s, power_limit_w or 1.0)


def family_of(model: OperatorTuple) -> str:
    """Return the family of a whole model: the first letters of its name, ``resnet`` for ``resnet50``."""
    found = re.match(r"[a-z]+", model.short_name.lower())
    name = model.short_name if found is None else found[0]
    return RELATED_FAMILIES.get(name, name)


def shape_of(kind: str, operator: OperatorTuple) -> str:
    """Return what calls of a kind have in common that do the same work in any precision: parameters and inputs."""
    parameters = [f"{name}={value}" for name, value in operator.parameters if name != "inplace"]
    return "|".join([kind, *parameters, re.sub(r"\b(b?float16|float32)\b", "", operator.inputs_text)])
