"""``opcost report``: sums and whole models as one HTML file; no table changes."""

from __future__ import annotations

from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.options import (
    CACHE,
    FOLDERS,
    INPUT_VALUES,
    MEASURED_DEVICE,
    NAMES,
    REPORT_FILE,
    SUMMED,
    VERBOSE,
)
from opcost.command.subcommand import Subcommand


def report(arguments: Namespace) -> int:
    """Write the report; return 0."""
    log_run(arguments.verbose)

    from opcost.comparing.comparison import OperatorRuns
    from opcost.reporting.report import write_report
    from opcost.reporting.tables import print_files
    from opcost.running.request import Request
    from opcost.stages.compare import find_comparisons, reports_of

    runs = OperatorRuns(arguments.input_data, arguments.cache, arguments.counted)
    request = Request.from_arguments(arguments)
    models = find_comparisons(request, runs)
    write_report(arguments.output, request.database, models, reports_of(request, models))
    print_files("written", [arguments.output])
    return 0


REPORT = Subcommand(
    name="report",
    does="write sums and whole models as one HTML file that opens offline in any browser",
    example="'resnet*' --output report.html",
    options=(
        *(NAMES, MEASURED_DEVICE, INPUT_VALUES, CACHE, SUMMED),
        *(REPORT_FILE, *FOLDERS, VERBOSE),
    ),
    run=report,
)
