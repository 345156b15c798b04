"""A corpus of hostile pickles with right checksums: none is carried out, hangs, or takes much memory."""

import hashlib
import os
import pickle
import pickletools
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mutations import doubled, nested, plainly_pickled

from opcost.errors import UserError
from opcost.operators.counts import OperationWithoutFormula, OperatorCount, OperatorCounts
from opcost.operators.plain_data import INTEGER_LIMIT, form_of, layout_of
from opcost.operators.tuples import Constant, OperatorTuple, Structure, TensorSpec, model_operator
from opcost.operators.values import InputStatistics
from opcost.storage import counts_file
from opcost.storage.counts_file import (
    LONGEST_REASON,
    MAXIMUM_DEPTH,
    MAXIMUM_OPCODES,
    SCHEMA,
    load,
    read_counts,
    write_counts,
)

ROOT = Path(__file__).parents[2]
PROTO = b"\x80\x04"
SPEC = TensorSpec((2, 3), "float32")
OPERATOR = OperatorTuple("torch.nn.ReLU", (("inplace", True),), (SPEC,))
COUNT = OperatorCount(OPERATOR, 2, 10, 20, statistics=((InputStatistics(0.5, 0.0, 1.0),),) * 2)
COUNTS = OperatorCounts(model_operator("resnet18", None, (1, 3, 8, 8)), (COUNT,), 10, 20, 30, "2.11.0", "cpu")


def test_counts_of_unknown_flop_are_read_and_contradictions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "operators.pkl"
    unknown = replace(COUNT, flop=None, without_formula=("mine::scale",))
    counts = replace(COUNTS, counts=(unknown,), without_formula=(OperationWithoutFormula("mine::scale", 2, 40),))
    write_counts(path, counts)
    assert read_counts(path, "block 0") == counts
    for one in (replace(unknown, flop=0), replace(unknown, without_formula=())):
        with pytest.raises(UserError, match="its FLOPs do not match its operations without a formula"):
            write_counts(path, replace(counts, counts=(one,)))


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
    "a chain through an admitted class": called("opcost.operators.tuples", "OperatorTuple.__init__.__globals__", "x"),
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
    "a call of an admitted class": OPERATOR_CLASS + text("x") + pickle.TUPLE1 + pickle.REDUCE,
    "an argument of an admitted class": OPERATOR_CLASS + text("x") + pickle.TUPLE1 + pickle.NEWOBJ,
    "an attribute of a class by BUILD": OPERATOR_CLASS + b"N}" + text("is_model") + b"K\x01s" + b"\x86b",
    "a class by BUILD": OPERATOR_CLASS + b"}" + text("is_model") + b"K\x01sb",
    "__setstate__ by BUILD": OPERATOR_CLASS + b")\x81}" + text("__setstate__") + stack_global("os", "system") + b"sb",
    "__class__ by BUILD": OPERATOR_CLASS + b")\x81}" + text("__class__") + OPERATOR_CLASS + b"sb",
    "BUILD of nothing": b"N}b",
    "BUILD twice": OPERATOR_CLASS + b")\x81}b}b",
    "a class by number": stack_global("opcost.operators.tuples", "OperatorTuple").replace(b"opcost", b"\x00pcost"),
    "names that are no text": b"K\x01K\x02" + pickle.STACK_GLOBAL,
    "EXT1": pickle.EXT1 + b"\x01",
    "EXT2": pickle.EXT2 + b"\x01\x01",
    "EXT4": pickle.EXT4 + b"\x01\x01\x01\x01",
    "PERSID": pickle.PERSID + b"os\n",
    "BINPERSID": text("os") + pickle.BINPERSID,
    "NEXT_BUFFER": pickle.NEXT_BUFFER,
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
    "15 million dicts": b"}" * 15_000_000,
    "15 million copies": b")" + pickle.MEMOIZE * 15_000_000,
    "lists in each other": b"](" * 100_000,
    "a key that is deep": b"}" + b")" + pickle.TUPLE1 * 400_000 + b"Ns",
    "keys of one hash": b"}("
    + b"".join(pickle.LONG1 + b"\x0c" + ((2**61 - 1) * number).to_bytes(12, "little") + b"N" for number in range(9**5))
    + b"u",
    "POP": pickle.POP * 10,
    "POP_MARK": pickle.POP_MARK,
    "DUP": b"N" + pickle.DUP * 1000,
    "TUPLE without a mark": pickle.TUPLE,
    "TUPLE3 of two": b"NN" + pickle.TUPLE3,
    "SETITEM of nothing": b"NN" + pickle.SETITEM,
    "SETITEM on a tuple": b")NN" + pickle.SETITEM,
    "SETITEMS of three": b"}(NNN" + pickle.SETITEMS,
    "an object within itself": OPERATOR_CLASS + b")\x81\x94}" + text("operator") + b"h\x00sb",
    "two values": b"NN",
}


