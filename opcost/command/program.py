"""Time and energy of PyTorch operators and models on real hardware: shipped rows, and measurements of your own.

Example: opcost show
         opcost show resnet50
"""

import argparse
import sys
from argparse import Namespace, _SubParsersAction
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from opcost.command import options as o
from opcost.command.completion import complete
from opcost.command.options import OneOf, Option, Parser, add_options
from opcost.command.run import log_run, results_apart
from opcost.errors import UserError
from opcost.invocation import command
from opcost.storage.files import user_folders
from opcost.version import __version__


def _database(arguments: Namespace) -> Path | None:
    folders = user_folders(arguments.home, arguments.measurements, arguments.database)
    return None if arguments.dry_run else folders.database


def _of_measuring(arguments: Namespace) -> Path | None:
    """Return the database, None if nothing is to be measured: looking leaves no log."""
    return None if arguments.no_measure else _database(arguments)


def _present(folder: Path | None) -> Path | None:
    """Return a folder that exists: a log would make a mistyped database."""
    return folder if folder is not None and folder.is_dir() else None


def _printed_as(arguments: Namespace) -> AbstractContextManager[None]:
    """Print the tables of a command as its options say. Raises UserError: programs get no rates."""
    names = ("markdown", "quiet", "carbon_intensity", "price")
    form = {name: value for name in names if (value := getattr(arguments, name))}
    if not form:
        return nullcontext()
    if (arguments.json or arguments.csv) and not form.keys() <= {"quiet"}:
        raise UserError("--carbon-intensity, --price: they are of tables; multiply the energies of --json or --csv")
    from opcost.reporting.tables import Form, printed_as

    return printed_as(Form(**form))


@dataclass(frozen=True)
class Subcommand:
    """A command of ``opcost``.

    ``name`` may have two words: the second is a command of the first. ``does`` is its description without a full stop,
    ``example`` the arguments of an example, and ``before`` the commands, with arguments, that the example follows in a
    fresh clone. ``function`` is module and name of what takes the parsed arguments and returns an exit status, None for
    0; it is imported when it runs, so that ``--help`` answers before anything is installed. ``log_folder`` returns the
    database that keeps the run's log, None for none.
    """

    name: str
    does: str
    example: str
    function: str
    options: tuple[Option | OneOf, ...]
    log_folder: Callable[[Namespace], Path | None] = lambda _: None
    before: tuple[tuple[str, str], ...] = ()

    def add_to(self, commands: "_SubParsersAction[Parser]") -> None:
        last = self.name.rpartition(" ")[2]
        parser = commands.add_parser(last, help=self.does, prog=command(self.name), **self._texts)
        add_options(parser, *self.options)
        parser.set_defaults(run=self.run)

    def parser(self, *more: Option | OneOf) -> Parser:
        """Return the parser of the script that does the same, with further options of the script alone."""
        parser = Parser(**self._texts)
        add_options(parser, *self.options, *more)
        return parser

    def main(self) -> int:
        arguments = self.parser().parse_args()
        with results_apart(arguments):
            return self.run(arguments)

    def run(self, arguments: Namespace) -> int:
        log_run(arguments.verbose, self.log_folder(arguments))
        module, _, name = self.function.partition(".")
        with _printed_as(arguments):
            status: int | None = getattr(import_module(f"opcost.command.{module}"), name)(arguments)
        return status or 0

    @property
    def _texts(self) -> dict[str, Any]:
        examples = (*self.before, (self.name, self.example))
        lines = [f"{command(name)} {arguments}".rstrip() for name, arguments in examples]
        return {"description": f"{self.does[0].upper()}{self.does[1:]}.", "epilog": "\n  ".join(["example:", *lines])}


