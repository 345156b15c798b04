"""Set the sum of each model's operators beside the measured whole -> database/sum_vs_full.csv

Example: python compare_sum_vs_full.py resnet18_32x3x32x32
"""

from opcost.command_line import add_cache, add_input_data, pipeline_parser, run

EXAMPLE = "python compare_sum_vs_full.py 'resnet*' --json"


def main() -> int:
    description = "Sum time and energy of each model's operators by occurrence and compare with the whole model."
    parser = pipeline_parser(description, EXAMPLE)
    add_input_data(parser)
    add_cache(parser)
    arguments = parser.parse_args()

    from opcost.reports import print_comparisons, print_json
    from opcost.request import Request
    from opcost.stage_comparing import compare_models

    reports = compare_models(Request.from_arguments(arguments), arguments.input_data, arguments.cache)
    if arguments.json:
        print_json(reports)
    else:
        print_comparisons(reports, arguments.dry_run)
    return int(bool(arguments.names) and any(report.reason for report in reports))


if __name__ == "__main__":
    run(main)
