"""The options of all scripts and of ``opcost``. Standard library only, so that ``--help`` answers at once."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, get_args

from opcost.command import completion
from opcost.command import option_types as kinds
from opcost.command.run import USER_ERROR, complain
from opcost.measuring.conditions import CACHES, CONTIGUOUS, EXECUTIONS, STATE, WARM, MemoryFormat
from opcost.measuring.precisions import AUTOCAST_DTYPES, TORCH_DEFAULT, Precision
from opcost.measuring.protocol import FULL_LOOP_S
from opcost.metering.cap_rows import Objective
from opcost.operators.attention import ANY_BACKEND, BACKENDS, FORMS, Backend
from opcost.operators.counts import ALL, CAPTURED, COUNTED, INPUT_DATA
from opcost.operators.sweep_axes import AxisKind
from opcost.operators.training import INFERENCE, LOSSES, MODES, OPTIONS, TRAINING
from opcost.power.ports import AUTO, METER_CHOICES
from opcost.prediction.sampling import BEYOND_RATIO

SIMILAR_RATIO = 0.75
"""Similarity of a misspelled name, without hyphens in front: ``meta`` is 0.86 from ``mta``, but ``sort`` 0.6 from
``format``."""

SHORTEST_BEGINNING = 3
"""Letters of a name's beginning that stand for the name in a suggestion."""

METAVARS: Mapping[object, str] = MappingProxyType(
    {
        kinds.count: "N",
        kinds.count_from_0: "N",
        kinds.one_batch: "N",
        kinds.factor: "FACTOR",
        kinds.ratio: "RATIO",
        kinds.positive_seconds: "SECONDS",
        kinds.device_name: "DEVICE",
        kinds.device_or_product: "DEVICE",
        kinds.devices_or_products: "DEVICE",
        kinds.input_size: "SIZE",
        kinds.folder: "DIR",
        kinds.html_file: "FILE.html",
        kinds.user_path: "FILE",
    }
)
"""The name of a value in the help, by its type."""


COMPLETERS: Mapping[object, Callable[..., list[str]]] = MappingProxyType(
    {"NAME": completion.models, "MODEL": completion.models, "DEVICE": completion.devices}
)
"""The completions of a value, by its name in the help."""


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
        choices = list(map(str, action.choices or ()))
        if choices and value not in choices:
            problem = f"invalid choice: {value!r}{did_you_mean(str(value), choices)}"
            raise argparse.ArgumentError(action, f"{problem} (choose from {', '.join(choices)})")

    def error(self, message: str) -> NoReturn:
        complain(f"{message}; see {self.prog} --help")
        self.exit(USER_ERROR)


class Option:
    """One argument: its flag, or the name of a positional one, its help, its type, and more settings for argparse.

    The help ends with a default that is not empty, unless the text itself says what the default is.
    """

    def __init__(self, flag: str, text: str, kind: Callable[[str], object] | None = None, **settings: Any) -> None:
        self._flag = flag
        default = settings.get("default")
        if default and "(default: " not in text:
            values = default if isinstance(default, tuple) else (default,)
            shown = ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
            text += f" (default: {shown})"
        metavar = {"metavar": METAVARS[kind]} if kind in METAVARS else {}
        self._settings = {"help": text, **({} if kind is None else {"type": kind}), **metavar, **settings}

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        action = parser.add_argument(self._flag, **self._settings)
        if action.metavar in COMPLETERS:
            # The name is argcomplete's.
            action.completer = COMPLETERS[action.metavar]  # type: ignore[attr-defined]


