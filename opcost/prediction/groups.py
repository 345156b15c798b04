"""Groups of samples, and folds for cross-validation: what is predicted shares no group with what is learned from."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from opcost.prediction.fitted import IntArray
from opcost.prediction.samples import Samples

Fold: TypeAlias = tuple[IntArray, IntArray]
"""The places of samples to learn from, and of those to predict."""


def family_folds(samples: Samples, number: int) -> list[Fold]:
    """Return folds in which no family of models is learned from that is predicted.

    Samples of no model are in the fold of their shape.
    """
    groups = [sorted(families) or [shape] for families, shape in zip(samples.families, samples.shapes, strict=True)]
    return folds_of(groups, number)


def shape_folds(samples: Samples, number: int) -> list[Fold]:
    """Return folds in which no shape is learned from that is predicted."""
    return folds_of([[shape] for shape in samples.shapes], number)


def kind_folds(samples: Samples, number: int) -> list[Fold]:
    """Return folds in which no kind of operator is learned from that is predicted."""
    return folds_of([[kind] for kind in samples.kinds], number)


def folds_of(groups: Sequence[Sequence[str]], number: int) -> list[Fold]:
    """Return folds of samples that are in some groups each: no group is in both parts of a fold.

    A sample of groups in several folds is predicted in each of these; the last one counts.
    """
    sizes: dict[str, int] = {}
    for own in groups:
        for group in own:
            sizes[group] = sizes.get(group, 0) + 1
    # The largest group first, each into the smallest fold; a hash orders groups of one size.
    totals, fold_of = [0] * number, {}
    for group in sorted(sizes, key=lambda group: (-sizes[group], zlib.crc32(group.encode()))):
        fold_of[group] = min(range(number), key=totals.__getitem__)
        totals[fold_of[group]] += sizes[group]
    found = []
    for fold in range(number):
        is_predicted = np.array([any(fold_of[group] == fold for group in own) for own in groups])
        if is_predicted.any() and not is_predicted.all():
            found.append((np.flatnonzero(~is_predicted), np.flatnonzero(is_predicted)))
    return found


def places_of(kinds: Sequence[str]) -> dict[str, IntArray]:
    """Return the places of each kind."""
    found: dict[str, list[int]] = {}
    for place, kind in enumerate(kinds):
        found.setdefault(kind, []).append(place)
    return {kind: np.array(places) for kind, places in found.items()}
