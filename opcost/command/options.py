"""The arguments that the pipeline scripts share.

Everything here is standard library, so that ``--help`` answers at once and before anything is installed.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
from pathlib import Path
from typing import Any, NoReturn

from opcost.command.run import USER_ERROR
from opcost.measuring.conditions import CACHES, EXECUTIONS, WARM
from opcost.operators.subjects import ALL, CAPTURED, COUNTED, INPUT_DATA
from opcost.power.meter_names import AUTO, METER_CHOICES

DEFAULT_LOOP_S = 30.0
"""``opcost.measuring.record.FULL_LOOP_S``, which cannot be imported here: it needs numpy."""

MAXIMUM_S = 86_400.0
"""A day: no loop needs longer, and clocks and timers overflow at times that a float still holds."""


_DEVICE = re.compile(r"cpu|cuda(:(0|[1-9][0-9]*))?")


UNRECOGNISED = "unrecognized arguments: "
"""How argparse begins to tell of options that it does not know."""


class Parser(argparse.ArgumentParser):
    """A parser that shows descriptions as they are, takes whole options only, and complains in one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings)

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


USUAL_DEVICE = "cuda where there is one, else cpu"


def pipeline_parser(
    description: str, example: str, device_default: str = USUAL_DEVICE, has_dry_run: bool = True
) -> Parser:
    """Return a parser with the arguments of all pipeline scripts; ``example`` is a command, shown last by ``--help``.

    ``device_default`` says which device is meant where none is named; a script that can only do all of its work has no
    ``--dry-run``.
    It yields ``names`` (list of str), ``device`` (str or None), ``measurements``, ``database`` (Path), ``dry_run``,
    ``json`` and ``verbose`` (bool).
    """
    parser = Parser(description=description, epilog=f"example:\n  {example}")
    names_help = "a folder under the measurements folder, or a glob such as 'resnet*'; none: all that there is to do"
    parser.add_argument("names", nargs="*", metavar="NAME", help=names_help)
    add_device(parser, device_default)
    add_folder(parser, "--measurements", "the models' folders")
    add_folder(parser, "--database", "the tables of results")
    parser.set_defaults(dry_run=False, same_board=False)
    if has_dry_run:
        dry_run_help = "say what would be done and how long it takes, no more"
        parser.add_argument("--dry-run", action="store_true", help=dry_run_help)
    json_help = "print one JSON list with one object per model on stdout, and nothing else there"
    parser.add_argument("--json", action="store_true", help=json_help)
    add_verbose(parser)
    return parser


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """Add ``--verbose``, whether to tell more on stderr: it yields ``verbose`` (bool)."""
    verbose_help = "tell more on stderr: each step, and the traceback behind an error of one line"
    parser.add_argument("--verbose", action="store_true", help=verbose_help)


def add_seconds(parser: argparse.ArgumentParser) -> None:
    """Add ``--seconds``, how long each measuring loop runs, and ``--relative-error``, how precise it gets.

    They yield ``seconds`` (float) and ``relative_error`` (float or None).
    """
    group = parser.add_mutually_exclusive_group()
    seconds_help = f"how long each measuring loop runs, in s (default: {DEFAULT_LOOP_S:g}; shorter never sets done)"
    group.add_argument("--seconds", type=positive_seconds, default=DEFAULT_LOOP_S, metavar="SECONDS", help=seconds_help)
    error_help = (
        "end each loop when the 95 %% intervals of time and energy are within this share, such as 0.01, or after 30 s"
    )
    group.add_argument("--relative-error", type=small_ratio, metavar="RATIO", help=error_help)


def add_execution(parser: argparse.ArgumentParser) -> None:
    """Add ``--execution``, how operators and models are run: it yields ``execution`` (str or None)."""
    execution_help = "in CUDA graphs where they can be captured, or by Python's calls (default: graph on a GPU)"
    parser.add_argument("--execution", choices=EXECUTIONS, help=execution_help)


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Add ``--cache``, what operators find in the device's cache: it yields ``cache`` (str)."""
    cache_help = (
        "what operators find in the cache when they run again and again: all that they use (warm); all but their "
        "weights (cold, on GPUs); or their input, just written by the operator before, which is one like them (chained)"
    )
    parser.add_argument("--cache", choices=CACHES, default=WARM, help=f"{cache_help} (default: {WARM})")