class SetFormat(argparse.Action):
    """Sets the flag of a format: ``--format json`` is ``--json``."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        setattr(namespace, values, True)


class OneOf:
    """Options of which a command line has at most one."""

    def __init__(self, *options: Option) -> None:
        self._options = options

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        group = parser.add_mutually_exclusive_group()
        for option in self._options:
            option.add_to(group)


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """Return a question with the name that is similar to a text; empty if none is."""
    of_word = {name.lstrip("-"): name for name in names}
    word = text.lstrip("-")
    begun = [known for known in of_word if len(word) >= SHORTEST_BEGINNING and known.startswith(word)]
    close = begun or difflib.get_close_matches(word, of_word, n=1, cutoff=SIMILAR_RATIO)
    return f"; did you mean {of_word[close[0]]}?" if close else ""


def add_options(parser: argparse.ArgumentParser, *options: Option | OneOf) -> None:
    """Add options to a parser. Options that are not among them have their defaults."""
    parser.set_defaults(dry_run=False, same_board=False, home=None, measurements=None, database=None, allow_code=False)
    parser.set_defaults(names=[], device=None, gpus=(), execution=None, cache=STATE, meter=AUTO)
    parser.set_defaults(scheduler=None, scheduler_file=None, json=False, csv=False, markdown=False)
    parser.set_defaults(carbon_intensity=None, price=None, wait=False)
    for option in options:
        option.add_to(parser)


def switch(flag: str, help_text: str) -> Option:
    """Return an option without a value: it yields a bool."""
    return Option(flag, help_text, action="store_true")


def folder_option(flag: str, content: str) -> Option:
    """Return an option for a folder: it yields a Path, or None."""
    return Option(flag, content, kinds.folder)


def _names(default: str) -> Option:
    text = (
        f"model folder in the measurements folder, case of a config, or a glob such as 'resnet*' (default: {default})"
    )
    return Option("names", text, nargs="*", metavar="NAME")


HERE = "cpu, cuda or cuda:N (default: cuda if available, else cpu)"


# Models, and the input of one model.
NAMES = _names("all")
OPEN_NAMES = _names("all that are not done")
COUNTED_NAMES = _names("all that are counted")
COMPARED_NAMES = _names("all that are counted or shipped")
SHOWN_NAMES = Option(
    "names",
    "model, such as resnet50; folder in the measurements folder; or a glob such as 'resnet*' (default: all that are "
    "measured). Of one name that is no glob, the operators are shown",
    nargs="*",
    metavar="NAME",
)
PUBLISHED_NAMES = Option(
    "names",
    "model name as in torchvision.models.list_models(), timm:NAME, transformers:CLASS, or a glob "
    "(default: all of torchvision but the quantized ones)",
    nargs="*",
    metavar="MODEL",
)
MODEL = Option(
    "model",
    "a model of torchvision (resnet18), timm (timm:vit_tiny_patch16_224) or transformers (transformers:BertModel), "
    "or a function of yours that returns one with its inputs (net.py:build, package.module:build)",
    metavar="MODEL",
)
LANGUAGE_MODEL = Option(
    "model",
    "a language model: a public architecture (llama-3.2-1b, qwen3-8b; a wrong name lists all), a config.json, or "
    "transformers:CLASS with --argument",
    metavar="MODEL",
)
MODEL_OR_FOLDER = Option(
    "model",
    "a model as for profile: of torchvision (resnet50), timm:NAME, transformers:CLASS, or a function of yours "
    "(net.py:build, package.module:build); or a folder in the measurements folder",
    metavar="MODEL",
)
WORK = Option(
    "work", "a model as for profile; or after --: a command, which is run once for each cap", nargs="*", metavar="MODEL"
)
SIZES = Option(
    "sizes",
    "size of the input, batch first, such as 8x3x224x224; several are profiled one by one (default: the published one)",
    kinds.input_size,
    nargs="*",
)
INPUT_SIZE = Option(
    "--input-size", "size of the input, batch first, such as 8x3x224x224 (default: the published one)", kinds.input_size
)
ARGUMENT = Option(
    "--argument",
    "an argument of the class or function that builds the model, with its value in YAML: num_hidden_layers=2",
    action="append",
    default=[],
    metavar="NAME=VALUE",
)
PRECISION = Option(
    "--precision", "of weights, input and arithmetic", choices=get_args(Precision), default=TORCH_DEFAULT
)
WITHOUT_CASTS = tuple(one for one in get_args(Precision) if one not in AUTOCAST_DTYPES)
PRECISION_OF_TEXT = Option("--precision", "of weights and arithmetic", choices=WITHOUT_CASTS, default="bf16")
MEMORY_FORMAT = Option("--memory-format", "of weights and input", choices=get_args(MemoryFormat), default=CONTIGUOUS)
STEP_KEYS = (
    Option("--mode", f"of the model: {INFERENCE}, or {TRAINING} for a training step", choices=MODES, default=INFERENCE),
    Option(
        "--loss",
        f"of a training step; own is the number that the model returns, or what it calls loss (default: {LOSSES[0]})",
        choices=LOSSES,
    ),
    Option("--optimizer", f"of a training step (default: {next(iter(OPTIONS))})", choices=tuple(OPTIONS)),
)
ATTENTION = Option(
    "--attention",
    "the back end of torch's attention that alone may run: a call that it cannot run is an error",
    choices=get_args(Backend),
    default=ANY_BACKEND,
)
MODEL_KEYS = (ARGUMENT, PRECISION, MEMORY_FORMAT, ATTENTION)
BATCHES = Option("--batch", "texts of a decode step, such as 1,8,64", kinds.counts, default=(1, 8, 32))
CONTEXTS = Option(
    "--context",
    "tokens that each text of a decode step attends to, and of the prompt of a prefill",
    kinds.counts,
    default=(512, 2048),
)
ATTENTIONS = Option(
    "--attention",
    f"kinds of attention beside each other, with commas: a back end of torch alone ({', '.join(BACKENDS)}), a form of "
    f"the model's calls ({', '.join(FORMS)}), or both as in unmasked:flash",
    kinds.attentions,
    default=(ANY_BACKEND,),
)
EXECUTIONS_OF_TEXT = Option(
    "--execution",
    "as a captured CUDA graph, called from Python, or both beside each other: graph,eager (default: graph on a GPU)",
    kinds.executions,
    default=(None,),
)
REQUESTS = Option(
    "--request",
    "also the cost of requests: tokens of the prompt and tokens that are made, such as 512:256,2048:128",
    kinds.requests,
    default=(),
)
BATCH = Option("--batch", "number of samples of a run (default: that of the input size)", kinds.one_batch)
ALLOW_CODE = switch(
    "--allow-code",
    "run the Python code that models named FILE:FUNCTION or MODULE:FUNCTION are built by: only code that you trust",
)

# Devices.
DEVICE = Option("--device", HERE, kinds.device_name)
MEASURING_DEVICE = Option(
    "--device",
    f"{HERE}; with --dry-run also a product, or a part of its name such as H200, which need not be here",
    kinds.device_or_product,
)
GPUS = Option(
    "--gpus",
    "measure on several GPUs of this host at once: all, or numbers with commas (0,2), as in cuda:N",
    kinds.gpu_numbers,
    metavar="NUMBERS",
    default=(),
)
SCHEDULER = Option(
    "--scheduler",
    "address of a Dask scheduler with workers of opcost worker, such as tcp://node1:8786",
    metavar="ADDRESS",
)
SCHEDULER_FILE = Option(
    "--scheduler-file", "the same by the file that the scheduler writes on a disk of all hosts", kinds.user_path
)
WAIT = switch("--wait", "wait while another campaign of opcost measures on the device (default: refuse it)")
MEASURING_DEVICES = (
    Option(
        "--device",
        f"{HERE}; with a scheduler only workers with these products, such as H100,H200; with --dry-run also a product, "
        "or a part of its name such as H200, which need not be here",
        kinds.devices_or_products,
    ),
    OneOf(GPUS, SCHEDULER, SCHEDULER_FILE),
    WAIT,
)
WORKER_SCHEDULER = OneOf(SCHEDULER, SCHEDULER_FILE)
WORKER_DEVICE = Option("--device", "the one device of this host that measures (default: all GPUs)", kinds.device_name)
WORKER_LOGS = folder_option(
    "--logs",
    "folder that keeps power logs until a client has copied them, if the client's folder is not on a common disk "
    "(default: a new folder for temporary files)",
)
SWEPT_DEVICE = Option(
    "--device",
    f"{HERE}; with --no-measure or --dry-run also a product, such as 'NVIDIA H200', which need not be here",
    kinds.device_or_product,
)
SHOWN = "cpu, cuda, or a device's name such as 'NVIDIA H200' (default: all that have measurements)"
SHOWN_DEVICE = Option("--device", SHOWN, kinds.device_or_product)
SHOWN_DEVICES = Option(
    "--device", f"{SHOWN}; several with commas, such as H100,H200, are set beside each other", kinds.devices_or_products
)
EXPECTED_DEVICE = Option(
    "--device",
    "cpu, cuda, or a part of a product's name: its rows give the expected time (default: the product with most rows)",
    kinds.device_or_product,
)
METERED_DEVICE = Option("--device", "cpu, cuda or cuda:N", kinds.device_name, default="cuda")
GPU_NUMBER = Option("--gpu", argparse.SUPPRESS)
"""The GPU's index or UUID in nvidia-smi, as earlier versions called it."""

