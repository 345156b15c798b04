"""Operator counts in pickles: small, readable anywhere, and harmless whoever wrote them."""

import hashlib
import os
import pickle
import pickletools
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import doubled, nested, plainly_pickled
from seeds import some_of
from torchvision.models import resnet50

from opcost.columns import INTEGER_LIMIT, form_of, header_of
from opcost.errors import LONGEST_SHOWN, UserError
from opcost.operators.counts import CalledModule, OperationWithoutFormula, OperatorCount, OperatorCounts
from opcost.operators.tuples import Constant, OperatorTuple, Structure, TensorSpec, model_operator
from opcost.operators.values import InputStatistics
from opcost.storage import counts_file
from opcost.storage.counts_file import (
    MAXIMUM_BYTES,
    MAXIMUM_DEPTH,
    MAXIMUM_OPCODES,
    SCHEMA,
    load,
    read_counts,
    write_counts,
)
from opcost.torch_backend.capture import capture
from opcost.torch_backend.ready_model import ReadyModel

ROOT = Path(__file__).parents[2]
MADE_BY = "general_pipeline_block0.py"

SPEC = TensorSpec((2, 3, 8, 8), "float32", (192, 1, 24, 3), identity=2)
FUNCTION = OperatorTuple(
    "torch.Tensor.to", (), (Structure("dict", (("0", SPEC),)), Constant("torch.float16")), mode=None
)
OPERATOR = OperatorTuple("torch.nn.Conv2d", (("eps", 1e-5), ("bias", False)), (SPEC, (None, 7)), (("k", "v"),), "train")
COUNTS = OperatorCounts(
    model=model_operator("resnet18", "IMAGENET1K_V1", (2, 3, 8, 8)),
    counts=(
        OperatorCount(OPERATOR, 3, 10**15, 2**40, statistics=((InputStatistics(0.5, 1e-9, 2.0),),) * 3),
        OperatorCount(FUNCTION, 1, 0, 300),
    ),
    total_flop=10**16,
    total_memory_bytes=2**41,
    parameters=70_000,
    torch_version="2.11.0",
    device_type="cuda",
    outside=("mm",),
    composites=("Attention",),
)


PROTO = b"\x80\x04"
SMALL = TensorSpec((2, 3), "float32")
RELU = OperatorTuple("torch.nn.ReLU", (("inplace", True),), (SMALL,))
RELU_COUNT = OperatorCount(RELU, 2, 10, 20, statistics=((InputStatistics(0.5, 0.0, 1.0),),) * 2)
RELU_COUNTS = OperatorCounts(model_operator("resnet18", None, (1, 3, 8, 8)), (RELU_COUNT,), 10, 20, 30, "2.11.0", "cpu")

HEADER, PLAIN = header_of(OperatorCounts), form_of(OperatorCounts).write(COUNTS)
GENUINE = plainly_pickled((SCHEMA, HEADER, PLAIN))


def written(folder: Path, counts: OperatorCounts = COUNTS) -> Path:
    path = folder / "operators.pkl"
    write_counts(path, counts)
    return path


def signed(folder: Path, payload: bytes) -> Path:
    """Write any pickle as an attacker would who knows the format."""
    path = folder / "operators.pkl"
    path.write_bytes(payload + hashlib.sha256(payload).digest())
    return path


