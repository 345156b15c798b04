"""Counts that ship with the rows: what block 0 found of models that are measured, in a table of the database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from opcost.errors import UserError, shortened
from opcost.operators.counts import OperatorCounts
from opcost.operators.model_rows import ModelOperatorRow, ShippedCounts, counts_of, rows_of
from opcost.running.request import COUNTS, Request, counted, model_tuple
from opcost.storage.configs import ModelConfig
from opcost.storage.table import CsvTable


def shipped_counts(request: Request, configs: Collection[ModelConfig]) -> Mapping[str, OperatorCounts]:
    """Return the counts that the database holds of these models, by the config's name.

    Models with a pickle that is as new as the table's counts are left out: then the pickle counts. So are models that
    were counted with other composites than their config's.

    Raises:
        UserError: the table is damaged.
    """
    found = _in_table(request.database.model_operators, configs)
    return {
        config.name: shipped.counts
        for config in configs
        if (shipped := found.get(model_tuple(config).key)) is not None
        and shipped.counts.composites == config.composites
        and not _is_as_new(COUNTS.path(config), shipped)
    }


def counted_or_shipped(request: Request, configs: Sequence[ModelConfig]) -> list[tuple[ModelConfig, OperatorCounts]]:
    """Return the configs with what block 0 counted, or with the table's counts where no pickle is newer.

    Raises:
        UserError: see ``counted``.
    """
    return counted(request, configs, COUNTS, shipped_counts(request, configs))


def ship_counts(request: Request, configs: Collection[ModelConfig]) -> None:
    """Add the pickled counts of these models to the database, where it does not hold the same already."""
    counted = {config.name: (config, COUNTS.read(config)) for config in configs if COUNTS.path(config).exists()}
    known = _in_table(request.database.model_operators, [config for config, _ in counted.values()])
    rows = [
        row
        for name, (config, counts) in counted.items()
        for row in _new_rows(rows_of(name, counts, _counted_at(COUNTS.path(config))), known.get(counts.model.key))
    ]
    if rows:
        request.database.model_operators.append_missing(rows)


def _new_rows(rows: list[ModelOperatorRow], known: ShippedCounts | None) -> Iterable[ModelOperatorRow]:
    return rows if known is None or counts_of(rows).counts != known.counts else ()


def _in_table(table: CsvTable[ModelOperatorRow], configs: Iterable[ModelConfig]) -> Mapping[str, ShippedCounts]:
    """Return the last counts of each of these models, by the model's key."""
    keys = {model_tuple(config).key for config in configs}
    of_model: dict[str, list[ModelOperatorRow]] = {}
    for row in table.rows(keys.__contains__):
        of_model.setdefault(row.model_key, []).append(row)
    try:
        return {key: counts_of(rows) for key, rows in of_model.items()}
    except ValueError as error:
        raise UserError(
            f"{table.path}: {shortened(str(error))}; restore the file, or delete it and run block 0"
        ) from error


def _is_as_new(pickle: Path, shipped: ShippedCounts) -> bool:
    return pickle.exists() and _counted_at(pickle) >= shipped.counted_at


def _counted_at(pickle: Path) -> str:
    """Return when a pickle was written, in UTC and whole seconds, so that texts compare as times do."""
    return datetime.fromtimestamp(int(pickle.stat().st_mtime), timezone.utc).isoformat()
