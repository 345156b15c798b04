"""What a call takes longer in a chain of other operators than in a loop of itself, by kind and by size.

In a loop of itself an operator finds its code, its weights and all that fits of its inputs and outputs in the device's
caches. In a model other operators run in between: code comes from a farther cache and weights from memory; an input was
just written; an output first pushes out what others wrote. How much that is, is measured on the card with chains of a
few operators behind a stream of other data, beside the same operators each in a loop: no model takes part.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opcost.conditions import GRAPH, WARM, Conditions
from opcost.measurement import MeasurementRow, energy_of, is_doubtful, is_held_back, slope_error_j, time_of
from opcost.operators import OperatorCount, OperatorTuple, TensorSpec
from opcost.statistics import Estimate, estimate_of, standard_error_of, sum_of_independent, value_of

ELEMENTWISE, NORM, PRODUCT = "elementwise", "norm", "product"
KINDS = (ELEMENTWISE, NORM, PRODUCT)
"""Of operators: without weights, with a vector or two, with a matrix or filters (all that has FLOPs)."""

REPEATS = 6
"""Blocks of a chain, each with weights of its own: models of torchvision call a kernel of one kind some six times."""

STREAM_ELEMENTS = 2**26
STREAM_BYTES = 4 * STREAM_ELEMENTS
"""Of fp32 values that are read before a chain: beyond any GPU's cache (H200: 50 MB). What moves less may find its code
and weights there."""

BATCH, CHANNELS = 16, 64

SIDES = (8, 16, 24, 32, 48, 56, 64, 72, 80, 96, 112, 160)
"""Of the images that run through chains: tensors of 0.26 MB to 105 MB, close together where they fill a cache."""

PRODUCT_SIDES = (8, 32, 64, 112)
"""Products compute so long that caches change little: a few sizes do."""


CHAIN, STREAM = "opcost.torch_chains.ChainBehindAStream", "opcost.torch_chains.StreamThenCopy"
OPERATORS = (CHAIN, STREAM)
"""What is measured besides the operators of the chains."""


@dataclass(frozen=True)
class Chain:
    """A block of operators ``REPEATS`` times, each on the output of the one before, on images of one side.

    Blocks of another kind than elementwise are operators of this kind and elementwise ones in turn, as in models.
    """

    kind: str
    side: int

    @property
    def operators(self) -> tuple[OperatorTuple, ...]:
        """One block, as block 0 would count it."""
        elementwise = [_module(name, self.side, **parameters) for name, parameters in ELEMENTWISE_MODULES]
        if self.kind == ELEMENTWISE:
            return tuple(elementwise)
        modules = NORM_MODULES if self.kind == NORM else PRODUCT_MODULES
        own = [_module(name, self.side, **parameters) for name, parameters in modules]
        return tuple(operator for pair in zip(elementwise, own, strict=True) for operator in pair)

    @property
    def calls(self) -> int:
        """Those of its own kind."""
        return REPEATS * len(ELEMENTWISE_MODULES)

    @property
    def memory_bytes(self) -> int:
        """What a call reads and writes, without weights."""
        return 2 * 4 * math.prod(_shape(self.side))

    @property
    def behind_a_stream(self) -> OperatorTuple:
        """The whole as one operator, on a copy of images that is made behind a stream."""
        return OperatorTuple(CHAIN, (("kind", self.kind),), _inputs(self.side))


def before(side: int) -> OperatorTuple:
    """Return what runs before a chain, as one operator: the stream is read, then images of this side are copied."""
    return OperatorTuple(STREAM, inputs=_inputs(side))


def chains_of(side: int) -> tuple[Chain, ...]:
    """Return the chains on images of one side; the elementwise one comes first."""
    return tuple(Chain(kind, side) for kind in KINDS if kind != PRODUCT or side in PRODUCT_SIDES)


@dataclass(frozen=True)
class Excess:
    """What something takes longer, in s and J; the energy is None where it is not known."""

    time_s: Estimate
    energy_j: Estimate | None

    def times(self, count: float) -> Excess:
        """Return ``count`` times this."""
        return Excess(self.time_s.times(count), None if self.energy_j is None else self.energy_j.times(count))

    def plus(self, other: Excess) -> Excess:
        """Return both together, as independent ones."""
        return _sum([self, other])


@dataclass(frozen=True)
class ChainRow:
    """What a call of one kind that moves so many bytes takes longer in a chain than in a loop of itself.

    ``time_s`` and ``energy_j`` are of one call and below 0 where it takes less, errors one standard error; energies are
    at the reference temperature where all are known there, None where one is not known at all. ``calls`` are those of
    this kind in the chain, ``notes`` those of its measurement.
    """

    kind: str
    memory_bytes: int
    calls: int
    time_s: float
    time_standard_error_s: float
    energy_j: float | None
    energy_standard_error_j: float | None
    measured_at: str
    device_uuid: str | None
    notes: str
    conditions: Conditions

    @property
    def excess(self) -> Excess:
        """Time and energy with their errors."""
        return Excess(
            Estimate(self.time_s, self.time_standard_error_s), estimate_of(self.energy_j, self.energy_standard_error_j)
        )


@dataclass(frozen=True)
class MeasuredChain:
    """The rows of a chain behind its stream, of what runs before it, and of each operator of a block alone."""

    chain: Chain
    whole: MeasurementRow
    before: MeasurementRow
    alone: Sequence[MeasurementRow]

    @property
    def rows(self) -> tuple[MeasurementRow, ...]:
        """All of them."""
        return (*self.alone, self.before, self.whole)

    def excess(self) -> Excess:
        """Return what all calls of the chain take longer than alone."""
        at_reference = all(energy_of(row, at_reference=True) for row in self.rows)
        parts = [(1, self.before), *((REPEATS * n, row) for row, n in Counter(self.alone).items())]
        time_s = time_of(self.whole).less(sum_of_independent(time_of(row).times(n) for n, row in parts))
        whole_j = energy_of(self.whole, at_reference)
        energies_j = [energy.times(n) for n, row in parts if (energy := energy_of(row, at_reference)) is not None]
        if whole_j is None or len(energies_j) < len(parts):
            return Excess(time_s, None)
        energy_j = whole_j.less(sum_of_independent(energies_j))
        return Excess(time_s, energy_j.with_error(slope_error_j(parts, self.whole)))


def chain_row(measured: MeasuredChain, elementwise: ChainRow | None) -> ChainRow:
    """Return what a call of a chain's kind takes longer.

    Args:
        measured: the chain.
        elementwise: what its elementwise operators take longer; None for a chain that has no others.
    """
    chain, whole = measured.chain, measured.whole
    total = measured.excess()
    if elementwise is not None:
        total = total.plus(elementwise.excess.times(-chain.calls))
    per_call = total.times(1 / chain.calls)
    return ChainRow(
        kind=chain.kind,
        memory_bytes=chain.memory_bytes,
        calls=chain.calls,
        time_s=per_call.time_s.value,
        time_standard_error_s=per_call.time_s.standard_error,
        energy_j=value_of(per_call.energy_j),
        energy_standard_error_j=standard_error_of(per_call.energy_j),
        measured_at=whole.measurement.ended_at,
        device_uuid=whole.circumstances.device_uuid,
        notes=whole.measurement.notes,
        conditions=whole.conditions,
    )


def refusal(rows: Iterable[MeasurementRow]) -> str:
    """Return why nothing is to be concluded from some rows; empty if nothing is wrong with them."""
    for row in rows:
        measured = row.measurement
        if measured.executed_as != GRAPH:
            return f"{row.operator} did not run in a CUDA graph: {measured.notes}"
        if is_doubtful(measured) or is_held_back(measured):
            return f"{row.operator}: {measured.notes}"
    return ""


def takes_longer(conditions: Conditions) -> bool:
    """Return whether operators take longer in a model than measured so: in graphs, if they were in the cache alone.

    Eager runs wait for the host so often that caches hardly count.
    """
    return conditions.execution == GRAPH and conditions.cache == WARM


def kind_of(count: OperatorCount) -> str:
    """Return which chain tells of an operator."""
    if count.flop:
        return PRODUCT
    return NORM if "norm" in count.operator.short_name.lower() else ELEMENTWISE


@dataclass(frozen=True)
class Curve:
    """What a call of one kind takes longer at some sizes, by ascending bytes; between them linear in their logarithm,
    beyond them as at the last."""

    points: tuple[tuple[int, Excess], ...]

    def shares(self, memory_bytes: int) -> Mapping[int, float]:
        """Return the numbers of the points that tell of a size, and their shares."""
        sizes = [size for size, _ in self.points]
        upper = bisect_right(sizes, memory_bytes)
        if upper in (0, len(sizes)):
            return {max(upper - 1, 0): 1.0}
        share = math.log(memory_bytes / sizes[upper - 1]) / math.log(sizes[upper] / sizes[upper - 1])
        return {upper - 1: 1 - share, upper: share}


@dataclass(frozen=True)
class Corrections:
    """What calls take longer in chains on some kind of card."""

    curves: Mapping[str, Curve]

    def of(self, counts: Iterable[OperatorCount]) -> Excess:
        """Return what all calls of some operators take longer together. They share the errors of the same chains."""
        weights: dict[tuple[str, int], float] = {}
        for count in counts:
            if count.computes:
                kind = kind_of(count)
                for point, share in self.curves[kind].shares(count.memory_bytes).items():
                    weights[kind, point] = weights.get((kind, point), 0.0) + share * count.occurrences
        return _sum(self.curves[kind].points[point][1].times(weight) for (kind, point), weight in weights.items())


def corrections_under(rows: Iterable[ChainRow], conditions: Conditions) -> Corrections | None:
    """Return what was found on cards of a kind with its software, the mean where it was several times; None if a kind
    of operators is lacking.

    Precision does not count: what is not in a cache takes as long in any.
    """
    if not takes_longer(conditions):
        return None
    found: dict[str, dict[int, list[Excess]]] = {}
    for row in of_the_same_kind(rows, conditions):
        found.setdefault(row.kind, {}).setdefault(row.memory_bytes, []).append(row.excess)
    if not found.keys() >= set(KINDS):
        return None
    return Corrections(
        {
            kind: Curve(tuple((size, _mean(excesses)) for size, excesses in sorted(by_size.items())))
            for kind, by_size in found.items()
        }
    )


def of_the_same_kind(rows: Iterable[ChainRow], conditions: Conditions) -> list[ChainRow]:
    """Return the rows of cards of a kind with the same software."""
    kind = _card(conditions)
    return [row for row in rows if _card(row.conditions) == kind]


def _card(conditions: Conditions) -> tuple[object, ...]:
    return (
        conditions.device_product,
        conditions.driver_version,
        conditions.torch_version,
        conditions.cuda_version,
        conditions.mode,
        conditions.execution,
    )


def _mean(excesses: Sequence[Excess]) -> Excess:
    return _sum(excesses).times(1 / len(excesses))


def _sum(excesses: Iterable[Excess]) -> Excess:
    """Return the sum of independent ones; its energy is known if all are."""
    terms = list(excesses)
    energies_j = [term.energy_j for term in terms if term.energy_j is not None]
    is_known = len(energies_j) == len(terms)
    times_s = (term.time_s for term in terms)
    return Excess(sum_of_independent(times_s), sum_of_independent(energies_j) if is_known else None)


def _shape(side: int) -> tuple[int, ...]:
    return (BATCH, CHANNELS, side, side)


def _inputs(side: int) -> tuple[TensorSpec, ...]:
    return TensorSpec((STREAM_ELEMENTS,), "float32"), TensorSpec(_shape(side), "float32", identity=1)


def _module(name: str, side: int, **parameters: object) -> OperatorTuple:
    return OperatorTuple(f"torch.nn.{name}", tuple(parameters.items()), (TensorSpec(_shape(side), "float32"),))  # type: ignore[arg-type]


ELEMENTWISE_MODULES: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("LeakyReLU", {"negative_slope": 0.9}),
    ("Hardswish", {}),
    ("SiLU", {}),
    ("ELU", {}),
)
"""Different kernels, none of which makes values equal or zero however often it is repeated: power would change."""

NORM_MODULES: tuple[tuple[str, Mapping[str, object]], ...] = 4 * (("BatchNorm2d", {"num_features": CHANNELS}),)

_CONVOLUTION: Mapping[str, object] = {"in_channels": CHANNELS, "out_channels": CHANNELS}
PRODUCT_MODULES: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("Conv2d", {**_CONVOLUTION, "kernel_size": 3, "padding": 1, "bias": False}),
    ("Conv2d", {**_CONVOLUTION, "kernel_size": 1, "bias": False}),
    ("Conv2d", {**_CONVOLUTION, "kernel_size": 3, "padding": 1, "groups": CHANNELS, "bias": False}),
    ("Conv2d", {**_CONVOLUTION, "kernel_size": 5, "padding": 2, "bias": False}),
)
"""The operators of the chains: as many of each kind, and of each as it is written in Python."""
