"""Choose operators of some models to measure: of all lengths and of many kinds"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from opcost.operators.cases import CAPTURED, Case, cases_of
from opcost.operators.counts import OperatorCount
from opcost.running.request import COUNTS
from opcost.storage.model_folders import load_configs

SHORTEST_S = 1e-6
"""Of what ``expected_s`` says: a kernel takes 1 us more than its bytes do, so this is 2 us on an H200."""

LONGEST_S = 5e-3


def counts_of(names: list[str]) -> list[OperatorCount]:
    """Return the counts of block 0 for these models, without calls that move no bytes."""
    configs = load_configs(Path("measurements"), names)
    return [count for config in configs for count in COUNTS.read(config).counts if count.memory_bytes]


def expected_s(count: OperatorCount) -> float:
    """Return roughly what a call takes on an H200 (60 TFLOP/s, 4 TB/s), to distinguish short from long ones."""
    return max(count.flop / 60e12, count.memory_bytes / 4e12)


def by_length(counts: Iterable[OperatorCount], seed: int) -> list[Case]:
    """Return the cases of the counts, ordered so that any beginning has operators of all lengths and many kinds.

    Cases with an expected time below ``SHORTEST_S`` or above ``LONGEST_S`` are left out. Each octave of lengths gives
    one case in turn, of the kind that came least often so far.
    """
    shuffled, expected = _shuffled(counts, seed)
    octaves: dict[int, list[Case]] = {}
    for case in shuffled:
        if SHORTEST_S <= expected[case] <= LONGEST_S:
            octaves.setdefault(int(math.log2(expected[case] / SHORTEST_S)), []).append(case)
    taken: Counter[str] = Counter()
    ordered = []
    while any(octaves.values()):
        for octave in sorted(key for key, members in octaves.items() if members):
            # Of several the first: they are shuffled.
            case = min(octaves[octave], key=lambda member: taken[member.operator.short_name])
            octaves[octave].remove(case)
            taken[case.operator.short_name] += 1
            ordered.append(case)
    return ordered


def _shuffled(counts: Iterable[OperatorCount], seed: int) -> tuple[list[Case], dict[Case, float]]:
    """Return the cases of the counts in an order that only the seed decides, and their expected times."""
    found: dict[Case, float] = {}
    for count in counts:
        found |= dict.fromkeys(cases_of([count], CAPTURED), expected_s(count))
    shuffled = sorted(found, key=lambda case: case.key)
    random.Random(seed).shuffle(shuffled)
    return shuffled, found