READ = (
    Subcommand(
        "show",
        "rank models by the energy or the time of a sample, or show the operators of one model, from rows",
        "resnet50",
        "read.show",
        (
            *(o.SHOWN_NAMES, o.SORT, o.TOP, o.SHOWN_DEVICES, o.SHOWN_PRECISION, o.SHOWN_FORMAT, o.SHOWN_BATCH),
            *(o.SHOWN_EXECUTION, o.SHOWN_MODE, o.OPERATORS, o.CONDITIONS, *o.RATES, o.WHY, o.JSON_OR_CSV),
            *(*o.FOLDERS, o.VERBOSE),
        ),
    ),
    Subcommand(
        "layers",
        "show the layers of one model in the order of execution, with what each costs, from rows",
        "resnet50 --depth 2",
        "read.layers",
        (
            *(o.MODEL_OR_FOLDER, o.INPUT_SIZE, *o.MODEL_KEYS, o.DEPTH, o.SHOWN_DEVICE, o.SHOWN_EXECUTION),
            *(o.ALLOW_CODE, o.JSON_OBJECT_OR_CSV, *o.FOLDERS, *o.SHOWS_PROGRESS),
        ),
    ),
    Subcommand(
        "predict",
        "predict what a model costs on a device, from measured operators, without a GPU; the first call learns for "
        "a minute and a half",
        'resnet50 --batch 64 --device "NVIDIA H200"',
        "read.predict",
        (
            *(o.MODEL_OR_FOLDER, o.INPUT_SIZE, o.BATCH, *o.MODEL_KEYS, *o.STEP_KEYS, o.SHOWN_DEVICE),
            *(o.SHOWN_EXECUTION, o.MEASURE_NEXT, o.ALLOW_CODE, *o.RATES, o.JSON_OBJECT),
            *(*o.FOLDERS, *o.SHOWS_PROGRESS),
        ),
    ),
    Subcommand(
        "compare",
        "sum time and energy of each model's operators over all calls, and compare the sums with the whole model",
        "'resnet*' --dry-run",
        "read.compare",
        (*o.COMPARED, o.AGAINST, o.FAIL_IF, o.INPUT_VALUES, o.SUMMED_CACHE, o.SUMMED, o.FIGURES, o.REPORT),
        lambda arguments: None if arguments.against else _database(arguments),
    ),
    Subcommand(
        "report",
        "write sums and whole models as one HTML file that opens offline in any browser",
        "'resnet*' --output report.html",
        "read.report",
        (
            *(o.COMPARED_NAMES, o.SHOWN_DEVICE, o.INPUT_VALUES, o.SUMMED_CACHE, o.SUMMED),
            *(o.REPORT_FILE, *o.FOLDERS, o.VERBOSE),
        ),
    ),
    Subcommand(
        "export",
        "write all measurements as a data set: a table for each kind of operator, as CSV or Parquet, with a card",
        "--kind Conv2d --device H200",
        "read.export",
        (o.SHOWN_DEVICE, o.EXPORTED_KIND, o.TABLE_FORMAT, o.EXPORT_FOLDER, *o.FOLDERS, o.VERBOSE),
    ),
    Subcommand(
        "demo",
        "play a recorded campaign of a small model and its power logs through the engine, in 15 seconds, without torch",
        "",
        "read.demo",
        o.SHOWS_PROGRESS,
    ),
    Subcommand(
        "info",
        "print versions, devices and their power meters, the shipped rows, the folders, and two next steps",
        "",
        "read.info",
        (*o.FOLDERS, o.JSON_OBJECT, o.VERBOSE),
    ),
)
MEASURE = (
    Subcommand(
        "profile",
        "count a model, measure its operators and the whole, and show which operators cost most",
        "resnet18 --input-size 8x3x224x224 --precision bf16",
        "measure.profile",
        (
            *(o.MODEL, o.SIZES, o.INPUT_SIZE, *o.MODEL_KEYS, *o.STEP_KEYS, *o.MEASURING_DEVICES, o.PROFILE_DURATION),
            *(o.EXECUTION, o.ALLOW_CODE, o.NO_MEASURE, o.TOP, o.PROFILE_REPORT),
            *(*o.RATES, *o.FOLDERS, o.DRY_RUN, o.JSON_OBJECT, *o.SHOWS_PROGRESS),
        ),
        _of_measuring,
    ),
    Subcommand(
        "tokens",
        "show what a token of a language model costs, in prefills and decode steps over batches and contexts, measured "
        "or predicted, without a GPU",
        'llama-3.2-1b --batch 1,8 --context 512,2048 --device "NVIDIA H200"',
        "measure.tokens",
        (
            *(
                o.LANGUAGE_MODEL,
                o.BATCHES,
                o.CONTEXTS,
                o.REQUESTS,
                o.ATTENTIONS,
                o.ARGUMENT,
                o.PRECISION_OF_TEXT,
                o.TOKENS_DEVICE,
                o.GPUS,
            ),
            *(o.EXECUTIONS_OF_TEXT, o.MEASURE, o.WAIT, o.PROFILE_DURATION, *o.RATES, o.JSON_OBJECT),
            *(*o.FOLDERS, *o.SHOWS_PROGRESS),
        ),
        lambda arguments: _database(arguments) if arguments.measure else None,
    ),
    Subcommand(
        "sweep",
        "measure and predict a model's time and energy over the size of its input",
        "resnet18 --size 32:256:x2 --repetitions 3",
        "measure.sweep",
        (
            *(o.MODEL_OR_FOLDER, o.SWEPT, o.INPUT_SIZE, *o.MODEL_KEYS, o.SWEEP_REPETITIONS, o.SWEEP_SECONDS),
            *(o.EXECUTION, o.METER, o.SWEPT_DEVICE, o.WAIT, o.ALLOW_CODE, o.KERNELS, o.ONLY_PREDICT, o.NO_PREDICT),
            *(o.SWEEP_TABLES, o.SWEEP_FIGURES, o.EXPORT_TREE),
            *(*o.FOLDERS, o.DRY_RUN, o.JSON_OBJECT, *o.SHOWS_PROGRESS),
        ),
        _of_measuring,
    ),
)
METERS = (
    Subcommand(
        "power",
        "log the power of a GPU or of the CPU (RAPL) to a CSV file until Ctrl-C, or of all of "
        "them while a program runs",
        "--output power.csv -- python train.py",
        "meters.power",
        (
            *(o.FOLLOWED_COMMAND, o.FOLLOWED_PID, o.FOLLOWED_FIGURE, o.METERED_DEVICE, o.GPU_NUMBER),
            *(o.INTERVAL, o.LOG_FILE, o.LENGTH, o.PLOT, o.JSON_OBJECT, o.VERBOSE),
        ),
        before=(("power", "--device cuda:0 --output power.csv --seconds 60"),),
    ),
    Subcommand(
        "power-cap",
        "measure a model or a command under power caps, and propose the cap with the least energy, EDP or ED2P",
        "resnet50 --objective ed2p --dry-run --device H200",
        "power_cap.power_cap",
        (
            *(o.WORK, o.CAP_WISH, o.CONSENT, o.INPUT_SIZE, *o.MODEL_KEYS, o.CAP_REPETITIONS, o.CAP_SECONDS),
            *(o.EXECUTION, o.METER, o.MEASURING_DEVICE, o.ALLOW_CODE, o.CAP_FIGURE, o.CAP_ROWS),
            *(*o.FOLDERS, o.DRY_RUN, o.JSON_OBJECT, *o.SHOWS_PROGRESS),
        ),
        _database,
    ),
)
FILES = (
    Subcommand(
        "check",
        "read all tables, configs and pickles, and print each mistake with file and line",
        "",
        "verify.check",
        (*o.FOLDERS, o.REPAIR, o.JSON_OBJECT, o.VERBOSE),
        lambda arguments: _present(_database(arguments)) if arguments.repair else None,
    ),
)
STEPS = (
    Subcommand(
        "qualify",
        "qualify the power meters of a GPU that runs nothing else, in half a minute",
        "--device cuda:0",
        "meters.qualify",
        (o.METERED_DEVICE, o.GPU_NUMBER, o.HOME, o.DATABASE, o.VERBOSE),
        _database,
    ),
    Subcommand(
        "make-configs",
        "write a summary.yml for each named model that has none, with its usual input size",
        "'efficientnet_*'",
        "measure.make_configs",
        (o.PUBLISHED_NAMES, o.HOME, o.MEASUREMENTS, o.DRY_RUN, o.JSON, o.VERBOSE),
    ),
    Subcommand(
        "sample-operators",
        "draw operator tuples between and beyond those of the database, as a list that blocks 0 to 2 take",
        "drawn --kind Conv2d --number 20 --dry-run",
        "measure.sample_operators",
        (
            *(o.DRAWN_NAME, o.DRAWN_NUMBER, o.DRAWN_KIND, o.SEED, o.BEYOND, o.EXPECTED_DEVICE, o.GPU_SECONDS),
            *(*o.FOLDERS, o.DRY_RUN, o.JSON_OBJECT, o.VERBOSE),
        ),
    ),
    Subcommand(
        "count",
        "run each model once, count its operator tuples and write them to a pickle (block 0)",
        "resnet18_32x3x32x32",
        "measure.count",
        (*o.PIPELINE, o.META, o.STRICT, o.CENSUS),
    ),
    Subcommand(
        "filter",
        "keep each model's operator tuples that measurements/operator_whitelist.yml names (block 1)",
        "resnet18_32x3x32x32",
        "measure.filter_operators",
        (o.COUNTED_NAMES, o.DEVICE, *o.STAGE),
        before=(("count", "resnet18_32x3x32x32"),),
    ),
    Subcommand(
        "measure",
        "measure time and energy of each operator tuple that the database does not have (block 2)",
        "resnet18_32x3x32x32 --seconds 3",
        "measure.measure",
        (
            *(o.OPEN_NAMES, *o.MEASURING_DEVICES, *o.STAGE, o.DURATION, o.EXECUTION, o.CACHE, o.METER, o.SAME_BOARD),
            *(o.INPUT_VALUES, o.WHOLE, o.ALLOW_CODE, o.JSON_PROGRESS),
        ),
        _database,
        before=(("count", "resnet18_32x3x32x32"), ("filter", "resnet18_32x3x32x32")),
    ),
    Subcommand(
        "measure-models",
        "measure time and energy of each whole model that the database does not have",
        "resnet18_32x3x32x32 --seconds 3",
        "measure.measure_models",
        (
            *(o.NAMES, *o.MEASURING_DEVICES, *o.STAGE, o.DURATION, o.EXECUTION, o.METER, o.SAME_BOARD),
            *(o.ALLOW_CODE, o.JSON_PROGRESS),
        ),
        _database,
    ),
    Subcommand(
        "worker",
        "measure on each GPU of this host for clients of a Dask scheduler, until that ends",
        "--scheduler-file scheduler.json",
        "measure.worker",
        (o.WORKER_SCHEDULER, o.WORKER_DEVICE, o.WORKER_LOGS, o.VERBOSE),
    ),
    Subcommand(
        "merge",
        "add the missing rows of other databases to a database",
        "database another_database",
        "verify.merge",
        (o.INTO, o.OTHERS, o.VERBOSE),
        lambda arguments: _present(arguments.into),
    ),
    Subcommand(
        "forget",
        "remove the config, the counts and the report that a profile left of a model, perhaps also its rows",
        "resnet18_1x3x32x32 --dry-run",
        "verify.forget",
        (o.FORGOTTEN_NAMES, o.ROWS, o.DRY_RUN, *o.FOLDERS, o.VERBOSE),
        before=(("profile", "resnet18 1x3x32x32 --device cpu --seconds 0.1"),),
    ),
    Subcommand(
        "advise",
        "print the share of each model that the whitelist covers, and the operators to add",
        "'resnet*' --coverage-target 0.9",
        "read.advise",
        (*o.COMPARED, o.COVERAGE_TARGET, o.WRITE_WHITELIST),
    ),
)
VERIFY = (
    Subcommand(
        "verify operators",
        "rebuild and run each counted operator tuple alone, and compare its outputs and FLOPs with the count",
        "resnet18_32x3x32x32 --device cpu",
        "verify.operators",
        (o.COUNTED_NAMES, o.DEVICE, *o.FOLDERS, o.JSON, *o.SHOWS_PROGRESS),
        before=(("count", "resnet18_32x3x32x32 --device cpu"),),
    ),
    Subcommand(
        "verify kernels",
        "compare the kernels of each model with those of its operator tuples run alone, on a GPU",
        "resnet18_32x3x32x32 --device cuda",
        "verify.kernels",
        (o.NAMES, o.DEVICE, *o.FOLDERS, o.JSON, *o.SHOWS_PROGRESS, o.ALLOW_CODE),
        _database,
    ),
    Subcommand(
        "verify strangers",
        "insert operators of models into other models on a GPU, and compare what these take more with rows in state",
        "resnet50_32x3x224x224 --host vit_b_16_32x3x224x224",
        "verify.strangers",
        (
            *(o.COUNTED_NAMES, o.HOSTS, o.STRANGERS_NUMBER, o.SEED, o.DEVICE),
            *(*o.FOLDERS, o.JSON, *o.SHOWS_PROGRESS, o.ALLOW_CODE),
        ),
        _database,
        before=(("count", "resnet50_32x3x224x224 --meta"),),
    ),
    Subcommand(
        "verify coverage",
        "check that the operator tuples of models have all of the models' FLOPs and bytes",
        "'resnet*' --device cpu",
        "verify.coverage",
        (o.PUBLISHED_NAMES, o.DEVICE, o.META, o.PAGE, *o.SHOWS_PROGRESS),
    ),
    Subcommand(
        "verify columns",
        "print the meaning of each column of the tables, in Markdown",
        "> columns.md",
        "verify.columns",
        (o.VERBOSE,),
    ),
)
SUBCOMMANDS = (*READ, *MEASURE, *METERS, *FILES, *STEPS, *VERIFY)

