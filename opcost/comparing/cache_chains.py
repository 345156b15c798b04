"""Chains of operators, from which cache corrections are measured by kind and size of operator.

In a loop of itself an operator finds its code, its weights and as much of its inputs and outputs as fits in the
device's caches. In a model other operators run in between: code comes from a more distant cache and weights from
memory, an input has just been written, and an output first evicts other data. The difference is measured on the card
with chains of a few operators after a stream of other data, compared with the same operators in loops. No model is
needed.
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
from opcost.measuring.record import MeasurementRow, is_flagged, may_be_throttled, time_of
from opcost.measuring.retries import RETRIES
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.summing.energy import common_basis

ELEMENTWISE, NORM, DEPTHWISE, MATRIX, FILTER = "elementwise", "norm", "depthwise", "matrix", "filter"
KINDS = (ELEMENTWISE, NORM, DEPTHWISE, MATRIX, FILTER)
"""Kinds of operators: without weights; with one or two vectors; one filter per channel; one matrix (Linear, 1 x 1
convolutions, products of two tensors); filters over all channels. A depthwise convolution is one kernel with hardly any
weights. Other convolutions are two to four kernels, more for larger filters."""

PRODUCTS = (DEPTHWISE, MATRIX, FILTER)

BLOCKS = 6
"""Number of blocks of a chain, each with its own weights. Models repeat few kinds of layers, so code is fetched from
memory once and used several times. The number is a choice: with 1 sums are too large, 12 gives the same as 6
(``docs/log/cache.md``, found with chains that treated all products as one kind)."""

VERSION = 3
"""Version of the chains in this file. It is a part of the rows' ``design``."""

STREAM_ELEMENTS = 2**26
STREAM_BYTES = 4 * STREAM_ELEMENTS
"""Size of the fp32 stream that is read before a chain, larger than any GPU's cache (H200: 50 MB). A model that moves
less may find its code and weights in caches."""

BATCH, CHANNELS = 16, 64

SIDES = (8, 16, 24, 32, 48, 56, 64, 72, 80, 96, 112, 160)
"""Sides of the images in chains: tensors of 0.26 MB to 105 MB, with small steps near the size of caches."""

PRODUCT_SIDES = (8, 24, 48, 64, 80, 112)
"""Sides for products. Half of the sides suffice, because products take longer and depend less on caches."""

CHAIN, STREAM = (
    "opcost.torch_backend.cache_chains.ChainBehindAStream",
    "opcost.torch_backend.cache_chains.StreamThenCopy",
)
WHOLE_CHAINS = (CHAIN, STREAM)
"""Operators that are measured besides those of the chains."""

Modules: TypeAlias = tuple[tuple[str, Mapping[str, object]], ...]
"""Names in torch.nn, each with its parameters."""


@dataclass(frozen=True)
class Chain:
    """Repeated blocks of operators on images of one side, each operator on the output of the one before.

    A block of another kind than elementwise alternates between this kind and elementwise operators, as models do.
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
        """All operators of a block, as block 0 counts them."""
        return self._of(block(self.kind))

    def _of(self, modules: Modules) -> tuple[OperatorTuple, ...]:
        return tuple(_module(name, self.side, **parameters) for name, parameters in modules)

    @property
    def calls(self) -> int:
        """The number of calls of its own kind."""
        return self.blocks * len(self.own)

    @property
    def memory_bytes(self) -> int:
        """The bytes that a call reads and writes, without weights."""
        return 2 * 4 * math.prod(_shape(self.side))

    @property
    def behind_a_stream(self) -> OperatorTuple:
        """The chain as one operator, on a copy of images that is made after the stream."""
        return OperatorTuple(CHAIN, (("blocks", self.blocks), ("kind", self.kind)), _inputs(self.side))

    @property
    def design(self) -> str:
        """The name of the chain's design in rows."""
        return f"chains {VERSION}, {self.blocks} in a row"


def block(kind: str) -> Modules:
    """Return the modules of one block in order."""
    if kind == ELEMENTWISE:
        return MODULES[kind]
    return tuple(module for pair in zip(MODULES[ELEMENTWISE], MODULES[kind], strict=True) for module in pair)


def before(side: int) -> OperatorTuple:
    """Return the part before a chain as one operator: the stream is read, then images of this side are copied."""
    return OperatorTuple(STREAM, inputs=_inputs(side))


def chains_of(side: int, blocks: int = BLOCKS) -> tuple[Chain, ...]:
    """Return the chains on images of one side; the elementwise one comes first."""
    return tuple(Chain(kind, side, blocks) for kind in KINDS if kind not in PRODUCTS or side in PRODUCT_SIDES)


@dataclass(frozen=True)
class Excess:
    """Additional time in s and energy in J; the energy is None if unknown."""

    time_s: Estimate
    energy_j: Estimate | None

    def times(self, count: float) -> Excess:
        """Return ``count`` times this excess."""
        return Excess(self.time_s.times(count), None if self.energy_j is None else self.energy_j.times(count))


