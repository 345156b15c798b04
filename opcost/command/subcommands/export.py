"""``opcost export``: the measurements of operators as a data set, one table for each kind."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from opcost.command.log import log_run
from opcost.command.options import FOLDERS, VERBOSE, Option, folder_option
from opcost.command.run import without_garbage_collection
from opcost.command.subcommand import Subcommand
from opcost.command.subcommands.show import SHOWN_DEVICE

FORMATS = CSV, PARQUET = ("csv", "parquet")
TO = Path("opcost-export")

KIND = Option(
    "--kind",
    "kind of operator: a name as in whitelists (Conv2d), a qualified one (torch.nn.Conv2d) or a glob; may be given "
    "several times (default: all that have measurements)",
    action="append",
    default=[],
    metavar="KIND",
)
FORMAT = Option(
    "--format", f"format of the tables; parquet needs pyarrow (default: {CSV})", choices=FORMATS, default=CSV
)
FOLDER = folder_option("--to", f"a new folder, or one of a former export, which is replaced (default: {TO})")


@without_garbage_collection()
def export(arguments: Namespace) -> int:
    """Write the data set, and print how large it is; return 0."""
    log_run(arguments.verbose)

    from opcost.reporting.database_page import data_set_page
    from opcost.running.request import Request
    from opcost.stages.export import export as export_rows
    from opcost.storage.data_files import DataFolder
    from opcost.units import number_of

    target = DataFolder(arguments.to or TO, arguments.format)
    request = Request.from_arguments(Namespace(**{**vars(arguments), "names": ()}))
    report = export_rows(request, arguments.kind, target, data_set_page())
    rows = f"{number_of(report.rows, 'measurement')} of {number_of(report.tables, 'kind')} of operators"
    print(f"{target.folder}: {rows}; the columns are explained in columns.md")
    if report.uncounted:
        print(f"{number_of(report.uncounted, 'measurement')} without FLOPs and bytes: the operators are not counted")
    return 0


EXPORT = Subcommand(
    name="export",
    does="write all measurements of operators as a data set: one table for each kind, as CSV or Parquet",
    example="--kind Conv2d --device H200",
    options=(SHOWN_DEVICE, KIND, FORMAT, FOLDER, *FOLDERS, VERBOSE),
    run=export,
)
