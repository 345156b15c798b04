"""Block 1: keep the operator tuples that the whitelist names -> measurements/<name>/operators_filtered.pkl

Example: python general_pipeline_block1.py resnet18_32x3x32x32
"""

from opcost.command.log import log_run
from opcost.command.options import pipeline_parser
from opcost.command.run import run

EXAMPLE = """\
python general_pipeline_block0.py resnet18_32x3x32x32
python general_pipeline_block1.py resnet18_32x3x32x32"""


def main() -> int:
    description = "Block 1: filter each model's operator tuples by measurements/operator_whitelist.yml."
    arguments = pipeline_parser(description, EXAMPLE).parse_args()
    log_run(arguments.verbose)

    from opcost.reporting.count_tables import print_selections
    from opcost.reporting.tables import print_json
    from opcost.running.request import Request
    from opcost.stages.filter import filter_operators

    reports = filter_operators(Request.from_arguments(arguments))
    print_json(reports) if arguments.json else print_selections(reports, arguments.dry_run)
    return 0


if __name__ == "__main__":
    run(main)
