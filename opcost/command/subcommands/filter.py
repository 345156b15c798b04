"""Block 1: keep the operator tuples that the whitelist names."""

from __future__ import annotations

from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.options import COUNTED_NAMES, DEVICE, STAGE
from opcost.command.subcommand import Subcommand


def filter_operators(arguments: Namespace) -> int:
    """Write the kept tuples and print their shares; return 0."""
    log_run(arguments.verbose)

    from opcost.reporting.count_tables import print_selections
    from opcost.reporting.tables import print_json
    from opcost.running.request import Request
    from opcost.stages.filter import filter_operators as keep_operators

    reports = keep_operators(Request.from_arguments(arguments))
    print_json(reports) if arguments.json else print_selections(reports, arguments.dry_run)
    return 0


FILTER = Subcommand(
    name="filter",
    does="keep each model's operator tuples that measurements/operator_whitelist.yml names (block 1)",
    before=(("count", "resnet18_32x3x32x32"),),
    example="resnet18_32x3x32x32",
    options=(COUNTED_NAMES, DEVICE, *STAGE),
    run=filter_operators,
)