def signed(folder: Path, payload: bytes) -> Path:
    """Write a pickle as an attacker would who knows the format."""
    path = folder / "operators.pkl"
    path.write_bytes(payload + hashlib.sha256(payload).digest())
    return path


def error_of(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_counts(path, "block0")
    (line,) = caught.value.lines
    assert line.isprintable()
    assert line.startswith(f"{path}: ")
    assert line.endswith("; run block0 again")
    assert len(line) < len(str(path)) + LONGEST_REASON + 60
    return line


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
def test_a_bomb_is_one_line_within_two_seconds_and_300_mb(tmp_path: Path, payload: bytes) -> None:
    path = signed(tmp_path, PROTO + payload + b".")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BOMB_PROGRAM, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment, check=True)
    message, cost = result.stdout.splitlines()
    assert message.startswith(f"{path}: ")
    time_s, memory_mb = map(float, cost.split())
    assert time_s < 2
    assert memory_mb < 300


def test_opcodes_are_counted(tmp_path: Path) -> None:
    path = signed(tmp_path, PROTO + b"(" * MAXIMUM_OPCODES + b".")
    assert f"it has more than {MAXIMUM_OPCODES} opcodes for its size" in error_of(path)


def test_a_large_file_of_tiny_opcodes_is_refused_as_early_as_a_small_one(tmp_path: Path) -> None:
    begin_s = time.process_time()
    error_of(signed(tmp_path, PROTO + b"N" * 15_000_000 + b"."))
    assert time.process_time() - begin_s < 2


@pytest.mark.parametrize(("code", "size"), [(pickle.TUPLE1, 1), (pickle.TUPLE2, 2), (pickle.TUPLE3, 3)])
def test_a_tuple_has_all_of_its_values(code: bytes, size: int) -> None:
    assert load(PROTO + size * b"N" + code + b".") == size * (None,)
    with pytest.raises(pickle.UnpicklingError):
        load(PROTO + (size - 1) * b"N" + code + b".")


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
    return with_count(operator=replace(OPERATOR, **changes), statistics=())


def with_count(**changes: Any) -> OperatorCounts:
    return replace(COUNTS, counts=(replace(COUNT, **changes),))


def with_input(spec: Any) -> OperatorCounts:
    return with_operator(inputs=(spec,))


