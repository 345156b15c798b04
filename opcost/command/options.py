"""The options of all scripts and of ``opcost``.

Standard library only, so that ``--help`` answers at once and before anything is installed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from opcost.command.option_types import (
    device_name,
    device_or_product,
    folder,
    html_file,
    positive_seconds,
    ratio,
    user_path,
)
from opcost.command.run import USER_ERROR
from opcost.command.suggestions import did_you_mean
from opcost.measuring.conditions import CACHES, EXECUTIONS, WARM
from opcost.measuring.protocol import FULL_LOOP_S
from opcost.operators.cases import ALL, CAPTURED, COUNTED, INPUT_DATA
from opcost.power.meter_names import AUTO, METER_CHOICES
from opcost.printable import quotable


class Parser(argparse.ArgumentParser):
    """A parser that shows descriptions as they are, refuses abbreviated options, and prints errors in one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here: the parser of a subcommand would pass them to its parent."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [option for action in self._actions for option in action.option_strings]
            name = unknown[0].partition("=")[0]
            question = did_you_mean(name, options) if name.startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{question}")
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest the choice that was probably meant."""
        choices = list(map(str, action.choices or ()))
        if choices and value not in choices:
            problem = f"invalid choice: {value!r}{did_you_mean(str(value), choices)}"
            raise argparse.ArgumentError(action, f"{problem} (choose from {', '.join(choices)})")

    def error(self, message: str) -> NoReturn:
        """Print the error, and exit with status 2."""
        self.exit(USER_ERROR, f"error: {quotable(message)}; see {self.prog} --help\n")


class Option:
    """One argument: its flag, or the name of a positional one, its help, and further settings for argparse."""

    def __init__(self, flag: str, help_text: str, **settings: Any) -> None:
        self._flag = flag
        self._settings = {"help": help_text, **settings}

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(self._flag, **self._settings)


@dataclass(frozen=True)
class OneOf:
    """Options of which a command line has at most one."""

    options: tuple[Option, ...]

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        group = parser.add_mutually_exclusive_group()
        for option in self.options:
            option.add_to(group)


def switch(flag: str, help_text: str) -> Option:
    """Return an option without a value: it yields a bool."""
    return Option(flag, help_text, action="store_true")


def folder_option(flag: str, content: str) -> Option:
    """Return an option for a folder: it yields a Path, or None."""
    return Option(flag, content, type=folder, metavar="DIR")


def _device_option(described: str, default: str | None = None) -> Option:
    """Return ``--device``, whose help names a default: it yields ``device`` (str, or None without a default)."""
    text = f"cpu, cuda or cuda:N (default: {described})"
    return Option("--device", text, type=device_name, default=default, metavar="DEVICE")


def _names(default: str) -> Option:
    """Return the option for models, with the models that a command takes without it."""
    text = (
        f"model folder in the measurements folder, case of a config, or a glob such as 'resnet*' (default: {default})"
    )
    return Option("names", text, nargs="*", metavar="NAME")


NAMES = _names("all")
OPEN_NAMES = _names("all that are not done")
COUNTED_NAMES = _names("all that are counted")
COMPARED_NAMES = _names("all that are counted or shipped")
MODELS = Option(
    "names",
    "model name as in torchvision.models.list_models(), timm:NAME, transformers:CLASS, or a glob "
    "(default: all of torchvision but the quantized ones)",
    nargs="*",
    metavar="MODEL",
)
DEVICE = _device_option("cuda if available, else cpu")
MEASURING_DEVICE = Option(
    "--device",
    "cpu, cuda or cuda:N (default: cuda if available, else cpu); with --dry-run also a product, or a part of its name "
    "such as H200, which need not be here",
    type=device_or_product,
    metavar="DEVICE",
)
MEASURED_DEVICE = Option(
    "--device",
    "cpu, cuda, or a part of a product's name such as H200 (default: all that were measured)",
    type=device_or_product,
    metavar="DEVICE",
)
HOME = folder_option(
    "--home",
    "your folder, which has measurements/ and database/, read beside the shipped ones (default: OPCOST_HOME, else the "
    "line in ~/.config/opcost/home, else ~/.local/share/opcost)",
)
MEASUREMENTS = folder_option("--measurements", "the only folder of models, instead of the home's and the shipped one")
DATABASE = folder_option("--database", "the only folder of tables, instead of the home's and the shipped one")
FOLDERS = (HOME, MEASUREMENTS, DATABASE)
DRY_RUN = switch("--dry-run", "print what would be done and how long it takes; change nothing")
JSON = switch("--json", "print one JSON list with one object per model, and nothing else, on stdout")
JSON_OBJECT = switch("--json", "print one JSON object, and nothing else, on stdout")
VERBOSE = switch("--verbose", "print each step, and the traceback behind an error, on stderr")
ALLOW_CODE = switch(
    "--allow-code",
    "run the Python code that models named FILE:FUNCTION or MODULE:FUNCTION are built by: only code that you trust",
)
META = switch(
    "--meta",
    "count on shapes only, without memory and weights; detectors, whose work depends on values, run on the device",
)
STRICT = switch(
    "--strict",
    "refuse a model that runs an operation without a formula for its FLOPs (default: count it, its FLOPs unknown)",
)
CENSUS = switch(
    "--census",
    "then print how many calls and tuples the counted models have, and how many tuples they share",
)
DURATION = OneOf(
    (
        Option(
            "--seconds",
            f"length of each measuring loop in s (default: {FULL_LOOP_S:g}; shorter loops never set done)",
            type=positive_seconds,
            default=FULL_LOOP_S,
            metavar="SECONDS",
        ),
        Option(
            "--relative-error",
            "end each loop when the 95 %% intervals of time and energy are within this ratio, such as 0.01, when that "
            f"is out of reach, or after {FULL_LOOP_S:g} s; never sets done",
            type=ratio,
            metavar="RATIO",
        ),
    )
)
EXECUTION = Option(
    "--execution",
    "replayed as a captured CUDA graph, or called from Python (default: graph on a GPU, eager on a CPU)",
    choices=EXECUTIONS,
)
CACHE = Option(
    "--cache",
    "content of the cache before each call in a loop: inputs and weights (warm); all but the weights (cold, GPUs "
    f"only); or the input, just written by a call of the same operator (chained) (default: {WARM})",
    choices=CACHES,
    default=WARM,
)
METER = Option(
    "--meter",
    "the only meter that energies of new rows are taken from (default: auto, the best one that passed its "
    "qualification)",
    choices=METER_CHOICES,
    default=AUTO,
)
SAME_BOARD = switch(
    "--same-board",
    "measure again cases whose rows all come from other boards: boards of one product differ",
)
INPUT_VALUES = Option(
    "--input-data",
    f"values of the inputs: as captured in the model, normal, or zeros (default: {CAPTURED})",
    choices=INPUT_DATA,
    default=CAPTURED,
)
SUMMED = Option(
    "--counted",
    f"sum all operators, or only modules without children, which forward hooks see (default: {ALL})",
    choices=COUNTED,
    default=ALL,
)
AGAINST = Option(
    "--against",
    "instead of comparing with wholes, compare each model with the same one under these conditions: precision=fp32, "
    "memory_format=contiguous, device=H100, or several with commas; writes nothing",
    action="append",
    default=None,
    metavar="KEY=VALUE",
)
FIGURES = Option(
    "--figures",
    "also draw the figures parity, operators and errors as PNG and SVG into this folder (needs matplotlib)",
    type=folder,
    metavar="DIR",
)
REPORT = Option(
    "--report",
    "also write a report as one HTML file that opens offline; replaces an existing file",
    type=html_file,
    metavar="FILE.html",
)
REPORT_FILE = Option(
    "--output",
    "the HTML file, which is replaced (default: report.html)",
    type=html_file,
    default=Path("report.html"),
    metavar="FILE.html",
)
COVERAGE_TARGET = Option(
    "--coverage-target",
    "share of each model's time and energy that the whitelist should cover (default: 0.9); the exit status is 1 if a "
    "model misses the target",
    type=ratio,
    default=0.9,
    metavar="RATIO",
)
WRITE_WHITELIST = switch(
    "--write-whitelist",
    "replace the whitelist by the smallest one that reaches the target in all these models",
)
METERED_DEVICE = _device_option("cuda", default="cuda")
GPU_NUMBER = Option("--gpu", argparse.SUPPRESS)
"""The GPU's index or UUID in nvidia-smi, as earlier versions called it."""
INTERVAL = Option(
    "--interval", "seconds between two rows (default: 0.02, CPU 0.1)", type=positive_seconds, metavar="SECONDS"
)
LOG_FILE = Option("--output", "a new file (default: power_log_<UTC time>.csv)", type=user_path, metavar="FILE")
LENGTH = Option("--seconds", "length of the log in s (default: until Ctrl-C)", type=positive_seconds, metavar="SECONDS")
PLOT = Option(
    "--plot", "instead of logging, draw a log as SVG, beside it or as --output", type=user_path, metavar="FILE"
)

FOLLOWED_COMMAND = Option(
    "command", "after --: run this command, log while it runs, and exit with its status", nargs="*", metavar="COMMAND"
)
FOLLOWED_PID = Option("--pid", "log until the process with this id ends", type=int, metavar="PID")
FOLLOWED_FIGURE = Option(
    "--figure",
    "with a command or --pid: also draw power, load and temperatures (.png, .pdf or .svg; needs matplotlib)",
    type=user_path,
    metavar="FILE",
)

STAGE = (*FOLDERS, DRY_RUN, JSON, VERBOSE)
"""The options of all stages, besides names and device."""

PIPELINE = (OPEN_NAMES, DEVICE, *STAGE, ALLOW_CODE)
"""The options of a stage that runs models."""

COMPARED = (COMPARED_NAMES, MEASURED_DEVICE, *STAGE)
"""The options of stages that read what was measured."""


def add_options(parser: argparse.ArgumentParser, *options: Option | OneOf) -> None:
    """Add options to a parser. Options that are not among them have their defaults."""
    parser.set_defaults(dry_run=False, same_board=False, home=None, measurements=None, database=None, allow_code=False)
    for option in options:
        option.add_to(parser)
