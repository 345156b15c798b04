"""``opcost predict``: what a model would cost on a device, without running it there."""

from __future__ import annotations

import argparse
from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.option_types import count
from opcost.command.options import ALLOW_CODE, FOLDERS, JSON_OBJECT, VERBOSE, Option, switch
from opcost.command.run import without_garbage_collection
from opcost.command.subcommand import Subcommand
from opcost.command.subcommands.layers import INPUT_SIZE, MODEL, request_for_rows, wanted_model
from opcost.command.subcommands.profile import ARGUMENT, MEMORY_FORMAT, PRECISION
from opcost.command.subcommands.show import SHOWN_DEVICE, SHOWN_EXECUTION
from opcost.left_out import warning_once

BATCH = Option(
    "--batch", "number of samples of a run (default: that of the input size)", type=count, metavar="N", default=None
)
MEASURE_NEXT = Option(
    "--measure-next",
    "write the N predicted operators that are least certain as a list of tuples, which blocks 0 to 2 take",
    type=count,
    metavar="N",
    default=0,
)
ALLOW_EXTRAPOLATION = switch("--allow-extrapolation", argparse.SUPPRESS)
"""An option of earlier versions, which refused some predictions. It changes nothing."""


@warning_once()
@without_garbage_collection()
def predict(arguments: Namespace) -> int:
    """Print the prediction; return 0."""
    log_run(arguments.verbose)

    from opcost.reporting.json_object import print_object
    from opcost.reporting.prediction_tables import prediction_object, print_prediction
    from opcost.reporting.terminal import progress_on_stderr
    from opcost.stages.predict import PredictionRequest
    from opcost.stages.predict import predict as find
    from opcost.storage.files import cache_folder

    wish = PredictionRequest(
        wanted_model(arguments),
        arguments.device,
        arguments.execution,
        arguments.batch,
        arguments.measure_next,
    )
    found = find(request_for_rows(arguments), wish, cache_folder(), progress_on_stderr())
    print_object(prediction_object(found)) if arguments.json else print_prediction(found)
    return 0


PREDICT = Subcommand(
    name="predict",
    does="predict what a model costs on a device, from measured operators, without a GPU",
    example='resnet50 --batch 64 --device "NVIDIA H200"',
    options=(
        *(MODEL, INPUT_SIZE, BATCH, ARGUMENT, PRECISION, MEMORY_FORMAT, SHOWN_DEVICE, SHOWN_EXECUTION),
        *(MEASURE_NEXT, ALLOW_EXTRAPOLATION, ALLOW_CODE, JSON_OBJECT, *FOLDERS, VERBOSE),
    ),
    run=predict,
)
