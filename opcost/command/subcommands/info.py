"""``opcost info``: what opcost finds on this machine, and two next steps."""

from __future__ import annotations

from argparse import Namespace

from opcost.command.log import log_run
from opcost.command.options import FOLDERS, JSON_OBJECT, VERBOSE
from opcost.command.subcommand import Subcommand, folders_of


def info(arguments: Namespace) -> int:
    """Print what is found; return 0."""
    log_run(arguments.verbose)

    from opcost.reporting.info_lines import print_info
    from opcost.reporting.json_object import print_json_object
    from opcost.stages.info import find_info

    found = find_info(folders_of(arguments))
    print_json_object(found) if arguments.json else print_info(found)
    return 0


INFO = Subcommand(
    name="info",
    does="print versions, devices and their power meters, the shipped rows, the folders, and two next steps",
    example="",
    options=(*FOLDERS, JSON_OBJECT, VERBOSE),
    run=info,
)