WRONG: dict[str, Any] = {
    "counts that are a number": replace(COUNTS, counts=3),
    "a tuple in place of a count": replace(COUNTS, counts=(OPERATOR,)),
    "a model that is text": replace(COUNTS, model="resnet18"),
    "a total that is text": replace(COUNTS, total_flop="10"),
    "a total that is true": replace(COUNTS, total_flop=True),
    "a total below 0": replace(COUNTS, total_flop=-1),
    "a total beyond floats": replace(COUNTS, total_flop=2**1100),
    "a version in two lines": replace(COUNTS, torch_version="2.11\nerror: all is well"),
    "a version that colours the terminal": replace(COUNTS, torch_version="\x1b[31m"),
    "half a character": replace(COUNTS, device_type="\ud800"),
    "a name without end": replace(COUNTS, device_type="x" * 10_000),
    "outside that is text": replace(COUNTS, outside="mm"),
    "fewer calls than statistics": with_count(occurrences=1),
    "statistics of more inputs": with_count(statistics=((InputStatistics(0.5, 0.0, 1.0),) * 2,) * 2),
    "a share above 1": with_count(statistics=((InputStatistics(1.5, 0.0, 1.0),),) * 2),
    "no number": with_count(statistics=((InputStatistics(0.5, float("nan"), 1.0),),) * 2),
    "a spread below 0": with_count(statistics=((InputStatistics(0.5, 0.0, -1.0),),) * 2),
    "a spread that is text": with_count(statistics=((InputStatistics(0.5, 0.0, "1"),),) * 2),  # type: ignore[arg-type]
    "parameters without names": with_operator(parameters=(3,)),
    "parameters by number": with_operator(parameters=((1, 2),)),
    "parameters with two values": with_operator(parameters=(("bias", True, False),)),
    "an input of bytes": with_input(b"x"),
    "an input of counts": with_input(COUNTS),
    "an input beyond 64 bits": with_input(INTEGER_LIMIT),
    "a shape that is a number": with_input(replace(SPEC, shape=3)),
    "a shape below 0": with_input(replace(SPEC, shape=(-1,))),
    "a shape of text": with_input(replace(SPEC, shape=("2",))),
    "more elements than torch counts": with_input(replace(SPEC, shape=(2**40, 2**40))),
    "a thousand dimensions": with_input(replace(SPEC, shape=(1,) * 1000)),
    "strides of other dimensions": with_input(replace(SPEC, strides=(1,))),
    "a constant that is a number": with_input(Constant(3)),  # type: ignore[arg-type]
    "a structure without parts": with_input(Structure("dict", None)),  # type: ignore[arg-type]
    "nms without boxes": with_operator(operator="torch.ops.torchvision.nms", inputs=(), mode=None),
    "roi_align on an image of no size": with_operator(
        operator="torch.ops.torchvision.roi_align", inputs=(replace(SPEC, shape=(1, 1)), 0.0), mode=None
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


LAYOUT, PLAIN = layout_of(OperatorCounts), form_of(OperatorCounts).write(COUNTS)
(PLAIN_COUNT,) = PLAIN[1]
PLAIN_SPEC = ("TensorSpec", (2, 3), "float32", None, 0)
WRONG_DATA: dict[str, tuple[Any, Any]] = {
    "counts that are a number": ((PLAIN_COUNT,), 3),
    "counts in a list": ((PLAIN_COUNT,), [PLAIN_COUNT]),
    "counts in a dict": ((PLAIN_COUNT,), {0: PLAIN_COUNT}),
    "an operator in place of a count": (PLAIN_COUNT, PLAIN_COUNT[0]),
    "a count without its last field": (PLAIN_COUNT, PLAIN_COUNT[:-1]),
    "a model that is text": (PLAIN[0], "resnet18"),
    "a total that is true": (30, True),
    "a total that is a float": (30, 30.0),
    "outside that is text": ((PLAIN_COUNT,), ("mm",)),
    "parameters without names": ((("inplace", True),), (3,)),
    "parameters by number": ((("inplace", True),), ((1, 2),)),
    "parameters of two letters": ((("inplace", True),), ("ab",)),
    "parameters with two values": ((("inplace", True),), (("inplace", True, False),)),
    "an input of bytes": (PLAIN_SPEC, b"x"),
    "an input without the name of its kind": (PLAIN_SPEC, PLAIN_SPEC[1:]),
    "an input of an unknown kind": (PLAIN_SPEC, ("OperatorTuple", *PLAIN_COUNT[0])),
    "an input of no kind": (PLAIN_SPEC, ()),
    "an input of a kind that is a number": (PLAIN_SPEC, (1, 2)),
    "a constant of two names": (PLAIN_SPEC, ("Constant", "x", "y")),
    "a structure of pairs without values": (PLAIN_SPEC, ("Structure", "dict", (("a",),))),
}


@pytest.mark.parametrize(("old", "new"), WRONG_DATA.values(), ids=WRONG_DATA)
def test_plain_data_with_wrong_contents_are_refused(tmp_path: Path, old: Any, new: Any) -> None:
    changed = exchanged(PLAIN, old, new)
    assert changed != PLAIN or type(new) is not type(old)
    assert "no operator counts (" in error_of(signed(tmp_path, plainly_pickled((SCHEMA, LAYOUT, changed))))


@pytest.mark.parametrize("value", [doubled(30), ("x" * 100_000,) * 100], ids=["a billion values", "the same text"])
def test_a_value_that_is_used_again_is_refused(tmp_path: Path, value: Any) -> None:
    """A hundred bytes could describe a billion values."""
    changed = exchanged(PLAIN, PLAIN_SPEC, value)
    assert "it uses MEMOIZE" in error_of(signed(tmp_path, pickle.dumps((SCHEMA, LAYOUT, changed), protocol=4)))


@pytest.mark.parametrize(
    "value",
    [
        with_input(nested(20)),
        with_input(INTEGER_LIMIT - 1),
        with_input("any\ntext \ud800"),
        with_input(float("-inf")),
        with_operator(inputs=(SPEC,) * 5000),
        with_count(statistics=()),
        with_count(statistics=((InputStatistics(None, None, None),),) * 2),
    ],
    ids=["deep", "large", "odd text", "infinite", "many inputs", "no statistics", "unknown statistics"],
)
def test_unusual_counts_come_back(tmp_path: Path, value: OperatorCounts) -> None:
    path = tmp_path / "operators.pkl"
    write_counts(path, value)
    assert read_counts(path, "block0") == value
