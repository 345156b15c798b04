"""Counts that ship with the rows: what block 0 found of models that are measured, in a table of the database."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from opcost.errors import UserError, shortened
from opcost.operators.counts import OperatorCounts
from opcost.operators.model_rows import ModelOperatorRow, ShippedCounts, counts_of, rows_of
from opcost.operators.tuples import META
from opcost.running.request import COUNTS, Request, counted, model_tuple
from opcost.storage.configs import ModelConfig
from opcost.storage.table import CsvTable


def shipped_counts(request: Request, configs: Collection[ModelConfig]) -> Mapping[str, OperatorCounts]:
    """Return the counts that the database holds of these models, by the config's name.

    Models with a pickle that is as new as the table's counts are left out: then the pickle counts, unless it knows
    shapes only and the table knows values.

    Raises:
        UserError: the table is damaged.
    """
    found = _in_table(request.database.model_operators, configs)
    return {
        config.name: shipped.counts
        for config in configs
        if (shipped := found.get(_identity(config))) is not None and not _pickle_counts(config, shipped)
    }


def counted_or_shipped(request: Request, configs: Sequence[ModelConfig]) -> list[tuple[ModelConfig, OperatorCounts]]:
    """Return the configs with what block 0 counted, or with the table's counts where no pickle is newer.

    Raises:
        UserError: see ``counted``.
    """
    return counted(request, configs, COUNTS, shipped_counts(request, configs))


def ship_counts(request: Request, configs: Collection[ModelConfig]) -> None:
    """Add the pickled counts of these models to the database, where it does not hold the same already.

    Counts of shapes only are not added: they say nothing of the values that operators saw.
    """
    known = _in_table(request.database.model_operators, configs)
    rows: list[ModelOperatorRow] = []
    for config in configs:
        if COUNTS.path(config).exists():
            counts = COUNTS.read(config)
            if counts.device_type != META:
                rows += _new_rows(config, counts, known.get(_identity(config)))
    if rows:
        request.database.model_operators.append_missing(rows)


def _new_rows(config: ModelConfig, counts: OperatorCounts, known: ShippedCounts | None) -> Sequence[ModelOperatorRow]:
    """Return the rows of counts, none if they are known or would not be read back as they are."""
    try:
        rows = rows_of(config.name, counts, _counted_at(COUNTS.path(config)))
        (read,) = counts_of(rows)
        is_same = replace(read.counts, counts=()) == replace(counts, counts=())
        if not is_same or rows_of(config.name, read.counts, read.counted_at) != rows:
            raise ValueError("they would not be read back as they are")
    except ValueError as error:
        text = "%s: its counts are not added to the database (%s)"
        logging.getLogger(__name__).warning(text, config.name, shortened(str(error)))
        return ()
    return rows if known is None or read.counts != known.counts else ()


def _identity(config: ModelConfig) -> tuple[str, tuple[str, ...]]:
    """Return by what a config's counts are found: the model's key and the composites that it is counted with."""
    return model_tuple(config).key, config.composites


def _in_table(
    table: CsvTable[ModelOperatorRow], configs: Iterable[ModelConfig]
) -> Mapping[tuple[str, tuple[str, ...]], ShippedCounts]:
    """Return the best counts of each of these models, see ``_identity``."""
    keys = {model_tuple(config).key for config in configs}
    of_model: dict[str, list[ModelOperatorRow]] = {}
    for row in table.rows(keys.__contains__):
        of_model.setdefault(row.model_key, []).append(row)
    try:
        found = [(key, shipped) for key, rows in of_model.items() for shipped in counts_of(rows)]
    except ValueError as error:
        raise UserError(
            f"{table.path}: {shortened(str(error))}; restore the file, or delete it and run block 0"
        ) from error
    return {(key, shipped.counts.composites): shipped for key, shipped in found}


def _pickle_counts(config: ModelConfig, shipped: ShippedCounts) -> bool:
    pickle = COUNTS.path(config)
    if not pickle.exists() or _counted_at(pickle) < shipped.counted_at:
        return False
    try:
        return shipped.counts.device_type == META or COUNTS.read(config).device_type != META
    except UserError:
        # Whoever reads it says what is wrong with it.
        return True


def _counted_at(pickle: Path) -> str:
    """Return when a pickle was written, in UTC and whole seconds, so that texts compare as times do."""
    return datetime.fromtimestamp(int(pickle.stat().st_mtime), timezone.utc).isoformat()
