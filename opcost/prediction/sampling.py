"""Operator tuples between and beyond known ones, to be measured so that a predictor learns from them.

Each begins as a known tuple, which gives its structure: operator, dtypes, layouts, other arguments. Some of its free
sizes are drawn again, log-uniform between the smallest and the largest of the kind and a factor beyond; batches from 1.

A size occurs in several places: the channels of a convolution are a parameter and a side of its input. The places of
one size change together. Sizes of 1 stay, because they are broadcast or pooled.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, combinations
from operator import attrgetter
from typing import TypeAlias

from opcost.columns import grouped
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import (
    OperatorTuple,
    PlainValue,
    TensorSpec,
    contiguous_strides,
    distinct_specs,
    with_tensors,
)

Place: TypeAlias = tuple[int | str, int | None]
"""A side of a tensor, by the tensor's identity; or a parameter by its name, or an item of one that is a tuple."""

PRODUCTS = ("matmul", "__matmul__", "bmm", "mm")
LINEAR = "linear"

GROUPS = "groups"
KERNEL = "kernel_size"
PADDING = "padding"

LINKED = {
    **dict.fromkeys(("in_channels", "num_features", "num_channels"), 1),
    **dict.fromkeys(("in_features", "embed_dim", "normalized_shape"), -1),
}
"""Parameters that are a side of the first input, and which. Some norms have channels first, others last."""

UNLINKED = (GROUPS, "out_channels", "out_features", KERNEL, "stride")
"""Parameters that are free sizes without being a side of an input."""

SMALL = (GROUPS, KERNEL, "stride")
"""Those that are no numbers of channels."""

BATCH = "batch"
"""The name of the first side of the first input."""

DIVISIBLE = {"in_channels": GROUPS, "out_channels": GROUPS, "embed_dim": "num_heads", "num_channels": "num_groups"}
"""Parameters that another one must divide."""

BEYOND_RATIO = 2.0
"""The factor by which drawn sizes go beyond the known ones on both sides."""

REDRAWN_SHARE = 0.5
"""The share of a tuple's free sizes that are drawn again: the others stay, so that drawn tuples are between known ones
as well as beyond."""

ALIGNED_TO = 8
ALIGNED_SHARE = 0.5
"""The share of drawn numbers of channels that are multiples of ``ALIGNED_TO``: kernels for these are faster."""

MAXIMUM_BYTES = 8 * 10**9
"""The most bytes that a call moves, which is about the memory that it needs."""

ATTEMPTS = 100
"""Attempts at one tuple of a kind before the kind is given up. Of the usual kinds nine in ten are valid."""

MOST_OF_TIME = 0.95
"""The share of the time of all models that the usual kinds take together."""

Count: TypeAlias = Callable[[OperatorTuple], OperatorCount | None]
"""Returns the count of a tuple, None if it is not valid."""


@dataclass(frozen=True)
class Wish:
    """The tuples to draw: their number, the short names of their operators in turn, and the seed."""

    number: int
    kinds: tuple[str, ...]
    seed: int = 0
    beyond_ratio: float = BEYOND_RATIO


def sample(
    known: Iterable[OperatorCount], wish: Wish, count: Count, excluded: Collection[str] = ()
) -> list[OperatorCount]:
    """Return drawn tuples with their counts, fewer than wished if the kinds have no more valid ones.

    A call has no more FLOPs and bytes than the largest known one of its kind, and at most ``MAXIMUM_BYTES``. Each kind
    is drawn in turn, until none has any more. ``count`` runs a tuple on shapes. Known tuples, and those with one of the
    keys ``excluded``, are not drawn.
    """
    counts = {one.operator.key: one for one in known}
    kinds = [_Kind.of(kind, counts.values(), wish.beyond_ratio) for kind in wish.kinds]
    kinds = [kind for kind in kinds if kind.known]
    source, taken = random.Random(wish.seed), {*counts, *excluded}
    drawn: list[OperatorCount] = []
    while kinds and len(drawn) < wish.number:
        for kind in list(kinds):
            found = kind.valid(source, count, taken) if len(drawn) < wish.number else None
            if found is None:
                kinds.remove(kind)
            else:
                taken.add(found.operator.key)
                drawn.append(found)
    return drawn