def add_meter(parser: argparse.ArgumentParser) -> None:
    """Add ``--meter``, the one that energies are taken from: it yields ``meter`` (str)."""
    meter_help = (
        "the only meter that energies are taken from, where something is lacking (default: auto, the best that passed "
        "its qualification); rows that are there stay"
    )
    parser.add_argument("--meter", choices=METER_CHOICES, default=AUTO, help=meter_help)


def add_same_board(parser: argparse.ArgumentParser) -> None:
    """Add ``--same-board``: it yields ``same_board`` (bool)."""
    same_board_help = (
        "measure again what was measured on other boards only: boards of one kind differ, and comparisons sum rows of "
        "the whole model's own board where it has a choice"
    )
    parser.add_argument("--same-board", action="store_true", help=same_board_help)


def add_figures(parser: argparse.ArgumentParser) -> None:
    """Add ``--figures``, a folder for figures: it yields ``figures`` (Path or None)."""
    figures_help = "also draw parity, operators and errors as PNG and SVG into this folder (needs matplotlib)"
    parser.add_argument("--figures", type=_folder, metavar="DIR", help=figures_help)


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add ``--report``, an HTML file to look at: it yields ``report`` (Path or None)."""
    report_help = "also write a report that opens offline in any browser: one HTML file, which is replaced"
    parser.add_argument("--report", type=_html_file, metavar="FILE.html", help=report_help)


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


def add_counted(parser: argparse.ArgumentParser) -> None:
    """Add ``--counted``, which operators are summed: it yields ``counted`` (str)."""
    counted_help = "sum all operators, or only those of modules without children, as hooks see them (default: all)"
    parser.add_argument("--counted", choices=COUNTED, default=ALL, help=counted_help)


def add_coverage(parser: Parser) -> None:
    """Add ``--coverage-target`` and ``--write-whitelist``: ``coverage_target`` (float or None), ``write_whitelist``."""
    target_help = (
        "instead of comparing, say whether the whitelist covers this share of each model's time and energy, such as "
        "0.9, and which operators to add"
    )
    parser.add_argument("--coverage-target", type=coverage_ratio, metavar="RATIO", help=target_help)
    write_help = "with --coverage-target: replace the whitelist by the smallest one that reaches it in all these models"
    parser.add_argument("--write-whitelist", action="store_true", help=write_help)


def add_input_data(parser: argparse.ArgumentParser) -> None:
    """Add ``--input-data``, the values that operators run on: it yields ``input_data`` (str)."""
    data_help = "values that operators run on: like those in their model, normal, or zeros (default: captured)"
    parser.add_argument("--input-data", choices=INPUT_DATA, default=CAPTURED, help=data_help)


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


def small_ratio(text: str) -> float:
    """Return a relative error above 0 and below 1: a type for argparse.

    Raises:
        argparse.ArgumentTypeError: it is no such number.
    """
    return _ratio(text, "relative error", "0.01")


def coverage_ratio(text: str) -> float:
    """Return a share above 0 and below 1: a type for argparse.

    Raises:
        argparse.ArgumentTypeError: it is no such number.
    """
    return _ratio(text, "share", "0.9")


def _ratio(text: str, what: str, example: str) -> float:
    value = _number(text)
    if not 0 < value < 1:
        remedy = f"write a number between 0 and 1, such as {example}"
        raise argparse.ArgumentTypeError(f"{text!r} is no {what}: {remedy}")
    return value


def _number(text: str) -> float:
    """Return the number that a text is, not a number (NaN) for any other: it lies in no bounds."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def add_device(parser: argparse.ArgumentParser, default: str = USUAL_DEVICE) -> None:
    """Add ``--device``: it yields ``device`` (str or None)."""
    device_help = f"cpu, cuda or cuda:N (default: {default})"
    parser.add_argument("--device", type=device_name, metavar="DEVICE", help=device_help)


def add_models(parser: argparse.ArgumentParser) -> None:
    """Add names of torchvision's models: they yield ``names`` (list of str)."""
    names_help = "a model as torchvision.models.list_models() spells it, or a glob; none: all but the quantized ones"
    parser.add_argument("names", nargs="*", metavar="MODEL", help=names_help)


def add_folder(parser: argparse.ArgumentParser, option: str, content: str) -> None:
    """Add an option such as ``--database`` for a folder, by default the one of that name; it yields a Path."""
    default = Path(option.lstrip("-"))
    parser.add_argument(option, type=_folder, default=default, metavar="DIR", help=f"{content} (default: {default}/)")
