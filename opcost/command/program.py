"""Time and energy of PyTorch operators and models on real hardware: shipped rows, and measurements of your own.

Example: opcost show
         opcost show resnet50
"""

import sys

from opcost import __version__
from opcost.command.options import Parser
from opcost.command.run import results_apart
from opcost.command.subcommands.advise import ADVISE
from opcost.command.subcommands.check import CHECK
from opcost.command.subcommands.check_operators import CHECK_OPERATORS
from opcost.command.subcommands.columns import COLUMNS
from opcost.command.subcommands.compare import COMPARE
from opcost.command.subcommands.compare_kernels import COMPARE_KERNELS
from opcost.command.subcommands.count import COUNT
from opcost.command.subcommands.coverage import COVERAGE
from opcost.command.subcommands.export import EXPORT
from opcost.command.subcommands.filter import FILTER
from opcost.command.subcommands.info import INFO
from opcost.command.subcommands.layers import LAYERS
from opcost.command.subcommands.make_configs import MAKE_CONFIGS
from opcost.command.subcommands.measure import MEASURE
from opcost.command.subcommands.measure_models import MEASURE_MODELS
from opcost.command.subcommands.merge import MERGE
from opcost.command.subcommands.power import POWER
from opcost.command.subcommands.power_cap import POWER_CAP
from opcost.command.subcommands.predict import PREDICT
from opcost.command.subcommands.profile import PROFILE
from opcost.command.subcommands.qualify import QUALIFY
from opcost.command.subcommands.report import REPORT
from opcost.command.subcommands.sample_operators import SAMPLE_OPERATORS
from opcost.command.subcommands.show import SHOW
from opcost.command.subcommands.sweep import SWEEP

SUBCOMMANDS = (
    *(PROFILE, SHOW, LAYERS, PREDICT, REPORT, EXPORT, INFO),
    *(MAKE_CONFIGS, SAMPLE_OPERATORS, COUNT, FILTER, MEASURE, MEASURE_MODELS, COMPARE, ADVISE, SWEEP),
    *(POWER, POWER_CAP, QUALIFY, CHECK, MERGE),
    *(CHECK_OPERATORS, COMPARE_KERNELS, COVERAGE, COLUMNS),
)
"""In the order in which a user needs them: read what is known, measure, look after meters and files, verify opcost."""


def main() -> int:
    """Run the subcommand that the arguments name; return its exit status. Without arguments, print the help."""
    parser = Parser(prog="opcost", description=__doc__)
    parser.add_argument("--version", action="version", version=f"opcost {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for subcommand in SUBCOMMANDS:
        subcommand.add_to(commands)
    arguments = parser.parse_args(sys.argv[1:] or ["--help"])
    with results_apart(arguments):
        status: int = arguments.run(arguments)
    return status
