"""``opcost report``: sums and whole models as one HTML file; no table changes."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from opcost.command.log import log_run
from opcost.command.options import (
    CACHE,
    COMPARED_NAMES,
    FOLDERS,
    INPUT_VALUES,
    MEASURED_DEVICE,
    REPORT_FILE,
    SUMMED,
    VERBOSE,
)
from opcost.command.run import without_garbage_collection
from opcost.command.subcommand import Subcommand
from opcost.left_out import warning_once
from opcost.measuring.conditions import device_type_of

if TYPE_CHECKING:
    from opcost.running.request import Request
    from opcost.stages.show import DeviceRanking


def rankings_of(request: Request) -> tuple[DeviceRanking, ...]:
    """Return the ranking on each device, or on the chosen one; none if nothing is measured."""
    from opcost.stages.show import Choice, NothingMeasuredError, show
    from opcost.storage.files import cache_folder

    # Rows do not have the index of a GPU.
    device = device_type_of(request.device) if request.device and not request.is_product else request.device
    try:
        return show(request, Choice(device=device), cache_folder()).rankings
    except NothingMeasuredError:
        return ()


@without_garbage_collection()
@warning_once()
def report(arguments: Namespace) -> int:
    """Write the report; return 0."""
    log_run(arguments.verbose)

    from opcost.comparing.comparison import OperatorRuns
    from opcost.reporting.report import write_report
    from opcost.reporting.terminal import print_line
    from opcost.running.request import Request
    from opcost.stages.compare import find_comparisons, reports_of
    from opcost.units import number_of

    runs = OperatorRuns(arguments.input_data, arguments.cache, arguments.counted)
    request = Request.from_arguments(arguments)
    # The ranking needs the same tables as the comparison.
    request = replace(request, database=request.database.read_once())
    models = find_comparisons(request, runs)
    write_report(arguments.output, request, models, reports_of(request, models), rankings_of(request))
    print_line(f"{arguments.output}: {number_of(len(models), 'model')}; open it in a browser")
    return 0


REPORT = Subcommand(
    name="report",
    does="write sums and whole models as one HTML file that opens offline in any browser",
    example="'resnet*' --output report.html",
    options=(
        *(COMPARED_NAMES, MEASURED_DEVICE, INPUT_VALUES, CACHE, SUMMED),
        *(REPORT_FILE, *FOLDERS, VERBOSE),
    ),
    run=report,
)
