"""``opcost merge``: merge databases."""

from __future__ import annotations

from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.option_types import user_path
from opcost.command.options import VERBOSE, Option
from opcost.command.subcommand import Subcommand

INTO = Option("into", "database that the rows are added to", type=user_path, metavar="INTO")
OTHERS = Option("others", "databases that are read", type=user_path, nargs="+", metavar="DATABASE")


def merge(arguments: Namespace) -> int:
    """Print how many rows were added to each table; return 0."""
    # No folder for logs in a mistyped database.
    log_run(arguments.verbose, arguments.into if arguments.into.is_dir() else None)

    from opcost.stages.check_files import merge as merge_tables
    from opcost.storage.database import Database

    for report in merge_tables(Database(arguments.into), [Database(folder) for folder in arguments.others]):
        print(f"{report.table}: {report.added} rows added")
    return 0


MERGE = Subcommand(
    name="merge",
    does="add the missing rows of other databases to a database",
    example="database another_database",
    options=(INTO, OTHERS, VERBOSE),
    run=merge,
)
