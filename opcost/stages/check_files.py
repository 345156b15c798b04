"""Checks of all files of a project, repair of tables, and merging of databases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opcost.errors import UserError
from opcost.running.request import COUNTS, FILTERED_COUNTS
from opcost.storage.configs import ModelConfig, load_whitelist
from opcost.storage.database import Database
from opcost.storage.model_folders import ModelFolders


@dataclass(frozen=True)
class CheckReport:
    """The number of files that were read, and a message for each mistake: file, line if there is one, remedy.

    ``repaired`` has a message for each table that was rewritten without its bad lines.
    """

    files: int
    problems: tuple[str, ...]
    repaired: tuple[str, ...] = ()


@dataclass(frozen=True)
class MergeReport:
    """The number of rows of other databases that were added to a table."""

    table: str
    added: int


def check_files(folders: ModelFolders, database: Database, repair: bool = False) -> CheckReport:
    """Read all tables, configs and pickles.

    Args:
        folders: the models' folders.
        database: the tables, with shipped ones if there are any.
        repair: whether the user's own tables are rewritten without their bad lines; the old files are kept beside them.

    Raises:
        UserError: one of the folders does not exist.
    """
    database.must_exist()
    models = [name for name in folders.names() if folders.path_of(name).exists()]
    tables = [table for one in database.parts for table in one.tables if table.path.exists()]
    problems, repaired = [], []
    for table in tables:
        found = table.problems()
        if repair and found and table.path.parent == database.folder and table.has_readable_header():
            repaired.append(
                f"{table.path}: removed {len(found)} bad lines; the old file is {table.keep_good_lines().name}"
            )
            found = table.problems()
        problems += found
    problems += [f"{path}: unfinished lines after a crash; delete the file" for path in database.unfinished_lines()]
    kinds = (COUNTS, FILTERED_COUNTS)
    pickles = [
        path for kind in kinds for depth in ("*", "*/*") for path in folders.own.glob(f"{depth}/{kind.file_name}")
    ]
    configs, mistakes = folders.read(models)
    problems += mistakes
    problems += [problem for config in configs for problem in _problems_of_counts(config)]
    problems += _problems_of_whitelist(folders.whitelist)
    return CheckReport(len(tables) + len(models) + len(pickles), tuple(problems), tuple(repaired))


def merge(into: Database, others: Sequence[Database]) -> list[MergeReport]:
    """Add the missing rows of other databases to a database, table by table, without comparisons.

    Raises:
        UserError: one of them is not a folder, or a table is damaged; then nothing of that table is added.
    """
    for database in (into, *others):
        database.must_exist()
    return [
        MergeReport(table.path.name, sum(table.append_missing(one.rows()) for one in more))
        for table, *more in zip(into.evidence, *(database.evidence for database in others), strict=True)
    ]


def _problems_of_counts(config: ModelConfig) -> Iterator[str]:
    for kind in (COUNTS, FILTERED_COUNTS):
        if kind.path(config).exists():
            try:
                kind.read(config)
            except UserError as error:
                yield from error.lines


def _problems_of_whitelist(path: Path) -> Sequence[str]:
    try:
        load_whitelist(path)
    except UserError as error:
        return error.lines
    return ()
