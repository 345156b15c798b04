"""Block 0: run each model once and count its operator tuples -> measurements/<name>/operators.pkl

Example: python general_pipeline_block0.py resnet18_32x3x32x32
"""

from opcost.command_line import pipeline_parser, run

EXAMPLE = "python general_pipeline_block0.py 'resnet*' --device cpu"


def main() -> int:
    description = "Run each model once, count its operator tuples and pickle them with their occurrences."
    arguments = pipeline_parser(description, EXAMPLE).parse_args()

    from opcost.reports import print_count_plans, print_counts, print_json
    from opcost.request import Request
    from opcost.stage_counting import CountReport, count_operators, plan_counting
    from opcost.terminal import progress_on_stderr

    request = Request.from_arguments(arguments)
    if arguments.dry_run:
        plans = plan_counting(request)
        print_json(plans) if arguments.json else print_count_plans(plans)
    else:
        reports = count_operators(request, progress_on_stderr())
        counted = [report for report in reports if isinstance(report, CountReport)]
        print_json(reports) if arguments.json else print_counts(counted)
        return 0 if len(counted) == len(reports) else 2
    return 0


if __name__ == "__main__":
    run(main)
