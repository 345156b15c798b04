"""The options of scripts and of ``python -m opcost``: each stands here once.

Everything here is standard library, so that ``--help`` answers at once and before anything is installed.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from opcost.command.run import USER_ERROR
from opcost.measuring.conditions import CACHES, EXECUTIONS, WARM
from opcost.measuring.protocol import FULL_LOOP_S
from opcost.operators.cases import ALL, CAPTURED, COUNTED, INPUT_DATA
from opcost.power.meter_names import AUTO, METER_CHOICES

MAXIMUM_S = 86_400.0
"""A day: no loop needs longer, and clocks and timers overflow at times that a float still holds."""

UNRECOGNISED = "unrecognized arguments: "
"""How argparse begins its message about options that it does not know."""

_DEVICE = re.compile(r"cpu|cuda(:(0|[1-9][0-9]*))?")


class Parser(argparse.ArgumentParser):
    """A parser that shows descriptions as they are, takes whole options only, and complains in one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here: a subcommand would hand them to the parser above, which has other options."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(UNRECOGNISED + " ".join(unknown))
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with status 2."""
        self.exit(USER_ERROR, f"error: {message}{self._meant(message)}; see {self.prog} --help\n")

    def _meant(self, message: str) -> str:
        """Return a question for an option that nearly is one of the parser's."""
        if not message.startswith(UNRECOGNISED):
            return ""
        unknown = message.removeprefix(UNRECOGNISED).split()[0]
        options = [option for action in self._actions for option in action.option_strings]
        close = difflib.get_close_matches(unknown.partition("=")[0], options, n=1) if unknown.startswith("-") else []
        return f"; did you mean {close[0]}?" if close else ""


class Option:
    """One argument: its flag, or the name of a positional one, its help, and further settings for argparse."""

    def __init__(self, flag: str, help_text: str, **settings: Any) -> None:
        self._flag = flag
        self._settings = {"help": help_text, **settings}

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(self._flag, **self._settings)


@dataclass(frozen=True)
class OneOf:
    """Options of which a command line has one at most."""

    options: tuple[Option, ...]

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        group = parser.add_mutually_exclusive_group()
        for option in self.options:
            option.add_to(group)


def switch(flag: str, help_text: str) -> Option:
    """Return an option without a value: it yields a bool."""
    return Option(flag, help_text, action="store_true")


def folder_option(flag: str, content: str) -> Option:
    """Return an option for a folder, by default the one of its name: it yields a Path."""
    default = Path(flag.lstrip("-"))
    return Option(flag, f"{content} (default: {default}/)", type=_folder, default=default, metavar="DIR")


def _device_option(default: str) -> Option:
    """Return ``--device``, whose help names a default: it yields ``device`` (str or None)."""
    return Option("--device", f"cpu, cuda or cuda:N (default: {default})", type=device_name, metavar="DEVICE")


def device_name(text: str) -> str:
    """Return a device's name as it stands, if it is ``cpu``, ``cuda`` or ``cuda:N``: a type for argparse.

    Raises:
        argparse.ArgumentTypeError: it is none of them.
    """
    if not _DEVICE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no device: write cpu, cuda, or cuda:N such as cuda:0")
    return text


def positive_seconds(text: str) -> float:
    """Return a time above 0 and up to ``MAXIMUM_S``, in s: a type for argparse.

    Raises:
        argparse.ArgumentTypeError: it is no such number.
    """
    time_s = _number(text)
    if not 0 < time_s <= MAXIMUM_S:
        remedy = f"write a number above 0 and up to {MAXIMUM_S:.0f} (one day), such as 30 or 0.5"
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds: {remedy}")
    return time_s


def ratio(text: str) -> float:
    """Return a number above 0 and below 1: a type for argparse.

    Raises:
        argparse.ArgumentTypeError: it is no such number.
    """
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no ratio: write a number between 0 and 1, such as 0.01 or 0.9")
    return value


