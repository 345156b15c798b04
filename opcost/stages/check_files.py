"""Checks of all files of a project, repair of tables, and merging of databases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from opcost.errors import UserError
from opcost.storage.configs import ModelFolders, load_whitelist
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS


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
