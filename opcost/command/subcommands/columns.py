"""``opcost columns``: the meaning of each column of the tables."""

from __future__ import annotations

from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.options import VERBOSE
from opcost.command.subcommand import Subcommand


def columns(arguments: Namespace) -> int:
    """Print the page; return 0."""
    log_run(arguments.verbose)

    from opcost.reporting.database_page import database_page

    print(database_page(), end="")
    return 0


COLUMNS = Subcommand(
    name="columns",
    does="print the meaning of each column of the tables, in Markdown",
    example="> columns.md",
    options=(VERBOSE,),
    run=columns,
)
