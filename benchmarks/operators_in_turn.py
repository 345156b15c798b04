"""Which operators of some models to measure, of as many kinds as there are, short ones and long ones"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from opcost.config_files import load_configs
from opcost.operators import OperatorCount
from opcost.request import COUNTS
from opcost.subjects import CAPTURED, Subject, subjects_of


def counts_of(names: list[str]) -> list[OperatorCount]:
    """Return what block 0 has counted in these models, without the calls that move nothing."""
    configs = load_configs(Path("measurements"), names)
    return [count for config in configs for count in COUNTS.read(config).counts if count.memory_bytes]


def expected_s(count: OperatorCount) -> float:
    """Return roughly what a call takes on an H200 (60 TFLOP/s, 4 TB/s), to tell short ones from long ones."""
    return max(count.flop / 60e12, count.memory_bytes / 4e12)


def in_turn(counts: Iterable[OperatorCount], seed: int) -> list[Subject]:
    """Return what counts ask for, ordered so that any beginning has as many kinds of operators as possible.

    Each kind begins with its longest and its shortest; the rest is shuffled.
    """
    found: dict[Subject, float] = {}
    for count in counts:
        found |= dict.fromkeys(subjects_of([count], CAPTURED), expected_s(count))
    shuffled = sorted(found, key=lambda subject: subject.key)
    random.Random(seed).shuffle(shuffled)
    kinds: dict[str, list[Subject]] = {}
    for subject in shuffled:
        kinds.setdefault(subject.operator.short_name, []).append(subject)
    rows = zip_longest(*(_ends_first(kind, found) for kind in kinds.values()))
    return [subject for row in rows for subject in row if subject is not None]


def _ends_first(kind: list[Subject], times_s: dict[Subject, float]) -> list[Subject]:
    ends = dict.fromkeys((max(kind, key=times_s.__getitem__), min(kind, key=times_s.__getitem__)))
    return [*ends, *(subject for subject in kind if subject not in ends)]