# Folders, and the form of the output.
HOME = folder_option(
    "--home",
    "your folder, which has measurements/ and database/, read beside the shipped ones (default: OPCOST_HOME, else the "
    "line in ~/.config/opcost/home, else ~/.local/share/opcost)",
)
MEASUREMENTS = folder_option("--measurements", "the only folder of models, instead of the home's and the shipped one")
DATABASE = folder_option("--database", "the only folder of tables, instead of the home's and the shipped one")
FOLDERS = (HOME, MEASUREMENTS, DATABASE)
INTO = Option("into", "database that the rows are added to", kinds.user_path, metavar="INTO")
OTHERS = Option("others", "databases that are read", kinds.user_path, nargs="+", metavar="DATABASE")
FORGOTTEN_NAMES = Option(
    "names", "model folder in your measurements folder, or a glob such as 'my_net*'", nargs="+", metavar="NAME"
)
ROWS = switch(
    "--rows",
    "also remove rows of the whole model from your tables: measurements, failures, counts and comparisons. Rows of "
    "operators stay, because other models have them, too",
)
REPAIR = switch("--repair", "rewrite tables without their bad lines, and keep the old files beside them")
DRY_RUN = switch("--dry-run", "print what would be done and how long it takes; change nothing")


def _formats(json_text: str, *others: Option) -> OneOf:
    names = ("table", "markdown", *(["csv"] if others else []), "json")
    text = f"of the results: {', '.join(names[:-1])} or {names[-1]} (default: table)"
    return OneOf(
        switch("--json", json_text),
        *others,
        Option("--format", text, action=SetFormat, choices=names, default=argparse.SUPPRESS),
    )


