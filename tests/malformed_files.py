"""Malformed inputs: real files changed at random, each read by what the pipeline reads it with, within limits.

Reading must end in a correct reading or in a UserError of clear lines, within 2 s and 300 MB, and leave the file alone.
A run says what came of how many, and writes the inputs that did otherwise into a folder. Code, marks, commands and
learned costs are kinds of their own (``users_inputs.py``); no code runs but that of ``--allow-code``.

Example: python tests/malformed_files.py --inputs 10000
         python tests/malformed_files.py --inputs 1000 --users
"""

import argparse
import atexit
import faulthandler
import gc
import logging
import math
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import yaml
from mutations import Mutation, mutated_pickle, mutated_text
from resigned_tables import genuine, resigned, use
from users_inputs import (
    CODE,
    IMPORTS,
    MARKS,
    anything,
    commands_with_arguments,
    damaged_archive,
    follow_marks,
    hostile_code,
    kept_archives,
    mutated_code,
    mutated_marks,
    named_commands,
    other_words,
    put,
    read_code,
    read_learned,
    read_marks,
    run_code,
    run_command,
)

from opcost.errors import UserError
from opcost.meters.log_meters import power_trace
from opcost.meters.nvidia_smi import LogFollower, NvidiaSmiLogger, cut
from opcost.operators.counts import (
    INPUT_DATA,
    CalledModule,
    OperationWithoutFormula,
    OperatorCount,
    OperatorCounts,
    by_operator,
    cases_of,
    select,
)
from opcost.operators.tuples import Constant, OperatorTuple, Structure, TensorSpec, model_operator
from opcost.operators.values import InputStatistics
from opcost.power.log_rows import PowerSummary, csv_line
from opcost.running.request import Request
from opcost.stages.filter import filter_operators
from opcost.storage.configs import ModelFolders, load_whitelist, model_tuple
from opcost.storage.counts_file import read_counts, write_counts
from opcost.storage.database import Database
from opcost.storage.table import CsvTable
from opcost.units import quotable

ROOT = Path(__file__).resolve().parent.parent

DEADLINE_S = 2
"""Of the processor: other work on the machine does not count."""

WAITING_S = 30
"""For a process that does nothing at all."""

MEMORY_MB = 300
MOST_LINES = 100
"""Of mistakes in a file."""

SCRIPT_DEADLINE_S = 30
MODEL = "resnet50_32x3x224x224"
ROWS = 12
"""Of a table in one input."""

SUMMARIES = [
    b"",
    b"precision: fp32\nseed: 7\ncomposites: [ShiftedWindowAttention, MLP]\n",
    b"composites:\n- Bottleneck\n- BasicBlock\n# the end",
    b"batch: [1, 8]\nprecision: [fp32, bf16]\n",
]


@dataclass(frozen=True)
class Kind:
    """A kind of input: what real ones hold, how they are changed, and what reads them; it returns if all is well.

    Lines of mistakes begin with ``begin``, None for the file.
    """

    file: str
    seeds: tuple[bytes, ...]
    mutation: Mutation
    read: Callable[[Path], None]
    begin: str | None = None

    @property
    def is_signed(self) -> bool:
        """Whether cells are changed behind right checksums."""
        return self.mutation is resigned

    def content(self, random: Random) -> bytes:
        return self.mutation(random.choice(self.seeds), random)


# Their readers; each raises UserError, or AssertionError for a reading that is not what the file says.


def read_summary(path: Path) -> None:
    from opcost.sources.registry import check_config

    cases = ModelFolders(path.parent.parent).configs([path.parent.name], check_config)
    plain = yaml.safe_load(path.read_bytes().decode("utf-8"))
    lists = cases[0].lists
    assert len(cases) == math.prod(len(plain[key]) for key in lists)
    for key, value in plain.items():
        for config in cases:
            read = config.input_size[0] if key == "batch" else getattr(config, key)
            shown = list(read) if isinstance(read, tuple) else read
            if key == "input_size" and "batch" in lists:
                given = value if key in lists else [value]
                assert shown[1:] in [size[1:] for size in given], key
            elif key == "done" and isinstance(value, list):
                assert shown == (config.name in value), key
            else:
                assert shown in value if key in lists else shown == value, key


