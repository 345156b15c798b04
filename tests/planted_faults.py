"""Plants faults in ``PACKAGES``, one at a time, and lists those that no test notices: ``make mutation``.

Faults are drawn at random (``--seed``) from all that mutmut's operators make, and a few more (``ADDED``), within
functions of the packages. Left out is what no test should notice: texts, annotations, messages of errors.

First the test files in the folders of the packages run once, and coverage.py writes down which test runs which line.
Each fault is then planted in a copy of the project and tried against the tests that run its line, those first that are
of its package or import its module. Survivors are tried in the same way against the other test files that name a
package. A fault that hangs its tests is counted apart; its time limit is shorter than that of pytest.
"""

import argparse
import difflib
import itertools
import os
import queue
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import libcst as cst
from coverage import CoverageData
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators
from repository_copy import copy_repository

ROOT = Path(__file__).parent.parent
PACKAGES = [
    "operators",
    "power",
    "measuring",
    "metering",
    "summing",
    "prediction",
    "comparing",
    "storage",
    "torch_backend",
    "running",
    "columns",
    "estimates",
    "units",
]
WITHOUT = frozenset(
    "test_benchmarks.py test_committed_sums.py test_gpu.py test_killed_campaigns.py "
    "test_claims.py test_packaging.py test_pipeline.py".split()
)
"""Test files that take minutes while they are watched, and those that run other programs: no line of theirs is seen."""

TRIED_S = 90.0
"""A fault is tried against tests that take so long without it, more or less; those that take longest are left out."""

HANG_S, HANG_RATIO = 60.0, 4.0
"""A fault that makes its tests run longer than that, or so many times longer, is noticed by whoever waits."""

MARK = "OPCOST_PLANTED_FAULT"
"""The variable of the environment by which processes that outlive their test are found."""

OBSERVED_S = 900.0
"""The longest that a test file may take without a fault."""

COVERAGE_SETTINGS = """
[run]
source = opcost
relative_files = true
dynamic_context = test_function
data_file = {data_file}
"""


# Faults


@dataclass(frozen=True)
class Fault:
    """A change in a statement, at ``line``. ``lines`` are the first and the last of the statement."""

    path: str
    line: int
    lines: tuple[int, int]
    kind: str
    original: str
    changed: str

    def described(self) -> str:
        """Return file, line, and the lines before and after, one below the other."""
        changes = difflib.unified_diff(self.original.splitlines(), self.changed.splitlines(), n=0, lineterm="")
        return "\n".join([f"{self.path}:{self.line}", *(f"    {text}" for text in list(changes)[3:])])


def swapped_names(node: cst.Call) -> Iterator[cst.Call]:
    """``min`` for ``max``, ``any`` for ``all``."""
    swaps = {"min": "max", "max": "min", "any": "all", "all": "any"}
    if isinstance(node.func, cst.Name) and node.func.value in swaps:
        yield node.with_changes(func=cst.Name(swaps[node.func.value]))


def unwrapped_calls(node: cst.Call) -> Iterator[cst.BaseExpression]:
    """``abs(x)`` without ``abs``."""
    name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    wrappers = {"abs", "sorted", "reversed", "round", "sqrt", "floor", "ceil", "strip", "lower", "casefold"}
    if isinstance(name, cst.Name) and name.value in wrappers:
        yield from (
            argument.value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()]) for argument in node.args[:1]
        )


def dropped_statements(node: cst.SimpleStatementLine) -> Iterator[cst.SimpleStatementLine]:
    """A call that is made for what it does, such as ``os.fsync(file)``, is not made."""
    if isinstance(node.body[0], cst.Expr) and isinstance(node.body[0].value, cst.Call):
        yield node.with_changes(body=[cst.Pass()])


def decided_branches(node: cst.If) -> Iterator[cst.If]:
    """A branch that is never taken, or always."""
    yield from (node.with_changes(test=cst.Name(name)) for name in ("True", "False"))


Operator = tuple[type, Callable[[Any], Iterable[cst.CSTNode]]]
ADDED: list[Operator] = [
    (cst.Call, swapped_names),
    (cst.Call, unwrapped_calls),
    (cst.SimpleStatementLine, dropped_statements),
    (cst.If, decided_branches),
]
OPERATORS = [*(pair for pair in mutators.mutation_operators if pair[1] is not mutators.operator_string), *ADDED]

