"""Print which operators the whitelist needs to cover enough of each model."""

from __future__ import annotations

from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.options import COMPARED, COVERAGE_TARGET, WRITE_WHITELIST
from opcost.command.subcommand import Subcommand


def advise(arguments: Namespace) -> int:
    """Print the coverage; return 1 if a model misses the target, else 0."""
    log_run(arguments.verbose)

    from opcost.reporting.advice_tables import print_advice
    from opcost.reporting.tables import print_json
    from opcost.running.request import Request
    from opcost.stages.advise import advise as find_whitelist

    advice = find_whitelist(Request.from_arguments(arguments), arguments.coverage_target, arguments.write_whitelist)
    is_written = arguments.write_whitelist and not arguments.dry_run
    print_json([advice]) if arguments.json else print_advice(advice, is_written)
    return int(not (is_written or advice.all_models.is_reached))


ADVISE = Subcommand(
    name="advise",
    does="print the share of each model that the whitelist covers, and the operators to add",
    example="'resnet*' --coverage-target 0.9",
    options=(*COMPARED, COVERAGE_TARGET, WRITE_WHITELIST),
    run=advise,
)
