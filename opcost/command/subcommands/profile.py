"""``opcost profile``: what the operators of one model cost, in one step from its name to a report."""

from __future__ import annotations

import logging
import random
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from opcost.command.log import log_run
from opcost.command.option_types import count, html_file, input_size, positive_seconds, ratio
from opcost.command.options import (
    ALLOW_CODE,
    EXECUTION,
    FOLDERS,
    JSON_OBJECT,
    MEASURING_DEVICE,
    VERBOSE,
    OneOf,
    Option,
    switch,
)
from opcost.command.subcommand import Subcommand, folders_of
from opcost.left_out import warning_once
from opcost.measuring.conditions import CONTIGUOUS, TORCH_DEFAULT, MemoryFormat, Precision

if TYPE_CHECKING:
    from opcost.running.request import Request
    from opcost.stages.measure_units import UnitReport
    from opcost.stages.profile import Measuring, Profile
    from opcost.stages.wanted_model import WantedModel

MODEL = Option(
    "model",
    "a model of torchvision (resnet18), timm (timm:vit_tiny_patch16_224) or transformers (transformers:BertModel), "
    "or a function of yours that returns one with its inputs (net.py:build, package.module:build)",
    metavar="MODEL",
)
ARGUMENT = Option(
    "--argument",
    "an argument of the class or function that builds the model, with its value in YAML: num_hidden_layers=2",
    action="append",
    default=[],
    metavar="NAME=VALUE",
)
SIZES = Option(
    "sizes",
    "size of the input, batch first, such as 8x3x224x224; several are profiled one by one (default: the published one)",
    nargs="*",
    type=input_size,
    metavar="SIZE",
)
INPUT_SIZE = Option("--input-size", "the same as an option", type=input_size, metavar="SIZE")
PRECISION = Option(
    "--precision",
    f"of weights, input and arithmetic (default: {TORCH_DEFAULT})",
    choices=get_args(Precision),
    default=TORCH_DEFAULT,
)
MEMORY_FORMAT = Option(
    "--memory-format",
    f"of weights and input (default: {CONTIGUOUS})",
    choices=get_args(MemoryFormat),
    default=CONTIGUOUS,
)
USUAL_RELATIVE_ERROR = 0.01
DURATION = OneOf(
    (
        Option("--seconds", "length of each measuring loop in s", type=positive_seconds, metavar="SECONDS"),
        Option(
            "--relative-error",
            "end each loop when the 95 %% intervals of time and energy are within this ratio "
            f"(default: {USUAL_RELATIVE_ERROR:g})",
            type=ratio,
            metavar="RATIO",
        ),
    )
)
NO_MEASURE = switch(
    "--no-measure",
    "only count, and show what the database has; so without a GPU, too, unless --device cpu is given",
)
DRY_RUN = switch("--dry-run", "write nothing; print what would be measured and how long it takes")
REPORT = Option(
    "--report",
    "the HTML report, which is replaced (default: report.html in the model's folder of measurements/)",
    type=html_file,
    metavar="FILE.html",
)
TOP = Option("--top", "the most operators to show (default: 15)", type=count, metavar="N")


@warning_once()
def profile(arguments: Namespace) -> int:
    """Print the profile, and write the report; return 1 if a measurement failed or a sum has no whole, else 0."""
    log_run(arguments.verbose, None if arguments.dry_run else folders_of(arguments).database)

    from opcost.measuring.setting import Setting
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.running.request import Request
    from opcost.stages.profile import profile as profile_models
    from opcost.stages.profile_configs import scratch_folder

    request = Request.from_arguments(
        Namespace(**{**vars(arguments), "names": ()}), Setting(execution=arguments.execution)
    )
    measuring, wanted = _measuring(request, arguments), _wanted(arguments)
    with scratch_folder(request, wanted) if arguments.dry_run else nullcontext(request) as request:
        found = profile_models(request, wanted, progress_on_stderr(), measuring)
        _print(found, wanted, arguments)
    return int(found.failed)


def _wanted(arguments: Namespace) -> list[WantedModel]:
    from opcost.stages.wanted_model import WantedModel, arguments_of

    sizes = [*arguments.sizes, *([arguments.input_size] if arguments.input_size else [])]
    model = WantedModel(
        arguments.model,
        precision=arguments.precision,
        memory_format=arguments.memory_format,
        arguments=arguments_of(arguments.argument),
    )
    return [replace(model, input_size=size) for size in sizes or [()]]


def _measuring(request: Request, arguments: Namespace) -> Measuring | None:
    """Return how to measure; None without a GPU, unless a device is named."""
    from opcost.measuring.protocol import protocol_for
    from opcost.running.devices import choose_device
    from opcost.running.opening import bench_opener
    from opcost.stages.measure_units import Protocols
    from opcost.stages.profile import Measuring

    if arguments.no_measure or (request.device is None and choose_device(None) == "cpu"):
        return None
    if arguments.seconds is not None:
        whole = partial(protocol_for, loop_s=arguments.seconds)
    else:
        whole = partial(protocol_for, relative_error=arguments.relative_error or USUAL_RELATIVE_ERROR)
    operators = partial(whole, order_seed=random.SystemRandom().getrandbits(32))
    return Measuring(Protocols(operators, whole), bench_opener(request), _announce)


def _announce(plan: Sequence[UnitReport]) -> None:
    from opcost.reporting.measurement_tables import announced

    logging.getLogger(__name__).warning("%s", announced(plan))


def _print(found: Profile, wanted: Sequence[WantedModel], arguments: Namespace) -> None:
    from opcost.reporting.json_object import print_object
    from opcost.reporting.profile_tables import print_profile, profile_object
    from opcost.reporting.tables import print_files

    path = None if arguments.dry_run else _write_report(found, arguments.report)
    if arguments.json:
        print_object(profile_object(found, path))
    else:
        print_profile(found, wanted[0].words, arguments.top)
    print_files("report in", [] if path is None else [path])
    if arguments.dry_run and arguments.report is not None:
        print_files("dry run: not written", [arguments.report])


def _write_report(found: Profile, named: Path | None) -> Path | None:
    """Write the report of all comparisons, to the folder of the first model if no file is named; None if it has none.

    A profile without comparisons has nothing that a report shows.
    """
    if named is None and not any(model.comparisons for model in found.comparisons):
        return None

    from opcost.command.subcommands.report import rankings_of
    from opcost.reporting.report import write_report
    from opcost.stages.compare import reports_of

    path = found.folder / "report.html" if named is None else named
    request = replace(found.request, device=None)
    reports = reports_of(request, found.comparisons)
    write_report(path, request, found.comparisons, reports, rankings_of(request))
    return path


PROFILE = Subcommand(
    name="profile",
    does="count a model, measure its operators and the whole, and show which operators cost most",
    example="resnet18 --input-size 8x3x224x224 --precision bf16",
    options=(
        *(MODEL, SIZES, INPUT_SIZE, ARGUMENT, PRECISION, MEMORY_FORMAT, MEASURING_DEVICE, DURATION, EXECUTION),
        *(ALLOW_CODE, NO_MEASURE, TOP, REPORT, *FOLDERS, DRY_RUN, JSON_OBJECT, VERBOSE),
    ),
    run=profile,
)
