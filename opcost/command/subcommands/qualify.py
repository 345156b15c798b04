"""Qualify the power meters of a GPU."""

from __future__ import annotations

import sys
from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.options import DATABASE, GPU_NUMBER, HOME, METERED_DEVICE, VERBOSE
from opcost.command.subcommand import Subcommand, folders_of
from opcost.command.subcommands.power import check_gpu
from opcost.errors import UserError


def qualify(arguments: Namespace) -> int:
    """Measure and print the qualities of a GPU's meters; return 0."""
    if arguments.device == "cpu":
        raise UserError("--device cpu: a CPU has no second meter to compare with; name a GPU")
    check_gpu(arguments)
    folders = folders_of(arguments)
    log_run(arguments.verbose, folders.database)

    from opcost.reporting.measurement_tables import print_qualification
    from opcost.running.apparatus import open_apparatus
    from opcost.running.devices import device_of_gpu
    from opcost.running.qualification import qualify_meters
    from opcost.storage.database import Database

    database = Database.of(folders)
    device = device_of_gpu(arguments.gpu) if arguments.gpu else arguments.device
    with open_apparatus(device, database) as apparatus:
        print("qualifying the meters: about 30 s", file=sys.stderr, flush=True)
        print_qualification(qualify_meters(apparatus, database.meter_qualifications))
    return 0


QUALIFY = Subcommand(
    name="qualify",
    does="qualify the power meters of a GPU that runs nothing else, in half a minute",
    example="--device cuda:0",
    options=(METERED_DEVICE, GPU_NUMBER, HOME, DATABASE, VERBOSE),
    run=qualify,
)