def error_of(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_counts(path, MADE_BY)
    (line,) = caught.value.lines
    assert line.isprintable()
    assert line.startswith(f"{path}: ")
    assert MADE_BY in line
    assert len(line) < len(str(path)) + LONGEST_SHOWN + 60 + len(MADE_BY)
    return line


# What is written is read


def test_counts_come_back(tmp_path: Path) -> None:
    assert read_counts(written(tmp_path), MADE_BY) == COUNTS


def test_the_counts_of_resnet50_are_small(tmp_path: Path) -> None:
    size = (1, 3, 64, 64)
    counts = capture(ReadyModel(resnet50().eval(), (torch.zeros(size),)), model_operator("resnet50", None, size))
    path = written(tmp_path, counts)
    assert path.stat().st_size < 100_000
    assert read_counts(path, MADE_BY) == counts


def test_counts_load_in_a_fresh_process_without_torch(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from opcost.storage.counts_file import read_counts
counts = read_counts(Path({str(written(tmp_path))!r}), "x")
print(counts.counts[0].operator, counts.counts[0].operator.key, "torch" in sys.modules, sep="\\n")
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [str(OPERATOR), OPERATOR.key, "False"]


def test_the_file_is_a_pickle_of_plain_data_for_everybody(tmp_path: Path) -> None:
    schema, header, counts = pickle.loads(written(tmp_path).read_bytes())
    names = {name: fields for name, *fields in header}
    found = dict(zip(names["OperatorCounts"], counts, strict=True))
    first = dict(zip(names["OperatorCount"], found["counts"][0], strict=True))
    operator = dict(zip(names["OperatorTuple"], first["operator"], strict=True))
    assert (schema, found["torch_version"], first["occurrences"]) == (SCHEMA, "2.11.0", 3)
    spec = ("TensorSpec", (2, 3, 8, 8), "float32", (192, 1, 24, 3), 2)
    assert operator["inputs"] == (spec, ("tuple", None, 7))


def test_equal_counts_are_equal_files(tmp_path: Path) -> None:
    first = written(tmp_path).read_bytes()
    assert written(tmp_path, read_counts(tmp_path / "operators.pkl", MADE_BY)).read_bytes() == first


def test_counts_of_a_version_with_fewer_fields_are_read() -> None:
    lacks = {"operations", "weight_zeros", "patterns"}
    older = tuple(tuple(name for name in names if name not in lacks) for names in HEADER)
    form = form_of(OperatorCounts, older)
    assert form.read(form.write(COUNTS)) == COUNTS
    with pytest.raises(ValueError, match="is no tuple of"):
        form.read(PLAIN)


@pytest.mark.parametrize(
    "change",
    [
        lambda names: names[:-1],
        lambda names: (*names, "x"),
        lambda names: (*names, names[-1]),
        lambda names: names[:1],
        lambda names: (*names, 3),
        lambda names: ("x", *names[1:]),
    ],
    ids=["a field too few", "an unknown field", "a field twice", "no fields", "a number", "an unknown class"],
)
def test_data_of_other_classes_are_of_another_version(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    header = tuple(change(names) if names[0] in ("OperatorTuple", "Structure") else names for names in HEADER)
    path = signed(tmp_path, plainly_pickled((SCHEMA, header, PLAIN)))
    assert "written by another version of opcost" in error_of(path)


def test_counts_with_classes_are_of_another_version() -> None:
    """Those of version 0.2, which named classes by the modules of then."""
    path = ROOT / "tests" / "golden" / "counts_before_packages.pkl"
    assert error_of(path) == f"{path}: written by another version of opcost; run {MADE_BY} again"


def with_calls(number: int, inputs: int = 2) -> OperatorCounts:
    """Return counts of this number of calls, each on values of its own."""
    specs = tuple(TensorSpec((4,), "float32", identity=identity) for identity in range(inputs))
    operator = OperatorTuple("torch.cat", (), (specs,), mode=None)
    seen = tuple(
        tuple(InputStatistics(0.5, call + identity / 10, 1.0 + call) for identity in range(inputs))
        for call in range(number)
    )
    return replace(COUNTS, counts=(OperatorCount(operator, number, 0, 48, statistics=seen),))


def test_counts_of_30_000_calls_come_back(tmp_path: Path) -> None:
    counts = with_calls(30_000)
    assert read_counts(written(tmp_path, counts), MADE_BY) == counts


def with_modules(calls: int, callers: int | None = None) -> OperatorCounts:
    """Return counts of one operator with the places of its calls, and with so many callers."""
    count = replace(COUNTS.counts[1], occurrences=calls, positions=tuple(range(calls)), callers=(1,) * calls)
    found = count if callers is None else replace(count, callers=(1,) * callers)
    return replace(COUNTS, counts=(found,), modules=(CalledModule("", "Net", 7), CalledModule("head", "Linear", 7)))


def test_paths_and_order_of_100_000_calls_come_back(tmp_path: Path) -> None:
    counts = with_modules(100_000)
    path = written(tmp_path, counts)
    assert read_counts(path, MADE_BY) == counts
    assert path.stat().st_size < 1_000_000


@pytest.mark.parametrize(
    "make_counts",
    [
        lambda: with_calls(150_000, 6),
        lambda: replace(COUNTS, outside=("x" * 1001,)),
        lambda: replace(COUNTS, total_flop=-1),
        lambda: replace(COUNTS, total_flop=numpy.int64(3)),
        lambda: with_modules(3, callers=2),
        lambda: replace(with_modules(3), modules=(CalledModule("", "Net", 7),)),
        lambda: replace(with_modules(3), modules=()),
    ],
    ids=["too large", "a long name", "a negative number", "another type", "a caller too few", "no module", "none"],
)
def test_what_could_not_be_read_again_is_a_line_and_the_earlier_file_stays(
    tmp_path: Path, make_counts: Callable[[], OperatorCounts]
) -> None:
    counts, path = make_counts(), written(tmp_path)
    with pytest.raises(UserError) as caught:
        write_counts(path, counts)
    (line,) = caught.value.lines
    assert line.startswith(f"{path}: these counts were not written (they could not be read again: ")
    assert len(line.splitlines()) == 1
    assert read_counts(path, MADE_BY) == COUNTS
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_counts_of_unknown_flop_are_read_and_contradictions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "operators.pkl"
    unknown = replace(RELU_COUNT, flop=None, without_formula=("mine::scale",))
    counts = replace(RELU_COUNTS, counts=(unknown,), without_formula=(OperationWithoutFormula("mine::scale", 2, 40),))
    write_counts(path, counts)
    assert read_counts(path, MADE_BY) == counts
    for one in (replace(unknown, flop=0), replace(unknown, without_formula=())):
        with pytest.raises(UserError, match="its FLOPs do not match its operations without a formula"):
            write_counts(path, replace(counts, counts=(one,)))


# Mistakes


def test_a_missing_file_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "operators.pkl"
    assert error_of(path) == f"{path}: no such file; run {MADE_BY} first"


def test_a_folder_in_its_place_is_one_line(tmp_path: Path) -> None:
    assert "cannot be read" in error_of(tmp_path)


def test_a_file_of_another_version_is_one_line(tmp_path: Path) -> None:
    other = signed(tmp_path, pickle.dumps(("opcost operator counts 50", COUNTS), protocol=4))
    assert error_of(other).endswith(f"written by another version of opcost; run {MADE_BY} again")


def test_a_plain_pickle_of_counts_without_a_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "operators.pkl"
    path.write_bytes(GENUINE)
    assert "wrong checksum" in error_of(path)


OTHERS = [None, 3, (), (SCHEMA,), (SCHEMA, 3), (SCHEMA, 3, PLAIN), (SCHEMA, (), PLAIN), (SCHEMA, (3, ()), PLAIN)]
OTHERS += [(SCHEMA, HEADER, 3), (SCHEMA, HEADER, ()), (SCHEMA, HEADER, PLAIN, 1), (HEADER, PLAIN), PLAIN]


@pytest.mark.parametrize("value", OTHERS, ids=range(len(OTHERS)))
def test_other_plain_data_is_refused(tmp_path: Path, value: object) -> None:
    error_of(signed(tmp_path, pickle.dumps(value, protocol=4)))
    error_of(signed(tmp_path, plainly_pickled(value)))


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "operators.pkl"
    with path.open("wb") as file:
        file.truncate(MAXIMUM_BYTES + 1)
    assert f"larger than {MAXIMUM_BYTES} bytes" in error_of(path)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_what_has_no_end_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "operators.pkl"
    make(path)
    assert "it is not a regular file" in error_of(path)


# Hostile files


@pytest.mark.parametrize("payload", [b"", b".", b"\x80", pickle.PROTO + b"\x04N."], ids=repr)
def test_what_is_no_pickle_of_counts_is_refused(tmp_path: Path, payload: bytes) -> None:
    error_of(signed(tmp_path, payload))


POSITIONS = st.integers(0, len(GENUINE) - 1)
MUTATIONS = st.lists(st.tuples(POSITIONS, st.integers(0, 255)), min_size=1, max_size=4)


def mutated(content: bytes, mutations: list[tuple[int, int]]) -> bytes:
    changed = bytearray(content)
    for position, value in mutations:
        changed[position] = value
    return bytes(changed)


@given(MUTATIONS)
@settings(max_examples=some_of(200, 80))
def test_a_damaged_file_is_never_read(mutations: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder))
        content = path.read_bytes()
        damaged = mutated(content, mutations)
        path.write_bytes(damaged)
        if damaged == content:
            assert read_counts(path, MADE_BY) == COUNTS
        else:
            error_of(path)


@given(st.integers(0, len(GENUINE) + 31))
@settings(max_examples=50)
def test_a_file_that_was_cut_is_never_read(size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder))
        path.write_bytes(path.read_bytes()[:size])
        error_of(path)


@given(MUTATIONS)
@settings(max_examples=some_of(300, 100))
def test_a_forged_file_is_counts_or_a_users_error_and_nothing_else(mutations: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = signed(Path(folder), mutated(GENUINE, mutations))
        with suppress(UserError):
            assert type(read_counts(path, MADE_BY)) is OperatorCounts


# A corpus of hostile pickles with right checksums: none is carried out, hangs, or takes much memory


def text(value: str) -> bytes:
    content = value.encode()
    return pickle.BINUNICODE + len(content).to_bytes(4, "little") + content


def stack_global(module: str, name: str) -> bytes:
    return text(module) + text(name) + pickle.STACK_GLOBAL


def called(module: str, name: str, *arguments: str) -> bytes:
    """Call a function as protocol 4 does."""
    return stack_global(module, name) + b"(" + b"".join(map(text, arguments)) + pickle.TUPLE + pickle.REDUCE


def called_by_old_name(module: str, name: str, argument: str) -> bytes:
    return f"c{module}\n{name}\n(V{argument}\ntR".encode()


RUN = "touch ./trace"
PYTHON = "open('./trace', 'w')"
OPERATOR_CLASS = stack_global("opcost.operators.tuples", "OperatorTuple")

CALLS = {
    "os.system": called("os", "system", RUN),
    "posix.system": called("posix", "system", RUN),
    "os.system by GLOBAL": called_by_old_name("os", "system", RUN),
    "subprocess": called("subprocess", "getoutput", RUN),
    "eval": called("builtins", "eval", PYTHON),
    "exec": called("builtins", "exec", PYTHON),
    "eval by its old module": called_by_old_name("__builtin__", "eval", PYTHON),
    "__import__": called("builtins", "__import__", "antigravity"),
    "open": called("builtins", "open", "./trace", "w"),
    "pathlib": called("pathlib", "Path", "./trace") + pickle.BUILD,
    "import of a module": called("importlib", "import_module", "this"),
    "a chain through an admitted module": called("opcost.operators.tuples", "hashlib.sys.modules", "os"),
    "getattr": called("builtins", "getattr", "x", "__class__"),
    "operator.attrgetter": called("operator", "attrgetter", "__class__.__base__"),
    "functools.partial": called("functools", "partial", "x"),
    "copyreg": called("copyreg", "_reconstructor", "x"),
    "copyreg.add_extension": called("copyreg", "add_extension", "os", "system"),
    "the unpickler itself": called("pickle", "loads", "x"),
    "runpy": called("runpy", "run_path", "./trace"),
    "timeit": called("timeit", "timeit", PYTHON),
    "torch.load": called("torch", "load", "./trace"),
    "INST": f"(V{RUN}\nios\nsystem\n".encode(),
    "OBJ": b"(cos\nsystem\n" + text(RUN) + pickle.OBJ,
    "NEWOBJ_EX": OPERATOR_CLASS + b")}" + pickle.NEWOBJ_EX,
    "NEWOBJ of a function": stack_global("os", "system") + text(RUN) + pickle.TUPLE1 + pickle.NEWOBJ,
    "an attribute of a class by BUILD": OPERATOR_CLASS + b"N}" + text("is_model") + b"K\x01s" + b"\x86b",
    "__setstate__ by BUILD": OPERATOR_CLASS + b")\x81}" + text("__setstate__") + stack_global("os", "system") + b"sb",
    "__class__ by BUILD": OPERATOR_CLASS + b")\x81}" + text("__class__") + OPERATOR_CLASS + b"sb",
    "EXT1": pickle.EXT1 + b"\x01",
    "EXT2": pickle.EXT2 + b"\x01\x01",
    "EXT4": pickle.EXT4 + b"\x01\x01\x01\x01",
    "PERSID": pickle.PERSID + b"os\n",
    "BINPERSID": text("os") + pickle.BINPERSID,
    "APPENDS": b"](" + text("x") + pickle.APPENDS,
    "ADDITEMS": pickle.EMPTY_SET + b"(" + text("x") + pickle.ADDITEMS,
}

BOMBS = {
    "BINUNICODE of 4 GB": pickle.BINUNICODE + b"\xff\xff\xff\xff",
    "BINUNICODE8 of an exabyte": pickle.BINUNICODE8 + (2**60).to_bytes(8, "little"),
    "BINBYTES of 4 GB": pickle.BINBYTES + b"\xff\xff\xff\xff",
    "BINBYTES8 of an exabyte": pickle.BINBYTES8 + (2**60).to_bytes(8, "little"),
    "BYTEARRAY8 of an exabyte": pickle.BYTEARRAY8 + (2**60).to_bytes(8, "little"),
    "LONG4 of 2 GB": pickle.LONG4 + b"\xff\xff\xff\x7f",
    "LONG4 of 10 MB": pickle.LONG4 + (10**7).to_bytes(4, "little") + b"\x7f" * 10**7,
    "LONG in digits": b"L" + b"9" * 10**6 + b"L\n",
    "FLOAT in letters": b"F" + b"x" * 10**6 + b"\n",
    "FRAME of an exabyte": pickle.FRAME + (2**60).to_bytes(8, "little") + b"N",
    "LONG_BINPUT": b"N" + pickle.LONG_BINPUT + b"\xff\xff\xff\x7f",
    "PUT": b"Np99999999999\n",
    "LONG_BINGET": pickle.LONG_BINGET + b"\xff\xff\xff\x7f",
    "100,000 tuples in each other": b")" + pickle.TUPLE1 * 100_000,
    "15 million tuples in each other": b")" + pickle.TUPLE1 * 15_000_000,
    "15 million marks": b"(" * 15_000_000,
    "a key that is deep": b"}" + b")" + pickle.TUPLE1 * 400_000 + b"Ns",
    "keys of one hash": b"}("
    + b"".join(pickle.LONG1 + b"\x0c" + ((2**61 - 1) * number).to_bytes(12, "little") + b"N" for number in range(9**5))
    + b"u",
}


def within_counts(payload: bytes) -> bytes:
    """Return a pickle in which something stands where counts do."""
    return PROTO + text(SCHEMA) + payload + pickle.TUPLE2 + b"."


@pytest.mark.parametrize("place", ["alone", "within"])
@pytest.mark.parametrize("payload", CALLS.values(), ids=CALLS)
def test_nothing_is_carried_out(tmp_path: Path, payload: bytes, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in ("antigravity", "this"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    error_of(signed(tmp_path, PROTO + payload + b"." if place == "alone" else within_counts(payload)))
    assert not (tmp_path / "trace").exists()
    assert isinstance(vars(OperatorTuple)["is_model"], property)
    assert not {"antigravity", "this"} & sys.modules.keys()


def test_python_carries_out_the_corpus_of_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("os.system", "os.system by GLOBAL", "subprocess", "INST"):
        pickle.loads(PROTO + CALLS[name] + b".")
        assert (tmp_path / "trace").exists(), name
        (tmp_path / "trace").unlink()
    before = OperatorTuple.is_model
    pickle.loads(PROTO + CALLS["an attribute of a class by BUILD"] + b".")
    after = OperatorTuple.is_model
    OperatorTuple.is_model = before  # type: ignore[method-assign]
    assert after == 1


BOMB_PROGRAM = """
import resource, sys, time
from pathlib import Path
from opcost.errors import UserError
from opcost.storage.counts_file import read_counts

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

before_mb, begin_s = peak_mb(), time.process_time()
try:
    read_counts(Path(sys.argv[1]), "block0")
except UserError as error:
    print(*error.lines, sep="\\n")
print(time.process_time() - begin_s, peak_mb() - before_mb)
"""


@pytest.mark.parametrize("payload", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_one_line_within_five_seconds_and_300_mb(tmp_path: Path, payload: bytes) -> None:
    path = signed(tmp_path, PROTO + payload + b".")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BOMB_PROGRAM, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment, check=True)
    message, cost = result.stdout.splitlines()
    assert message.startswith(f"{path}: ")
    time_s, memory_mb = map(float, cost.split())
    # Of the processor; a slow one takes 2 s, and what these files are refused for takes minutes.
    assert time_s < 5
    assert memory_mb < 300


def test_opcodes_are_counted(tmp_path: Path) -> None:
    path = signed(tmp_path, PROTO + b"(" * MAXIMUM_OPCODES + b".")
    assert f"it has more than {MAXIMUM_OPCODES} opcodes for its size" in error_of(path)


@pytest.mark.parametrize("payload", CALLS.values(), ids=CALLS)
def test_no_class_is_found_even_if_all_opcodes_were_allowed(
    tmp_path: Path, payload: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(counts_file, "OPCODES", frozenset(opcode.name for opcode in pickletools.opcodes))
    with suppress(pickle.UnpicklingError, ValueError, TypeError, IndexError, AttributeError):
        assert load(PROTO + payload + b".") in (["x"], {"x"})
    assert not (tmp_path / "trace").exists()
    assert isinstance(vars(OperatorTuple)["is_model"], property)


# The right classes with the wrong contents


def with_operator(**changes: Any) -> OperatorCounts:
    return with_count(operator=replace(RELU, **changes), statistics=())


def with_count(**changes: Any) -> OperatorCounts:
    return replace(RELU_COUNTS, counts=(replace(RELU_COUNT, **changes),))


def with_input(spec: Any) -> OperatorCounts:
    return with_operator(inputs=(spec,))


WRONG: dict[str, Any] = {
    "a total that is text": replace(RELU_COUNTS, total_flop="10"),
    "a total below 0": replace(RELU_COUNTS, total_flop=-1),
    "a total beyond floats": replace(RELU_COUNTS, total_flop=2**1100),
    "a version in two lines": replace(RELU_COUNTS, torch_version="2.11\nerror: all is well"),
    "a version that colours the terminal": replace(RELU_COUNTS, torch_version="\x1b[31m"),
    "half a character": replace(RELU_COUNTS, device_type="\ud800"),
    "a name without end": replace(RELU_COUNTS, device_type="x" * 10_000),
    "fewer calls than statistics": with_count(occurrences=1),
    "statistics of more inputs": with_count(statistics=((InputStatistics(0.5, 0.0, 1.0),) * 2,) * 2),
    "a share above 1": with_count(statistics=((InputStatistics(1.5, 0.0, 1.0),),) * 2),
    "no number": with_count(statistics=((InputStatistics(0.5, float("nan"), 1.0),),) * 2),
    "a spread below 0": with_count(statistics=((InputStatistics(0.5, 0.0, -1.0),),) * 2),
    "a spread that is text": with_count(statistics=((InputStatistics(0.5, 0.0, "1"),),) * 2),  # type: ignore[arg-type]
    "an input of counts": with_input(RELU_COUNTS),
    "an input beyond 64 bits": with_input(INTEGER_LIMIT),
    "a shape that is a number": with_input(replace(SMALL, shape=3)),
    "a shape below 0": with_input(replace(SMALL, shape=(-1,))),
    "a shape of text": with_input(replace(SMALL, shape=("2",))),
    "more elements than torch counts": with_input(replace(SMALL, shape=(2**40, 2**40))),
    "a thousand dimensions": with_input(replace(SMALL, shape=(1,) * 1000)),
    "strides of other dimensions": with_input(replace(SMALL, strides=(1,))),
    "a constant that is a number": with_input(Constant(3)),  # type: ignore[arg-type]
    "a structure without parts": with_input(Structure("dict", None)),  # type: ignore[arg-type]
    "nms without boxes": with_operator(operator="torch.ops.torchvision.nms", inputs=(), mode=None),
    "roi_align on an image of no size": with_operator(
        operator="torch.ops.torchvision.roi_align", inputs=(replace(SMALL, shape=(1, 1)), 0.0), mode=None
    ),
    "values in each other": with_input(nested(MAXIMUM_DEPTH)),
    "values in each other without end": with_input(nested(400)),
}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_wrong_contents_are_not_written(tmp_path: Path, value: Any) -> None:
    with pytest.raises(UserError, match="they could not be read again"):
        write_counts(tmp_path / "operators.pkl", value)


def exchanged(value: Any, old: Any, new: Any) -> Any:
    """Return plain data in which something stands in the place of a part."""
    if value == old:
        return new
    return tuple(exchanged(part, old, new) for part in value) if isinstance(value, tuple) else value


RELU_DATA = form_of(OperatorCounts).write(RELU_COUNTS)
(PLAIN_COUNT,) = RELU_DATA[1]
PLAIN_SPEC = ("TensorSpec", (2, 3), "float32", None, 0)
WRONG_DATA: dict[str, tuple[Any, Any]] = {
    "counts that are a number": ((PLAIN_COUNT,), 3),
    "counts in a list": ((PLAIN_COUNT,), [PLAIN_COUNT]),
    "counts in a dict": ((PLAIN_COUNT,), {0: PLAIN_COUNT}),
    "an operator in place of a count": (PLAIN_COUNT, PLAIN_COUNT[0]),
    "a count without its last field": (PLAIN_COUNT, PLAIN_COUNT[:-1]),
    "a total that is true": (30, True),
    "an input of bytes": (PLAIN_SPEC, b"x"),
    "an input without the name of its kind": (PLAIN_SPEC, PLAIN_SPEC[1:]),
    "an input of no kind": (PLAIN_SPEC, ()),
}


@pytest.mark.parametrize(("old", "new"), WRONG_DATA.values(), ids=WRONG_DATA)
def test_plain_data_with_wrong_contents_are_refused(tmp_path: Path, old: Any, new: Any) -> None:
    changed = exchanged(RELU_DATA, old, new)
    assert changed != RELU_DATA or type(new) is not type(old)
    assert "no operator counts (" in error_of(signed(tmp_path, plainly_pickled((SCHEMA, HEADER, changed))))


@pytest.mark.parametrize("value", [doubled(30), ("x" * 100_000,) * 100], ids=["a billion values", "the same text"])
def test_a_value_that_is_used_again_is_refused(tmp_path: Path, value: Any) -> None:
    """A hundred bytes could describe a billion values."""
    changed = exchanged(RELU_DATA, PLAIN_SPEC, value)
    assert "it uses MEMOIZE" in error_of(signed(tmp_path, pickle.dumps((SCHEMA, HEADER, changed), protocol=4)))


@pytest.mark.parametrize(
    "value",
    [
        with_input(nested(20)),
        with_input(INTEGER_LIMIT - 1),
        with_input("any\ntext \ud800"),
        with_input(float("-inf")),
        with_operator(inputs=(SMALL,) * 5000),
        with_count(statistics=()),
        with_count(statistics=((InputStatistics(None, None, None),),) * 2),
    ],
    ids=["deep", "large", "odd text", "infinite", "many inputs", "no statistics", "unknown statistics"],
)
def test_unusual_counts_come_back(tmp_path: Path, value: OperatorCounts) -> None:
    path = tmp_path / "operators.pkl"
    write_counts(path, value)
    assert read_counts(path, "block0") == value