@dataclass(frozen=True)
class ChainRow(Columns):
    """Additional cost of a call in a chain over a call in a loop of itself, for one kind and size of operator.

    If the time is empty, the measurement was refused; ``notes`` holds the reason.
    """

    kind: Annotated[str, Column("kind of operator")]
    memory_bytes: Annotated[int, Column("bytes that a call reads and writes, without weights", COUNT_FROM_1)]
    calls: Annotated[int, Column("calls of this kind in the chain", COUNT_FROM_1)]
    time_s: Annotated[float | None, Column("additional time of one call, may be below 0; empty if refused", SIGNED)]
    time_standard_error_s: Annotated[float | None, Column("standard error of the time", ABOVE_0)]
    energy_j: Annotated[
        float | None, Column("additional energy of one call, may be below 0; at 50 °C if all can be normalised", SIGNED)
    ]
    energy_standard_error_j: Annotated[float | None, Column("standard error of the energy", ABOVE_0)]
    measured_at: Annotated[str, Column("end of the chain's loop", MOMENT)]
    device_uuid: Annotated[str | None, DEVICE_UUID]
    notes: Annotated[str, Column("flags and notes of the chain's measurement, or the reason why it was refused")]
    design: Annotated[str, Column("version and number of blocks of the chains")]
    conditions: Conditions

    @property
    def excess(self) -> Excess | None:
        """Time and energy with their errors; None if refused."""
        time_s = estimate_of(self.time_s, self.time_standard_error_s)
        energy_j = estimate_of(self.energy_j, self.energy_standard_error_j)
        return None if time_s is None else Excess(time_s, energy_j)


def excess_of_call(
    whole: MeasurementRow, before: MeasurementRow, own: Sequence[MeasurementRow], blocks: int = BLOCKS
) -> Excess:
    """Return the mean additional cost of a call in a chain over a call in a loop of itself.

    Elementwise operators in a chain of another kind cancel, because the elementwise chain is subtracted.

    Args:
        whole: the chain after its stream.
        before: the stream alone for the elementwise chain, the elementwise chain for others.
        own: the row of each operator of a block that is not in ``before``; equal operators have equal rows.
        blocks: number of blocks of the chain.
    """
    calls = blocks * len(own)
    parts = [(1, before), *((blocks * own.count(row), row) for row in dict.fromkeys(own))]
    basis = common_basis([whole, before, *own])
    time_s = time_of(whole).less(sum_of_independent(time_of(row).times(n) for n, row in parts))
    whole_j = basis.energy_of(whole)
    energies_j = [energy.times(n) for n, row in parts if (energy := basis.energy_of(row)) is not None]
    if whole_j is None or len(energies_j) < len(parts):
        return Excess(time_s.times(1 / calls), None)
    energy_j = whole_j.less(sum_of_independent(energies_j)).with_error(basis.coefficient_error_j(parts, whole))
    return Excess(time_s, energy_j).times(1 / calls)


def chain_row(chain: Chain, whole: MeasurementRow, found: Excess) -> ChainRow:
    """Return the row of a measured chain."""
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
    """Return the row of a chain that could not be measured, or whose measurement is refused."""
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
    """Return the reason why a row cannot be used for cache corrections; empty if it can."""
    measured = row.measurement
    if measured.executed_as != GRAPH:
        return f"{row.operator} did not run in a CUDA graph: {measured.notes}"
    is_refused = is_flagged(measured) or may_be_throttled(measured)
    return f"{row.operator}: {joined_notes(meanings(measured.flags), measured.notes)}" if is_refused else ""


def is_corrected(conditions: Conditions) -> bool:
    """Return whether sums under these conditions need a cache correction: in graphs, with warm caches.

    Eager runs are launch-bound so often that cache effects are negligible.
    """
    return conditions.execution == GRAPH and conditions.cache == WARM


def missing_sides(rows: Iterable[ChainRow]) -> list[int]:
    """Return the sides with a chain of this design that was neither measured nor refused ``RETRIES.runs`` times."""
    attempts = Counter((row.kind, row.memory_bytes, row.time_s is None) for row in rows if row.design == DESIGN)
    done = {
        (kind, size)
        for (kind, size, was_refused), times in attempts.items()
        if times >= RETRIES.runs or not was_refused
    }
    return [side for side in SIDES if any((chain.kind, chain.memory_bytes) not in done for chain in chains_of(side))]


def of_the_same_card(rows: Iterable[ChainRow], conditions: Conditions) -> list[ChainRow]:
    """Return the rows of the same card with the same software."""
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
"""The operators of a block by kind, four of each. Elementwise operators are different kernels, none of which makes
values equal or small when repeated, because that would change power and sometimes time."""

DESIGN = Chain(ELEMENTWISE, SIDES[0]).design
"""The design of chains that block 2 measures and that sums are corrected by."""

SIZES: Mapping[str, tuple[int, ...]] = {
    kind: tuple(chain.memory_bytes for side in SIDES for chain in chains_of(side) if chain.kind == kind)
    for kind in KINDS
}
"""The bytes that a call of each chain moves, by kind."""