SAME_ARGUMENTS = frozenset({"strict", "encoding"})
"""Arguments without which calls do the same where they are right."""


@dataclass(frozen=True)
class Change:
    """Replacement of a node by a fault. The module's text is made when it is drawn: that takes time."""

    path: str
    module: cst.Module
    node: cst.CSTNode
    other: cst.CSTNode
    kind: str
    line: int
    lines: tuple[int, int]

    def fault(self) -> Fault:
        changed = cst.ensure_type(self.module.deep_replace(self.node, self.other), cst.Module)
        return Fault(self.path, self.line, self.lines, self.kind, self.module.code, changed.code)


class ChangeFinder(cst.CSTVisitor):
    """Collects what may be changed within the functions of a module."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, path: str, module: cst.Module) -> None:
        self.found: list[Change] = []
        self._path = path
        self._module = module
        self._functions = 0
        self._statements: list[tuple[int, int]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef):
            self._functions += 1
        if isinstance(node, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
            self._statements.append(self._lines_of(node))
        if isinstance(node, (cst.Annotation, cst.Decorator, cst.Raise)):
            return False
        if isinstance(node, cst.Call) and getattr(node.func, "value", None) in ("len", "isinstance", "cast"):
            return False
        if self._functions:
            self._collect(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.FunctionDef):
            self._functions -= 1
        if isinstance(original_node, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
            self._statements.pop()

    def _collect(self, node: cst.CSTNode) -> None:
        lines = self._lines_of(node) if isinstance(node, cst.SimpleStatementLine) else self._statements[-1]
        position = self.get_metadata(PositionProvider, node, None)
        line = position.start.line if position else lines[0]
        others = [(other, operator) for cls, operator in OPERATORS if isinstance(node, cls) for other in operator(node)]
        self.found += [
            Change(self._path, self._module, node, other, operator.__name__, line, lines)
            for other, operator in others
            if is_worth_trying(node, other)
        ]

    def _lines_of(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return the lines of a statement; of one with a body, those of its head."""
        position = self.get_metadata(PositionProvider, node)
        body = getattr(node, "body", None)
        if not isinstance(body, cst.IndentedBlock):
            return position.start.line, position.end.line
        body_begin = self.get_metadata(PositionProvider, body.body[0]).start.line
        return position.start.line, max(position.start.line, body_begin - 1)


