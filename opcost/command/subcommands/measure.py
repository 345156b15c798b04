"""Block 2: measure operator tuples."""

from __future__ import annotations

import logging
import random
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from opcost.command.log import log_run
from opcost.command.options import (
    ALLOW_CODE,
    CACHE,
    DURATION,
    EXECUTION,
    INPUT_VALUES,
    MEASURING_DEVICE,
    METER,
    OPEN_NAMES,
    SAME_BOARD,
    STAGE,
    switch,
)
from opcost.command.subcommand import Subcommand, folders_of

if TYPE_CHECKING:
    from opcost.running.request import Request
    from opcost.stages.measure_units import Protocols, UnitReport

WHOLE = switch(
    "--whole",
    "also measure each whole model, after its operators; implies --same-board, so that sum and whole are of one board",
)


def measure(arguments: Namespace) -> int:
    """Measure what the database does not have, and print it; return 1 if a measurement failed, else 0."""
    log_run(arguments.verbose, None if arguments.dry_run else folders_of(arguments).database)

    from opcost.measuring.protocol import protocol_for
    from opcost.measuring.setting import Setting
    from opcost.reporting.measurement_tables import print_operator_measurements
    from opcost.reporting.tables import print_files, print_json
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.running.opening import bench_opener
    from opcost.running.request import Request
    from opcost.stages.measure_operators import measure_operators
    from opcost.stages.measure_units import Protocols

    setting = Setting(execution=arguments.execution, cache=arguments.cache, meter=arguments.meter)
    request = Request.from_arguments(arguments, setting)
    seed = random.SystemRandom().getrandbits(32)
    whole = partial(protocol_for, loop_s=arguments.seconds, relative_error=arguments.relative_error)
    protocol = partial(whole, order_seed=seed)
    if arguments.whole:
        return _with_wholes(request, arguments, Protocols(protocol, whole, arguments.input_data))
    reports = measure_operators(request, protocol, bench_opener(request), progress_on_stderr(), arguments.input_data)
    print_json(reports) if arguments.json else print_operator_measurements(reports, arguments.dry_run)
    if not arguments.dry_run:
        print_files("rows in", [request.database.operator_measurements.path])
    return int(any(report.failed for report in reports))


def _with_wholes(request: Request, arguments: Namespace, protocols: Protocols) -> int:
    """Measure operators and wholes model by model, after a line with the expected time of each."""
    from opcost.reporting.measurement_tables import announced, print_units
    from opcost.reporting.tables import print_files, print_json
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.running.opening import bench_opener
    from opcost.stages.measure_units import measure_units

    def announce(plan: Sequence[UnitReport]) -> None:
        logging.getLogger(__name__).warning("%s", announced(plan))

    opener, progress = bench_opener(request), progress_on_stderr()
    reports = measure_units(request, protocols, opener, progress, announce)
    print_json(reports) if arguments.json else print_units(reports, arguments.dry_run)
    if not arguments.dry_run:
        tables = request.database.operator_measurements, request.database.full_model_measurements
        print_files("rows in", [table.path for table in tables])
    return int(any(report.failed for report in reports))


MEASURE = Subcommand(
    name="measure",
    does="measure time and energy of each operator tuple that the database does not have (block 2)",
    before=(("count", "resnet18_32x3x32x32"), ("filter", "resnet18_32x3x32x32")),
    example="resnet18_32x3x32x32 --seconds 3",
    options=(
        OPEN_NAMES,
        MEASURING_DEVICE,
        *STAGE,
        DURATION,
        EXECUTION,
        CACHE,
        METER,
        SAME_BOARD,
        INPUT_VALUES,
        WHOLE,
        ALLOW_CODE,
    ),
    run=measure,
)
