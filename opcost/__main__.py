"""Check the files of a project, or put databases together.

Example: python -m opcost check
         python -m opcost merge database another_database
"""

from argparse import Namespace, _SubParsersAction
from pathlib import Path

from opcost.command.log import log_run
from opcost.command.options import Parser, add_folder, add_verbose
from opcost.command.run import run


def main() -> int:
    """Run the command that the arguments name; return its exit status."""
    parser = Parser(prog="python -m opcost", description="Check the files of a project, or put databases together.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_check(commands)
    _add_merge(commands)
    arguments = parser.parse_args()
    status: int = arguments.command(arguments)
    return status


def _add_check(commands: "_SubParsersAction[Parser]") -> None:
    said = "read all tables, configs and pickles, and say what is wrong by file and line"
    check = commands.add_parser("check", help=said, description=said.capitalize() + ".")
    add_folder(check, "--measurements", "the models' folders")
    add_folder(check, "--database", "the tables of results")
    repair_help = "write tables with bad lines anew without these, and keep the old ones beside them"
    check.add_argument("--repair", action="store_true", help=repair_help)
    add_verbose(check)
    check.set_defaults(command=_check)


def _add_merge(commands: "_SubParsersAction[Parser]") -> None:
    said = "add the rows of other databases that one lacks"
    merge = commands.add_parser("merge", help=said, description=said.capitalize() + ".")
    merge.add_argument("into", type=Path, metavar="INTO", help="the database that grows")
    merge.add_argument("others", type=Path, nargs="+", metavar="DATABASE", help="databases that stay as they are")
    add_verbose(merge)
    merge.set_defaults(command=_merge)


def _log(verbose: bool, written: Path | None) -> None:
    """Log into a database that is written, if there is one: a name that was mistyped makes no folder."""
    log_run(verbose, written if written is not None and written.is_dir() else None)


def _check(arguments: Namespace) -> int:
    _log(arguments.verbose, arguments.database if arguments.repair else None)
    from opcost.stages.check_files import check_files

    report = check_files(arguments.measurements, arguments.database, arguments.repair)
    for line in (*report.repaired, *report.problems):
        print(line)
    print(f"{report.files} files read, {len(report.problems) or 'no'} mistakes")
    return int(bool(report.problems))


def _merge(arguments: Namespace) -> int:
    _log(arguments.verbose, arguments.into)
    from opcost.stages.check_files import merge

    for report in merge(arguments.into, arguments.others):
        print(f"{report.table}: {report.added} rows added")
    return 0


if __name__ == "__main__":
    run(main)