CSV = switch(
    "--csv", "print one line of CSV per model, layer, or operator with --operators, and nothing else, on stdout"
)
_LIST = "print one JSON list with one object per model, and nothing else, on stdout"
_OBJECT = "print one JSON object, and nothing else, on stdout"
JSON, JSON_OBJECT = _formats(_LIST), _formats(_OBJECT)
JSON_OR_CSV, JSON_OBJECT_OR_CSV = _formats(_LIST, CSV), _formats(_OBJECT, CSV)
VERBOSE = OneOf(
    switch("--verbose", "print each step, and the traceback behind an error, on stderr"),
    switch("--quiet", "print no progress and no notes: only results, errors, and warnings of wrong figures"),
)
RATES = (
    Option(
        "--carbon-intensity",
        "also show the CO2 equivalent of the device's energy, at this many g per kWh, such as 400",
        kinds.rate,
        metavar="G",
    ),
    Option("--price", "also show the price of the device's energy, at this much per kWh, such as 0.30", kinds.rate),
)
JSON_PROGRESS = switch(
    "--json-progress", "print progress on stderr as one JSON object per line, for programs that follow the run"
)
CENSUS = switch(
    "--census", "then print how many calls and tuples the counted models have, and how many tuples they share"
)
TOP = Option(
    "--top", "the most models, or operators of a model, to show (default: all models, 15 operators)", kinds.count
)
SORT = Option(
    "--sort",
    "order of the models: the smallest energy or time per sample, or power, first; the largest saving at the roof "
    "first; or by name (default: energy). Operators of one model: the largest first",
    choices=("energy", "time", "power", "saving", "name"),
    default="energy",
)
SHOWN_MODE = Option(
    "--mode",
    "show models at inference, or training steps with their forward, backward and optimizer",
    choices=MODES,
    default=INFERENCE,
)
OPERATORS = switch(
    "--operators", "show the operators of each model; with --csv one line each, with --json in its object"
)
CONDITIONS = switch(
    "--conditions",
    "show how many operator tuples and models are measured under each set of conditions, the models that are measured "
    "in part, and the time to measure the rest; not with --operators, --mode, --why or --csv",
)
WHY = switch("--why", "also print all remarks on the comparisons of these models' sums with their wholes")
DEPTH = Option(
    "--depth",
    "one row for each module with this many names in its path, with all that is inside it: 1 for layer1, 2 for "
    "layer1.0, 0 for the model (default: one row for each call)",
    kinds.count_from_0,
)
FIGURES = folder_option("--figures", "also draw the figures parity, operators and errors as SVG into this folder")
REPORT = Option(
    "--report", "also write a report as one HTML file that opens offline; replaces an existing file", kinds.html_file
)
PROFILE_REPORT = Option(
    "--report",
    "the HTML report, which is replaced (default: report.html in the model's folder of measurements/)",
    kinds.html_file,
)
REPORT_FILE = Option("--output", "the HTML file, which is replaced", kinds.html_file, default=Path("report.html"))
PAGE = Option("--output", "write the page in Markdown (default: to stdout)", kinds.user_path)
EXPORTED_KIND = Option(
    "--kind",
    "kind of operator: a name as in whitelists (Conv2d), a qualified one (torch.nn.Conv2d) or a glob; may be given "
    "several times (default: all that have measurements)",
    action="append",
    default=[],
    metavar="KIND",
)
TABLE_FORMAT = Option(
    "--format", "format of the tables; parquet needs pyarrow", choices=("csv", "parquet"), default="csv"
)
EXPORT_FOLDER = folder_option(
    "--to", "a new folder, or one of a former export, which is replaced (default: opcost-export)"
)

