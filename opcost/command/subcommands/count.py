"""Block 0: count the operator tuples of models."""

from __future__ import annotations

from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.options import CENSUS, META, PIPELINE, STRICT
from opcost.command.subcommand import Subcommand


def count(arguments: Namespace) -> int:
    """Count and print the tuples; return 2 if a model could not be counted, else 0."""
    log_run(arguments.verbose)

    from opcost.reporting.count_tables import print_census, print_count_plans, print_counts
    from opcost.reporting.tables import print_files, print_json
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.running.request import Request
    from opcost.stages.count import CountReport, census, count_operators, plan_counting

    request = Request.from_arguments(arguments)
    if arguments.dry_run:
        plans = plan_counting(request, arguments.meta)
        print_json(plans) if arguments.json else print_count_plans(plans)
        return 0
    reports = count_operators(request, progress_on_stderr(), arguments.meta, arguments.strict)
    counted = [report for report in reports if isinstance(report, CountReport)]
    if arguments.json:
        print_json(census(request) if arguments.census else reports)
    elif counted or not reports:
        print_census(census(request)) if arguments.census else print_counts(counted)
    print_files("counts in", [request.measurements])
    return 0 if len(counted) == len(reports) else 2


COUNT = Subcommand(
    name="count",
    does="run each model once, count its operator tuples and write them to a pickle (block 0)",
    example="resnet18_32x3x32x32",
    options=(*PIPELINE, META, STRICT, CENSUS),
    run=count,
)
