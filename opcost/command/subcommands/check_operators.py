"""``opcost check-operators``: compare each operator tuple, rebuilt and run alone, with its count."""

from __future__ import annotations

from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.options import COUNTED_NAMES, DEVICE, FOLDERS, JSON, VERBOSE
from opcost.command.subcommand import Subcommand


def check_operators(arguments: Namespace) -> int:
    """Print the results; return 1 if an operator tuple differs from its count, else 0."""
    log_run(arguments.verbose)

    from opcost.reporting.count_tables import print_rebuilds
    from opcost.reporting.tables import print_json
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.running.request import Request
    from opcost.stages.replay import rebuild_operators

    reports = rebuild_operators(Request.from_arguments(arguments), progress_on_stderr())
    print_json(reports) if arguments.json else print_rebuilds(reports)
    return int(any(report.failures for report in reports))


CHECK_OPERATORS = Subcommand(
    name="check-operators",
    does="rebuild and run each counted operator tuple alone, and compare its outputs and FLOPs with the count",
    before=(("count", "resnet18_32x3x32x32 --device cpu"),),
    example="resnet18_32x3x32x32 --device cpu",
    options=(COUNTED_NAMES, DEVICE, *FOLDERS, JSON, VERBOSE),
    run=check_operators,
)
