"""``opcost sweep``: a model's time and energy over the size of its input, measured and predicted."""

from __future__ import annotations

import argparse
import random
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from opcost.command.log import log_run
from opcost.command.option_types import count, device_or_product, positive_seconds
from opcost.command.options import (
    ALLOW_CODE,
    DRY_RUN,
    EXECUTION,
    FOLDERS,
    JSON_OBJECT,
    METER,
    VERBOSE,
    OneOf,
    Option,
    folder_option,
    switch,
)
from opcost.command.subcommand import Subcommand, folders_of
from opcost.command.subcommands.layers import INPUT_SIZE, MODEL, request_for_rows, wanted_model
from opcost.command.subcommands.predict import ALLOW_EXTRAPOLATION
from opcost.command.subcommands.profile import ARGUMENT, MEMORY_FORMAT, PRECISION
from opcost.left_out import warning_once
from opcost.operators.sweep_axes import Axis, AxisKind

if TYPE_CHECKING:
    from opcost.progress import Progress
    from opcost.running.request import Request
    from opcost.stages.sweep import Measured
    from opcost.stages.sweep_points import Sweep, SweepPoint
    from opcost.stages.sweep_prediction import PredictedSize
    from opcost.stages.sweep_results import SweepResult


def _axis(kind: AxisKind) -> Callable[[str], Axis]:
    def parsed(text: str) -> Axis:
        try:
            return Axis.parse(kind, text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def _axis_option(kind: AxisKind, varied: str, example: str) -> Option:
    text = (
        f"{varied}: {example}, or a list with commas; of a function that returns its inputs, its argument {kind.value}"
    )
    return Option(f"--{kind.value}", text, type=_axis(kind), metavar="SIZES")


SWEPT = OneOf(
    (
        _axis_option(AxisKind.SIZE, "height and width of the input", "8:4096:x2"),
        _axis_option(AxisKind.TOKENS, "last number of the input size, the tokens of a sample", "50:500:50"),
        _axis_option(AxisKind.BATCH, "samples of a run", "1:256:x2"),
    )
)
REPETITIONS = Option("--repetitions", "of each size (default: 10)", type=count, default=10, metavar="N")
SECONDS = Option(
    "--seconds",
    "length of the loop of each repetition in s (default: 1)",
    type=positive_seconds,
    default=1.0,
    metavar="SECONDS",
)
SWEPT_DEVICE = Option(
    "--device",
    "cpu, cuda or cuda:N (default: cuda if available, else cpu); with --no-measure or --dry-run also a product, such "
    "as 'NVIDIA H200', which need not be here",
    type=device_or_product,
    metavar="DEVICE",
)
KERNELS = switch(
    "--kernels", "at the end also profile the kernels of each size, which name the breaks of a curve (GPU)"
)
NO_MEASURE = switch("--no-measure", "only predict the curve, beside the repetitions that the database has")
NO_PREDICT = switch("--no-predict", "do not count the sizes, and predict nothing")
OUTPUT = folder_option("--output", "also write the tables of this sweep as CSV files into this folder")
FIGURES = folder_option("--figures", "also draw the curves and the correlations as PNG and SVG (needs matplotlib)")
EXPORT_TREE = folder_option("--export-tree", "also write input_<size>/run_<k>/power_metrics.json and latency.csv there")


@warning_once()
def sweep(arguments: Namespace) -> int:
    """Measure and predict a sweep, and print it; return 1 if a size failed, else 0."""
    log_run(arguments.verbose, None if arguments.dry_run else folders_of(arguments).database)

    from opcost.reporting.json_object import print_object
    from opcost.reporting.sweep_tables import print_plan, print_sweep, sweep_object
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.stages.extras import FIGURES as FIGURES_EXTRA
    from opcost.stages.extras import require
    from opcost.stages.sweep_points import sweep_of
    from opcost.stages.sweep_results import keep_sizes, nothing_of, result_of
    from opcost.storage.files import check_writable

    if arguments.figures is not None:
        require(FIGURES_EXTRA)
    if not arguments.dry_run:
        # Before anything is measured.
        for folder in filter(None, (arguments.output, arguments.figures, arguments.export_tree)):
            check_writable(folder)
    progress = progress_on_stderr()
    request = _request(arguments)
    axis = arguments.size or arguments.tokens or arguments.batch
    swept = sweep_of(request, wanted_model(arguments), axis)
    measured = _measured(request, swept, arguments, progress)
    if arguments.dry_run:
        planned = nothing_of(swept) if measured is None else result_of(request.database, swept, measured, {})
        print_object(sweep_object(planned)) if arguments.json else print_plan(planned)
        return 0
    predicted = {} if arguments.no_predict else _predicted(request, swept, measured, arguments, progress)
    result = result_of(request.database, swept, measured, predicted)
    keep_sizes(request.database, result)
    print_object(sweep_object(result)) if arguments.json else print_sweep(result)
    _write(request, result, arguments)
    return int(bool(result.failed))


def _request(arguments: Namespace) -> Request:
    from opcost.measuring.setting import Setting
    from opcost.running.request import Request

    setting = Setting(execution=arguments.execution, meter=arguments.meter)
    if arguments.no_measure:
        return replace(request_for_rows(arguments), setting=setting)
    return Request.from_arguments(Namespace(**{**vars(arguments), "names": ()}), setting)


def _measured(request: Request, swept: Sweep, arguments: Namespace, progress: Progress) -> Measured | None:
    from opcost.running.opening import bench_opener
    from opcost.running.sweep_bench import open_sweep_bench
    from opcost.stages.sweep import SweepProtocol, measure_sweep
    from opcost.stages.sweep_results import recorded

    if arguments.no_measure:
        return recorded(request.database, swept, arguments.device, arguments.execution)
    seed = random.SystemRandom().getrandbits(32)
    protocol = SweepProtocol(arguments.repetitions, arguments.seconds, seed, arguments.kernels)
    opener = bench_opener(request)
    return measure_sweep(request, swept, protocol, opener if request.dry_run else open_sweep_bench, progress)


def _predicted(
    request: Request, swept: Sweep, measured: Measured | None, arguments: Namespace, progress: Progress
) -> dict[SweepPoint, PredictedSize]:
    from opcost.stages.sweep_prediction import CurveWish, predict_sweep
    from opcost.storage.files import cache_folder

    device, execution = arguments.device, arguments.execution
    if measured is not None:
        conditions = next(iter(measured.conditions.values()))
        device, execution = conditions.device_product, conditions.execution
    wish = CurveWish(device, execution, is_here=not arguments.no_measure)
    return predict_sweep(request, swept, wish, cache_folder(), progress)


def _write(request: Request, result: SweepResult, arguments: Namespace) -> None:
    """Write what was asked for besides the table."""
    from opcost.reporting.sweep_files import export_tree, write_tables
    from opcost.reporting.tables import print_files

    if arguments.output is not None:
        print_files("tables in", write_tables(result, arguments.output))
    if arguments.figures is not None:
        from opcost.reporting.sweep_figures import write_sweep_figures

        print_files("figures in", write_sweep_figures(result, arguments.figures))
    if arguments.export_tree is not None:
        print_files("folders", export_tree(result, request.database.power_logs, arguments.export_tree))


SWEEP = Subcommand(
    name="sweep",
    does="measure and predict a model's time and energy over the size of its input",
    example="resnet18 --size 32:256:x2 --repetitions 3",
    options=(
        *(MODEL, SWEPT, INPUT_SIZE, ARGUMENT, PRECISION, MEMORY_FORMAT, REPETITIONS, SECONDS, EXECUTION, METER),
        *(SWEPT_DEVICE, ALLOW_CODE, KERNELS, NO_MEASURE, NO_PREDICT, ALLOW_EXTRAPOLATION),
        *(OUTPUT, FIGURES, EXPORT_TREE, *FOLDERS, DRY_RUN, JSON_OBJECT, VERBOSE),
    ),
    run=sweep,
)
