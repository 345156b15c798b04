"""Operators that do other work alone than in their model, from the user's file to the remark on the sum."""

import json
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from pipeline_project import measure_here

from opcost.__main__ import main
from opcost.measuring.flags import Flag
from opcost.storage.database import Database

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 256)
    def forward(self, x):
        size = torch.fft.rfft(self.linear(x)).conj().resolve_conj().abs()
        return size[size < 0]
def build():
    return Net(), torch.randn(8, 16)
"""
WHITELIST = "operators: [Linear, resolve_conj, __getitem__]\n"


class Project:
    """A folder with a user's file, a config that names it, and the commands at work on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "net.py").write_text(NET)
        config = folder / "measurements" / "net" / "summary.yml"
        config.parent.mkdir(parents=True)
        config.write_text("model_name: ../../net.py:build\n")
        (folder / "measurements" / "operator_whitelist.yml").write_text(WHITELIST)

    def run(self, *words: str) -> int:
        folders = ["--measurements", str(self.folder / "measurements"), "--database", str(self.folder / "database")]
        device = [] if words[0] == "filter" else ["--device", "cpu"]
        with patch.object(sys, "argv", ["opcost", *words, *folders, *device]):
            return main()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose model is counted, filtered, and measured with all that its sum needs."""
    found = Project(tmp_path_factory.mktemp("project"))
    assert found.run("count", "--allow-code") == 0
    assert found.run("filter") == 0
    with pytest.MonkeyPatch.context() as patched:
        measure_here(patched)
        assert found.run("measure", "--whole", "--seconds", "0.05", "--allow-code") in (0, 1)
    return found


def test_what_the_check_names_is_what_has_a_flag_in_its_row(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert project.run("verify", "operators", "--json") == 1
    (report,) = json.loads(capsys.readouterr().out)
    rows = Database(project.folder / "database").operator_measurements.rows()
    flags = {Flag.NOT_AS_COUNTED: report["failures"], Flag.VALUE_DEPENDENT: report["value_dependent"]}
    for flag, lines in flags.items():
        flagged = [row.operator for row in rows if flag in row.measurement.flags]
        assert [line.partition(" on ")[0] for line in lines] == flagged
        assert len(flagged) == 1
    notes = {row.operator: row.measurement.notes for row in rows}
    assert "not as counted: operations none, not clone" in notes["torch.Tensor.resolve_conj"]
    assert "not as counted" not in notes["torch.nn.Linear"]
    assert len(rows) == 3


def test_the_sum_names_their_share(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert project.run("compare", "--json") == 0
    (report,) = json.loads(capsys.readouterr().out)
    (remark,) = (one for one in report["remarks"][0] if one["kind"] == "other-work")
    assert (remark["figures"]["operator"], remark["figures"]["flags"]) in (
        ("torch.Tensor.resolve_conj", ["not-as-counted"]),
        ("torch.Tensor.__getitem__", ["value-dependent"]),
    )
    assert 0 < remark["figures"]["time_ratio"] < 1