# Counting, filtering and drawing.
META = switch(
    "--meta",
    "count on shapes only, without memory and weights; detectors, whose work depends on values, run on the device",
)
STRICT = switch(
    "--strict",
    "refuse a model that runs an operation without a formula for its FLOPs (default: count it, its FLOPs unknown)",
)
COVERAGE_TARGET = Option(
    "--coverage-target",
    "share of each model's time and energy that the whitelist should cover (default: 0.9); the exit status is 1 if a "
    "model misses the target",
    kinds.ratio,
    default=0.9,
)
SCRIPT_TARGET = Option(
    "--coverage-target",
    "instead of comparing, print whether the whitelist covers this share of each model's time and energy, such as "
    "0.9, and which operators to add; the exit status is 1 if a model misses the target",
    kinds.ratio,
)
"""The same for ``compare_sum_vs_full.py``, which then does the work of ``advise``."""
WRITE_WHITELIST = switch(
    "--write-whitelist", "replace the whitelist by the smallest one that reaches the target in all these models"
)
DRAWN_NAME = Option("name", "name of the new list's folder in the measurements folder", metavar="NAME")
DRAWN_NUMBER = Option("--number", "number of tuples to draw", kinds.count, default=100)
DRAWN_KIND = Option(
    "--kind",
    "short name of an operator, such as Conv2d; may be repeated (default: those that take most time in the database)",
    action="append",
    default=[],
    metavar="KIND",
)
HOSTS = Option("--host", "models into which operators are inserted", nargs="+", required=True, metavar="MODEL")
STRANGERS_NUMBER = Option("--number", "of operators to draw", kinds.count, default=40)
SEED = Option("--seed", "number that decides what is drawn (default: 0)", kinds.count_from_0, default=0)
BEYOND = Option(
    "--beyond",
    "factor by which sizes go beyond the smallest and the largest known ones",
    kinds.factor,
    default=BEYOND_RATIO,
)
GPU_SECONDS = Option(
    "--gpu-seconds",
    "draw no more tuples than can be measured on the device in this time (default: any)",
    kinds.positive_seconds,
)
MEASURE_NEXT = Option(
    "--measure-next",
    "write the N predicted operators that are least certain as a list of tuples, which blocks 0 to 2 take",
    kinds.count,
    default=0,
)
# Measuring, and which measurements are summed or shown.
DURATION = OneOf(
    Option(
        "--seconds",
        f"length of each measuring loop in s (default: {FULL_LOOP_S:g}; shorter loops never set done)",
        kinds.positive_seconds,
        default=FULL_LOOP_S,
    ),
    Option(
        "--relative-error",
        "end each loop when the 95 %% intervals of time and energy are within this ratio, such as 0.01, when that "
        f"is out of reach, or after {FULL_LOOP_S:g} s; never sets done",
        kinds.ratio,
    ),
)
USUAL_RELATIVE_ERROR = 0.01
PROFILE_DURATION = OneOf(
    Option("--seconds", "length of each measuring loop in s", kinds.positive_seconds),
    Option(
        "--relative-error",
        "end each loop when the 95 %% intervals of time and energy are within this ratio "
        f"(default: {USUAL_RELATIVE_ERROR:g})",
        kinds.ratio,
    ),
)
SWEPT = OneOf(
    *(
        Option(
            f"--{kind.value}",
            f"{varied}, or a list with commas; of a function that returns its inputs, its argument {kind.value}",
            partial(kinds.axis, kind),
            metavar="SIZES",
        )
        for kind, varied in (
            (AxisKind.SIZE, "height and width of the input: 8:4096:x2"),
            (AxisKind.TOKENS, "last number of the input size, the tokens of a sample: 50:500:50"),
            (AxisKind.BATCH, "samples of a run: 1:256:x2"),
            (AxisKind.CONTEXT, "tokens that each text of a decode step attends to: 512:8192:x2"),
        )
    )
)
SWEEP_REPETITIONS = Option("--repetitions", "of each size", kinds.count, default=10)
SWEEP_SECONDS = Option("--seconds", "length of the loop of each repetition in s", kinds.positive_seconds, default=1.0)
CAP_REPETITIONS = Option("--repetitions", "of each cap (default: 2 of a model, 1 of a command)", kinds.count)
CAP_SECONDS = Option("--seconds", "length of each loop of a model in s", kinds.positive_seconds, default=2.0)
EXECUTION = Option(
    "--execution",
    "replayed as a captured CUDA graph, or called from Python (default: graph on a GPU, eager on a CPU)",
    choices=EXECUTIONS,
)
CACHE = Option(
    "--cache",
    "content of the cache before each call: what the call before used (warm), and also what the model leaves there "
    "(state), which has no effect on CPUs and with --execution eager",
    choices=CACHES,
    default=STATE,
)
SUMMED_CACHE = Option(
    "--cache",
    "the rows to sum: those of loops (warm), or those of calls in their states (state)",
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
    "--same-board", "measure again cases whose rows all come from other boards: boards of one product differ"
)
WHOLE = switch(
    "--whole",
    "also measure each whole model, after its operators; implies --same-board, so that sum and whole are of one board",
)
TOKENS_DEVICE = Option(
    "--device",
    "cpu, cuda, or a device's name such as 'NVIDIA H200' (default: the one with most rows; with --measure cuda)",
    kinds.device_or_product,
)
MEASURE = switch("--measure", "first measure the operators and the wholes that the database lacks, on this host")
NO_MEASURE = switch(
    "--no-measure", "only count, and show what the database has; so without a GPU, too, unless --device cpu is given"
)
ONLY_PREDICT = switch("--no-measure", "only predict the curve, beside the repetitions that the database has")
NO_PREDICT = switch("--no-predict", "do not count the sizes, and predict nothing")
KERNELS = switch(
    "--kernels", "at the end also profile the kernels of each size, which name the breaks of a curve (GPU)"
)
SWEEP_TABLES = folder_option("--output", "also write the tables of this sweep as CSV files into this folder")
SWEEP_FIGURES = folder_option("--figures", "also draw the curves and the correlations as SVG")
EXPORT_TREE = folder_option("--export-tree", "also write input_<size>/run_<k>/power_metrics.json and latency.csv there")
INPUT_VALUES = Option(
    "--input-data",
    "values of the inputs: as captured in the model, normal, or zeros",
    choices=INPUT_DATA,
    default=CAPTURED,
)
SUMMED = Option(
    "--counted",
    "sum all operators, or only modules without children, which forward hooks see",
    choices=COUNTED,
    default=ALL,
)
AGAINST = Option(
    "--against",
    "instead of comparing with wholes, compare each model with the same one under other conditions or by other rows: "
    "precision=fp32, memory_format=contiguous, device=H100, torch=2.10, driver=570, before=2026-11-20, database=DIR; "
    "several with commas; writes nothing",
    action="append",
    metavar="KEY=VALUE",
)
FAIL_IF = Option(
    "--fail-if",
    "with --against: exit with status 1 if a model costs more than the other by this and by more than the 95 %% "
    "interval of the difference: 'energy > 5 %%' or 'time > 2 %%'; may be repeated",
    kinds.limit,
    action="append",
    default=[],
    metavar="LIMIT",
)
SHOWN_PRECISION = Option("--precision", "show the models in this precision", choices=get_args(Precision))
SHOWN_FORMAT = Option("--memory-format", "show the models in this memory format", choices=get_args(MemoryFormat))
SHOWN_BATCH = Option("--batch", "show the models at this batch size", kinds.one_batch)
SHOWN_EXECUTION = Option(
    "--execution",
    "show measurements as a CUDA graph, or called from Python (default: graph on a GPU, eager on a CPU)",
    choices=EXECUTIONS,
)