def _number(text: str) -> float:
    """Return the number that a text is, not a number (NaN) for any other: it lies in no bounds."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _html_file(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".html", ".htm") or path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no name of an HTML file; name one that ends in .html")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {path.parent}; make it, or name another")
    return path


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("'' is no name of a folder; write . for the present one")
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a file; name a folder")
    return path


NAMES = Option(
    "names",
    "a folder in the measurements folder, or a glob such as 'resnet*'; none: all that there is to do",
    nargs="*",
    metavar="NAME",
)
MODELS = Option(
    "names",
    "a model as torchvision.models.list_models() spells it, or a glob; none: all but the quantized ones",
    nargs="*",
    metavar="MODEL",
)
DEVICE = _device_option("cuda where there is one, else cpu")
MEASURED_DEVICE = _device_option("whatever was measured on")
MEASUREMENTS = folder_option("--measurements", "the models' folders")
DATABASE = folder_option("--database", "the tables of results")
DRY_RUN = switch("--dry-run", "say what would be done and how long it takes, no more")
JSON = switch("--json", "print one JSON list with one object per model on stdout, and nothing else there")
VERBOSE = switch("--verbose", "print more on stderr: each step, and the traceback behind an error of one line")
META = switch(
    "--meta",
    "run on shapes only: no memory, no weights; detectors, whose work depends on data, run on the device",
)
CENSUS = switch(
    "--census",
    "then print how many calls and tuples the models have that are counted, and how many they share",
)
DURATION = OneOf(
    (
        Option(
            "--seconds",
            f"how long each measuring loop runs, in s (default: {FULL_LOOP_S:g}; shorter never sets done)",
            type=positive_seconds,
            default=FULL_LOOP_S,
            metavar="SECONDS",
        ),
        Option(
            "--relative-error",
            "end each loop when the 95 %% intervals of time and energy are within this ratio, such as 0.01, when it is "
            f"clear that they will not be, or after {FULL_LOOP_S:g} s; never sets done",
            type=ratio,
            metavar="RATIO",
        ),
    )
)
EXECUTION = Option(
    "--execution",
    "in CUDA graphs where they can be captured, or by Python's calls (default: graph on a GPU)",
    choices=EXECUTIONS,
)
CACHE = Option(
    "--cache",
    "what operators find in the cache when they run again and again: all that they use (warm); all but their weights "
    "(cold, on GPUs); or their input, just written by the operator before, which is one like them (chained) "
    f"(default: {WARM})",
    choices=CACHES,
    default=WARM,
)
METER = Option(
    "--meter",
    "the only meter that energies are taken from, where something is lacking (default: auto, the best that passed its "
    "qualification); rows that are there stay",
    choices=METER_CHOICES,
    default=AUTO,
)
SAME_BOARD = switch(
    "--same-board",
    "measure again what was measured on other boards only: boards of one kind differ, and comparisons sum rows of the "
    "whole model's own board where it has a choice",
)
INPUT_VALUES = Option(
    "--input-data",
    f"values that operators run on: like those in their model, normal, or zeros (default: {CAPTURED})",
    choices=INPUT_DATA,
    default=CAPTURED,
)
SUMMED = Option(
    "--counted",
    f"sum all operators, or only those of modules without children, as hooks see them (default: {ALL})",
    choices=COUNTED,
    default=ALL,
)
FIGURES = Option(
    "--figures",
    "also draw parity, operators and errors as PNG and SVG into this folder (needs matplotlib)",
    type=_folder,
    metavar="DIR",
)
REPORT = Option(
    "--report",
    "also write a report that opens offline in any browser: one HTML file, which is replaced",
    type=_html_file,
    metavar="FILE.html",
)
REPORT_FILE = Option(
    "--output",
    "the HTML file, which is replaced (default: report.html)",
    type=_html_file,
    default=Path("report.html"),
    metavar="FILE.html",
)
COVERAGE_TARGET = Option(
    "--coverage-target",
    "instead of comparing, say whether the whitelist covers this share of each model's time and energy, such as 0.9, "
    "and which operators to add",
    type=ratio,
    metavar="RATIO",
)
WRITE_WHITELIST = switch(
    "--write-whitelist",
    "with --coverage-target: replace the whitelist by the smallest one that reaches it in all these models",
)


def add_options(parser: argparse.ArgumentParser, *options: Option | OneOf) -> None:
    """Add options to a parser. ``dry_run`` and ``same_board`` are False where they are not among them."""
    parser.set_defaults(dry_run=False, same_board=False)
    for option in options:
        option.add_to(parser)


def pipeline_parser(description: str, example: str, *more: Option | OneOf, device: Option = DEVICE) -> Parser:
    """Return a parser with the options of all pipeline scripts and some more.

    It yields ``names`` (list of str), ``device`` (str or None), ``measurements``, ``database`` (Path), ``dry_run``,
    ``same_board``, ``json`` and ``verbose`` (bool).

    Args:
        description: what the script does.
        example: a command, the last line of ``--help``.
        more: the script's own options.
        device: ``DEVICE`` or ``MEASURED_DEVICE``, whose help says what the default is.
    """
    parser = Parser(description=description, epilog=f"example:\n  {example}")
    add_options(parser, NAMES, device, MEASUREMENTS, DATABASE, DRY_RUN, JSON, VERBOSE, *more)
    return parser
