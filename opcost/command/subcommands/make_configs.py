"""``opcost make-configs``: a ``summary.yml`` for each model that has none."""

from __future__ import annotations

from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.options import HOME, JSON, MEASUREMENTS, MODELS, VERBOSE, switch
from opcost.command.subcommand import Subcommand, folders_of

DRY_RUN = switch("--dry-run", "print what would be written; write nothing")


def make_configs(arguments: Namespace) -> int:
    """Write configs and print their names; return 0."""
    log_run(arguments.verbose)

    from opcost.reporting.tables import print_configs, print_json
    from opcost.stages.make_configs import make_configs as write_configs
    from opcost.storage.model_folders import ModelFolders

    folders = folders_of(arguments)
    models = ModelFolders.of(folders)
    reports = write_configs(models, arguments.names, arguments.dry_run)
    print_json(reports) if arguments.json else print_configs(reports, arguments.dry_run)
    return 0


MAKE_CONFIGS = Subcommand(
    name="make-configs",
    does="write a summary.yml for each named model that has none, with its usual input size",
    example="'efficientnet_*'",
    options=(MODELS, HOME, MEASUREMENTS, DRY_RUN, JSON, VERBOSE),
    run=make_configs,
)
