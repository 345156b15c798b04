"""Compare the sum of each model's operators with the measured whole model."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module

from opcost.command.log import log_run
from opcost.command.options import AGAINST, CACHE, COMPARED, FIGURES, INPUT_VALUES, REPORT, SUMMED
from opcost.command.run import without_garbage_collection
from opcost.command.subcommand import Subcommand, folders_of
from opcost.command.subcommands.report import rankings_of
from opcost.errors import UserError


def compare(arguments: Namespace) -> int:
    """Write and print the comparisons; return 1 if one of a named model is incomplete, else 0.

    With ``--against``, print models under two conditions.
    """
    if arguments.against is not None:
        return _compare_against(arguments)
    log_run(arguments.verbose, None if arguments.dry_run else folders_of(arguments).database)

    from opcost.comparing.comparison import OperatorRuns
    from opcost.reporting.comparison_tables import print_comparisons
    from opcost.reporting.tables import print_files, print_json
    from opcost.running.request import Request
    from opcost.stages.compare import find_comparisons, keep_comparisons

    if arguments.figures is not None:
        # A missing matplotlib is reported before anything is written.
        import_module("opcost.reporting.figures")
    runs = OperatorRuns(arguments.input_data, arguments.cache, arguments.counted)
    request = Request.from_arguments(arguments)
    models = find_comparisons(request, runs)
    reports = keep_comparisons(request, models)
    print_json(reports) if arguments.json else print_comparisons(reports, arguments.dry_run)
    if not arguments.dry_run:
        print_files("rows in", [request.database.sum_vs_full.path])
    if arguments.dry_run:
        wanted = [path for path in (arguments.figures, arguments.report) if path is not None]
        print_files("dry run: not written", wanted)
    elif arguments.figures is not None:
        from opcost.reporting.figures import draw_comparisons

        print_files("written", draw_comparisons(reports, arguments.figures))
    if arguments.report is not None and not arguments.dry_run:
        from opcost.reporting.report import write_report

        write_report(arguments.report, request, models, reports, rankings_of(request))
        print_files("written", [arguments.report])
    return int(bool(arguments.names) and any(report.is_incomplete for report in reports))


@without_garbage_collection()
def _compare_against(arguments: Namespace) -> int:
    """Print models under their own and under other conditions; return 0."""
    log_run(arguments.verbose)

    from opcost.comparing.comparison import OperatorRuns
    from opcost.reporting.against_tables import print_against
    from opcost.reporting.tables import print_json
    from opcost.running.request import Request
    from opcost.stages.compare_against import compare_against

    if arguments.figures is not None or arguments.report is not None:
        raise UserError("--against excludes --figures and --report, which show sums and wholes; leave them out")
    runs = OperatorRuns(arguments.input_data, arguments.cache, arguments.counted)
    reports = compare_against(Request.from_arguments(arguments), arguments.against, runs)
    print_json(reports) if arguments.json else print_against(reports)
    return 0


COMPARE = Subcommand(
    name="compare",
    does="sum time and energy of each model's operators over all calls, and compare the sums with the whole model",
    example="'resnet*' --dry-run",
    options=(*COMPARED, AGAINST, INPUT_VALUES, CACHE, SUMMED, FIGURES, REPORT),
    run=compare,
)
