"""What is wrong with the files that programs wrote and people edited; tables repaired, and put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opcost.errors import UserError
from opcost.running.request import COUNTS, FILTERED_COUNTS, WHITELIST
from opcost.storage.configs import load_configs, load_whitelist
from opcost.storage.database import Database


@dataclass(frozen=True)
class CheckReport:
    """How many files were read, and a line for each mistake in them: the file, the line where there is one, the remedy.

    ``repaired`` are lines that tell of tables that were written anew without their bad lines.
    """

    files: int
    problems: tuple[str, ...]
    repaired: tuple[str, ...] = ()


@dataclass(frozen=True)
class MergeReport:
    """How many rows of other databases a table lacked."""

    table: str
    added: int


def check_files(measurements: Path, database: Database, repair: bool = False) -> CheckReport:
    """Read all tables, configs and pickles.

    Args:
        measurements: the models' folders.
        database: the tables.
        repair: whether tables with bad lines are written anew without these; the old ones are kept beside them.

    Raises:
        UserError: one of the folders is not there.
    """
    database.must_exist()
    if not measurements.is_dir():
        raise UserError(f"{measurements}: there is no such folder")
    tables = [table for table in database.tables if table.path.exists()]
    problems, repaired = [], []
    for table in tables:
        found = table.problems()
        if repair and found and table.has_readable_header():
            repaired.append(
                f"{table.path}: {len(found)} bad lines left out; {table.keep_good_lines().name} is as before"
            )
            found = table.problems()
        problems += found
    problems += [f"{path}: lines that a crash left unfinished; delete the file" for path in database.unfinished_lines()]
    models = sorted(path.parent.name for path in measurements.glob("*/summary.yml"))
    pickles = sorted(
        [*measurements.glob(f"*/{COUNTS.file_name}"), *measurements.glob(f"*/{FILTERED_COUNTS.file_name}")]
    )
    problems += [problem for name in models for problem in _problems_of_model(measurements, name)]
    problems += _problems_of_whitelist(measurements / WHITELIST)
    return CheckReport(len(tables) + len(models) + len(pickles), tuple(problems), tuple(repaired))


def merge(into: Database, others: Sequence[Database]) -> list[MergeReport]:
    """Add the rows of other databases that one lacks, table by table; comparisons are made anew by comparing.

    Raises:
        UserError: one of them is no folder, or a table is damaged; then nothing of that table is added.
    """
    for database in (into, *others):
        database.must_exist()
    return [
        MergeReport(table.path.name, sum(table.append_missing(one.rows()) for one in more))
        for table, *more in zip(into.evidence, *(database.evidence for database in others), strict=True)
    ]


def _problems_of_model(measurements: Path, name: str) -> Iterator[str]:
    try:
        (config,) = load_configs(measurements, [name])
    except UserError as error:
        yield from error.lines
        return
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
