"""The sizes of an operator tuple that may change while it stays valid, and the tuple with other sizes.

A size occurs in several places: the channels of a convolution are a parameter and a side of its input. The places of
one size change together. Sizes of 1 stay, because they are broadcast or pooled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import TypeAlias

from opcost.operators.tuples import (
    OperatorTuple,
    PlainValue,
    TensorSpec,
    contiguous_strides,
    tensor_specs,
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
    for spec in _tensors(operator):
        found |= {(spec.identity, side): size for side, size in enumerate(spec.shape)}
    return found


def free_sizes(operator: OperatorTuple) -> tuple[FreeSize, ...]:
    """Return the sizes that may change, each with its places, in the order of these."""
    sizes, tensors = sizes_of(operator), _tensors(operator)
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


def _tensors(operator: OperatorTuple) -> list[TensorSpec]:
    specs = tensor_specs([*operator.inputs, *(value for _, value in operator.keyword_inputs)])
    return [*{spec.identity: spec for spec in specs}.values()]


def _links(operator: OperatorTuple, sizes: Mapping[Place, int]) -> Iterator[tuple[Place, Place]]:
    """Yield the parameters that are sides of the first input, each with the place of the side."""
    tensors = _tensors(operator)
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
    """Return the strides of a tensor of another shape with the same order of sides in memory, and the same gaps.

    A gap is a stride over the number of elements below it: that of a part of a larger tensor.
    """
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
