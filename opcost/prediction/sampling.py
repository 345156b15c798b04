"""Operator tuples between and beyond known ones, to be measured so that a predictor learns from them.

Each begins as a known tuple, which gives its structure: operator, dtypes, layouts, other arguments. Some of its free
sizes are drawn again, log-uniform between the smallest and the largest of the kind and a factor beyond; batches from 1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple
from opcost.prediction.free_sizes import (
    BATCH,
    DIVISIBLE,
    KERNEL,
    PADDING,
    FreeSize,
    Place,
    free_sizes,
    sizes_of,
    with_sizes,
)

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
    """Return the short names of the operators that take most of the time in all models, the longest first.

    ``times`` are operators with the time in s of all their calls, in any number of models.
    """
    of_kind: dict[str, float] = {}
    for operator, time_s in times:
        of_kind[operator.short_name] = of_kind.get(operator.short_name, 0.0) + time_s
    found: list[str] = []
    missing_s = MOST_OF_TIME * sum(of_kind.values())
    for kind, time_s in sorted(of_kind.items(), key=lambda item: (-item[1], item[0])):
        if missing_s > 0:
            found.append(kind)
            missing_s -= time_s
    return tuple(found)


@dataclass(frozen=True)
class _Kind:
    """The known tuples of a kind with their free sizes, the bounds of these by name, and the largest call."""

    known: tuple[tuple[OperatorTuple, tuple[FreeSize, ...]], ...]
    bounds: Mapping[str, tuple[int, int]]
    flop: int
    memory_bytes: int

    @staticmethod
    def of(kind: str, counts: Iterable[OperatorCount], beyond_ratio: float) -> _Kind:
        """Return what is known of a kind."""
        those = [one for one in counts if one.operator.short_name == kind]
        free = [(one.operator, free_sizes(one.operator)) for one in those]
        values: dict[str, list[int]] = {}
        for size in (size for _, sizes in free for size in sizes):
            values.setdefault(size.name, []).append(size.value)
        bounds = {}
        for name, seen in values.items():
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
        for size in redrawn:
            new |= _placed(size, old, _drawn(size, *self.bounds[size.name], source))
        for size in free:
            new |= _placed(size, old, _divisible(size, new))
        for place, padding in old.items():
            name, index = place
            kernel = (KERNEL, index) if (KERNEL, index) in old else (KERNEL, None)
            if name == PADDING and old.get(kernel, 1) > 1:
                # It is to a kernel as it was: the size of the output stays where it stayed.
                new[place] = round(padding * (new[kernel] - 1) / (old[kernel] - 1))
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


def _drawn(size: FreeSize, least: int, most: int, source: random.Random) -> int:
    value = round(math.exp(source.uniform(math.log(least), math.log(most))))
    if not size.is_channels:
        return value
    if source.random() < ALIGNED_SHARE:
        return max(1, round(value / ALIGNED_TO)) * ALIGNED_TO
    return value if value % ALIGNED_TO else value + 1


def _placed(size: FreeSize, old: Mapping[Place, int], value: int) -> dict[Place, int]:
    """Return the values in the places of a size; a place may have a multiple of it."""
    return {place: value * (old[place] // size.value) for place in size.places}


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
