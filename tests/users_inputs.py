"""Malformed inputs of users besides measurements: Python files, marks, command lines, and the cache of learned costs.

Commands run in forks of the process that reads: it has imported torch and opcost already.
"""

import hashlib
import io
import json
import os
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import numpy as np
import warm_python
from mutations import BYTE_MUTATIONS, TOKENS, VALUES, mutated, mutated_text

from opcost.comparing.ranking import ASSUMED_SUM_ERRORS
from opcost.errors import UserError
from opcost.learners import learned_from
from opcost.operators.counts import OperatorCount
from opcost.operators.model_names import ModelName
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.operators.values import NORMAL_DATA
from opcost.prediction.learned_costs import STRUCTURE, Lesson, signed, to_bytes
from opcost.prediction.samples import Boards, Samples, card_of, kind_of, raw_features, shape_of
from opcost.running.marks import Marks
from opcost.stages.follow_power import Parts
from opcost.stages.predict import kept_costs
from opcost.storage.code_files import find_code, lacks_parameter

DEADLINE_S = 2
WAITING_S = 20
MEMORY_MB = 300
LONGEST_OUTPUT = 100_000_000


@contextmanager
def scratch_folder() -> Iterator[str]:
    """Yield a temporary folder, which a fork does not remove as it ends, unlike that of ``TemporaryDirectory``."""
    folder = tempfile.mkdtemp()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# What may be in a file's place


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 20 * 2**30)


def socket_at(path: Path) -> None:
    with scratch_folder() as folder, socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"{folder}/s")
        os.rename(f"{folder}/s", path)


PLACES: Mapping[bytes, Callable[[Path], None]] = MappingProxyType(
    {
        b"(nothing)": lambda path: None,
        b"(a folder)": Path.mkdir,
        b"(a pipe)": os.mkfifo,
        b"(a socket)": socket_at,
        b"(a link to itself)": lambda path: path.symlink_to(path.name),
        b"(a link to nowhere)": lambda path: path.symlink_to("nowhere"),
        b"(a link to its folder)": lambda path: path.symlink_to("."),
        b"(a link to /dev/zero)": lambda path: path.symlink_to("/dev/zero"),
        b"(a link to /dev/stdin)": lambda path: path.symlink_to("/dev/stdin"),
        b"(20 GB of zeros)": sparse,
        b"(not readable)": lambda path: path.touch(mode=0),
    }
)


def put(path: Path, content: bytes) -> None:
    """Write a file, or make what a content names in its place, or in that of a module that it imports."""
    if content in PLACES:
        PLACES[content](path)
    elif content.removeprefix(IMPORTS) in PLACES:
        path.write_bytes(IMPORTS)
        PLACES[content.removeprefix(IMPORTS)](path.with_name("other.py"))
    else:
        path.write_bytes(content)


def anything(mutation: Callable[[bytes, Random], bytes], *more: bytes) -> Callable[[bytes, Random], bytes]:
    """Return the mutation by which one of six files is something else."""

    def changed(content: bytes, random: Random) -> bytes:
        place = random.choice(list(PLACES))
        return random.choice([b"", *more]) + place if random.randrange(6) == 0 else mutation(content, random)

    return changed


# Commands in a fork

PROGRAM = "import sys; sys.argv[0] = 'opcost'; del sys.path[0]; from opcost.__main__ import start; start()"
"""The program as it is installed: without the working folder on the path."""


def opcost(words: Sequence[str], folder: Path, is_removed: bool = False) -> tuple[int, bytes, str]:
    """Run a command and return its exit status and what it printed.

    Raises:
        AssertionError: it waits, or takes more time or memory than it may, or shows a traceback.
    """
    status, output, errors, used = forked(words, folder, is_removed)
    time_s, grown_mb = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024 - idle_mb()
    said = f"{words}: status {status}, {time_s:.1f} s, {grown_mb:.0f} MB\n{errors[:3000]}"
    assert time_s < DEADLINE_S, said
    assert grown_mb < MEMORY_MB, said
    assert "Traceback (most recent call last)" not in errors, said
    return status, output, errors


