"""Subcommands beside the scripts: prepare configs, check operators, kernels and files, merge databases.

Example: python -m opcost check
         python -m opcost make-configs 'efficientnet_*'
"""

from typing import NoReturn

from opcost.command.options import Parser
from opcost.command.run import run
from opcost.command.subcommand import PROGRAM
from opcost.command.subcommands.check import CHECK
from opcost.command.subcommands.check_operators import CHECK_OPERATORS
from opcost.command.subcommands.columns import COLUMNS
from opcost.command.subcommands.compare_kernels import COMPARE_KERNELS
from opcost.command.subcommands.coverage import COVERAGE
from opcost.command.subcommands.make_configs import MAKE_CONFIGS
from opcost.command.subcommands.merge import MERGE
from opcost.command.subcommands.report import REPORT

SUBCOMMANDS = (REPORT, MAKE_CONFIGS, CHECK_OPERATORS, COMPARE_KERNELS, COVERAGE, CHECK, MERGE, COLUMNS)


def main() -> int:
    """Run the subcommand that the arguments name; return its exit status."""
    parser = Parser(prog=PROGRAM, description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for subcommand in SUBCOMMANDS:
        subcommand.add_to(commands)
    arguments = parser.parse_args()
    status: int = arguments.run(arguments)
    return status


def start() -> NoReturn:
    """Run the program, and exit with its status."""
    run(main)


if __name__ == "__main__":
    start()