def is_worth_trying(node: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Return whether a change is neither the same by another name nor one that no run could miss (an argument None)."""
    if not (isinstance(node, cst.Call) and isinstance(other, cst.Call) and node.func is other.func):
        return True
    kept = [argument.keyword.value for argument in other.args if argument.keyword]
    gone = {argument.keyword.value for argument in node.args if argument.keyword} - set(kept)
    return len(other.args) < len(node.args) and not gone & SAME_ARGUMENTS


def changes_of(path: Path) -> list[Change]:
    """Return all changes of a module."""
    wrapper = MetadataWrapper(cst.parse_module(path.read_text(encoding="utf-8")))
    finder = ChangeFinder(path.relative_to(ROOT).as_posix(), wrapper.module)
    wrapper.visit(finder)
    return finder.found


def drawn_faults(packages: Sequence[str], number: int, seed: int) -> list[Fault]:
    """Return so many different faults, drawn from all of these packages and modules."""
    folders = [ROOT / "opcost" / package for package in packages]
    paths = [path for folder in folders for path in (sorted(folder.glob("*.py")) or [folder.with_suffix(".py")])]
    changes = [change for path in paths for change in changes_of(path)]
    drawn = random.Random(seed).sample(changes, min(number, len(changes)))
    print(f"{len(drawn)} of {len(changes)} faults in {len(paths)} modules, seed {seed}", flush=True)
    return sorted((change.fault() for change in drawn), key=lambda fault: (fault.path, fault.line))


# Tests


@dataclass(frozen=True)
class Tests:
    """Tests without a fault: how long each takes, and which run a line of a module."""

    time_s: Mapping[str, float]
    of_line: Mapping[tuple[str, int], frozenset[str]]

    def of(self, fault: Fault) -> list[list[str]]:
        """Return the tests to try one group after the other.

        First come those of the module's files: in the folder of its package, or that import it. Last are whole files
        that import it or have its name, since a test may have run the line in another process.
        """
        first, last = fault.lines
        found = frozenset[str]().union(*(self.of_line.get((fault.path, line), ()) for line in range(first, last + 1)))
        quick_first = sorted(found, key=lambda test: (self.time_s.get(test, 0.0), test))
        total_s = itertools.accumulate(self.time_s.get(test, 0.0) for test in quick_first)
        tried = [test for test, so_far_s in zip(quick_first, total_s, strict=True) if so_far_s <= TRIED_S]
        tried = tried or quick_first[:1]
        module = fault.path.removesuffix(".py").replace("/", ".")
        _, *package, name = module.split(".")
        folder = "/".join(["tests", *package, ""])
        all_files = {test.partition("::")[0] for test in self.time_s}
        files = {file for file in all_files if imports(file, module) or file == f"{folder}test_{name}.py"}
        near = [test for test in tried if test.partition("::")[0] in files or (package and test.startswith(folder))]
        quick = [file for file in sorted(files) if self.time_of([file]) <= TRIED_S]
        return [group for group in (near, [test for test in tried if test not in near], quick) if group]

    def time_of(self, tried: Sequence[str]) -> float:
        """Return how long tests and whole files take without a fault."""
        return sum(seconds for test, seconds in self.time_s.items() if {test, test.partition("::")[0]} & {*tried})


def imports(test_file: str, module: str) -> bool:
    """Return whether a test file imports a module itself."""
    package, _, name = module.rpartition(".")
    return any(
        f"from {line} " in (ROOT / test_file).read_text(encoding="utf-8")
        for line in (f"{module} import", f"{package} import {name}")
    )


def test_files(packages: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the test files in the folders of packages, and the others that name one."""
    names = {package.partition("/")[0] for package in packages}
    named = re.compile(rf"opcost(\.| import )({'|'.join(names)})\b")
    own, others = [], []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT / "tests").as_posix()
        if path.name in WITHOUT:
            continue
        if names & {path.parent.name, path.stem.removeprefix("test_")}:
            own.append(name)
        elif named.search(path.read_text(encoding="utf-8")):
            others.append(name)
    return own, others


def observed_tests(files: Sequence[str], copies: queue.Queue[Path], results: Path) -> Tests:
    """Run every test file once, without a fault; tests that fail are left out."""
    begin_s = time.monotonic()
    with ThreadPoolExecutor(copies.qsize()) as pool:
        list(pool.map(lambda name: observe(name, copies, results), files))
    time_s: dict[str, float] = defaultdict(float)
    of_line: dict[tuple[str, int], set[str]] = defaultdict(set)
    for name in files:
        of_file = times_of(name, results_of(name, results, "xml"))
        time_s.update(of_file)
        data = CoverageData(str(results_of(name, results, "coverage")))
        data.read()
        for path in data.measured_files():
            for line, contexts in data.contexts_by_lineno(path).items():
                tests = {f"tests/{name}::{context.rpartition('.')[2]}" for context in contexts}
                # Any test of the file may need lines that run outside tests, in fixtures.
                of_line[path, line].update(tests if tests <= of_file.keys() else of_file)
    print(f"{len(time_s)} tests pass without a fault ({time.monotonic() - begin_s:.0f} s)", flush=True)
    return Tests(time_s, {line: frozenset(tests) for line, tests in of_line.items()})


def results_of(name: str, results: Path, ending: str) -> Path:
    """Return where a test file's results are."""
    return results / f"{name.replace('/', '.')}.{ending}"


def observe(name: str, copies: queue.Queue[Path], results: Path) -> None:
    """Run a test file under coverage.py, and keep what ran and how long it took."""
    settings = results_of(name, results, "ini")
    settings.write_text(COVERAGE_SETTINGS.format(data_file=results_of(name, results, "coverage")), encoding="utf-8")
    command = ["-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", f"tests/{name}", "-q"]
    copy = copies.get()
    try:
        run_python(copy, [*command, f"--junitxml={results_of(name, results, 'xml')}"], OBSERVED_S)
    finally:
        copies.put(copy)


def times_of(name: str, report: Path) -> dict[str, float]:
    """Return how long each test of a file took, that of all its parameters; without those that fail."""
    time_s: dict[str, float] = defaultdict(float)
    failed = set()
    for case in ElementTree.parse(report).iter("testcase"):
        test = f"tests/{name}::{case.get('name', '').partition('[')[0]}"
        time_s[test] += float(case.get("time", "0"))
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(test)
    if failed:
        print(f"left out, since they fail without a fault: {', '.join(sorted(failed))}", flush=True)
    return {test: seconds for test, seconds in time_s.items() if test not in failed}