def read_whitelist(path: Path) -> None:
    assert list(load_whitelist(path)) == yaml.safe_load(path.read_bytes().decode("utf-8"))["operators"]


def read_pickle(path: Path) -> None:
    counts = read_counts(path, "general_pipeline_block0.py x")
    assert all(all(map(str.isprintable, name)) for name in by_operator(counts))
    selection = select(counts, ["Conv2d", "*"])
    assert selection.kept.operator_calls + selection.dropped.operator_calls == counts.operator_calls
    for input_data in INPUT_DATA:
        cases = cases_of(counts.counts, input_data)
        assert sum(cases.values()) == counts.operator_calls
        assert len({case.key for case in cases}) == len(cases)
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / path.name
        write_counts(again, counts)
        assert repr(read_counts(again, "x")) == repr(counts)


def tables(folder: Path) -> dict[str, CsvTable[Any]]:
    """Return all tables of a database by their files' names."""
    return {table.path.name: table for table in Database(folder).tables}


def read_table(path: Path) -> None:
    table = tables(path.parent)[path.name]
    text = table.text(table.rows())
    with tempfile.TemporaryDirectory() as folder:
        again = tables(Path(folder))[path.name]
        again.path.write_text(text, encoding="utf-8", newline="")
        assert again.text(again.rows()) == text


class ReplayedLogger(NvidiaSmiLogger):
    """A log that is there already, as a running nvidia-smi would have written it."""

    def __init__(self, path: Path) -> None:
        super().__init__("0", path.parent)
        self._raw = path.open("rb")

    def find_header(self) -> bool:
        return self._has_row()


def read_log(path: Path) -> None:
    logger = ReplayedLogger(path)
    try:
        if logger.find_header():
            follower = LogFollower(logger, logger.rows_offset)
            rows = follower.read()
            check_log(rows)
        logger.last_line()
    finally:
        logger.end()