def forked(
    words: Sequence[str], folder: Path, is_removed: bool = False
) -> tuple[int, bytes, str, resource.struct_rusage]:
    with scratch_folder() as place:
        streams = [Path(place, name) for name in ("stdout", "stderr")]
        environment = {**os.environ, "OPCOST_HOME": f"{place}/home", "XDG_CACHE_HOME": f"{place}/cache"}
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_CPU, (2 * DEADLINE_S, 2 * DEADLINE_S + 1))
            resource.setrlimit(resource.RLIMIT_FSIZE, (LONGEST_OUTPUT, LONGEST_OUTPUT))
            if is_removed:
                os.chdir(folder)
                folder.rmdir()
                folder = Path(".")
            arguments = ["-c", PROGRAM, *words]
            warm_python.become(sys.path, arguments, str(folder), environment, list(map(str, streams)), WAITING_S)
        _, status, used = os.wait4(child, 0)
        output, errors = (stream.read_bytes() for stream in streams)
        return os.waitstatus_to_exitcode(status), output, errors.decode(errors="replace"), used


@cache
def idle_mb() -> float:
    """Return the most memory that a command without work takes."""
    return forked(["--version"], Path.cwd())[-1].ru_maxrss / 1024


def mistakes_in(errors: str) -> list[str]:
    return [line.removeprefix("error: ") for line in errors.splitlines() if line.startswith("error: ")]


def expect_an_end(words: Sequence[str], folder: Path, ends: Sequence[int] = (), is_removed: bool = False) -> bytes:
    """Run a command and return its output.

    Raises:
        UserError: it was refused.
        AssertionError: it ended in another way than with 0, 2, or a status among ``ends``.
    """
    status, output, errors = opcost(words, folder, is_removed)
    if status == 2:
        raise UserError(*mistakes_in(errors))
    assert status == 0 or status in ends, f"{words}: status {status}\n{errors[:3000]}"
    return output


# Python files that are read


IMPORTS = b"import other\n"

MARKER = b'open(__file__ + ".ran", "w")\n'

CODE = (
    MARKER + b"import os.path, net, layers.deep as deep\nfrom . import net\nfrom .... import x\nfrom os import *\n"
    b"class Net:\n    def forward(self, x): return x\n\ndef build(size=8, *, depth=2): return Net()\n",
    MARKER
    + b"# -*- coding: utf-8 -*-\n@staticmethod\nasync def build(**more):\n    match more:\n        case {}: pass\n"
    b"    return f'{more!r:>{10}}' if more else lambda x=1: [y async for y in more]\n",
)

ENCODINGS = "utf-7 utf-16 utf-32 idna punycode unicode_escape rot13 hex zlib base64 undefined mbcs x.y \0 latin-1 cp037"