VERIFIES = "check operators, kernels, strangers, coverage and columns of opcost itself, for those who develop it"
IN_VIEW = {
    "read what is known": READ,
    "measure a model": MEASURE,
    "meter devices and programs": METERS,
    "look after files": FILES,
}
MORE = {"measure many models, step by step": STEPS, "verify opcost itself": VERIFY}
"""Groups of commands in the help."""


def subcommand(name: str) -> Subcommand:
    return next(one for one in SUBCOMMANDS if one.name == name)


def main() -> int:
    """Run the command that the arguments name; return its exit status. Without arguments, print the help."""
    words = sys.argv[1:] or ["--help"]
    shows_all = words == ["--help-all"]
    parser = _parser({**IN_VIEW, **MORE} if shows_all else IN_VIEW)
    complete(parser)
    arguments = parser.parse_args(["--help"] if shows_all else words)
    with results_apart(arguments):
        status: int = arguments.run(arguments)
    return status


def _parser(groups: Mapping[str, tuple[Subcommand, ...]]) -> Parser:
    usage = "opcost [-h] [--version] [--help-all] COMMAND ..."
    parser = Parser(prog="opcost", usage=usage, description=__doc__)
    parser.add_argument("--version", action="version", version=f"opcost {__version__}")
    text = "also list the steps of measuring many models, and what verifies opcost; then exit"
    parser.add_argument("--help-all", action="store_true", help=text)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    verify = commands.add_parser("verify", prog=command("verify"), description=f"{VERIFIES.capitalize()}.")
    verified = verify.add_subparsers(required=True, metavar="CHECK")
    for one in SUBCOMMANDS:
        one.add_to(verified if one in VERIFY else commands)
    for title, listed in groups.items():
        texts = [(one.name, one.does) for one in listed] + ([("verify", VERIFIES)] if listed is FILES else [])
        # A group of argparse is a list of arguments: these are shown only, and not parsed.
        shown = [argparse.Action([], name, metavar=name, help=does) for name, does in texts]
        parser.add_argument_group(title)._group_actions.extend(shown)
    return parser
