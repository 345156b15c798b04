"""``opcost layers``: the layers of one model in the order of execution, with what each costs."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from opcost.command.log import log_run
from opcost.command.option_types import count_from_0, input_size
from opcost.command.options import ALLOW_CODE, FOLDERS, VERBOSE, OneOf, Option, switch
from opcost.command.subcommand import Subcommand
from opcost.command.subcommands.profile import ARGUMENT, MEMORY_FORMAT, PRECISION
from opcost.command.subcommands.show import SHOWN_DEVICE, SHOWN_EXECUTION
from opcost.left_out import warning_once

if TYPE_CHECKING:
    from opcost.running.request import Request
    from opcost.stages.wanted_model import WantedModel

MODEL = Option(
    "model",
    "a model as for profile: of torchvision (resnet50), timm:NAME, transformers:CLASS, or a function of yours "
    "(net.py:build, package.module:build); or a folder in the measurements folder",
    metavar="MODEL",
)
INPUT_SIZE = Option(
    "--input-size",
    "size of the input, batch first, such as 8x3x224x224 (default: the published one)",
    type=input_size,
    metavar="SIZE",
)
DEPTH = Option(
    "--depth",
    "one row for each module with this many names in its path, with all that is inside it: 1 for layer1, 2 for "
    "layer1.0, 0 for the model (default: one row for each call)",
    type=count_from_0,
    metavar="N",
)
FORMAT = OneOf(
    (
        switch("--json", "print one JSON object, and nothing else, on stdout"),
        switch("--csv", "print one line of CSV per layer, and nothing else, on stdout"),
    )
)


@warning_once()
def layers(arguments: Namespace) -> int:
    """Print the layers; return 0."""
    log_run(arguments.verbose)

    from opcost.reporting.json_object import print_object
    from opcost.reporting.layer_lines import layers_object, print_csv
    from opcost.reporting.layer_tables import print_layers
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.stages.model_layers import RowsChoice, find_layers

    request = request_for_rows(arguments)
    choice = RowsChoice(arguments.device, arguments.execution)
    found = find_layers(request, wanted_model(arguments), choice, progress_on_stderr())
    if arguments.json:
        print_object(layers_object(found, arguments.depth))
    elif arguments.csv:
        print_csv(found, arguments.depth)
    else:
        print_layers(found, arguments.depth)
    return 0


def request_for_rows(arguments: Namespace) -> Request:
    """Return the request of a command that reads rows: its device is a name in them, not one of torch's."""
    from opcost.running.request import Request

    return replace(Request.from_arguments(Namespace(**{**vars(arguments), "names": ()})), device=None)


def wanted_model(arguments: Namespace) -> WantedModel:
    """Return the model that the arguments name."""
    from opcost.stages.wanted_model import WantedModel, arguments_of

    return WantedModel(
        arguments.model,
        arguments.input_size or (),
        arguments.precision,
        arguments.memory_format,
        arguments=arguments_of(arguments.argument),
    )


LAYERS = Subcommand(
    name="layers",
    does="show the layers of one model in the order of execution, with what each costs, from rows",
    example="resnet50 --depth 2",
    options=(
        *(MODEL, INPUT_SIZE, ARGUMENT, PRECISION, MEMORY_FORMAT, DEPTH, SHOWN_DEVICE, SHOWN_EXECUTION),
        *(ALLOW_CODE, FORMAT, *FOLDERS, VERBOSE),
    ),
    run=layers,
)
