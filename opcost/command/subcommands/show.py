"""``opcost show``: models ranked by energy or time per sample, from the rows of a database."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from opcost.command.log import log_run
from opcost.command.option_types import count, device_or_product, devices_or_products
from opcost.command.options import FOLDERS, VERBOSE, OneOf, Option, switch
from opcost.command.run import without_garbage_collection
from opcost.command.subcommand import Subcommand
from opcost.measuring.conditions import EXECUTIONS, MemoryFormat, Precision

if TYPE_CHECKING:
    from opcost.running.request import Request

SORTS = ("energy", "time", "power", "saving", "name")

SHOWN = Option(
    "names",
    "model, such as resnet50; folder in the measurements folder; or a glob such as 'resnet*' (default: all that are "
    "measured). Of one name that is no glob, the operators are shown",
    nargs="*",
    metavar="NAME",
)
SORT = Option(
    "--sort",
    "order of the models: the smallest energy or time per sample, or power, first; the largest saving at the roof "
    "first; or by name (default: energy). Operators of one model: the largest first",
    choices=SORTS,
    default="energy",
)
SHOWN_DEVICE = Option(
    "--device",
    "cpu, cuda, or a device's name such as 'NVIDIA H200' (default: all that have measurements)",
    type=device_or_product,
    metavar="DEVICE",
)
SHOWN_DEVICES = Option(
    "--device",
    "cpu, cuda, or a device's name such as 'NVIDIA H200' (default: all that have measurements); several with commas, "
    "such as H100,H200, are set beside each other",
    type=devices_or_products,
    metavar="DEVICE",
)
SHOWN_PRECISION = Option("--precision", "show the models in this precision", choices=get_args(Precision))
SHOWN_FORMAT = Option("--memory-format", "show the models in this memory format", choices=get_args(MemoryFormat))
SHOWN_BATCH = Option("--batch", "show the models at this batch size", type=count, metavar="N")
SHOWN_EXECUTION = Option(
    "--execution",
    "show measurements as a CUDA graph, or called from Python (default: graph on a GPU, eager on a CPU)",
    choices=EXECUTIONS,
)
TOP = Option(
    "--top",
    "the most models, or operators of a model, to show (default: all models, 15 operators)",
    type=count,
    metavar="N",
)
OPERATORS = switch(
    "--operators", "show the operators of each model; with --csv one line each, with --json in its object"
)
CONDITIONS = switch(
    "--conditions",
    "show how many operator tuples and models are measured under each set of conditions, the models that are measured "
    "in part, and the time to measure the rest; not with --operators, --why or --csv",
)
WHY = switch("--why", "also print all remarks on the comparisons of these models' sums with their wholes")
FORMAT = OneOf(
    (
        WHY,
        switch("--json", "print one JSON list with one object per model, and nothing else, on stdout"),
        switch("--csv", "print one line of CSV per model (per operator with --operators), and nothing else, on stdout"),
    )
)


@without_garbage_collection()
def show(arguments: Namespace) -> int:
    """Print the ranking; return 1 if a name or glob has no model with a cost, else 0."""
    log_run(arguments.verbose)

    from opcost.reporting.show_lines import largest, print_csv, ranking_objects
    from opcost.reporting.show_tables import print_rankings, print_remarks
    from opcost.reporting.tables import print_objects
    from opcost.running.request import Request
    from opcost.stages.show import Choice
    from opcost.stages.show import show as find_rankings
    from opcost.storage.files import cache_folder

    # The device is a name in rows here, not one of torch's.
    request = replace(Request.from_arguments(arguments), device=None)
    if arguments.conditions:
        return _show_conditions(request, arguments)
    # Programs get operators on request only; a person who names one model wants to see them.
    operators = arguments.operators if arguments.operators or arguments.json or arguments.csv else None
    choice = Choice(
        arguments.sort,
        arguments.device,
        arguments.execution,
        operators,
        arguments.precision,
        arguments.memory_format,
        arguments.batch,
    )
    report = find_rankings(request, choice, cache_folder())
    if arguments.json:
        print_objects(ranking_objects(largest(report, arguments.top)))
    elif arguments.csv:
        print_csv(largest(report, arguments.top), arguments.sort)
    else:
        print_rankings(report, arguments.sort, arguments.top, with_incomplete=bool(arguments.names))
        if arguments.why:
            from opcost.stages.compare import find_comparisons, reports_of

            print_remarks(report, reports_of(request, find_comparisons(request)))
    return int(bool(report.without_cost))


def _show_conditions(request: Request, arguments: Namespace) -> int:
    from opcost.errors import UserError
    from opcost.reporting.holdings_tables import holdings_objects, print_holdings
    from opcost.reporting.tables import print_objects
    from opcost.stages.holdings import holdings

    others = [name for name in ("operators", "why", "csv") if getattr(arguments, name)]
    if others:
        raise UserError(f"--conditions: not with --{others[0]}; leave one of them out")
    found = holdings(request, arguments.execution, arguments.device)
    if arguments.json:
        print_objects(holdings_objects(found))
    else:
        print_holdings(found, arguments.top)
    return 0


SHOW = Subcommand(
    name="show",
    does="rank models by the energy or the time of a sample, or show the operators of one model, from rows",
    example="resnet50",
    options=(
        SHOWN,
        SORT,
        TOP,
        SHOWN_DEVICES,
        SHOWN_PRECISION,
        SHOWN_FORMAT,
        SHOWN_BATCH,
        SHOWN_EXECUTION,
        OPERATORS,
        CONDITIONS,
        FORMAT,
        *FOLDERS,
        VERBOSE,
    ),
    run=show,
)
