"""``python -m opcost merge``: put databases together."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from opcost.command.log import log_run
from opcost.command.options import VERBOSE, Option
from opcost.command.subcommand import Subcommand

INTO = Option("into", "the database that grows", type=Path, metavar="INTO")
OTHERS = Option("others", "databases that stay as they are", type=Path, nargs="+", metavar="DATABASE")


def merge(arguments: Namespace) -> int:
    """Print how many rows each table has got; return 0."""
    # A database whose name was mistyped gets no folder for logs.
    log_run(arguments.verbose, arguments.into if arguments.into.is_dir() else None)

    from opcost.stages.check_files import merge as merge_tables
    from opcost.storage.database import Database

    for report in merge_tables(Database(arguments.into), [Database(folder) for folder in arguments.others]):
        print(f"{report.table}: {report.added} rows added")
    return 0


MERGE = Subcommand(
    name="merge",
    does="add the rows of other databases that one lacks",
    example="database another_database",
    options=(INTO, OTHERS, VERBOSE),
    run=merge,
)
