"""Checks of all files of a project, repair of tables, merging of databases, and models that are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from opcost.errors import UserError
from opcost.operators.counts import of_operators
from opcost.stages.wanted_model import WantedModel
from opcost.storage.configs import ModelConfig, ModelFolders, load_whitelist, model_tuple
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS
from opcost.storage.table import CsvTable

REPORT = "report.html"
"""The report of a profile in the folder of its model, unless another file is named."""


@dataclass(frozen=True)
class CheckReport:
    """The number of files that were read, a message for each mistake, and one for each table that was repaired."""

    files: int
    problems: tuple[str, ...]
    repaired: tuple[str, ...] = ()


@dataclass(frozen=True)
class MergeReport:
    """The number of rows of other databases that were added to a table."""

    table: str
    added: int


@dataclass(frozen=True)
class Forgotten:
    """The traces of a model: its files, other files in its folder, which stay, and its rows by table.

    Rows are those of the whole model. Rows of operators are no model's own.
    """

    name: str
    files: tuple[Path, ...]
    others: tuple[Path, ...]
    rows: dict[str, int]


def check_files(folders: ModelFolders, database: Database, repair: bool = False) -> CheckReport:
    """Read all tables, configs and pickles; ``repair`` rewrites own tables without bad lines, beside the old ones."""
    database.must_exist()
    models = [name for name in folders.names() if folders.path_of(name).exists()]
    tables = [table for one in database.parts for table in one.tables if table.path.exists()]
    problems, repaired = [], []
    for table in tables:
        found = table.problems()
        if repair and found and table.path.parent == database.folder and table.has_readable_header():
            old = table.keep_good_lines().name
            repaired.append(f"{table.path}: removed {len(found)} bad lines; the old file is {old}")
            found = table.problems()
        problems += found
    problems += [f"{path}: unfinished lines after a crash; delete the file" for path in database.unfinished_lines()]
    kinds = (COUNTS, FILTERED_COUNTS)
    patterns = (f"{depth}/{kind.file_name}" for kind in kinds for depth in ("*", "*/*"))
    pickles = [path for pattern in patterns for path in folders.own.glob(pattern)]
    configs, mistakes = folders.read(models)
    problems += mistakes
    reads: list[Callable[[], object]] = [
        partial(kind.read, config) for config in configs for kind in kinds if kind.path(config).exists()
    ]
    reads.append(partial(load_whitelist, folders.whitelist))
    for read in reads:
        try:
            read()
        except UserError as error:
            problems += error.lines
    return CheckReport(len(tables) + len(models) + len(pickles), tuple(problems), tuple(repaired))


def merge(into: Database, others: Sequence[Database]) -> list[MergeReport]:
    """Add the missing rows of other databases, table by table; a ``UserError`` for no folder or a damaged table."""
    for database in (into, *others):
        database.must_exist()
    return [
        MergeReport(table.path.name, sum(table.append_missing(one.rows()) for one in more))
        for table, *more in zip(into.evidence, *(database.evidence for database in others), strict=True)
    ]


def forget(
    folders: ModelFolders, database: Database, names: Sequence[str], with_rows: bool, dry_run: bool
) -> list[Forgotten]:
    """Remove the config, the counts and the report of models of the user's own folder, and perhaps their rows.

    Rows are counted, and removed if ``with_rows``. Raises UserError: there is no such folder, or one has a config that
    no profile writes; then nothing is removed.
    """
    configs = ModelFolders(folders.own).configs(names)
    mistakes = [
        f"{one.path}: it has keys or lists that opcost profile does not write; delete the folder yourself"
        for one in configs
        if one.lists or WantedModel.of(one) is None
    ]
    if mistakes:
        raise UserError(*mistakes)
    found = [_left(Database(database.folder), config, with_rows and not dry_run) for config in configs]
    for one in found if not dry_run else ():
        # The config is last: after an interrupt the same command goes on.
        for path in one.files:
            path.unlink()
        if not one.others:
            one.files[-1].parent.rmdir()
    return found


def _left(database: Database, config: ModelConfig, is_removed: bool) -> Forgotten:
    """Return what is left of a model; its rows are removed if ``is_removed``."""
    written = (COUNTS.path(config), FILTERED_COUNTS.path(config), config.folder / REPORT)
    files = (*filter(Path.is_file, written), config.path)
    rows = {table.path.name: _rows_of(table, config, is_removed) for table in database.of_models}
    others = sorted(path for path in config.folder.iterdir() if path not in files)
    return Forgotten(config.name, files, tuple(others), {name: number for name, number in rows.items() if number})


def _rows_of(table: CsvTable[Any], config: ModelConfig, is_removed: bool) -> int:
    own = set(table.rows(of_operators([model_tuple(config)])))
    if own and is_removed:
        table.replace_rows(lambda rows: [row for row in rows if row not in own])
    return len(own)
