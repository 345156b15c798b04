"""Operators that were not measured because the whitelist drops them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from opcost.operators.whitelist import EVERYTHING
from opcost.running.request import Request, is_counted
from opcost.storage.configs import ModelConfig
from opcost.storage.model_folders import WHITELIST


@dataclass(frozen=True)
class Dropped:
    """Names of operators that the whitelist drops, and the user's whitelist, which may not exist yet.

    ``shipped`` is the whitelist to copy there first, None if the user's exists. ``counted`` are the models that must be
    filtered again once the whitelist has changed: counts in the database are filtered whenever they are read.
    """

    names: tuple[str, ...]
    path: Path
    shipped: Path | None
    counted: frozenset[str]


def dropped_of(request: Request, names: Collection[str], configs: Iterable[ModelConfig]) -> Dropped | None:
    """Return those of these operators that the whitelist drops, None if it drops none or there is no whitelist.

    Raises:
        UserError: the whitelist is damaged.
    """
    whitelist = request.whitelist_if_any() if names else None
    if whitelist is None or EVERYTHING in whitelist:
        return None
    dropped = tuple(sorted(set(names) - set(whitelist)))
    read, own = request.folders.whitelist, request.measurements / WHITELIST
    if not dropped:
        return None
    counted = frozenset(config.name for config in configs if is_counted(config))
    return Dropped(dropped, own, None if read == own else read, counted)