def repeated_code(content: bytes, random: Random) -> bytes:
    """Add code that is repeated or nested, up to what a parser takes much for."""
    times = random.choice([10, 99, 250, 301, 1000, 5000, 30_000, 100_000, 500_000])
    end, first, more = random.choice(
        [
            *[("b", "import ", "a."), ("b", "import ", "a.\\\n"), ("", "from ", "."),
            ("import x", "", "import a, b\n")],
            *[("1", "x = ", sign) for sign in ("(", "[", "{", "-", "{1:", "f(", "not ", "lambda: ", "await ", "*")],
            *[("", "x", more) for more in ("[0]", ".a", "()", "+1", " if x else y", ", x", "\\\n", "=x", ":=x", "@x")],
            *[("pass", "", "if x:\n "), ("x", "if x: pass", "\nelif x: pass"), ("def f(): pass", "", "@a\n")],
            *[("", "x = 9", "9"), ("'", "x = '", "x"), ("'", "x = f'", "{"), ("'''", "x = '''", "\n"), ("", "", "\f")],
            *[("", "x = 0x1", "f"), ("", "x = 1e", "9"), ("", "#", "x"), ("", "", "x = 1\n"), ("", "", ";"),
            ("", "", "\0")],
            *[("", "def build(a", ", a"), ("", "class A(x", ", x"), ("", "", "try: pass\nfinally: pass\n"),
            ("", "", "global x\n")],
        ]
    )  # fmt: skip
    added = (first + more * min(times, 1_900_000 // len(more)) + end + "\n").encode()
    return random.choice([content + added, added, added + content])


def other_encoding(content: bytes, random: Random) -> bytes:
    name = random.choice(ENCODINGS.split(" "))
    return b"# coding: %s\n" % name.encode() + random.choice(
        [content, content.decode(errors="replace").encode("utf-16")]
    )


def mutated_code(content: bytes, random: Random) -> bytes:
    return mutated(content, random, [mutated_text, repeated_code, repeated_code, other_encoding])


def read_code(path: Path) -> None:
    code = find_code(ModelName.of(f"{path.name}:build"), path.parent)
    lacks_parameter(code, "size")


# Python files that run


NET = """\
import atexit, contextlib, os, signal, sys, threading, time, warnings, torch
from torch import nn
{module}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
    def forward(self, x):
        {forward}
        return self.first(x)
def build():
    {build}
    return {returned}
"""

RAISED = (
    "BaseException('x')", "GeneratorExit()", "SystemExit()", "SystemExit(0)", "SystemExit('a\\nb')", "SystemExit(3)",
    "KeyError('a\\nb')", "MemoryError()", "RecursionError()", "StopIteration()", "StopAsyncIteration()",
    "OSError(28, 'x')", "OSError()", "FileNotFoundError(2, 'x')", "BrokenPipeError()",
    "UnicodeDecodeError('utf-8', b'x', 0, 1, 'y')", "ModuleNotFoundError(name=3)",
    "ModuleNotFoundError('x', name='torch')", "ImportError()", "NotImplementedError", "ValueError('x' * 10**7)",
    "ValueError('\\n' * 10**6)", "ValueError('\\ud800 \\x1b[31m \\u202e')", "ValueError(10**9)",
    "SyntaxError('x', ('f', 'g', 'h', 3))", "SyntaxError('x', (None, 1, 1, None))", "AssertionError", "Warning()",
    "type('A\\nB', (Exception,), {})('x')", "type('A' * 9000, (BaseException,), {})()", "TimeoutError()", "EOFError()",
    "type('A', (Exception,), {'__str__': lambda self: 1})()",
    "type('A', (Exception,), {'__str__': lambda self: 1 / 0})()",
    "type('A', (Exception,), {'__str__': lambda self: sys.exit(4)})()", "torch.OutOfMemoryError('x')",
    "BlockingIOError()", "InterruptedError()",
)  # fmt: skip

ACTIONS = (
    *(f"raise {one}" for one in RAISED), "error = ValueError('x'); error.__cause__ = error; raise error",
    "error = ValueError(); error.args = (error,); raise error", "print('x' * 5_000_000)", "print('x\\n' * 1_000_000)",
    "print('\\ud800')", "os.write(1, b'{}'); os.write(1, b'x' * 10**6)", "os.system('echo shell')",
    "sys.__stdout__.write('raw\\n')", "sys.stdout.close()", "sys.stderr.close()", "os.close(1)", "os.close(2)",
    "sys.stdout = None", "sys.stderr = None", "sys.stdout = sys.stderr = open(os.devnull, 'w')",
    "sys.__stdout__.close()", "os.closerange(3, 100)", "os.close(0)", "sys.stdin = None", "os.chdir('/')",
    "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')", "os.remove(__file__)",
    "open(__file__, 'a').write('# more')", "os.remove(__file__); os.mkdir(__file__)",
    "os.remove(__file__); os.mkfifo(__file__)", "os.truncate(__file__, 10**10)", "sys.path.clear()", "sys.argv.clear()",
    "os.environ.clear()", "del sys.modules[__name__]", "sys.modules[__name__] = None", "sys.modules['other'] = 3",
    "del __builtins__", "globals().clear()", "warnings.simplefilter('error')", "warnings.warn('a\\nb')",
    "import logging; logging.disable()",
    "import logging; logging.basicConfig(level=0, stream=sys.stdout); logging.error('a\\nb')",
    "sys.setrecursionlimit(200)", "torch.set_default_dtype(torch.float64)", "torch.set_default_device('meta')",
    "torch.set_grad_enabled(False)", "torch.inference_mode().__enter__()", "torch.use_deterministic_algorithms(True)",
    "torch.set_num_threads(1)", "torch.manual_seed(3)", "signal.signal(signal.SIGINT, signal.SIG_IGN)",
    "signal.raise_signal(signal.SIGINT)", "signal.raise_signal(signal.SIGTERM)", "signal.raise_signal(signal.SIGKILL)",
    "signal.raise_signal(signal.SIGSEGV)", "os.abort()", "signal.raise_signal(signal.SIGHUP)", "os._exit(0)",
    "os._exit(3)", "sys.exit()", "threading.Thread(target=sys.exit).start()",
    "signal.signal(signal.SIGALRM, signal.SIG_IGN)", "import gc; gc.disable()", "sys.settrace(lambda *_: None)",
    "assert 0, 'a\\nb'", "f = lambda: f(); f()", "exec('(' * 300)", "exec('x' * 10**6)",
    "compile('1\\n/0', 'a\\nb', 'exec'); exec(compile('1/0', 'a\\nb', 'exec'))", "import missing_package",
    "import missing_package.part", "from . import layers", "from torch import nothing", "import other",
    "Net.__qualname__ = Net.__name__ = 'A\\nB'", "Net.__name__ = 'A' * 10_000", "Net.__module__ = 'a\\nb'",
    "Net.__module__ = None", "Net.__repr__ = lambda self: 1 / 0", "Net.extra_repr = lambda self: 1 / 0",
    "Net.__str__ = lambda self: 'a\\nb'", "Net.__eq__ = lambda self, other: 1 / 0", "Net.__len__ = lambda self: 0",
    "Net.__bool__ = lambda self: 1 / 0", "Net.__hash__ = None", "Net.__getattr__ = lambda self, name: 1 / 0",
    "Net.eval = lambda self: None", "Net.to = lambda self, *_: 3", "Net.forward = None",
    "Net.parameters = lambda self: 1 / 0", "Net.__call__ = lambda self, x: x", "Net.train = lambda self, mode: 1 / 0",
    "Net.__deepcopy__ = 1", "Net.forward = lambda self, *_: self(*_)", "Net.train = lambda self, mode: None",
)  # fmt: skip

FORWARDS = (
    "x.resize_(0)", "x.data = x.new_zeros(3)", "return None", "return x.sum().item()", "return {'a\\nb': x, 1: [x]}",
    "return [x] * 10_000", "found = []; found.append(found); return found", "self.register_buffer('a\\nb', x)",
    "self.add_module('a\\nb', nn.Linear(4, 4))", "del self.first", "self.first = nn.Linear(4, 4)", "self.first = None",
    "return self.forward", "yield x", "return (y for y in [x])", "return self.first(x.double())",
    "return torch.zeros(10**15)", "x = x.expand(10**5, 2, 4)", "x = x.to_sparse()", "x = x.to('meta')", "x = x[:0]",
    "x = x.to(torch.complex64)", "x = torch.nested.nested_tensor([x])", "torch._assert_async(x.sum() * 0)",
    "x.untyped_storage().resize_(0)", "return type('A\\nB', (), {})()", "self.__class__ = nn.Identity",
    "x += float('nan')", "return torch.ops.aten.nothing(x)",
    "self.n = getattr(self, 'n', 0) + 1\n        for _ in range(self.n): x = self.first(x)",
)  # fmt: skip

RETURNED = (
    "None", "3", "Net", "build", "(Net(),)", "(Net(), None)", "(Net(), 3)", "(Net(), 'x')", "(Net(), {})",
    "(Net(), {'y': 1})", "(Net(), {1: 2})", "(Net(), [])", "(Net(), torch.zeros(2, 5))", "(Net(), torch.zeros(()))",
    "(Net(), torch.zeros(0, 4))", "(Net(), torch.zeros(2, 4).to('meta'))", "(Net(), torch.zeros(2, 4).to_sparse())",
    "(Net(), torch.zeros(1).expand(10**12, 4))", "(Net(), torch.zeros(2, 4, requires_grad=True))",
    "(Net(), torch.zeros(2, 4, dtype=torch.complex64))", "(Net(), object())",
    "(Net(), (y for y in [torch.zeros(2, 4)]))", "(Net(), lambda x: x)", "(Net(), {'a\\nb': torch.zeros(2, 4)})",
    "(nn.ModuleList([Net()]), torch.zeros(2, 4))", "(nn.ModuleDict({'a\\nb': Net()}), torch.zeros(2, 4))",
    "(Net().to('meta'), torch.zeros(2, 4))", "(Net().half(), torch.zeros(2, 4))",
    "(nn.Sequential(), torch.zeros(2, 4))", "(nn.LazyLinear(3), torch.zeros(2, 4))",
    "(nn.Sequential(*[Net() for _ in range(300)]), torch.zeros(2, 4))",
    "(nn.Linear(4, 10**12, device='meta'), torch.zeros(2, 4))", "(loops(), torch.zeros(2, 4))", "(Net(), itself())",
    "(Net(), nested())", "(Net(), torch.zeros(2, 4)) * 2", "(deep(), torch.zeros(2, 4))",
    "(Net(), torch.full((2, 4), float('nan')))", "(torch.zeros(2, 4), Net())", "(Net(), [torch.zeros(2, 4)], {})",
    "(Net(), [[torch.zeros(2, 4)]])",
)  # fmt: skip

HELPERS = """
def loops():
    net = Net(); net.first.inside = [net]; net.first.add_module('again', net); return net
def itself():
    found = [torch.zeros(2, 4)]; found.append(found); return found
def nested():
    found = torch.zeros(2, 4)
    for _ in range(3000): found = [found]
    return found
def deep():
    net = Net()
    for _ in range(400): net = nn.Sequential(net)
    return net
"""

OWN_ENDS = {
    "os._exit(0)": 0,
    "os._exit(3)": 3,
    "SIGKILL": -9,
    "SIGSEGV": -11,
    "os.abort()": -6,
    "SIGINT": 130,
    "SIGTERM": 143,
    "SIGHUP": 129,
}
"""Ends that no program can prevent in its own process, or that are those of the signal, with their exit statuses."""


def hostile_code(content: bytes, random: Random) -> bytes:
    """Return a file that does what users' files may do, and worse, as it is imported, builds a model, or runs it."""
    place = random.choice(["module", "module", "build", "build", "build", "forward", "forward", "returned"])
    parts = {"module": "", "forward": "", "build": "", "returned": "Net(), torch.zeros(2, 4)"}
    if place == "returned":
        parts[place] = random.choice(RETURNED)
    elif place == "forward":
        parts[place] = random.choice([*FORWARDS, *FORWARDS, *ACTIONS])
    else:
        parts[place] = random.choice(ACTIONS)
    if random.randrange(4) == 0:
        parts["build"] = parts["build"] or random.choice([one for one in ACTIONS if not one.startswith("raise")])
    return (NET.format(**parts) + HELPERS).encode()


def run_code(path: Path) -> None:
    """Count the model of a copy of a file, which may change or remove it."""
    text = path.read_text(encoding="utf-8")
    ends = [status for name, status in OWN_ENDS.items() if name in text]
    with scratch_folder() as folder:
        Path(folder, path.name).write_text(text, encoding="utf-8")
        words = ["profile", f"{path.name}:build", "--allow-code", "--no-measure", "--json", "--database", "rows"]
        output = expect_an_end(words, Path(folder), ends)
    if not ends:
        assert json.loads(output)["models"], output[:200]


# Marks


MARKS = (
    b"".join(b'[%d.5, "epoch %d"]\n' % (1_700_000_000 + number, number) for number in range(20)),
    b'[1.5, "a"]\n[1.5, "b"]\n[0, ""]\n',
)

LINES = (
    b'[1%s, "x"]' % (b"0" * 400), b'[1%s, "x"]' % (b"0" * 5000), b'[1%s.5, "x"]' % (b"0" * 308), b"[" * 200_000,
    b"[[" + b"{" * 2000, b'[-Infinity, "x"]', b'[Infinity, "x"]', b'[NaN, "x"]', b'["nan", "x"]', b'[1e308, "x"]',
    b'[-1, "x"]', b'["1.5", "x"]', b'[true, "x"]', b'[1, "%s"]' % (b"x" * 1_000_000), b'[1, ["%s"]]' % (b"x" * 100_000),
    b"[1, %s]" % (b"9" * 4000), b"[1, %s]" % (b"9" * 5000), b'{"1": 2}', b"[1]", b'[1, "a", 2]', b"[null, null]",
    b'[1, "\\ud800"]', b'[1, "\\u202e\\u001b[31m"]', b'[1, "\xff"]', b"\0" * 100, b"\r", b"\x85", b'[1, "a', b'"12"',
    b"[1, {}]", b'[1, 1e999]', b'[99999999999, "x"]', b'[2, "x"]' + b" " * 1_000_000,
)  # fmt: skip


def other_line(content: bytes, random: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    lines.insert(random.randrange(len(lines) + 1), random.choice(LINES) + random.choice([b"\n", b"\n", b"\r\n", b""]))
    return b"".join(lines)


def many_lines(content: bytes, random: Random) -> bytes:
    number = random.choice([1000, 20_000, 100_000, 300_000])
    line = random.choice([b'[%d, "x"]\n', b'[%d.5, "step"]\n', b"%d\n", b'[1, "%d"]\n', b"\n"])
    return content + b"".join(line % one if b"%d" in line else line for one in range(number))


def mutated_marks(content: bytes, random: Random) -> bytes:
    return mutated(content, random, [mutated_text, mutated_text, other_line, other_line, other_line, many_lines])


def read_marks(path: Path) -> None:
    """Read marks as they come, in two parts; calculate the parts of the run between them."""
    said: list[str] = []
    marks, parts = Marks(path, said.append), Parts(())
    found = marks.read()
    parts.settle(found, 1e9)
    assert marks.read() == found
    parts.settle(found, 1e12)
    assert [mark.epoch_s for mark in found] == sorted(mark.epoch_s for mark in found)
    assert all(mark.label.isprintable() and len(mark.label) <= 2000 for mark in found)
    assert len(parts.results) == max(len(found) - 1, 0)
    assert all(part.duration_s >= 0 for part in parts.results)
    assert all(line.isprintable() and len(line) < 600 for line in said)
    if said:
        raise UserError(*(f"{line}; left out" for line in dict.fromkeys(said)))


def follow_marks(path: Path) -> None:
    """Follow a program that puts a file in the place of its marks, with the command."""
    with scratch_folder() as folder:
        copy = 'cp -a --remove-destination "$0" "$OPCOST_MARKS"; exit 7'
        words = ["power", "--output", f"{folder}/run.csv", "--interval", "0.1", "--", "sh", "-c", copy, str(path)]
        status, _, errors = opcost(words, Path(folder))
    assert status == 7, f"status {status}\n{errors[:3000]}"
    assert all(len(line) < 600 for line in errors.splitlines()), errors[:3000]


# The cache of learned costs


def calls() -> list[OperatorCount]:
    found = []
    for number in range(48):
        rows, is_linear = 2 ** (5 + number % 12), number % 2 == 0
        spec = TensorSpec((rows, 64), "float32")
        widths = (("in_features", 64), ("out_features", 64)) if is_linear else ()
        operator = OperatorTuple("torch.nn.Linear" if is_linear else "torch.nn.ReLU", widths, (spec,))
        operations = (("addmm" if is_linear else "relu", 1),)
        flop, moved = 2 * rows * 64 * 64 * is_linear, 4 * (2 * rows * 64 + 64 * 64)
        found.append(OperatorCount(operator, 1, flop, moved, spec, operations=operations))
    return found


def kept_archives() -> tuple[bytes, ...]:
    """Return learned costs as they are kept."""
    counts = calls()
    kinds = tuple(map(kind_of, counts))
    times_s = np.array([2e-6 + (count.flop or 0) / 4e13 + count.memory_bytes / 3e12 for count in counts])
    samples = Samples(
        np.array([raw_features(count, NORMAL_DATA) for count in counts]),
        kinds,
        tuple(shape_of(kind, count.operator) for kind, count in zip(kinds, counts, strict=True)),
        tuple(frozenset([f"family {place % 6}"]) for place in range(len(counts))),
        times_s,
        times_s * 300,
        Boards({}, 0.02),
    )
    learned = learned_from({"a": Lesson(samples, [], card_of(samples, 100))}, trees=3)
    errors = astuple(ASSUMED_SUM_ERRORS[True])
    return (to_bytes((learned, {"a": {False: errors, True: errors}})),)


def damaged_archive(content: bytes, random: Random) -> bytes:
    """Return an archive that is damaged, that someone has edited, or that is forged with a right hash."""
    if random.randrange(3) == 0:
        return mutated(content, random, BYTE_MUTATIONS)
    size = hashlib.sha256().digest_size
    with np.load(io.BytesIO(content[size:])) as archive:
        arrays: dict[str, Any] = dict(archive)
    structure = arrays[STRUCTURE].tobytes()
    for _ in range(random.choice([1, 1, 2, 5])):
        if random.randrange(2) == 0:
            structure = random.choice([mutated_text, other_values])(structure, random)
        else:
            name = random.choice(sorted(arrays))
            arrays[name] = other_array(arrays[name], random)
    arrays[STRUCTURE] = np.frombuffer(structure, np.uint8)
    file = io.BytesIO()
    random.choice([np.savez, np.savez, np.savez_compressed])(file, **arrays)
    return random.choice([signed(file.getvalue()), content[:size] + file.getvalue()])


def other_values(structure: bytes, random: Random) -> bytes:
    """Return a JSON text in which one value is another."""
    try:
        text = json.loads(structure)
    except (ValueError, RecursionError):
        return structure
    if not isinstance(text, (dict, list)):
        return structure
    within, place = text, "tuple"
    for _ in range(random.randrange(1, 12)):
        inside = within.items() if isinstance(within, dict) else enumerate(within)
        found = [key for key, one in inside if isinstance(one, (dict, list)) and one]
        if not found:
            break
        before, place = within, random.choice(found)
        within = before[place]
    if not isinstance(within, (dict, list)):
        return structure
    key = random.choice(list(within) if isinstance(within, dict) else list(range(len(within))))
    plain = [one for one in VALUES if not isinstance(one, (bytes, set))]
    within[key] = random.choice([*plain, {"array": 0}, {"array": 1}, {"items": []}, {"class": "Popen", "fields": {}}])
    return json.dumps(text).encode()


def other_array(array: Any, random: Random) -> Any:
    """Return an array of another form, type or content."""
    if array.dtype == object:
        return array
    flat = array.reshape(-1)
    array = np.atleast_1d(array)
    return random.choice(
        [
            array[:0],
            flat[: len(flat) // 2],
            array.T[..., np.newaxis],
            array.astype(np.complex64) if array.dtype.kind in "if" else array[:0],
            array.astype("U9"),
            np.full_like(array, -1 if array.dtype.kind in "if" else 1),
            np.random.default_rng(0).permutation(flat).reshape(array.shape),
            np.array(random.choice([0, np.nan, "x", b"x", True])),
            np.zeros(30_000_000),
            np.array([print], dtype=object),
        ]
    )


def read_learned(path: Path) -> None:
    """Read learned costs as a prediction does, and predict with what is believed."""
    found = kept_costs(path.name, path.parent)
    if found is None:
        raise UserError("learned again;")
    known = found[0].costs([(count, NORMAL_DATA) for count in calls()])
    assert len(known.times_s) == len(calls())


# Command lines: words with NUL between them, as in /proc


LIBRARY_MODELS = (
    "squeezenet1_2 timm:vit_tiny_patch16_22 transformers:BertModell torchvision:alexnets hf-hub:x/y".split()
)
PATHS = (
    "net.py:build ./net.py:build ~unknown-user/net.py:build ../../../../etc/passwd:build /dev/zero:build "
    "/dev/stdin:x.py:build "
    "net:build os.path:join package.module:build https://example.com/net.py:build file:///etc/passwd.py:build "
    "timm:hf_hub:timm/resnet18 transformers:../BertModel loop.py:build folder.py:build pipe.py:build net.py:__class__ "
    "net.py: :build net.py:build:build net.py:a-b resnet18* timm:* [a-z]*:x "
    "__import__('os').system('x') $(touch${IFS}x);x"
).split()
NAME = b"NAME"
COMMANDS = (
    ("profile", "--no-measure", "--database", "rows", "NAME", "1x3x32x32"),
    ("profile", "--no-measure", "--dry-run", "--json", "NAME"), ("layers", "NAME"),
    ("make-configs", "NAME", "--dry-run"), ("count", "NAME"), ("show", "NAME"), ("measure", "NAME"),
    ("compare", "NAME", "--dry-run"), ("check", "NAME"), ("sweep", "NAME", "--dry-run"), ("NAME",), ("predict", "NAME"),
)  # fmt: skip


def named_commands() -> tuple[bytes, ...]:
    return tuple(
        "\0".join(command).replace("NAME", name).encode() for command in COMMANDS for name in (*LIBRARY_MODELS, *PATHS)
    )


VALUES_OF_ARGUMENTS = (
    "1", "0.5", "'text'", "[1, 2, [3]]", "{a: 1, b: {c: 2}}", "null", "true", "2024-01-01", "-1", "1e3", "0x1f",
    "&a [*a]", "*a", "&a 1", "!!python/object/apply:os.system [ls]", "!!int x", "!x 1", "<<: 1", "{<<: {a: 1}}",
    "[" * 7 + "]" * 7, "[" * 20 + "1" + "]" * 20, "[" * 3000 + "]" * 3000, "{a: " * 9 + "}" * 9,
    "{a: " * 900 + "}" * 900, "9" * 25, "9" * 4301, "-" + "9" * 400, "1e999", ".nan", "nan", ".inf", "-.inf", "0o777",
    "1_000", "0b1", "1:30:30", "'\x1b[31m'", '"\\ud800"', '"\\0"', '"\\x41"', "\udcff", "a: b", "a b c", "1, other: 2",
    "1}, more: {2", "1 # x", "", " ", "|", "'a\nb'", "a\nb", "\t1", "%TAG x", "---", "...", "@x", "`x`", "x" * 10_000,
    "[" + "1, " * 9000 + "1]", "\u2028", "\ufeff1",
    "[&a0 [1]," + ",".join(f"&a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)) + "]",
)  # fmt: skip
ARGUMENT_NAMES = (
    "width", "width", "width", "width", "", "self", "a b", "a.b", "é", "'width'", "width: 1, b", "[a]", "{a: 1}",
    "x" * 9000,
)  # fmt: skip

ARGUMENTS_OF = ("profile", "ok.py:build", "--allow-code", "--no-measure", "--json", "--database", "rows", "--argument")

TAKES_ALL = """
import torch
def build(**arguments):
    assert all(type(one) in (int, float, bool, str, tuple, list, dict, type(None)) for one in arguments.values())
    return torch.nn.Linear(2, 2), torch.zeros(1, 2)
"""


def commands_with_arguments() -> tuple[bytes, ...]:
    return tuple(
        "\0".join([*ARGUMENTS_OF, f"{name}={value}"]).encode(errors="surrogateescape")
        for name in ARGUMENT_NAMES
        for value in (VALUES_OF_ARGUMENTS if name == "width" else VALUES_OF_ARGUMENTS[:3])
    )


def other_words(content: bytes, random: Random) -> bytes:
    """Change the last word, or any; make a name long; take the folder away."""
    words = content.split(b"\0")
    if random.randrange(3):
        place = random.choice([len(words) - 1, 1 % len(words)])
        words[place] = mutated_text(words[place], random).replace(b"\0", random.choice([b"", *TOKENS[1:4]]))
        words[place] = words[place][: random.choice([50, 200, 10_000, 100_000])]
    return random.choice([b"", b"", b"", b"", REMOVED]) + b"\0".join(words)


REMOVED = b"(in a folder that is removed)\0"


def run_command(path: Path) -> None:
    """Run a command in a folder of users' files, of which only one may run, if it is named so."""
    content = path.read_bytes()
    words = [os.fsdecode(word) for word in content.removeprefix(REMOVED).split(b"\0")]
    with scratch_folder() as folder:
        place = Path(folder)
        (place / "net.py").write_bytes(CODE[0])
        (place / "ok.py").write_text(TAKES_ALL)
        (place / "loop.py").symlink_to("loop.py")
        (place / "folder.py").mkdir()
        os.mkfifo(place / "pipe.py")
        if content.startswith(REMOVED):
            place = place / "removed"
            place.mkdir()
        before = names_in(Path(folder)) - {"removed"}
        try:
            expect_an_end(words, place, (1,), is_removed=content.startswith(REMOVED))
        finally:
            left = names_in(Path(folder)) - {"rows"}
            assert left == before, f"{words} left {left - before}"


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
