"""The plan of a sweep: the repetitions that are missing, in blocks that share one build, in shuffled order."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opcost.measuring.sweep_record import SweepRepetitionRow

IN_A_BLOCK = 5
"""Repetitions that share one build. Two builds of ten repetitions show whether builds differ; a build of a model takes
as long as several repetitions."""


@dataclass(frozen=True)
class Block:
    """The numbers of some repetitions of the size with a key, which share build ``number`` of this size."""

    key: str
    number: int
    repetitions: tuple[int, ...]


@dataclass(frozen=True)
class Wanted:
    """Repetitions of each size on a board, by loops of a length in s."""

    repetitions: int
    loop_s: float
    device_uuid: str | None

    def counts(self, row: SweepRepetitionRow) -> bool:
        """Return whether a row is one of them: repetitions on other boards or with other loops are not."""
        circumstances = row.circumstances
        return circumstances.loop_s == self.loop_s and circumstances.device_uuid == self.device_uuid


def planned_blocks(
    keys: Sequence[str], rows: Iterable[SweepRepetitionRow], wanted: Wanted, last: Iterable[str], seed: int
) -> tuple[Block, ...]:
    """Return the blocks of missing repetitions.

    The first block of each size comes before any second one, so that a sweep that ends early has all sizes. Within such
    a round sizes are shuffled, so that drift does not follow them.

    Args:
        keys: of the sizes.
        rows: known repetitions, of any sizes.
        wanted: how many repetitions, and how they are measured.
        last: keys of sizes that failed before; their blocks come last.
        seed: of the order.
    """
    known: dict[str, list[SweepRepetitionRow]] = {key: [] for key in keys}
    for row in rows:
        if row.place.key in known and wanted.counts(row):
            known[row.place.key].append(row)
    missing = {key: _blocks(key, found, wanted.repetitions) for key, found in known.items()}
    chance, ordered = random.Random(seed), []
    for number in range(max(map(len, missing.values()), default=0)):
        of_this_round = [blocks[number] for blocks in missing.values() if number < len(blocks)]
        chance.shuffle(of_this_round)
        ordered += of_this_round
    failed = set(last)
    return tuple(sorted(ordered, key=lambda block: block.key in failed))


def _blocks(key: str, known: Sequence[SweepRepetitionRow], repetitions: int) -> list[Block]:
    done = {row.repetition for row in known}
    missing = [number for number in range(1, repetitions + 1) if number not in done]
    first = 1 + max((row.block for row in known), default=0)
    parts = [missing[begin : begin + IN_A_BLOCK] for begin in range(0, len(missing), IN_A_BLOCK)]
    return [Block(key, number, tuple(part)) for number, part in enumerate(parts, start=first)]


def by_key(rows: Iterable[SweepRepetitionRow], wanted: Wanted) -> Mapping[str, list[SweepRepetitionRow]]:
    """Return the repetitions that count, by the key of their size. A number that is there twice counts once."""
    found: dict[str, dict[int, SweepRepetitionRow]] = {}
    for row in rows:
        if wanted.counts(row):
            found.setdefault(row.place.key, {}).setdefault(row.repetition, row)
    return {key: list(numbers.values()) for key, numbers in found.items()}
