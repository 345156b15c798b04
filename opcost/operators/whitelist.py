"""The whitelist of operators, and the share of a model that it keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from opcost.operators.counts import OperatorCount, OperatorCounts, memory_bytes_of

EVERYTHING = "*"
"""Entry of a whitelist that keeps every operator that computes something."""


@dataclass(frozen=True)
class Share:
    """A part of a model; a share is None if the model's total is 0 or unknown (operations without a formula)."""

    calls: int
    calls_ratio: float | None
    flop_ratio: float | None
    memory_bytes_ratio: float | None


@dataclass(frozen=True)
class Selection:
    """A model's operator tuples, split into those that a whitelist keeps and those that it drops."""

    kept: OperatorCounts
    dropped: OperatorCounts


def names_kept(whitelist: Collection[str], counts: Iterable[OperatorCount]) -> tuple[str, ...]:
    """Return the names of a whitelist. If it keeps everything, names of all operators that compute are added."""
    names = [name for name in whitelist if name != EVERYTHING]
    present = {count.operator.short_name for count in counts if count.computes}
    return tuple(dict.fromkeys([*names, *(sorted(present) if EVERYTHING in whitelist else ())]))


def select(counts: OperatorCounts, whitelist: Collection[str]) -> Selection:
    """Split counts by a whitelist of operator names such as ``Conv2d``, matched to the name's last component."""
    names = frozenset(whitelist)
    kept: list[OperatorCount] = []
    dropped: list[OperatorCount] = []
    for count in counts.counts:
        is_kept = count.operator.short_name in names or (EVERYTHING in names and count.computes)
        (kept if is_kept else dropped).append(count)
    return Selection(replace(counts, counts=tuple(kept)), replace(counts, counts=tuple(dropped)))


def share(part: Iterable[OperatorCount], whole: OperatorCounts) -> Share:
    """Return the share of a model that some of its tuples have."""
    chosen = replace(whole, counts=tuple(part))
    return Share(
        calls=chosen.operator_calls,
        calls_ratio=_ratio(chosen.operator_calls, whole.operator_calls),
        flop_ratio=flop_ratio(chosen, whole),
        memory_bytes_ratio=_ratio(chosen.memory_bytes, whole.total_memory_bytes),
    )


def outside(whole: OperatorCounts) -> Share:
    """Return the share of a model's operations outside every counted operator; these have no calls."""
    return Share(
        calls=0,
        calls_ratio=None,
        flop_ratio=None if whole.without_formula else _ratio(whole.total_flop - (whole.flop or 0), whole.total_flop),
        memory_bytes_ratio=_ratio(whole.total_memory_bytes - whole.memory_bytes, whole.total_memory_bytes),
    )


def flop_ratio(part: OperatorCounts, whole: OperatorCounts) -> float | None:
    """Return the share of a model's FLOPs that some of its tuples have; None if its FLOPs are 0 or unknown."""
    if whole.without_formula or part.flop is None:
        return None
    return _ratio(part.flop, whole.total_flop)


def by_operator(counts: OperatorCounts) -> dict[str, tuple[OperatorCount, ...]]:
    """Return the counts by operator name, in descending order of the bytes that all calls of a name move."""
    groups: dict[str, list[OperatorCount]] = {}
    for count in counts.counts:
        groups.setdefault(count.operator.short_name, []).append(count)
    ordered = sorted(groups.items(), key=lambda item: (-memory_bytes_of(item[1]), item[0]))
    return {name: tuple(group) for name, group in ordered}


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
