"""Commands that look after files, and that verify opcost itself."""

from __future__ import annotations

from argparse import Namespace

from opcost.errors import UserError
from opcost.invocation import command_line
from opcost.reporting.output import print_json
from opcost.reporting.progress_lines import progress_on_stderr
from opcost.reporting.tables import print_line
from opcost.running.request import Request, RunRequest
from opcost.stages.check_files import check_files
from opcost.stages.check_files import forget as forget_models
from opcost.stages.check_files import merge as merge_tables
from opcost.storage.database import Database
from opcost.storage.files import replace_file
from opcost.units import number_of


def check(arguments: Namespace) -> int:
    """Print a line for each mistake; return 1 if there is any, else 0."""
    request = Request.from_arguments(arguments)
    found = check_files(request.folders, request.database, arguments.repair)
    if arguments.json:
        print_json(found)
    else:
        for line in (*found.repaired, *found.problems):
            print(line)
        mistakes = number_of(len(found.problems), "mistake") if found.problems else "no mistakes"
        print(f"{number_of(found.files, 'file')} read, {mistakes}")
    return int(bool(found.problems))


def merge(arguments: Namespace) -> None:
    for added in merge_tables(Database(arguments.into), [Database(folder) for folder in arguments.others]):
        print(f"{added.table}: {added.added} rows added")


def forget(arguments: Namespace) -> None:
    request, dry_run = Request.from_arguments(arguments), arguments.dry_run
    removed = "would remove" if dry_run else "removed"
    for one in forget_models(request.folders, request.database, arguments.names, arguments.rows, dry_run):
        print_line(f"{one.name}: {removed} {', '.join(map(str, one.files))}")
        if one.others:
            print_line(f"{one.name}: left, as opcost did not write them: {', '.join(map(str, one.others))}")
        if one.rows:
            rows = ", ".join(f"{number_of(number, 'row')} of {table}" for table, number in one.rows.items())
            hint = "; --rows removes them, too" if dry_run else "; the same model finds them again"
            print_line(f"{one.name}: {removed} {rows}" if arguments.rows else f"{one.name}: left {rows}{hint}")


def operators(arguments: Namespace) -> int:
    """Compare each operator tuple, rebuilt and run alone, with its count; return 1 if one differs, else 0."""
    from opcost.reporting.count_tables import print_rebuilds
    from opcost.stages.verify import rebuild_operators

    reports = rebuild_operators(Request.from_arguments(arguments), progress_on_stderr(arguments.json_progress))
    print_json(reports) if arguments.json else print_rebuilds(reports)
    return int(any(report.failures for report in reports))


def kernels(arguments: Namespace) -> None:
    from opcost.reporting.comparison_tables import print_kernels
    from opcost.stages.verify import compare_kernels

    reports = compare_kernels(RunRequest.from_arguments(arguments), progress_on_stderr(arguments.json_progress))
    print_json(reports) if arguments.json else print_kernels(reports)


def strangers(arguments: Namespace) -> None:
    from opcost.reporting.count_tables import print_strangers
    from opcost.stages.strangers import verify_strangers

    request, progress = RunRequest.from_arguments(arguments), progress_on_stderr(arguments.json_progress)
    found = verify_strangers(request, arguments.host, arguments.number, arguments.seed, progress)
    print_json(found) if arguments.json else print_strangers(found)


def coverage(arguments: Namespace) -> int:
    """Write the page; return 1 if a model could not be checked or its tuples are incomplete, else 0."""
    path = arguments.output
    if path is not None and path.is_dir():
        raise UserError(f"--output {path}: this is a folder; name a file")
    if path is not None and not path.parent.is_dir():
        raise UserError(f"--output {path}: there is no folder {path.parent}; make it first")

    from opcost.reporting.pages import coverage_page, summary
    from opcost.stages.verify import check_coverage

    found = check_coverage(
        arguments.names, arguments.device, arguments.meta, progress_on_stderr(arguments.json_progress)
    )
    text = coverage_page(found, command_line())
    if path is None:
        print(text, end="")
    else:
        replace_file(path, text.encode())
        print(summary(found.rows))
    return int(not found.is_complete)


def columns(_: Namespace) -> None:
    from opcost.reporting.pages import database_page

    print(database_page(), end="")
