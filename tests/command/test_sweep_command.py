"""``opcost sweep`` on the CPU, as a new user would run it: a file of one's own, in one command."""

import json
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from opcost.__main__ import main
from opcost.errors import UserError
from opcost.storage.database import Database

NET = """
from torch import nn, randn
def build(size=16):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), randn(1, 3, size, size)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def sweep(*words: str) -> int:
    home = ("--home", "home", "--device", "cpu")
    with patch.object(sys, "argv", ["opcost", "sweep", "net.py:build", "--allow-code", *words, *home]):
        return main()


def test_a_file_of_ones_own_is_swept_in_one_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--size", "2,8:16:x2", "--repetitions", "2", "--seconds", "0.1", "--json")
    # A kernel of 3 does not fit into 2 pixels.
    assert sweep(*words, "--output", "tables", "--export-tree", "tree") == 1
    found = json.loads(capsys.readouterr().out)
    sizes = {one["size"]: one for one in found["sizes"]}
    assert {size: one["repetitions"] for size, one in sizes.items()} == {2: 0, 8: 2, 16: 2}
    assert "Kernel size can't be greater" in sizes[2]["failure"]
    assert sizes[16]["iteration_p50_s"] > 0
    assert sizes[16]["memory_peak_bytes"] > 0
    assert sizes[16]["flop"] > sizes[8]["flop"] > 0
    assert sizes[16]["prediction_missing_reason"]
    assert len(list(folder.glob("tree/input_*/run_*/latency.csv"))) == 4
    assert (folder / "tables" / "correlations.csv").is_file()
    before = Database(folder / "home" / "database").sweep_repetitions.rows()
    assert sweep(*words, "--no-predict") == 1
    assert Database(folder / "home" / "database").sweep_repetitions.rows() == before
    capsys.readouterr()
    assert sweep(*words[:4], "--dry-run", "--seconds", "0.1") == 0
    assert "2 repetitions of 3 sizes to measure, 4 in the database" in capsys.readouterr().out


def test_a_complete_sweep_says_so_and_what_is_not_predicted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--size", "8,16", "--repetitions", "1", "--seconds", "0.1")
    assert sweep(*words) == 0
    first = capsys.readouterr().out
    assert "Nothing was left to measure" not in first
    reason = "no row and no data sheet of it; there are rows of NVIDIA H100 80GB HBM3, NVIDIA H200, and sheets of"
    assert reason in " ".join(first.split())
    assert sweep(*words, "--no-predict") == 0
    assert "Nothing was left to measure: all repetitions are in the database." in capsys.readouterr().out


def test_a_text_that_is_no_size_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        sweep("--size", "64:32:x2")
    assert caught.value.code == 2
    assert "argument --size: '64:32:x2' ends below its begin" in capsys.readouterr().err


def test_a_function_without_the_axis_is_refused_before_anything_runs(folder: Path) -> None:
    remedy = r"add it, such as def build\(tokens\)"
    with pytest.raises(UserError, match=f"net.py: build has no parameter 'tokens'; {remedy}"):
        sweep("--tokens", "8")
    assert not list(folder.glob("home/database/*.csv"))


@pytest.mark.parametrize("option", ["--output", "--export-tree"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(folder: Path, option: str) -> None:
    (folder / "file").touch()
    with pytest.raises(NotADirectoryError) as caught:
        sweep("--size", "8", "--seconds", "0.1", option, "file/tables")
    assert Path(caught.value.filename) == folder / "file" / "tables", "so that it is a line with its path"
    assert Database(folder / "home" / "database").sweep_repetitions.rows() == []


def test_code_that_may_not_run_is_refused(folder: Path) -> None:
    words = ["opcost", "sweep", "net.py:build", "--size", "8", "--home", "home"]
    with patch.object(sys, "argv", words), pytest.raises(UserError, match="--allow-code"):
        main()
