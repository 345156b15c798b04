"""What a call takes longer in a chain of other operators than in a loop of itself, by kind and by size.

In a loop of itself an operator finds its code, its weights and all that fits of its inputs and outputs in the device's
caches. In a model other operators run in between: code comes from a farther cache and weights from memory; an input was
just written; an output first pushes out what others wrote. How much that is, is measured on the card with chains of a
few operators behind a stream of other data, beside the same operators each in a loop: no model takes part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from opcost.columns import ABOVE_0, COUNT_FROM_1, MOMENT, SIGNED, Column, Columns
from opcost.estimates import Estimate, estimate_of, standard_error_of, sum_of_independent, value_of
from opcost.measuring.conditions import DEVICE_UUID, GRAPH, WARM, Conditions
from opcost.measuring.flags import joined_notes, meanings
from opcost.measuring.record import MeasurementRow, is_doubtful, is_held_back, time_of
from opcost.measuring.retries import RETRIES
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.summing.energy import common_basis

ELEMENTWISE, NORM, DEPTHWISE, MATRIX, FILTER = "elementwise", "norm", "depthwise", "matrix", "filter"
KINDS = (ELEMENTWISE, NORM, DEPTHWISE, MATRIX, FILTER)
"""Of operators: without weights; with a vector or two; a filter for each channel; one matrix (Linear, convolutions of
1 by 1, products of two tensors); filters over all channels. Depthwise convolutions are one kernel and have hardly any
weights; others are two to four kernels, the more the larger their filters."""

PRODUCTS = (DEPTHWISE, MATRIX, FILTER)

BLOCKS = 6
"""Of a chain, each with weights of its own. Models repeat few kinds of layers, so that code is fetched from memory once
and used several times; how often is a choice (``docs/log/cache.md``: with 1 sums are too large, 12 are as 6: found with
chains that took all products for one kind)."""

VERSION = 3
"""Of the chains of this file: rows of others have another name."""

STREAM_ELEMENTS = 2**26
STREAM_BYTES = 4 * STREAM_ELEMENTS
"""Of fp32 values that are read before a chain: beyond any GPU's cache (H200: 50 MB). What moves less may find its code
and weights there."""

BATCH, CHANNELS = 16, 64

SIDES = (8, 16, 24, 32, 48, 56, 64, 72, 80, 96, 112, 160)
"""Of the images that run through chains: tensors of 0.26 MB to 105 MB, close together where they fill a cache."""

PRODUCT_SIDES = (8, 24, 48, 64, 80, 112)
"""Products take longer, and caches change less of their time: half of the sizes do."""

CHAIN, STREAM = (
    "opcost.torch_backend.cache_chains.ChainBehindAStream",
    "opcost.torch_backend.cache_chains.StreamThenCopy",
)
WHOLE_CHAINS = (CHAIN, STREAM)
"""What is measured besides the operators of the chains."""

Modules: TypeAlias = tuple[tuple[str, Mapping[str, object]], ...]
"""Names in torch.nn, each with its parameters."""


@dataclass(frozen=True)
class Chain:
    """A block of operators several times, each on the output of the one before, on images of one side.

    Blocks of another kind than elementwise are operators of this kind and elementwise ones in turn, as in models.
    """

    kind: str
    side: int
    blocks: int = BLOCKS

    @property
    def own(self) -> tuple[OperatorTuple, ...]:
        """The operators of its kind in a block."""
        return self._of(MODULES[self.kind])

    @property
    def operators(self) -> tuple[OperatorTuple, ...]:
        """One block, as block 0 would count it."""
        return self._of(block(self.kind))

    def _of(self, modules: Modules) -> tuple[OperatorTuple, ...]:
        return tuple(_module(name, self.side, **parameters) for name, parameters in modules)

    @property
    def calls(self) -> int:
        """Those of its own kind."""
        return self.blocks * len(self.own)

    @property
    def memory_bytes(self) -> int:
        """What a call reads and writes, without weights."""
        return 2 * 4 * math.prod(_shape(self.side))

    @property
    def behind_a_stream(self) -> OperatorTuple:
        """The whole as one operator, on a copy of images that is made behind a stream."""
        return OperatorTuple(CHAIN, (("blocks", self.blocks), ("kind", self.kind)), _inputs(self.side))

    @property
    def design(self) -> str:
        """How rows name chains like this."""
        return f"chains {VERSION}, {self.blocks} in a row"


def block(kind: str) -> Modules:
    """Return the modules of one block in order."""
    if kind == ELEMENTWISE:
        return MODULES[kind]
    return tuple(module for pair in zip(MODULES[ELEMENTWISE], MODULES[kind], strict=True) for module in pair)


def before(side: int) -> OperatorTuple:
    """Return what runs before a chain, as one operator: the stream is read, then images of this side are copied."""
    return OperatorTuple(STREAM, inputs=_inputs(side))


def chains_of(side: int, blocks: int = BLOCKS) -> tuple[Chain, ...]:
    """Return the chains on images of one side; the elementwise one comes first."""
    return tuple(Chain(kind, side, blocks) for kind in KINDS if kind not in PRODUCTS or side in PRODUCT_SIDES)


@dataclass(frozen=True)
class Excess:
    """What something takes longer, in s and J; the energy is None where it is not known."""

    time_s: Estimate
    energy_j: Estimate | None

    def times(self, count: float) -> Excess:
        """Return ``count`` times this."""
        return Excess(self.time_s.times(count), None if self.energy_j is None else self.energy_j.times(count))


@dataclass(frozen=True)
class ChainRow(Columns):
    """What a call of one kind that moves so many bytes takes longer in a chain than in a loop of itself.

    A time of None is one that was refused.
    """

    kind: Annotated[str, Column("the kind of operator")]
    memory_bytes: Annotated[int, Column("bytes that a call reads and writes, without weights", COUNT_FROM_1)]
    calls: Annotated[int, Column("calls of this kind in the chain", COUNT_FROM_1)]
    time_s: Annotated[float | None, Column("of one call; below 0 where it takes less, empty if refused", SIGNED)]
    time_standard_error_s: Annotated[float | None, Column("one standard error of the time", ABOVE_0)]
    energy_j: Annotated[
        float | None, Column("of one call, at 50 °C if all are known there; below 0 where it takes less", SIGNED)
    ]
    energy_standard_error_j: Annotated[float | None, Column("one standard error of the energy", ABOVE_0)]
    measured_at: Annotated[str, Column("when it was measured", MOMENT)]
    device_uuid: Annotated[str | None, DEVICE_UUID]
    notes: Annotated[str, Column("those of the chain's measurement, or why it was refused")]
    design: Annotated[str, Column("tells rows of different chains apart")]
    conditions: Conditions

    @property
    def excess(self) -> Excess | None:
        """Time and energy with their errors; None of what was refused."""
        time_s = estimate_of(self.time_s, self.time_standard_error_s)
        energy_j = estimate_of(self.energy_j, self.energy_standard_error_j)
        return None if time_s is None else Excess(time_s, energy_j)


def excess_of_call(
    whole: MeasurementRow, before: MeasurementRow, own: Sequence[MeasurementRow], blocks: int = BLOCKS
) -> Excess:
    """Return what a call takes longer in a chain than alone, the mean over a block.

    Elementwise operators beside those of another kind need not be known: they are in the elementwise chain, too, which
    is what runs before.

    Args:
        whole: a chain behind its stream.
        before: the stream alone for the elementwise chain, the elementwise chain for the others.
        own: each operator of a block that is not in ``before``, alone; one that is there twice was measured once.
        blocks: how many there are in the chain.
    """
    calls = blocks * len(own)
    parts = [(1, before), *((blocks * own.count(row), row) for row in dict.fromkeys(own))]
    basis = common_basis([whole, before, *own])
    time_s = time_of(whole).less(sum_of_independent(time_of(row).times(n) for n, row in parts))
    whole_j = basis.energy_of(whole)
    energies_j = [energy.times(n) for n, row in parts if (energy := basis.energy_of(row)) is not None]
    if whole_j is None or len(energies_j) < len(parts):
        return Excess(time_s.times(1 / calls), None)
    energy_j = whole_j.less(sum_of_independent(energies_j)).with_error(basis.slope_error_j(parts, whole))
    return Excess(time_s, energy_j).times(1 / calls)


def chain_row(chain: Chain, whole: MeasurementRow, found: Excess) -> ChainRow:
    """Return a row for what was found of a chain."""
    return ChainRow(
        kind=chain.kind,
        memory_bytes=chain.memory_bytes,
        calls=chain.calls,
        time_s=value_of(found.time_s),
        time_standard_error_s=standard_error_of(found.time_s),
        energy_j=value_of(found.energy_j),
        energy_standard_error_j=standard_error_of(found.energy_j),
        measured_at=whole.measurement.ended_at,
        device_uuid=whole.circumstances.device_uuid,
        notes=joined_notes(meanings(whole.measurement.flags), whole.measurement.notes),
        design=chain.design,
        conditions=whole.conditions,
    )


def refused_row(chain: Chain, reason: str, conditions: Conditions, at: str) -> ChainRow:
    """Return a row for a chain that could not be measured, or of which nothing is to be concluded."""
    unknown = dict.fromkeys(("time_s", "time_standard_error_s", "energy_j", "energy_standard_error_j", "device_uuid"))
    return ChainRow(
        kind=chain.kind,
        memory_bytes=chain.memory_bytes,
        calls=chain.calls,
        **unknown,
        measured_at=at,
        notes=reason,
        design=chain.design,
        conditions=conditions,
    )


def refusal(row: MeasurementRow) -> str:
    """Return why nothing is to be concluded from a row; empty if nothing is wrong with it."""
    measured = row.measurement
    if measured.executed_as != GRAPH:
        return f"{row.operator} did not run in a CUDA graph: {measured.notes}"
    is_refused = is_doubtful(measured) or is_held_back(measured)
    return f"{row.operator}: {joined_notes(meanings(measured.flags), measured.notes)}" if is_refused else ""


def is_corrected(conditions: Conditions) -> bool:
    """Return whether what operators take differs from what they take in a model: in graphs, if they ran warm.

    Eager runs wait for the host so often that caches hardly count.
    """
    return conditions.execution == GRAPH and conditions.cache == WARM


def unsettled_sides(rows: Iterable[ChainRow]) -> list[int]:
    """Return the sides of which a chain of this design is neither known nor was refused often enough."""
    attempts = Counter((row.kind, row.memory_bytes, row.time_s is None) for row in rows if row.design == DESIGN)
    settled = {
        (kind, size)
        for (kind, size, was_refused), times in attempts.items()
        if times >= RETRIES.runs or not was_refused
    }
    return [side for side in SIDES if any((chain.kind, chain.memory_bytes) not in settled for chain in chains_of(side))]


def of_the_same_card(rows: Iterable[ChainRow], conditions: Conditions) -> list[ChainRow]:
    """Return the rows of cards of a kind with the same software."""
    card = _card(conditions)
    return [row for row in rows if _card(row.conditions) == card]


def _card(conditions: Conditions) -> tuple[object, ...]:
    return (
        conditions.device_product,
        conditions.driver_version,
        conditions.torch_version,
        conditions.cuda_version,
        conditions.cudnn_version,
        conditions.mode,
        conditions.execution,
    )


def _shape(side: int) -> tuple[int, ...]:
    return (BATCH, CHANNELS, side, side)


def _inputs(side: int) -> tuple[TensorSpec, ...]:
    return TensorSpec((STREAM_ELEMENTS,), "float32"), TensorSpec(_shape(side), "float32", identity=1)


def _module(name: str, side: int, **parameters: object) -> OperatorTuple:
    return OperatorTuple(f"torch.nn.{name}", tuple(parameters.items()), (TensorSpec(_shape(side), "float32"),))  # type: ignore[arg-type]


def _convolution(width: int, **parameters: object) -> tuple[str, Mapping[str, object]]:
    size: dict[str, object] = {"in_channels": CHANNELS, "out_channels": CHANNELS, "kernel_size": width}
    padding = {"padding": width // 2} if width > 1 else {}
    return "Conv2d", {**size, **padding, **parameters, "bias": False}


MODULES: Mapping[str, Modules] = {
    ELEMENTWISE: (
        ("LeakyReLU", {"negative_slope": 0.9}),
        ("Threshold", {"threshold": -4.0, "value": 0.0}),
        ("ELU", {}),
        ("Hardshrink", {"lambd": 0.001}),
    ),
    NORM: 4 * (("BatchNorm2d", {"num_features": CHANNELS}),),
    DEPTHWISE: 2 * (_convolution(3, groups=CHANNELS), _convolution(5, groups=CHANNELS)),
    MATRIX: 4 * (_convolution(1),),
    FILTER: 2 * (_convolution(3), _convolution(5)),
}
"""The operators of the chains, as many of each kind, as they are written in Python. Elementwise ones are different
kernels none of which makes values equal or small however often it is repeated: power, and some times, would change."""


DESIGN = Chain(ELEMENTWISE, SIDES[0]).design
"""What block 2 measures, and sums are corrected by."""

SIZES: Mapping[str, tuple[int, ...]] = {
    kind: tuple(chain.memory_bytes for side in SIDES for chain in chains_of(side) if chain.kind == kind)
    for kind in KINDS
}
"""The bytes in and out of its chains, by kind."""
