"""Cache corrections of operators, by their kind and the bytes that they move."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from opcost.comparing.cache_chains import (
    DEPTHWISE,
    DESIGN,
    ELEMENTWISE,
    FILTER,
    MATRIX,
    NORM,
    SIZES,
    ChainRow,
    Excess,
    is_corrected,
    missing_sides,
    of_the_same_card,
)
from opcost.estimates import Estimate, combined, sum_of_independent
from opcost.measuring.conditions import Conditions
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple, TensorSpec, tensor_specs

WHOLE_RATIO = 0.75
"""Share of a kind's sizes that must be known for a curve."""

WITH_WEIGHTS = ("linear", "conv", "addmm", "baddbmm")
"""Prefixes of the names of functions that take weights as inputs."""

FLOATING_BITS = re.compile(r"b?float(\d+)")
"""Matches the number of bits in a dtype's name: ``bfloat16``."""


def kind_of(count: OperatorCount) -> str:
    """Return the kind of chain whose correction applies to an operator."""
    if count.flop:
        return _product_kind(count.operator)
    return NORM if "norm" in count.operator.short_name.lower() else ELEMENTWISE


def _product_kind(operator: OperatorTuple) -> str:
    """Return the kind of chain whose correction applies to a matrix product or convolution."""
    name = operator.short_name.lower()
    if "conv" not in name:
        return MATRIX
    if not name.startswith("conv") or "transpose" in name:
        return FILTER
    channels, inputs, widths = _filters_of_function(operator) if operator.is_function else _filters_of_module(operator)
    if inputs == 1 < channels:
        return DEPTHWISE
    return MATRIX if inputs == channels and set(widths) == {1} else FILTER


def _filters_of_module(operator: OperatorTuple) -> tuple[int, int, tuple[int, ...]]:
    """Return a convolution's input channels, the channels of each filter, and the filter's widths."""
    parameters = {"groups": 1, **dict(operator.parameters)}
    channels, groups, width = (parameters.get(name) for name in ("in_channels", "groups", "kernel_size"))
    widths = tuple(side for side in (width if isinstance(width, tuple) else (width,)) if isinstance(side, int))
    if not isinstance(channels, int) or not isinstance(groups, int):
        return 0, 0, widths
    return channels, channels // groups, widths


def _filters_of_function(operator: OperatorTuple) -> tuple[int, int, tuple[int, ...]]:
    """Return the same of a function, whose second input has the shape (filters, channels of each filter, *widths)."""
    shapes = [tensor.shape for tensor in tensor_specs(operator.inputs)]
    if len(shapes) < 2 or not 3 <= len(shapes[1]) <= len(shapes[0]) + 1:
        return 0, 0, ()
    images, filters = shapes[:2]
    _, inputs, *widths = filters
    return images[-len(filters) + 1], inputs, tuple(widths)


def moved_bytes(count: OperatorCount) -> int:
    """Return the position of a call on its curve in bytes: all that it moves, for products without weights."""
    if not count.flop:
        return count.memory_bytes
    name, inputs = count.operator.short_name, count.operator.floating_inputs
    if count.operator.is_function and name.startswith(WITH_WEIGHTS):
        # The first input of addmm is the summand.
        inputs = inputs[1:2] if "add" in name else inputs[:1]
    tensors = [*inputs, *tensor_specs([count.outputs])]
    return sum(map(_floating_bytes, tensors)) or count.memory_bytes


@dataclass(frozen=True)
class Curve:
    """The correction of one call of a kind as a function of its bytes.

    ``points`` are ordered by bytes. The correction is linear in the logarithm of bytes between points, and constant
    beyond them.
    """

    points: tuple[tuple[int, Excess], ...]

    def shares(self, memory_bytes: int) -> Mapping[int, float]:
        """Return the indices of the points next to a size, with their weights."""
        sizes = [size for size, _ in self.points]
        upper = bisect_right(sizes, memory_bytes)
        if upper in (0, len(sizes)):
            return {max(upper - 1, 0): 1.0}
        share = math.log(memory_bytes / sizes[upper - 1]) / math.log(sizes[upper] / sizes[upper - 1])
        return {upper - 1: 1 - share, upper: share}


@dataclass(frozen=True)
class Corrections:
    """The cache corrections of a card, one curve for each kind of operator."""

    curves: Mapping[str, Curve]

    def of(self, counts: Iterable[OperatorCount]) -> Excess:
        """Return the correction of all calls of these operators. Calls share the errors of the chains' points."""
        weights: dict[tuple[str, int], float] = {}
        for count in counts:
            if count.computes:
                kind = kind_of(count)
                for point, share in self.curves[kind].shares(moved_bytes(count)).items():
                    weights[kind, point] = weights.get((kind, point), 0.0) + share * count.occurrences
        terms = [self.curves[kind].points[point][1].times(weight) for (kind, point), weight in weights.items()]
        return _pooled(terms, sum_of_independent)


def corrections_under(rows: Iterable[ChainRow], conditions: Conditions) -> Corrections | None:
    """Return the corrections for a card with its software; repeated measurements are averaged.

    They are None unless each size was measured or finally refused, the smallest and the largest of each kind were
    measured, and few were refused: half a curve makes sums worse. The precision (TF32 or fp32) is ignored, because the
    cost of fetching data does not depend on it.
    """
    if not is_corrected(conditions):
        return None
    rows = [row for row in of_the_same_card(rows, conditions) if row.design == DESIGN]
    if missing_sides(rows):
        return None
    found: dict[str, dict[int, list[Excess]]] = {kind: {} for kind in SIZES}
    for row in rows:
        if row.excess is not None and row.memory_bytes in SIZES.get(row.kind, ()):
            found[row.kind].setdefault(row.memory_bytes, []).append(row.excess)
    if not all(_is_whole(by_size, SIZES[kind]) for kind, by_size in found.items()):
        return None
    return Corrections({kind: _curve(by_size) for kind, by_size in found.items()})


def _is_whole(known: Collection[int], sizes: Sequence[int]) -> bool:
    """Return whether enough sizes of a kind are known, including the smallest and the largest."""
    return {min(sizes), max(sizes)} <= set(known) and len(known) >= WHOLE_RATIO * len(sizes)


def _curve(by_size: Mapping[int, Sequence[Excess]]) -> Curve:
    """Return the curve through the mean at each size, perhaps over several boards."""
    return Curve(tuple((size, _pooled(excesses, combined)) for size, excesses in sorted(by_size.items())))


def _pooled(excesses: Sequence[Excess], pool: Callable[[Sequence[Estimate]], Estimate]) -> Excess:
    """Pool times and energies; the energy is None if any is."""
    energies_j = [excess.energy_j for excess in excesses if excess.energy_j is not None]
    is_known = len(energies_j) == len(excesses)
    return Excess(pool([excess.time_s for excess in excesses]), pool(energies_j) if is_known else None)


def _floating_bytes(tensor: TensorSpec) -> int:
    bits = FLOATING_BITS.match(tensor.dtype)
    return 0 if bits is None else tensor.elements * int(bits[1]) // 8
