"""``opcost compare-kernels``: profile models, and their operator tuples alone -> kernel_times.csv"""

from __future__ import annotations

from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.options import ALLOW_CODE, DEVICE, FOLDERS, JSON, NAMES, VERBOSE
from opcost.command.subcommand import Subcommand, folders_of


def compare_kernels(arguments: Namespace) -> int:
    """Print the share of each model's kernels that its operator tuples launch alone; return 0."""
    log_run(arguments.verbose, folders_of(arguments).database)

    from opcost.reporting.comparison_tables import print_kernels
    from opcost.reporting.tables import print_json
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.running.request import Request
    from opcost.stages.kernels import compare_kernels as profile_models

    reports = profile_models(Request.from_arguments(arguments), progress_on_stderr())
    print_json(reports) if arguments.json else print_kernels(reports)
    return 0


COMPARE_KERNELS = Subcommand(
    name="compare-kernels",
    does="compare the kernels of each model with those of its operator tuples run alone, on a GPU",
    example="resnet18_32x3x32x32 --device cuda",
    options=(NAMES, DEVICE, *FOLDERS, JSON, VERBOSE, ALLOW_CODE),
    run=compare_kernels,
)