def run_python(folder: Path, arguments: Sequence[str], limit_s: float) -> int | None:
    """Run Python in a folder; return its exit status, None if it was ended after so many seconds."""
    with subprocess.Popen(
        [sys.executable, *arguments, "-p", "no:cacheprovider", "--hypothesis-seed=0"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(folder), MARK: str(folder)},
        start_new_session=True,
    ) as process:
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end_all_of(folder)


def end_all_of(folder: Path) -> None:
    """End what runs in a copy, also in sessions of its own, as a guardian with a fault that never ends."""
    marked = f"{MARK}={folder}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marked in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            # It has ended, or is another user's.
            continue


# Trials


class Outcome(Enum):
    """The outcome of tests with a fault."""

    NOTICED = "noticed"
    HANGS = "hangs"
    SURVIVED = "SURVIVED"


@dataclass(frozen=True)
class Trial:
    """A fault that was tried, with its outcome."""

    fault: Fault
    tests: int
    outcome: Outcome
    time_s: float


def tried(fault: Fault, tests: Tests, copies: queue.Queue[Path]) -> Trial:
    """Plant a fault in one of the copies, run its tests until one fails, and take the fault out."""
    groups = tests.of(fault)
    begin_s = time.monotonic()
    copy = copies.get()
    try:
        (copy / fault.path).write_text(fault.changed, encoding="utf-8")
        outcomes = (outcome_of(copy, group, tests.time_of(group)) for group in groups)
        outcome = next((one for one in outcomes if one is not Outcome.SURVIVED), Outcome.SURVIVED)
    finally:
        (copy / fault.path).write_text(fault.original, encoding="utf-8")
        copies.put(copy)
    trial = Trial(fault, sum(map(len, groups)), outcome, time.monotonic() - begin_s)
    where = f"{fault.path}:{fault.line} {fault.kind}, {trial.tests} tests"
    print(f"{outcome.value:8} {trial.time_s:5.1f} s  {where}", flush=True)
    return trial


def outcome_of(copy: Path, tests: Sequence[str], clean_s: float) -> Outcome:
    status = run_python(copy, ["-m", "pytest", "-x", "-q", *tests], HANG_S + HANG_RATIO * clean_s)
    return Outcome.HANGS if status is None else Outcome.NOTICED if status else Outcome.SURVIVED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("packages", nargs="*", default=PACKAGES, help="such as power or running/plan (default: all)")
    parser.add_argument("--faults", type=int, default=100, help="how many are drawn (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: %(default)s)")
    parser.add_argument("--at-a-time", type=int, default=2, help="faults tried side by side (default: %(default)s)")
    arguments = parser.parse_args()
    faults = drawn_faults(arguments.packages, arguments.faults, arguments.seed)
    copies: queue.Queue[Path] = queue.Queue()
    with tempfile.TemporaryDirectory(prefix="opcost-faults-") as folder:
        for number in range(arguments.at_a_time):
            copies.put(copy_repository(Path(folder, str(number))))
        hanging: list[Trial] = []
        survivors: list[Trial] = []
        rest = faults
        for files in test_files(arguments.packages):
            tests = observed_tests(files if rest else [], copies, Path(folder))
            with ThreadPoolExecutor(arguments.at_a_time) as pool:
                trials = list(pool.map(partial(tried, tests=tests, copies=copies), rest))
            hanging += [trial for trial in trials if trial.outcome is Outcome.HANGS]
            survivors = [trial for trial in trials if trial.outcome is Outcome.SURVIVED]
            rest = [trial.fault for trial in survivors]
    for trial in [*hanging, *survivors]:
        print(f"\n{trial.outcome.value} {trial.fault.described()}  ({trial.tests} tests)")
    counted = Counter(trial.fault.path.split("/")[1].removesuffix(".py") for trial in survivors)
    where = f": {', '.join(f'{number} in {name}' for name, number in sorted(counted.items()))}" if survivors else ""
    print(f"\n{len(survivors)} of {len(faults)} faults survived{where}; {len(hanging)} noticed by the time limit alone")


if __name__ == "__main__":
    main()
