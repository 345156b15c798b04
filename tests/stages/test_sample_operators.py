"""Lists of drawn tuples: all are valid and new, blocks 0 to 2 take them, and mistakes are one line."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import warm_python
from committed_tables import ROOT, committed
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_apparatus import RecordedProgress
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from opcost.errors import UserError
from opcost.operators.grids import MAXIMUM_POINTS
from opcost.operators.texts import parse_tuple
from opcost.operators.tuples import META
from opcost.prediction.sampling import MAXIMUM_BYTES, Wish
from opcost.running.expected_times import starting_s
from opcost.running.request import Request, RunRequest
from opcost.running.shipped_counts import counts_in, counts_of_operators
from opcost.stages.count import CountReport, count_operators
from opcost.stages.sample_operators import SampleReport, sample_operators
from opcost.stages.verify import rebuild_operators
from opcost.storage.configs import GRID_NAME, ModelFolders, load_config
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS

WISH = Wish(60, ())
KINDS = "Linear Conv2d MultiheadAttention BatchNorm2d ReLU mul SiLU add_ add linear LayerNorm GELU matmul cat".split()


def drawn(
    folder: Path,
    name: str = "drawn",
    wish: Wish = WISH,
    most_s: float | None = None,
    dry_run: bool = False,
    **more: Any,
) -> SampleReport:
    request = Request((), ModelFolders(folder / "measurements", ROOT / "measurements"), committed())
    return sample_operators(replace(request, **more), name, wish, most_s, dry_run)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drawn")


@pytest.fixture(scope="module")
def report(folder: Path) -> SampleReport:
    return drawn(folder)


@pytest.fixture
def request_of_list(folder: Path, report: SampleReport) -> Iterator[RunRequest]:
    return RunRequest((report.name,), ModelFolders(folder / "measurements"), Database(folder / "database"), "cpu")


def test_the_usual_kinds_have_equal_shares_of_new_tuples_and_the_time_is_that_of_the_product_with_most_rows(
    report: SampleReport,
) -> None:
    assert [one.kind for one in report.kinds] == KINDS
    share = WISH.number // len(KINDS)
    assert {one.drawn for one in report.kinds} <= {share, share + 1}
    assert sum(one.drawn for one in report.kinds) == len({*report.tuples}) == len(report.tuples) == WISH.number
    assert all(one.whitelisted and one.known and one.memory_bytes <= MAXIMUM_BYTES for one in report.kinds)
    assert report.device_product == "NVIDIA H200"
    assert report.expected_s is not None
    assert 0.3 * WISH.number < report.expected_s < 3 * WISH.number
    known = {str(count.operator) for count in counts_of_operators(counts_in(committed().model_operators)).values()}
    assert known.isdisjoint(report.tuples)
    path = Path(report.path)
    (config,) = load_config(path, path.parent)
    assert config.grid is not None
    assert tuple(str(point.operator) for point in config.grid.points()) == report.tuples
    assert not config.done


def test_no_more_are_drawn_than_can_be_measured_in_the_time(folder: Path, report: SampleReport) -> None:
    assert report.expected_s is not None
    half_s = (report.expected_s + starting_s(is_gpu=True)) / 2
    found = drawn(folder, "half", dry_run=True, most_s=half_s)
    assert 0.3 * WISH.number < len(found.tuples) == found.wanted < 0.7 * WISH.number
    assert found.tuples == report.tuples[: len(found.tuples)]
    assert found.expected_s is not None
    assert 0.8 * half_s < found.expected_s <= half_s
    with pytest.raises(UserError, match="--gpu-seconds 1: one tuple takes .* with the start; give more"):
        drawn(folder, "half", dry_run=True, most_s=1.0)


class LargestOnCpu(TorchDispatchMode):
    """Keeps the largest number of elements in memory of a tensor that any operation returns on the CPU."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        made = [one for one in tree_leaves(found) if isinstance(one, torch.Tensor) and not one.is_meta]
        sizes = [one.untyped_storage().nbytes() // one.element_size() for one in made]
        self.elements = max([self.elements, *sizes])
        return found


def test_drawing_makes_no_weights_or_inputs_on_the_cpu(folder: Path) -> None:
    with LargestOnCpu() as largest:
        torch.ones(7)
        found = drawn(folder, "on_shapes", Wish(26, (), seed=1), dry_run=True)
    assert max(one.memory_bytes for one in found.kinds) > 10**8
    assert 7 <= largest.elements < 1000


def test_each_tuple_is_counted_as_it_was_drawn_and_rebuilt(request_of_list: RunRequest, report: SampleReport) -> None:
    (counted,) = count_operators(request_of_list, RecordedProgress(), on_meta=True)
    assert isinstance(counted, CountReport)
    assert (counted.unique_tuples, counted.left_out) == (WISH.number, ())
    (config,) = request_of_list.configs()
    counts = COUNTS.read(config)
    assert {str(count.operator) for count in counts.counts} == {*report.tuples}
    assert counts.device_type == META
    assert counts.has_values
    (replayed,) = rebuild_operators(request_of_list, RecordedProgress())
    assert (replayed.rebuilt, replayed.failures) == (WISH.number, ())


@settings(max_examples=10)
@given(st.integers(0, 2**31), st.sampled_from([*KINDS, "AdaptiveAvgPool2d", "softmax", "LayerNorm2d", "einsum"]))
def test_a_seed_gives_one_list(tmp_path_factory: pytest.TempPathFactory, seed: int, kind: str) -> None:
    wish = Wish(3, (kind,), seed)
    first, again = (drawn(tmp_path_factory.mktemp("lists"), wish=wish, dry_run=is_dry) for is_dry in (False, True))
    assert first.tuples == again.tuples
    assert len(first.tuples) == 3
    assert not Path(again.path).exists()


def test_tuples_with_rows_are_not_drawn_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "database", ROOT / "database")
    asked = {"wish": Wish(5, ("ReLU",)), "dry_run": True, "database": database}
    first = drawn(tmp_path, **asked)
    row = committed().operator_measurements.rows()[0]
    _, _, rest = row.key.partition("-")
    for text in first.tuples[::2]:
        database.operator_measurements.append(replace(row, key=f"{parse_tuple(text).key}-{rest}"))
    again = drawn(tmp_path, **asked)
    assert {*first.tuples[::2]}.isdisjoint(again.tuples)
    assert {*first.tuples[1::2]} <= {*again.tuples}


