"""``opcost sample-operators``: operator tuples between and beyond those of the database, as a list for block 2."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from opcost.command.log import log_run
from opcost.command.option_types import count, count_from_0, device_or_product, factor, positive_seconds
from opcost.command.options import DRY_RUN, FOLDERS, JSON_OBJECT, VERBOSE, Option, switch
from opcost.command.subcommand import Subcommand, folders_of
from opcost.prediction.sampling import BEYOND_RATIO, Uncertainty, Wish

if TYPE_CHECKING:
    # Only for types: the stage imports torch.
    from opcost.stages.sample_operators import SampleRequest

NUMBER = 100

NAME = Option("name", "name of the new list's folder in the measurements folder", metavar="NAME")
NUMBER_OPTION = Option(
    "--number", f"number of tuples to draw (default: {NUMBER})", type=count, default=NUMBER, metavar="N"
)
KIND = Option(
    "--kind",
    "short name of an operator, such as Conv2d; may be repeated (default: those that take most time in the database)",
    action="append",
    default=None,
    metavar="KIND",
)
SEED = Option(
    "--seed", "number that decides what is drawn (default: 0)", type=count_from_0, default=0, metavar="NUMBER"
)
BEYOND = Option(
    "--beyond",
    f"factor by which sizes go beyond the smallest and the largest known ones (default: {BEYOND_RATIO:g})",
    type=factor,
    default=BEYOND_RATIO,
    metavar="FACTOR",
)
DEVICE = Option(
    "--device",
    "cpu, cuda, or a part of a product's name: its rows give the expected time (default: the product with most rows)",
    type=device_or_product,
    metavar="DEVICE",
)
GPU_SECONDS = Option(
    "--gpu-seconds",
    "draw no more tuples than can be measured on the device in this time (default: any)",
    type=positive_seconds,
    metavar="SECONDS",
)
LEAST_CERTAIN = switch(
    "--least-certain",
    "of ten times as many, choose those whose predicted time is least certain, of all kinds and sizes",
)


def sample_operators(arguments: Namespace) -> int:
    """Write a list of tuples and print what it has; return 0."""
    log_run(arguments.verbose)

    from opcost.reporting.count_tables import print_sample
    from opcost.reporting.json_object import print_json_object
    from opcost.stages.sample_operators import SampleRequest
    from opcost.stages.sample_operators import sample_operators as draw
    from opcost.storage.database import Database
    from opcost.storage.model_folders import ModelFolders

    folders = folders_of(arguments)
    wish = Wish(arguments.number, tuple(arguments.kind or ()), arguments.seed, arguments.beyond)
    request = SampleRequest(
        name=arguments.name,
        wish=wish,
        folders=ModelFolders.of(folders),
        database=Database.of(folders),
        device=arguments.device,
        dry_run=arguments.dry_run,
        most_s=arguments.gpu_seconds,
    )
    report = draw(request, _uncertainty(request) if arguments.least_certain else None)
    print_json_object(report) if arguments.json else print_sample(report, arguments.dry_run)
    return 0


def _uncertainty(request: SampleRequest) -> Uncertainty:
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.running.request import Request
    from opcost.stages.uncertain_operators import uncertainty_on
    from opcost.storage.files import cache_folder

    folders = request.folders
    own = Request((), folders.own, request.database, shipped_measurements=folders.shipped)
    return uncertainty_on(own, request.device, cache_folder(), progress_on_stderr())


SAMPLE_OPERATORS = Subcommand(
    name="sample-operators",
    does="draw operator tuples between and beyond those of the database, as a list that blocks 0 to 2 take",
    example="drawn --kind Conv2d --number 20 --dry-run",
    options=(
        *(NAME, NUMBER_OPTION, KIND, SEED, BEYOND, DEVICE, GPU_SECONDS, LEAST_CERTAIN),
        *(*FOLDERS, DRY_RUN, JSON_OBJECT, VERBOSE),
    ),
    run=sample_operators,
)
