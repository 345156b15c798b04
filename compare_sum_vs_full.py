"""Compare the sum of each model's operators with the measured whole model -> database/sum_vs_full.csv

With --coverage-target: print which operators the whitelist needs to cover enough of each model.
Example: python compare_sum_vs_full.py resnet18_32x3x32x32
         python compare_sum_vs_full.py --coverage-target 0.9
"""

from argparse import Namespace
from importlib import import_module

from opcost.command.log import log_run
from opcost.command.options import (
    CACHE,
    COVERAGE_TARGET,
    FIGURES,
    INPUT_VALUES,
    MEASURED_DEVICE,
    REPORT,
    SUMMED,
    WRITE_WHITELIST,
    pipeline_parser,
)
from opcost.command.run import run

EXAMPLE = "python compare_sum_vs_full.py 'resnet*' --report report.html"

COMPARISON_OPTIONS = ("input_data", "cache", "counted", "figures", "report")


def main() -> int:
    description = (
        "Sum time and energy of each model's operators over all calls, and compare the sums with the whole model."
    )
    own_options = (INPUT_VALUES, CACHE, SUMMED, FIGURES, REPORT, COVERAGE_TARGET, WRITE_WHITELIST)
    parser = pipeline_parser(description, EXAMPLE, *own_options, device=MEASURED_DEVICE)
    arguments = parser.parse_args()

    if arguments.coverage_target is not None:
        unused = [option for option in COMPARISON_OPTIONS if getattr(arguments, option) != parser.get_default(option)]
        if unused:
            parser.error(
                f"--coverage-target and --{unused[0].replace('_', '-')} exclude each other; leave one of them out"
            )
        log_run(arguments.verbose)
        return report_coverage(arguments)
    if arguments.write_whitelist:
        parser.error("--write-whitelist needs --coverage-target, such as 0.9")
    log_run(arguments.verbose, None if arguments.dry_run else arguments.database)
    return compare(arguments)


def compare(arguments: Namespace) -> int:
    from opcost.comparing.comparison import OperatorRuns
    from opcost.reporting.comparison_tables import print_comparisons
    from opcost.reporting.tables import print_files, print_json
    from opcost.running.request import Request
    from opcost.stages.compare import find_comparisons, keep_comparisons

    if arguments.figures is not None:
        # A missing matplotlib is reported before anything is written.
        import_module("opcost.reporting.figures")
    runs = OperatorRuns(arguments.input_data, arguments.cache, arguments.counted)
    request = Request.from_arguments(arguments)
    models = find_comparisons(request, runs)
    reports = keep_comparisons(request, models)
    print_json(reports) if arguments.json else print_comparisons(reports, arguments.dry_run)
    if arguments.dry_run:
        wanted = [path for path in (arguments.figures, arguments.report) if path is not None]
        print_files("dry run: not written", wanted)
    elif arguments.figures is not None:
        from opcost.reporting.figures import draw_comparisons

        print_files("written", draw_comparisons(reports, arguments.figures))
    if arguments.report is not None and not arguments.dry_run:
        from opcost.reporting.report import write_report

        write_report(arguments.report, request.database, models, reports)
        print_files("written", [arguments.report])
    return int(bool(arguments.names) and any(report.is_incomplete for report in reports))


def report_coverage(arguments: Namespace) -> int:
    from opcost.reporting.advice_tables import print_advice
    from opcost.reporting.tables import print_json
    from opcost.running.request import Request
    from opcost.stages.advise import advise

    advice = advise(Request.from_arguments(arguments), arguments.coverage_target, arguments.write_whitelist)
    is_written = arguments.write_whitelist and not arguments.dry_run
    print_json([advice]) if arguments.json else print_advice(advice, is_written)
    return int(not (is_written or advice.all_models.is_reached))


if __name__ == "__main__":
    run(main)