def test_a_kind_without_valid_tuples_leaves_its_share_to_the_others(tmp_path: Path) -> None:
    report = drawn(tmp_path, wish=Wish(8, ("reshape", "ReLU")))
    assert (report.wanted, len(report.tuples)) == (8, 8)
    assert [(one.kind, one.drawn) for one in report.kinds] == [("reshape", 1), ("ReLU", 7)]


def mistake_of(*asked: Any, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        drawn(*asked, **more)
    (line,) = caught.value.lines
    return line


@pytest.mark.parametrize(
    ("name", "wish", "words"),
    [
        ("a/b", WISH, ("a/b", "not the name of a folder", "letters")),
        ("", WISH, ("not the name of a folder",)),
        (".hidden", WISH, (".hidden", "not the name of a folder")),
        ("resnet50_32x3x224x224", WISH, ("resnet50_32x3x224x224", "exists already", "use another NAME")),
        ("drawn", Wish(MAXIMUM_POINTS + 1, ()), (f"--number {MAXIMUM_POINTS + 1}", f"{MAXIMUM_POINTS}", "--seed")),
        ("drawn", Wish(5, ("Conv2dd",)), ("--kind Conv2dd", "did you mean Conv2d")),
        ("drawn", Wish(5, ("nms",)), ("--kind nms", "Conv2d")),
        ("drawn", Wish(5, ("xyz",)), ("--kind xyz", "there are Conv2d, BatchNorm2d", "more")),
    ],
)
def test_a_mistake_is_one_line_with_its_remedy(tmp_path: Path, name: str, wish: Wish, words: tuple[str, ...]) -> None:
    line = mistake_of(tmp_path, name, wish)
    assert [word for word in words if word not in line] == []
    assert list(tmp_path.iterdir()) == []


def test_a_list_that_no_file_holds_an_unknown_device_and_a_database_without_rows_are_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_device = mistake_of(tmp_path, wish=Wish(1, ("ReLU",)), device="B200")
    assert of_device.startswith("--device B200: no row of it; there are rows of NVIDIA")
    monkeypatch.setattr("opcost.stages.sample_operators.MAXIMUM_BYTES", 2000)
    line = mistake_of(tmp_path, wish=Wish(50, ("ReLU",)))
    assert line.startswith("--number 50: the list would be larger than 2 kB; draw 20, and other lists with another")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "database").mkdir()
    assert "such as --kind Conv2d" in mistake_of(tmp_path, database=Database(tmp_path / "database"))


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    libraries = (*warm_python.LIBRARIES, warm_python.SHIPPED_ROWS)
    return warm_python.run([sys.executable, "-m", "opcost", *words, "--home", str(folder)], libraries=libraries)


def test_the_command_writes_a_list_that_the_next_commands_take(tmp_path: Path) -> None:
    words = ("sample-operators", "drawn", "--number", "6", "--kind", "Linear", "--kind", "SiLU", "--seed", "7")
    dry = run(tmp_path, *words, "--dry-run", "--json")
    found = json.loads(dry.stdout)
    assert ([one["kind"] for one in found["kinds"]], len(found["tuples"])) == (["Linear", "SiLU"], 6)
    assert not (tmp_path / "measurements").exists()
    drawn = run(tmp_path, *words, "--device", "H200", "--beyond", "3")
    assert drawn.returncode == 0, drawn.stderr
    path = tmp_path / "measurements" / "drawn" / GRID_NAME
    assert path.read_text().startswith("# Operator tuples between and beyond those of models, drawn with seed 7")
    assert f"written: {path}" in drawn.stdout
    assert "expected time to measure on NVIDIA H200" in drawn.stdout
    steps = drawn.stdout.partition("Next steps:")[2]
    assert all(one in steps for one in ("count drawn --meta", "filter drawn", "measure drawn --relative"))
    for step in (("count", "drawn", "--meta"), ("filter", "drawn")):
        assert run(tmp_path, *step).returncode == 0
    plan = run(tmp_path, "measure", "drawn", "--relative-error", "0.01", "--device", "H200", "--dry-run")
    assert (plan.returncode, "6 without a row" in plan.stdout) == (0, True), plan.stdout + plan.stderr
    again = run(tmp_path, *words)
    assert (again.returncode, again.stdout) == (2, "")
    assert "exists already" in again.stderr


@pytest.mark.parametrize("text", ["0.5", "x", "1000"])
def test_a_factor_is_from_1_to_100(tmp_path: Path, text: str) -> None:
    refused = run(tmp_path, "sample-operators", "drawn", "--beyond", text)
    assert refused.returncode == 2
    assert "is not a factor; use a number from 1 to 100" in refused.stderr
