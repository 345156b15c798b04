"""Zeros in the inputs of a model that was counted on shapes, by rules.

A run on shapes has no values, but it has the calls in their order. The producer of an input is taken to be the latest
call that returned as many elements: views between both are no calls. ``RULES`` have the share of zeros that operators
return. Their figures are from runs on random images with values (``docs/log/prediction.md``, 2026-11-27).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.tuples import META, PlainValue, tensor_specs
from opcost.operators.values import InputStatistics, InputValues


class Effect(Enum):
    """The way in which an operator decides the share of zeros that it returns."""

    MAKES = "a share of its own"
    SCALES = "a multiple of its first input's share"
    JOINS = "the mean share of its inputs, by their elements"
    MULTIPLIES = "zero where any factor is"


@dataclass(frozen=True)
class ZerosRule:
    """The share of zeros that some operators return, by their short names; all others return none.

    ``ratio`` is the share that they make, or the factor. ``after`` are the producers of the first input, any if it is
    empty, and ``smallest_area`` is the least area of the kernel. ``source`` names the figures that it is from.
    """

    operators: frozenset[str]
    effect: Effect
    ratio: float
    source: str
    after: frozenset[str] = frozenset()
    smallest_area: int = 0


SUMS = frozenset({"add", "add_"})
RECTIFIERS = frozenset("ReLU relu relu_ ReLU6".split())

MAX_POOLS = frozenset({"MaxPool2d", "max_pool2d"})
COPYING = frozenset("Dropout dropout Identity Flatten flatten contiguous clone reshape roll pad Permute".split())

KEEPS_SIZE = frozenset({"AdaptiveAvgPool2d", "adaptive_avg_pool2d"})
"""Operators that have a share of zeros only where they return as many elements as they take: means of many values,
0.00 to 0.08 zeros in 9 models, and 0.23 in GoogLeNet."""

_KERNEL_3 = "kernel 3: 0 behind the first layer of 7 models, 0.20 in AlexNet, 0.25 to 0.43 in GoogLeNet"
_KERNEL_2 = "kernel 2: 0.31 in VGG-11, 0.38 in VGG-16-BN"
_MEANS = "0.46 and 0.47 in VGGs, whose sizes stay the same; of smaller outputs see KEEPS_SIZE"
_JOINED = "0.51 in GoogLeNet, 0.52 in ShuffleNet and SqueezeNet"

RULES = (
    ZerosRule(RECTIFIERS, Effect.MAKES, 0.35, "0.27 to 0.40 in two RegNets, three ResNets, a ResNeXt", after=SUMS),
    ZerosRule(RECTIFIERS, Effect.MAKES, 0.5, "0.48 to 0.55 in 17 models; shares of DenseNets are of joined outputs"),
    ZerosRule(MAX_POOLS, Effect.SCALES, 0.4, _KERNEL_3, smallest_area=5),
    ZerosRule(MAX_POOLS, Effect.SCALES, 0.7, _KERNEL_2),
    ZerosRule(COPYING, Effect.SCALES, 1.0, "they copy values"),
    ZerosRule(KEEPS_SIZE, Effect.SCALES, 1.0, _MEANS),
    ZerosRule(frozenset({"cat"}), Effect.JOINS, 1.0, _JOINED),
    ZerosRule(frozenset({"mul", "mul_"}), Effect.MULTIPLIES, 1.0, "0.50 in a RegNetY, whose gates have no zeros"),
)
"""The first rule that fits holds."""


def with_usual_zeros(counts: OperatorCounts) -> OperatorCounts:
    """Return counts on shapes with the values that the rules give; others, and those without places, as they are."""
    has_places = all(len(count.positions) == count.occurrences for count in counts.counts)
    if counts.device_type != META or counts.has_values or not has_places:
        return counts
    calls = sorted((position, place) for place, count in enumerate(counts.counts) for position in count.positions)
    statistics: list[list[tuple[InputStatistics, ...]]] = [[] for _ in counts.counts]
    # The latest tensors of each number of elements, and those that are rectified sums: the ends of residual blocks.
    latest: dict[int, _Made] = {}
    ends_of_blocks: dict[int, _Made] = {}
    for _, place in calls:
        count = counts.counts[place]
        name, sizes = count.operator.short_name, [spec.elements for spec in count.operator.floating_inputs]
        inputs = []
        for index, size in enumerate(sizes):
            # The second addend is what the block began with. Inputs of the model have no zeros.
            is_second = index > 0 and size == sizes[0] and name in SUMS
            inputs.append((ends_of_blocks if is_second else latest).get(size, _Made(0.0)))
        statistics[place].append(tuple(InputValues(one.zeros_ratio).statistics() for one in inputs))
        for spec in tensor_specs([count.outputs]):
            latest[spec.elements] = _Made(_returned(count, spec.elements, inputs), name)
            if name in RECTIFIERS and inputs and inputs[0].operator in SUMS:
                ends_of_blocks[spec.elements] = latest[spec.elements]
    found = (replace(count, statistics=tuple(own)) for count, own in zip(counts.counts, statistics, strict=True))
    return replace(counts, counts=tuple(found))


@dataclass(frozen=True)
class _Made:
    """A tensor's share of zeros, and the short name of the operator that made it."""

    zeros_ratio: float
    operator: str = ""


def _returned(count: OperatorCount, elements: int, inputs: Sequence[_Made]) -> float:
    """Return the share of zeros in what a call returns."""
    maker, area = inputs[0].operator if inputs else None, _kernel_area(count)
    fitting = (rule for rule in RULES if count.operator.short_name in rule.operators and area >= rule.smallest_area)
    rule = next((rule for rule in fitting if not rule.after or maker in rule.after), None)
    sizes = [spec.elements for spec in count.operator.floating_inputs]
    if rule is None or not inputs or (count.operator.short_name in KEEPS_SIZE and elements != sizes[0]):
        return 0.0
    if rule.effect is Effect.MAKES:
        return rule.ratio
    if rule.effect is Effect.SCALES:
        return rule.ratio * inputs[0].zeros_ratio
    if rule.effect is Effect.JOINS:
        zeros = math.fsum(size * one.zeros_ratio for size, one in zip(sizes, inputs, strict=True))
        return zeros / sum(sizes) if sum(sizes) else 0.0
    return 1.0 - math.prod(1.0 - one.zeros_ratio for one in inputs)


def _kernel_area(count: OperatorCount) -> int:
    """Return the area of a square or rectangular kernel, 0 if there is none."""
    given = [value for value in count.operator.inputs if isinstance(value, (int, tuple))]
    keywords = {**dict(count.operator.keyword_inputs), **dict(count.operator.parameters)}
    kernel: PlainValue = keywords.get("kernel_size", given[0] if given else None)
    if isinstance(kernel, int):
        return kernel**2
    sides = [side for side in kernel if isinstance(side, int)] if isinstance(kernel, tuple) else []
    return math.prod(sides) if sides else 0