# Meters and power caps.
INTERVAL = Option("--interval", "seconds between two rows (default: 0.02, CPU 0.1)", kinds.positive_seconds)
LOG_FILE = Option("--output", "a new file (default: power_log_<UTC time>.csv)", kinds.user_path)
LENGTH = Option("--seconds", "length of the log in s (default: until Ctrl-C)", kinds.positive_seconds)
PLOT = Option("--plot", "instead of logging, draw a log as SVG, beside it or as --output", kinds.user_path)
FOLLOWED_COMMAND = Option(
    "command", "after --: run this command, log while it runs, and exit with its status", nargs="*", metavar="COMMAND"
)
FOLLOWED_PID = Option("--pid", "log until the process with this id ends", int, metavar="PID")
FOLLOWED_FIGURE = Option(
    "--figure", "with a command or --pid: also draw power, load and temperatures (.svg)", kinds.user_path
)
CAP_WISH = OneOf(
    Option(
        "--objective",
        "minimised by the proposed cap: energy, energy times time, or energy times time squared",
        choices=[objective.value for objective in Objective],
        default=Objective.ENERGY.value,
    ),
    Option("--max-slowdown", "instead: least energy with at most this much more time, such as 0.05", kinds.ratio),
)
CONSENT = switch(
    "--allow-power-limit",
    "the owner of the card has agreed that its power limit is set; without this or OPCOST_ALLOW_POWER_LIMIT=1 no limit "
    "is set",
)
CAP_FIGURE = Option("--figure", "also draw the Pareto front and the fit (.svg)", kinds.user_path)
CAP_ROWS = Option("--output", "also append the measurements to this CSV file", kinds.user_path)

# Options that several commands share.
SHOWS_PROGRESS = (VERBOSE, JSON_PROGRESS)
STAGE = (*FOLDERS, DRY_RUN, JSON, VERBOSE)
PIPELINE = (OPEN_NAMES, DEVICE, *STAGE, JSON_PROGRESS, ALLOW_CODE)
COMPARED = (COMPARED_NAMES, SHOWN_DEVICE, *STAGE)
