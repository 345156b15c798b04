"""Profile models and their operator tuples alone: the same kernels, in the same time? -> database/kernel_times.csv

Example: python compare_kernels.py resnet50_32x3x224x224 --device cuda
"""

from opcost.command.log import log_run
from opcost.command.options import pipeline_parser
from opcost.command.run import run

EXAMPLE = "python compare_kernels.py resnet50_32x3x224x224 --device cuda"


def main() -> int:
    description = "Compare the kernels of each model with those of its operator tuples run alone, on a GPU."
    arguments = pipeline_parser(description, EXAMPLE, has_dry_run=False).parse_args()
    log_run(arguments.verbose, arguments.database)

    from opcost.reporting.comparison_tables import print_kernels
    from opcost.reporting.tables import print_json
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.running.request import Request
    from opcost.stages.kernels import compare_kernels

    reports = compare_kernels(Request.from_arguments(arguments), progress_on_stderr())
    print_json(reports) if arguments.json else print_kernels(reports)
    return 0


if __name__ == "__main__":
    run(main)
