"""Block 1: keep the operator tuples that the whitelist names -> measurements/<name>/operators_filtered.pkl

Example: python general_pipeline_block1.py resnet18_32x3x32x32
"""

from opcost.command_line import pipeline_parser, run
from opcost.command_log import log_run

EXAMPLE = "python general_pipeline_block1.py 'resnet*'"


def main() -> int:
    description = "Filter each model's operator tuples by measurements/operator_whitelist.yml."
    arguments = pipeline_parser(description, EXAMPLE).parse_args()
    log_run(arguments.verbose)

    from opcost.reports import print_json, print_selections
    from opcost.request import Request
    from opcost.stage_filtering import filter_operators

    reports = filter_operators(Request.from_arguments(arguments))
    if arguments.json:
        print_json(reports)
    else:
        print_selections(reports, arguments.dry_run)
    return 0


if __name__ == "__main__":
    run(main)