def check_log(rows: Sequence[Any]) -> None:
    summary = PowerSummary()
    summary.add_all(row.values for row in rows)
    assert math.isfinite(summary.mean_power_w or 0.0)
    for row in rows:
        assert math.isfinite(row.values.epoch_s)
        assert csv_line(row.values).isprintable()
        numbers = [value for value in vars(row.values).values() if value is not None]
        assert all(math.isfinite(number) for number in numbers)
    moments = sorted(row.values.epoch_s for row in rows)
    part = cut(rows, moments[0], moments[len(moments) // 2])
    power_trace([row.values for row in part], "x.csv")


# Contents of real files


def genuine_counts() -> list[OperatorCounts]:
    image = TensorSpec((2, 3, 8, 8), "float32", (192, 1, 24, 3), identity=1)
    boxes = (TensorSpec((5, 4), "float32"), TensorSpec((5,), "float32", (4,), 1), 0.5)
    convolution = OperatorTuple("torch.nn.Conv2d", (("kernel_size", (3, 3)), ("bias", False)), (image,))
    index = OperatorTuple(
        "torch.Tensor.__getitem__", (), (image, (Constant("..."), Structure("slice", (("start", 1),)))), mode=None
    )
    seen = InputStatistics(0.5, 0.1, 2.0)
    counts = (
        OperatorCount(convolution, 3, 10**9, 2**20, outputs=image, statistics=((seen,),) * 3),
        OperatorCount(index, 1, 0, 300),
        OperatorCount(OperatorTuple("torch.ops.torchvision.nms", (), boxes, mode=None), 2, 5, 300),
        OperatorCount(OperatorTuple("torch.nn.ReLU", (), (image,), (("x", (1, 2.0, None, "y")),)), 2, 5, 300),
    )
    model = model_operator("resnet18", "IMAGENET1K_V1", (2, 3, 8, 8))
    outside, composites = ("mm",), ("Attention",)
    scale = OperatorTuple("torch.ops.mine.scale", (), (image,), mode=None)
    unknown = OperatorCount(scale, 2, None, 9, image, without_formula=("m::s",))
    gaps = (OperationWithoutFormula("m::s", 2, 18),)
    called = tuple(
        replace(count, positions=tuple(range(count.occurrences)), callers=(1,) * count.occurrences) for count in counts
    )
    modules = (CalledModule("", "Net", 9), CalledModule("layer1", "Conv2d", 7))
    return [
        OperatorCounts(
            *(model, (*counts, unknown), 10**10, 2**30, 7, "2.11.0", "cuda"),
            outside=outside,
            composites=composites,
            without_formula=gaps,
        ),
        OperatorCounts(model, called, 10**10, 2**30, 7, "2.11.0", "cuda", modules=modules),
        OperatorCounts(model, (*counts, *counts) * 20, 10**10, 2**30, 70_000, "2.11.0", "cpu"),
    ]


def pickled(counts: OperatorCounts) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "operators.pkl"
        write_counts(path, counts)
        return path.read_bytes()


def part_of_table(path: Path, random: Random) -> bytes:
    """Return the header of a table and some of its rows."""
    header, *rows = path.read_bytes().splitlines(keepends=True)
    return header + b"".join(random.sample(rows, min(ROWS, len(rows))))


def table_kind(name: str) -> Kind:
    table = tables(ROOT / "database")[name]
    seeds: tuple[bytes, ...] = (table.text([]).encode(),)
    if table.path.exists():
        seeds = tuple(part_of_table(table.path, Random(number)) for number in range(8))
    return Kind(f"database/{name}", seeds, mutated_text, read_table)


def kinds() -> list[Kind]:
    """Return all kinds of inputs; half of them are tables with right checksums, whose cells someone changed."""
    # It takes seconds, which are not the first input's.
    import opcost.reporting.report
    import opcost.sources.torchvision  # noqa: F401

    summaries = [path.read_bytes() for path in sorted((ROOT / "measurements").glob("resnet*/summary.yml"))]
    summary_seeds = tuple(summary + more for summary in summaries for more in SUMMARIES)
    whitelist = (ROOT / "measurements" / "operator_whitelist.yml").read_bytes()
    pickles = tuple(map(pickled, genuine_counts()))
    logs = [path.read_bytes() for path in sorted((ROOT / "tests/recordings").glob("nvidia_smi_*.csv"))]
    log_seeds = tuple(b"".join(log.splitlines(keepends=True)[:60]) for log in logs)
    summary = Kind(f"measurements/{MODEL}/summary.yml", summary_seeds, mutated_text, read_summary)
    whitelists = Kind(
        "measurements/operator_whitelist.yml",
        (whitelist, b"operators: [Conv2d, add_, '*']\n"),
        mutated_text,
        read_whitelist,
    )
    counts = Kind(f"measurements/{MODEL}/operators.pkl", pickles, mutated_pickle, read_pickle)
    log = Kind("nvidia_smi.csv", log_seeds, mutated_text, read_log)
    damaged = [table_kind(name) for name in tables(Path())]
    signed = [Kind(f"database/{name}", (content,), resigned, use) for name, content in genuine()]
    return [*[summary, whitelists] * 2, *[counts] * 6, *damaged, *[log] * 4, *signed * 3]


def users_kinds() -> list[Kind]:
    """Return the kinds of what users write besides measurements; commands that run are half of them."""
    # Neither are these the first command's.
    from torch._dynamo.utils import dump_compile_times

    # At the end of a process it imports a package, which fails in a working folder that was removed.
    atexit.unregister(dump_compile_times)
    code = Kind("net.py", CODE, anything(mutated_code, b"", IMPORTS), read_code, "")
    run = Kind("ran.py", (b"",), hostile_code, run_code, "")
    marks = Kind("marks", MARKS, anything(mutated_marks), read_marks, "")
    followed = Kind("followed_marks", MARKS, anything(mutated_marks), follow_marks, "")
    learned = Kind("learned.npz", kept_archives(), anything(damaged_archive), read_learned, "")
    names = Kind("named", named_commands(), other_words, run_command, "")
    arguments = Kind("arguments", commands_with_arguments(), other_words, run_command, "")
    return [*[code, run] * 2, marks, followed, learned, learned, names, arguments]


# One process that reads one input after the other


def serve(connection: Connection, get_kinds: Callable[[], list[Kind]]) -> None:
    """Read each path that comes with its kind's number, and answer what came of it."""
    logging.disable()
    # A fork would print the trace of an end that is wanted.
    faulthandler.disable()
    known = get_kinds()
    limit = virtual_memory() + 2 * MEMORY_MB * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Collections would go through all of torch again and again.
    gc.freeze()
    connection.send("ready")
    while True:
        number, path = connection.recv()
        connection.send(outcome(known[number], Path(path)))


def outcome(kind: Kind, path: Path) -> str:
    """Return ``read``, ``refused``, or what is wrong."""
    before_mb = peak_memory_mb(begin=True)
    # Its default is to end the process.
    signal.setitimer(signal.ITIMER_PROF, DEADLINE_S)
    try:
        kind.read(path)
        found = "read"
    except UserError as error:
        found = complaint(error, str(path) if kind.begin is None else kind.begin) or "refused"
    except BaseException:
        found = traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    grown_mb = peak_memory_mb() - before_mb
    return found if grown_mb < MEMORY_MB else f"{found}\nit took {grown_mb:.0f} MB"


def complaint(error: UserError, begin: str) -> str | None:
    """Return what is not clear in the printed lines of a mistake, which begin with the file if there is one."""
    for line in map(quotable, error.lines):
        if not line.isprintable():
            return f"not one line: {line!r}"
        if not line.startswith(begin):
            return f"it does not begin with the file: {line}"
        if ";" not in line:
            return f"it has no remedy: {line}"
    return None if 0 < len(error.lines) <= MOST_LINES else f"{len(error.lines)} lines"


def virtual_memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def peak_memory_mb(begin: bool = False) -> float:
    """Return the most memory that this process took since the last beginning."""
    if begin:
        Path("/proc/self/clear_refs").write_text("5")
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


class Reader:
    """A process that reads inputs, replaced when one has ended it."""

    def __init__(self, get_kinds: Callable[[], list[Kind]], is_forked: bool = False) -> None:
        self._get_kinds = get_kinds
        self._context: Any = multiprocessing.get_context("fork" if is_forked else "spawn")
        self._start()

    def _start(self) -> None:
        self._connection, theirs = self._context.Pipe()
        self._process = self._context.Process(target=serve, args=(theirs, self._get_kinds), daemon=True)
        self._process.start()
        theirs.close()
        # Imports take seconds, and no input's time.
        assert self._connection.recv() == "ready"

    def read(self, number: int, path: Path) -> str:
        self._connection.send((number, str(path)))
        try:
            if self._connection.poll(WAITING_S):
                found: str = self._connection.recv()
                return found
            reason = "it waits without end"
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            reason = f"over {DEADLINE_S} s" if code == -signal.SIGPROF else f"the process ended with {code}"
        self.end()
        self._start()
        return reason

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()


# The same inputs through the scripts


def has_script(kind: Kind) -> bool:
    """Return whether a script reads a kind of input: no file is read for nvidia-smi's log."""
    return not kind.file.startswith("nvidia_smi") and not kind.is_signed


def script_for(kind: Kind) -> list[str]:
    """Return the command that reads a kind of input."""
    block_1 = ["general_pipeline_block1.py", MODEL, "--dry-run"]
    return ["compare_sum_vs_full.py", MODEL, "--dry-run"] if kind.file.startswith("database") else block_1


def script_outcome(kind: Kind, path: Path, valid: Path) -> str:
    """Run a script in a folder of valid files in which one is replaced, and return what came of it."""
    folder = path.parent / "script"
    shutil.copytree(valid, folder)
    target = folder / kind.file
    target.write_bytes(path.read_bytes())
    script, *arguments = script_for(kind)
    places = ["--measurements", str(folder / "measurements"), "--database", str(folder / "database")]
    try:
        result = subprocess.run(
            [sys.executable, str(ROOT / script), *arguments, *places],
            capture_output=True,
            timeout=SCRIPT_DEADLINE_S,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
        if target.read_bytes() != path.read_bytes():
            return "the script changed the file"
    except subprocess.TimeoutExpired:
        return "the script does not end"
    finally:
        shutil.rmtree(folder)
    messages = result.stderr.decode()
    if "Traceback" in messages or result.returncode not in (0, 1, 2):
        return messages or f"the script ended with {result.returncode}"
    return "refused by the script" if result.returncode == 2 else "read by the script"


def valid_folder(folder: Path) -> Path:
    """Write measurements and database of one model, as the scripts need them."""
    model = folder / "measurements" / MODEL
    model.mkdir(parents=True)
    shutil.copy(ROOT / "measurements" / MODEL / "summary.yml", model)
    shutil.copy(ROOT / "measurements" / "operator_whitelist.yml", model.parent)
    (config,) = ModelFolders(model.parent).configs([])
    counts = genuine_counts()[0]
    write_counts(model / "operators.pkl", replace(counts, model=model_tuple(config), composites=()))
    shutil.copytree(ROOT / "docs/data/resnet50", folder / "database")
    filter_operators(Request((MODEL,), ModelFolders(model.parent), Database(folder / "database")))
    return folder


# All of it


@dataclass(frozen=True)
class Result:
    """Outcome of an input: ``read``, ``refused``, or anything else, which is a bug."""

    name: str
    file: str
    found: str
    is_signed: bool

    @property
    def is_bug(self) -> bool:
        return self.found not in {"read", "refused", "read by the script", "refused by the script"}


def results(
    inputs: int, seed: int, folder: Path, script_every: int = 0, get_kinds: Callable[[], list[Kind]] = kinds
) -> Iterator[Result]:
    """Read that many inputs; every so many of them, the script reads it, too. Bugs' inputs stay in the folder."""
    known = get_kinds()
    valid = valid_folder(folder / "valid") if script_every else folder
    reader, scripted = Reader(get_kinds), 0
    try:
        for number in range(inputs):
            index = number % len(known)
            kind, name = known[index], f"{seed}-{number}"
            path = folder / name / kind.file
            path.parent.mkdir(parents=True)
            content = kind.content(Random(name))
            put(path, content)
            before = states_within(folder / name)
            found = [reader.read(index, path)]
            if states_within(folder / name) != before:
                found.append("the file was changed, or another one left")
            scripted += has_script(kind)
            if script_every and has_script(kind) and scripted % script_every == 0:
                found.append(script_outcome(kind, path, valid))
            reported = [Result(name, kind.file, each, kind.is_signed) for each in found]
            yield from reported
            if not any(result.is_bug for result in reported):
                shutil.rmtree(folder / name)
    finally:
        reader.end()


def states_within(folder: Path) -> dict[Path, tuple[int, ...]]:
    """Return what changes of each file within a folder if someone writes, replaces or changes it."""
    files = {path: path.lstat() for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()}
    return {path: (one.st_mode, one.st_ino, one.st_size, one.st_ctime_ns) for path, one in files.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--users", action="store_true", help="only code, marks, commands and learned costs")
    parser.add_argument("--script-every", type=int, default=47, help="how many inputs there are to each of a script")
    parser.add_argument("--folder", type=Path, help="where inputs stay that show a bug (default: a temporary one)")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="malformed-"))
    folder.mkdir(parents=True, exist_ok=True)
    reported: Counter[tuple[str, str]] = Counter()
    signed: Counter[str] = Counter()
    which = (0, users_kinds) if arguments.users else (arguments.script_every, kinds)
    for result in results(arguments.inputs, arguments.seed, folder, *which):
        signed.update([result.found] * result.is_signed)
        reported[Path(result.file).name, "BUG" if result.is_bug else result.found] += 1
        if result.is_bug:
            print(f"{folder}/{result.name}/{result.file}: {result.found}", flush=True)
    for (file, found), number in sorted(reported.items()):
        print(f"{number:6} {file}: {found}")
    print(f"{signed.total():6} of them with changed cells behind right checksums: {signed['read']} read")
    return int(any(found == "BUG" for _, found in reported))


if __name__ == "__main__":
    sys.exit(main())