def usual_kinds(times: Iterable[tuple[OperatorTuple, float]]) -> tuple[str, ...]:
    """Return the short names of operators that take most time in all models, the longest first; times are in s."""
    times_s: dict[str, float] = {}
    for operator, time_s in times:
        times_s[operator.short_name] = times_s.get(operator.short_name, 0.0) + time_s
    longest = sorted(times_s, key=lambda kind: (-times_s[kind], kind))
    before_s = accumulate((times_s[kind] for kind in longest), initial=0.0)
    most_s = MOST_OF_TIME * sum(times_s.values())
    return tuple(kind for kind, time_s in zip(longest, before_s, strict=False) if time_s < most_s)


@dataclass(frozen=True)
class _Kind:
    """The known tuples of a kind with their free sizes, the bounds of these by name, and the largest call."""

    known: tuple[tuple[OperatorTuple, tuple[FreeSize, ...]], ...]
    bounds: Mapping[str, tuple[int, int]]
    flop: int
    memory_bytes: int

    @staticmethod
    def of(kind: str, counts: Iterable[OperatorCount], beyond_ratio: float) -> _Kind:
        those = [one for one in counts if one.operator.short_name == kind]
        free = [(one.operator, free_sizes(one.operator)) for one in those]
        bounds = {}
        for name, alike in grouped((size for _, sizes in free for size in sizes), attrgetter("name")).items():
            seen = [size.value for size in alike]
            # Models are counted at one usual batch, and run at any.
            least = 1 if name == BATCH else max(1, math.ceil(min(seen) / beyond_ratio))
            bounds[name] = least, math.floor(max(seen) * beyond_ratio)
        flop = max((one.flop or 0 for one in those), default=0)
        memory_bytes = min(max((one.memory_bytes for one in those), default=0), MAXIMUM_BYTES)
        return _Kind(tuple(one for one in free if one[1]), bounds, flop, memory_bytes)

    def draw(self, source: random.Random) -> OperatorTuple:
        """Return a known tuple with other sizes, which need not be valid."""
        operator, free = source.choice(self.known)
        redrawn = [size for size in free if source.random() < REDRAWN_SHARE] or [source.choice(free)]
        old = sizes_of(operator)
        new = dict(old)

        def put(size: FreeSize, value: int) -> None:
            # A place may have a multiple of a size.
            new.update({place: value * (old[place] // size.value) for place in size.places})

        for size in redrawn:
            least, most = self.bounds[size.name]
            value = round(math.exp(source.uniform(math.log(least), math.log(most))))
            if size.is_channels and source.random() < ALIGNED_SHARE:
                value = max(1, round(value / ALIGNED_TO)) * ALIGNED_TO
            elif size.is_channels and value % ALIGNED_TO == 0:
                value += 1
            put(size, value)
        for size in free:
            put(size, _divisible(size, new))
        for (name, index), padding in old.items():
            kernel = (KERNEL, index) if (KERNEL, index) in old else (KERNEL, None)
            if name == PADDING and old.get(kernel, 1) > 1:
                # It is to a kernel as it was: the size of the output stays where it stayed.
                new[name, index] = round(padding * (new[kernel] - 1) / (old[kernel] - 1))
        return with_sizes(operator, new)

    def valid(self, source: random.Random, count: Count, taken: Collection[str]) -> OperatorCount | None:
        """Return the count of a drawn tuple that computes something and is no larger than the largest known one."""
        for _ in range(ATTEMPTS):
            operator = self.draw(source)
            moved_bytes = sum(spec.floating_bytes for spec in operator.floating_inputs)
            found = None if operator.key in taken or moved_bytes > self.memory_bytes else count(operator)
            # The count may have a shorter form of the same tuple.
            if found is None or found.operator.key in taken or found.flop is None or not found.computes:
                continue
            if found.flop <= self.flop and found.memory_bytes <= self.memory_bytes:
                return found
        return None


def _divisible(size: FreeSize, sizes: Mapping[Place, int]) -> int:
    """Return a size's value, or the nearest one that the parameter divides that must divide it."""
    smallest = min(size.places, key=lambda place: sizes[place])
    value = sizes[smallest]
    for name, divisor_name in DIVISIBLE.items():
        divisor = sizes.get((divisor_name, None), 1)
        if (name, None) in size.places and sizes[name, None] % divisor:
            step = math.lcm(divisor, 1 if value % ALIGNED_TO else ALIGNED_TO)
            value = max(1, round(value / step)) * step
    return value


@dataclass(frozen=True)
class FreeSize:
    """A size of a tuple that may change, with all places where it or a multiple of it is.

    ``name`` is that of the same size in other tuples of the kind. ``is_channels`` says that it is a number of channels
    or features, and neither a batch, nor the side of an image, nor a kernel.
    """

    name: str
    value: int
    places: tuple[Place, ...]
    is_channels: bool


def sizes_of(operator: OperatorTuple) -> dict[Place, int]:
    """Return the whole numbers among the parameters, and the sides of the tensors, by their places."""
    found: dict[Place, int] = {}
    for name, value in operator.parameters:
        items: Sequence[tuple[int | None, PlainValue]] = [(None, value)]
        if isinstance(value, tuple):
            items = [*enumerate(value)]
        found |= {(name, index): item for index, item in items if type(item) is int}
    for spec in distinct_specs(operator.arguments):
        found |= {(spec.identity, side): size for side, size in enumerate(spec.shape)}
    return found


def free_sizes(operator: OperatorTuple) -> tuple[FreeSize, ...]:
    """Return the sizes that may change, each with its places, in the order of these."""
    sizes, tensors = sizes_of(operator), distinct_specs(operator.arguments)
    linked = list(_links(operator, sizes))
    free = [place for place, size in sizes.items() if isinstance(place[0], int) and size > 1]
    free += [place for place in sizes if place[0] in UNLINKED or place in {parameter for parameter, _ in linked}]
    groups, channels, filters = ((name, None) for name in (GROUPS, "in_channels", "out_channels"))
    is_depthwise = sizes.get(groups, 1) > 1 and sizes[groups] == sizes.get(channels) and filters in sizes
    depthwise = [(groups, channels), (filters, channels)] if is_depthwise else []
    # Free places in groups, those that are tied together in one.
    group_of = {place: [place] for place in free}
    for one, other in [*linked, *_equal_sides(operator, tensors), *depthwise]:
        if one in group_of and other in group_of and group_of[one] is not group_of[other]:
            group_of[one] += group_of[other]
            group_of |= dict.fromkeys(group_of[other], group_of[one])
    tied = {id(places): tuple(places) for places in group_of.values()}.values()
    return tuple(_free_size(places, sizes, tensors) for places in tied)


def with_sizes(operator: OperatorTuple, sizes: Mapping[Place, int]) -> OperatorTuple:
    """Return a tuple with other sizes in some places. Tensors keep the order of their sides in memory, and gaps."""

    def changed(spec: TensorSpec) -> TensorSpec:
        shape = tuple(sizes.get((spec.identity, side), size) for side, size in enumerate(spec.shape))
        return replace(spec, shape=shape, strides=_strides(spec, shape))

    def parameter(name: str, value: PlainValue) -> PlainValue:
        if isinstance(value, tuple):
            return tuple(sizes.get((name, index), item) for index, item in enumerate(value))
        return sizes.get((name, None), value)

    parameters = tuple((name, parameter(name, value)) for name, value in operator.parameters)
    return with_tensors(replace(operator, parameters=parameters), changed)


def _links(operator: OperatorTuple, sizes: Mapping[Place, int]) -> Iterator[tuple[Place, Place]]:
    """Yield the parameters that are sides of the first input, each with the place of the side."""
    tensors = distinct_specs(operator.arguments)
    if not tensors:
        return
    first, rank = tensors[0].identity, len(tensors[0].shape)
    parameters = dict(operator.parameters)
    for place in sizes:
        name, index = place
        if name not in LINKED:
            continue
        value = parameters[str(name)]
        behind = len(value) - 1 - (index or 0) if isinstance(value, tuple) else 0
        usual = LINKED[str(name)]
        sides = [side % rank for side in (usual - behind if usual < 0 else usual, 1, -1) if -rank <= side < rank]
        yield from [(place, (first, side)) for side in sides if sizes[first, side] == sizes[place]][:1]


def _equal_sides(operator: OperatorTuple, tensors: Sequence[TensorSpec]) -> Iterator[tuple[Place, Place]]:
    """Yield the sides that must be equal, and those of square images."""
    if operator.short_name in PRODUCTS and len(tensors) == 2:
        first, second = tensors
        yield from _equal(first, second, range(-max(len(first.shape), len(second.shape)), -2))
        yield _place(first, -1), _place(second, -2)
        return
    if operator.short_name == LINEAR and len(tensors) > 1:
        values, weight, *biases = tensors
        yield _place(values, -1), _place(weight, -1)
        yield from ((_place(weight, -2), _place(bias, -1)) for bias in biases)
        return
    for first, second in combinations(tensors, 2):
        yield from _equal(first, second, range(-len(first.shape), 0))
    for spec in tensors:
        # The first side is the batch, whose size may be that of the next one by chance.
        for side in range(1, len(spec.shape) - 1):
            if len(spec.shape) > 3 and spec.shape[side] == spec.shape[side + 1]:
                yield (spec.identity, side), (spec.identity, side + 1)


def _equal(first: TensorSpec, second: TensorSpec, sides: Iterable[int]) -> Iterator[tuple[Place, Place]]:
    for side in sides:
        if min(len(first.shape), len(second.shape)) >= -side and first.shape[side] == second.shape[side]:
            yield _place(first, side), _place(second, side)


def _place(spec: TensorSpec, side: int) -> Place:
    return spec.identity, side % len(spec.shape)


def _free_size(places: tuple[Place, ...], sizes: Mapping[Place, int], tensors: Sequence[TensorSpec]) -> FreeSize:
    parameters = {str(name): index for name, index in places if isinstance(name, str)}
    sides = sorted((identity, side) for identity, side in places if isinstance(identity, int) and side is not None)
    is_batch = bool(tensors) and (tensors[0].identity, 0) in sides
    is_square = len({identity for identity, _ in sides}) < len(sides)
    is_small = not sides and not parameters.keys().isdisjoint(SMALL)
    if parameters:
        name = next(known for known in (*UNLINKED, *LINKED) if known in parameters)
        name = name if parameters[name] is None else f"{name} {parameters[name]}"
    elif is_batch:
        name = BATCH
    else:
        ranks = {spec.identity: len(spec.shape) for spec in tensors}
        name = f"side {sides[0][1]} of {ranks[sides[0][0]]}"
    value = min(sizes[place] for place in places)
    return FreeSize(name, value, places, is_channels=not (is_batch or is_square or is_small))


def _strides(spec: TensorSpec, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return strides of another shape: the same order of sides in memory, and gaps, as of a part of a larger tensor."""
    if spec.strides is None:
        return None
    strides = [0] * len(shape)
    below, new_below = 1, 1
    for side in sorted(range(len(shape)), key=lambda side: (spec.strides[side], -side) if spec.strides else ()):
        if spec.strides[side]:
            strides[side] = math.ceil(new_below * Fraction(spec.strides[side], below))
            below, new_below = spec.strides[side] * spec.shape[side], strides[side] * shape[side]
    found = tuple(strides)
    return None if found == contiguous_strides(shape) else found
