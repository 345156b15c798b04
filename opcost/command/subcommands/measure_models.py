"""Measure whole models."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from opcost.command.log import log_run
from opcost.command.options import ALLOW_CODE, DURATION, EXECUTION, MEASURING_DEVICE, METER, NAMES, SAME_BOARD, STAGE
from opcost.command.subcommand import Subcommand, folders_of


def measure_models(arguments: Namespace) -> int:
    """Measure what the database does not have, and print it; return 1 if a measurement failed, else 0."""
    log_run(arguments.verbose, None if arguments.dry_run else folders_of(arguments).database)

    from opcost.measuring.protocol import protocol_for
    from opcost.measuring.setting import Setting
    from opcost.reporting.measurement_tables import print_full_models
    from opcost.reporting.tables import print_files, print_json
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.running.opening import bench_opener
    from opcost.running.request import Request
    from opcost.stages.measure_models import measure_full_models

    request = Request.from_arguments(arguments, Setting(execution=arguments.execution, meter=arguments.meter))
    protocol = partial(protocol_for, loop_s=arguments.seconds, relative_error=arguments.relative_error)
    reports = measure_full_models(request, protocol, bench_opener(request), progress_on_stderr())
    print_json(reports) if arguments.json else print_full_models(reports, arguments.dry_run)
    if not arguments.dry_run:
        print_files("rows in", [request.database.full_model_measurements.path])
    return int(any(report.failed for report in reports))


MEASURE_MODELS = Subcommand(
    name="measure-models",
    does="measure time and energy of each whole model that the database does not have",
    example="resnet18_32x3x32x32 --seconds 3",
    options=(NAMES, MEASURING_DEVICE, *STAGE, DURATION, EXECUTION, METER, SAME_BOARD, ALLOW_CODE),
    run=measure_models,
)
