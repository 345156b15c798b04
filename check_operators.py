"""Rebuild every counted operator tuple from its pickle, run it alone, and hold it against what was counted

Example: python check_operators.py 'resnet*' --device cpu
"""

from opcost.command.log import log_run
from opcost.command.options import pipeline_parser
from opcost.command.run import run

EXAMPLE = "python check_operators.py 'resnet*' --device cpu"


def main() -> int:
    description = "Rebuild and run each tuple that block 0 counted: same outputs, same FLOPs?"
    arguments = pipeline_parser(description, EXAMPLE, has_dry_run=False).parse_args()
    log_run(arguments.verbose)

    from opcost.reporting.count_tables import print_rebuilds
    from opcost.reporting.tables import print_json
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.running.request import Request
    from opcost.stages.replay import rebuild_operators

    reports = rebuild_operators(Request.from_arguments(arguments), progress_on_stderr())
    print_json(reports) if arguments.json else print_rebuilds(reports)
    return 1 if any(report.failures for report in reports) else 0


if __name__ == "__main__":
    run(main)
