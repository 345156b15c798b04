"""Shipped counts: the counts of measured models in a table of the database, used where no newer pickle exists."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeAlias

from opcost.columns import grouped
from opcost.errors import UserError, shortened
from opcost.operators.counts import CountsByPhase, OperatorCounts, completed, select
from opcost.operators.model_rows import ModelOperatorRow, ShippedCounts, counts_of, rows_of
from opcost.operators.tuples import META
from opcost.running.request import Request, counted
from opcost.storage.configs import ModelConfig, model_tuple
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS, is_counted
from opcost.storage.table import CsvTable
from opcost.units import some_of

Identity: TypeAlias = tuple[str, tuple[str, ...]]
"""A model's key and its composites, which identify its counts."""

TableCounts: TypeAlias = Mapping[Identity, ShippedCounts]
"""The best counts of each model in a table."""


def shipped_counts(database: Database, configs: Collection[ModelConfig]) -> Mapping[str, OperatorCounts]:
    """Return the counts of these models in the database, by the config's name.

    Models with a pickle at least as new as the table's counts are left out, unless the pickle has shapes only and the
    table has values.

    Raises UserError: the table is damaged.
    """
    return without_newer_pickle(in_table(database, configs), configs)


def without_newer_pickle(found: TableCounts, configs: Collection[ModelConfig]) -> Mapping[str, OperatorCounts]:
    """Return the counts of these configs in a table, by name, see ``shipped_counts``."""
    shipped = ((config, found.get(identity_of(config))) for config in configs)
    return {config.name: one.counts for config, one in shipped if one and not _has_newer_pickle(config, one)}


def with_newer_pickles(found: TableCounts, configs: Iterable[ModelConfig]) -> dict[Identity, OperatorCounts]:
    """Return the counts of all models in a table, and those of these configs' folders that are newer or not in it."""
    counts = {identity: one.counts for identity, one in found.items()}
    for config in configs:
        if config.name not in without_newer_pickle(found, [config]):
            # There may be no pickle, or an outdated one.
            with suppress(UserError):
                counts[identity_of(config)] = COUNTS.read(config)
    return counts


def counts_of_operators(found: TableCounts) -> CountsByPhase:
    """Return the counts of all operators of all models and grids in a table.

    Calls are those in one of the models; FLOPs and bytes of a call are the same in all. Those of grids, mostly counted
    on shapes, stand back.
    """
    models = sorted((shipped.counts for shipped in found.values()), key=lambda counts: not counts.model.is_grid)
    counts = (count for one in models for count in one.counts)
    return {(count.operator.key, count.phase): count for count in counts if count.computes}


def counted_or_shipped(
    request: Request, configs: Sequence[ModelConfig], reasons: dict[str, str] | None = None
) -> list[tuple[ModelConfig, OperatorCounts]]:
    """Return the configs with the counts of block 0, else with shipped ones, see ``counted`` for all else."""
    return counted(request, configs, COUNTS, shipped_counts(request.database, configs), reasons)


def kept_of_shipped(request: Request, configs: Iterable[ModelConfig]) -> Mapping[str, OperatorCounts]:
    """Return the shipped counts of named models without a pickle here, by name, reduced by the whitelist.

    Raises UserError: the whitelist keeps no operator of one.
    """
    named = [
        config
        for config in configs
        if request.is_named(config) and not (is_counted(config) or FILTERED_COUNTS.path(config).exists())
    ]
    shipped = shipped_counts(request.database, named) if named else {}
    whitelist = request.whitelist() if shipped else ()
    kept = {name: select(counts, whitelist).kept for name, counts in shipped.items()}
    if empty := [name for name, counts in kept.items() if not counts.counts]:
        raise UserError(f"{request.folders.whitelist}: it keeps no operator of {some_of(empty)}; name some, or '*'")
    return kept


def ship_counts(database: Database, configs: Collection[ModelConfig]) -> None:
    """Add the pickled counts of these models to the database, if it does not have the same already.

    Counts of a model's shapes only are not added: they have no input values. A grid names its own. Predictions learn
    from the measured operators of grids, too.
    """
    table = database.model_operators
    known = in_table(database, configs)
    rows: list[ModelOperatorRow] = []
    for config in configs:
        if COUNTS.path(config).exists():
            counts = COUNTS.read(config)
            if counts.device_type != META or config.grid is not None:
                rows += _new_rows(table, config, counts, known.get(identity_of(config)))
    if rows:
        table.append_missing(rows)


def _new_rows(
    table: CsvTable[ModelOperatorRow], config: ModelConfig, counts: OperatorCounts, known: ShippedCounts | None
) -> Sequence[ModelOperatorRow]:
    """Return the rows of counts; none if they are known, or if reading them would not give the same counts."""
    try:
        rows = rows_of(config.name, counts, _counted_at(COUNTS.path(config)))
        (read,) = counts_of(table.as_read(rows))
        # The table has no modules.
        is_same = replace(read.counts, counts=()) == replace(counts, counts=(), modules=())
        if not is_same or repr(rows_of(config.name, read.counts, read.counted_at)) != repr(rows):
            raise ValueError("reading them would not give the same counts")
    except ValueError as error:
        text = "%s: counts not added to the database (%s)"
        logging.getLogger(__name__).warning(text, config.name, shortened(str(error)))
        return ()
    if known is None:
        return rows
    counted = {(count.operator, count.phase): count for count in read.counts.counts}
    same = tuple(completed(one, counted.get((one.operator, one.phase), one)) for one in known.counts.counts)
    return () if replace(known.counts, counts=same) == read.counts else rows


def identity_of(config: ModelConfig) -> Identity:
    return model_tuple(config).key, config.composites


def in_table(database: Database, configs: Iterable[ModelConfig]) -> TableCounts:
    return counts_in(database.model_operators, {model_tuple(config).key for config in configs}.__contains__)


def counts_in(table: CsvTable[ModelOperatorRow], wanted: Callable[[str], bool] | None = None) -> TableCounts:
    """Return the best counts of each wanted model, of all for None. Raises UserError: the table is damaged."""
    of_model = grouped(table.rows(wanted), lambda row: row.model_key)
    try:
        found = [(key, shipped) for key, rows in of_model.items() for shipped in counts_of(rows)]
    except ValueError as error:
        raise UserError(
            f"{table.path}: {shortened(str(error))}; restore the file, or delete it and count the models again"
        ) from error
    return {(key, shipped.counts.composites): shipped for key, shipped in found}


def _has_newer_pickle(config: ModelConfig, shipped: ShippedCounts) -> bool:
    pickle = COUNTS.path(config)
    if not pickle.exists() or _counted_at(pickle) < shipped.counted_at:
        return False
    try:
        return shipped.counts.device_type == META or COUNTS.read(config).device_type != META
    except UserError:
        # It is reported when it is read for its counts.
        return True


def _counted_at(pickle: Path) -> str:
    """Return the time at which a pickle was written, in UTC and whole seconds, so that texts compare as times."""
    return datetime.fromtimestamp(int(pickle.stat().st_mtime), timezone.utc).isoformat()
