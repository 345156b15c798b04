"""Operator counts in pickles: small, readable anywhere, and harmless whoever wrote them."""

import hashlib
import os
import pickle
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
from mutations import plainly_pickled
from seeds import some_of
from torchvision.models import resnet50

from opcost.errors import UserError
from opcost.operators.counts import CalledModule, OperatorCount, OperatorCounts
from opcost.operators.plain_data import form_of, layout_of
from opcost.operators.tuples import Constant, OperatorTuple, Structure, TensorSpec, model_operator
from opcost.operators.values import InputStatistics
from opcost.storage.counts_file import MAXIMUM_BYTES, SCHEMA, read_counts, write_counts
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


LAYOUT, PLAIN = layout_of(OperatorCounts), form_of(OperatorCounts).write(COUNTS)
GENUINE = plainly_pickled((SCHEMA, LAYOUT, PLAIN))


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
    assert len(line.splitlines()) == 1
    assert line.startswith(f"{path}: ")
    assert MADE_BY in line
    return line


class Calls:
    """Pickles as a call of any function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


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
    schema, layout, counts = pickle.loads(written(tmp_path).read_bytes())
    names = {name: fields for name, *fields in layout}
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
    older = tuple(tuple(name for name in names if name not in lacks) for names in LAYOUT)
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
    layout = tuple(change(names) if names[0] in ("OperatorTuple", "Structure") else names for names in LAYOUT)
    path = signed(tmp_path, plainly_pickled((SCHEMA, layout, PLAIN)))
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


def test_counts_without_paths_are_read_as_before(tmp_path: Path) -> None:
    counts = read_counts(written(tmp_path), MADE_BY)
    assert (counts.modules, counts.counts[0].positions, counts.counts[0].callers) == ((), (), ())


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
OTHERS += [(SCHEMA, LAYOUT, 3), (SCHEMA, LAYOUT, ()), (SCHEMA, LAYOUT, PLAIN, 1), (LAYOUT, PLAIN), PLAIN]


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


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value",
    [
        Calls(eval, "1 + 1"),
        Calls(OperatorTuple, "torch.nn.ReLU"),
        Calls(getattr, OperatorTuple, "__init__"),
        os.system,
        subprocess.Popen,
        (SCHEMA, Calls(eval, "1 + 1")),
        bytearray(3),
        [COUNTS],
        {"a": {1, 2}},
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_other_objects_are_refused_in_every_protocol(tmp_path: Path, value: object, protocol: int) -> None:
    error_of(signed(tmp_path, pickle.dumps(value, protocol=protocol)))


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
