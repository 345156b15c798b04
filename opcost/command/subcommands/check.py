"""``opcost check``: read all files of a project, and print their mistakes."""

from __future__ import annotations

from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.options import FOLDERS, JSON_OBJECT, VERBOSE, switch
from opcost.command.subcommand import Subcommand, folders_of

REPAIR = switch("--repair", "rewrite tables without their bad lines, and keep the old files beside them")


def check(arguments: Namespace) -> int:
    """Print a line for each mistake; return 1 if there is any, else 0."""
    # No folder for logs in a mistyped database.
    folders = folders_of(arguments)
    log_run(arguments.verbose, folders.database if arguments.repair and folders.database.is_dir() else None)

    from opcost.reporting.json_object import print_json_object
    from opcost.stages.check_files import check_files
    from opcost.storage.database import Database
    from opcost.storage.model_folders import ModelFolders
    from opcost.units import number_of

    report = check_files(ModelFolders.of(folders), Database.of(folders), arguments.repair)
    if arguments.json:
        print_json_object(report)
    else:
        for line in (*report.repaired, *report.problems):
            print(line)
        mistakes = number_of(len(report.problems), "mistake") if report.problems else "no mistakes"
        print(f"{number_of(report.files, 'file')} read, {mistakes}")
    return int(bool(report.problems))


CHECK = Subcommand(
    name="check",
    does="read all tables, configs and pickles, and print each mistake with file and line",
    example="",
    options=(*FOLDERS, REPAIR, JSON_OBJECT, VERBOSE),
    run=check,
)
