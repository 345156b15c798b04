"""Measure time and energy of whole models -> database/full_model_measurements.csv

Example: python full_model_measurement.py resnet18_32x3x32x32 --seconds 3
"""

from functools import partial

from opcost.command.log import log_run
from opcost.command.options import DURATION, EXECUTION, METER, SAME_BOARD, pipeline_parser
from opcost.command.run import run

EXAMPLE = "python full_model_measurement.py resnet18_32x3x32x32 --seconds 3"


def main() -> int:
    description = "Measure time and energy of each whole model that the database does not have."
    arguments = pipeline_parser(description, EXAMPLE, DURATION, EXECUTION, METER, SAME_BOARD).parse_args()
    log_run(arguments.verbose, None if arguments.dry_run else arguments.database)

    from opcost.measuring.protocol import protocol_for
    from opcost.measuring.setting import Setting
    from opcost.reporting.measurement_tables import print_full_models
    from opcost.reporting.tables import print_json
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.running.request import Request
    from opcost.running.worker_bench import open_child_bench
    from opcost.stages.measure_models import measure_full_models

    request = Request.from_arguments(arguments, Setting(execution=arguments.execution, meter=arguments.meter))
    protocol = partial(protocol_for, loop_s=arguments.seconds, relative_error=arguments.relative_error)
    reports = measure_full_models(request, protocol, open_child_bench, progress_on_stderr())
    print_json(reports) if arguments.json else print_full_models(reports, arguments.dry_run)
    return 1 if any(report.failed for report in reports) else 0


if __name__ == "__main__":
    run(main)
