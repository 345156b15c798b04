"""The steps before operators without a row can be measured: the whitelist must keep them, and models be counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from opcost.operators.whitelist import EVERYTHING
from opcost.running.request import COUNTS, FILTERED_COUNTS, Request
from opcost.storage.configs import ModelConfig
from opcost.storage.model_folders import WHITELIST


@dataclass(frozen=True)
class Preparation:
    """The state before a measurement: names of operators that the whitelist drops, and of models with pickles.

    ``whitelist`` is the user's, which may not exist yet. ``shipped`` is the one to copy there first, None if the user's
    exists. ``counted`` and ``filtered`` are the models that blocks 0 and 1 have written a pickle of: block 2 reads
    these, not the shipped counts.
    """

    dropped: tuple[str, ...]
    whitelist: Path
    shipped: Path | None
    counted: frozenset[str]
    filtered: frozenset[str]


def preparation_of(request: Request, names: Collection[str], configs: Iterable[ModelConfig]) -> Preparation:
    """Return the state before a measurement of the operators of these names.

    Raises:
        UserError: the whitelist is damaged.
    """
    kept = request.whitelist_if_any() if names else None
    dropped = () if kept is None or EVERYTHING in kept else tuple(sorted(set(names) - set(kept)))
    read, own = request.folders.whitelist, request.measurements / WHITELIST
    found = list(configs)
    counted, filtered = (
        frozenset(config.name for config in found if kind.path(config).exists()) for kind in (COUNTS, FILTERED_COUNTS)
    )
    return Preparation(dropped, own, None if read == own else read, counted, filtered)
