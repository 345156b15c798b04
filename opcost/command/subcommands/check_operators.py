"""``python -m opcost check-operators``: does each counted operator tuple, rebuilt alone, do what was counted?"""

from __future__ import annotations

from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.options import DATABASE, DEVICE, JSON, MEASUREMENTS, NAMES, VERBOSE
from opcost.command.subcommand import Subcommand


def check_operators(arguments: Namespace) -> int:
    """Print what was rebuilt; return 1 if an operator tuple does something else than was counted, else 0."""
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
    does="rebuild and run each tuple that block 0 counted, and compare outputs and FLOPs with what was counted",
    example="'resnet*' --device cpu",
    options=(NAMES, DEVICE, MEASUREMENTS, DATABASE, JSON, VERBOSE),
    run=check_operators,
)
