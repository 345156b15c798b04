"""``opcost``: files are checked line by line, tables repaired and put together, and nothing gets lost."""

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_apparatus import SimulatedCampaign
from simulated_machine import simulated_row

from opcost.errors import UserError
from opcost.measuring.record import MeasurementRow
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.stages.check_files import check_files, merge
from opcost.storage.configs import ModelFolders
from opcost.storage.database import Database
from opcost.storage.table import CsvTable

ROOT = Path(__file__).parents[2]
RELU, GELU = (OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((4,), "float32"),)) for name in ("ReLU", "GELU"))


@pytest.fixture
def campaign(tmp_path: Path) -> SimulatedCampaign:
    made = SimulatedCampaign(tmp_path, {})
    made.add_model("a", {RELU: 1})
    (made.measurements / "operator_whitelist.yml").write_text("operators: [ReLU]\n")
    table(made.database).append(simulated_row(RELU))
    return made


def table(database: Database) -> CsvTable[MeasurementRow]:
    return database.operator_measurements


@pytest.fixture
def check(
    campaign: SimulatedCampaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[object, str]]:
    """A function that runs ``opcost check`` on the campaign, and returns its status and output."""

    def run(*options: str) -> tuple[object, str]:
        folders = ("--measurements", campaign.measurements, "--database", campaign.database.folder)
        return status(monkeypatch, "check", *folders, *options), capsys.readouterr().out

    return run


def status(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> object:
    monkeypatch.setattr(sys, "argv", ["opcost", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("opcost", run_name="__main__")
    return caught.value.code


@pytest.mark.second_tier
def test_the_files_of_the_project_have_no_mistakes() -> None:
    report = check_files(ModelFolders(ROOT / "measurements"), Database(ROOT / "database"))
    assert report.problems == ()
    assert report.files > 100


def test_what_is_wrong_is_reported_by_file_and_line(
    campaign: SimulatedCampaign, check: Callable[..., tuple[object, str]]
) -> None:
    assert check() == (0, "4 files read, no mistakes\n")
    assert json.loads(check("--json")[1]) == {"files": 4, "problems": [], "repaired": []}
    whitelist = campaign.measurements / "operator_whitelist.yml"
    whitelist.write_text("operators: []\n")
    code, printed = check("--json")
    problems = json.loads(printed)["problems"]
    assert (code, [problem.partition(": ")[0] for problem in problems]) == (1, [f"{whitelist}:1"])
    model = campaign.measurements / "a"
    whitelist.write_text("operators: 3\n")
    assert check()[1].endswith(" files read, 1 mistake\n")
    (model / "summary.yml").write_text((model / "summary.yml").read_text().replace("resnet18", "resnet18 19"))
    campaign.add_model("b", {RELU: 1})
    (campaign.measurements / "b" / "operators_filtered.pkl").write_bytes(b"damaged")
    path = table(campaign.database).path
    path.write_text(path.read_text() + "one,two\n")
    path.with_name("failures.csv.torn").write_text("half a row\n")
    *problems, last = check()[1].splitlines()
    for file, problem in {
        f"{path}:3": "2 cells, ",
        f"{path.with_name('failures.csv.torn')}": "unfinished lines",
        f"{model / 'summary.yml'}": "model_name",
        f"{campaign.measurements / 'b' / 'operators_filtered.pkl'}": "wrong checksum",
        f"{whitelist}": "operators",
    }.items():
        assert any(line.startswith(file) and problem in line for line in problems), file
    assert last == f"7 files read, {len(problems)} mistakes"


def test_a_folder_that_cannot_be_named_is_one_line_that_changes_no_terminal(
    campaign: SimulatedCampaign, check: Callable[..., tuple[object, str]]
) -> None:
    (campaign.measurements / "a").rename(campaign.measurements / "a\x1b[31m\n\udcff")
    code, printed = check()
    line, _ = printed.splitlines()
    assert code == 1
    assert line.startswith(f"{campaign.measurements}/a\\x1b[31m \\udcff/summary.yml: ")
    assert line.isprintable()


def test_repairing_keeps_the_good_lines_and_the_old_file(
    campaign: SimulatedCampaign, check: Callable[..., tuple[object, str]]
) -> None:
    path = table(campaign.database).path
    good = path.read_text()
    path.write_text(good + "one,two\n" + good.splitlines()[1] + "\n")
    damaged = path.read_text()
    code, printed = check("--repair")
    assert code == 0
    assert f"{path}: removed 1 bad lines; the old file is {path.name}.old" in printed
    assert path.with_name(f"{path.name}.old").read_text() == damaged
    assert table(campaign.database).rows() == [simulated_row(RELU)] * 2


def test_a_cell_that_reads_like_a_line_number_is_repaired_as_any_other(campaign: SimulatedCampaign) -> None:
    path = table(campaign.database).path
    good = path.read_text()
    _, line = good.splitlines()
    path.write_text(good + line.replace(line.split(",")[2], "x:1: y", 1).rpartition(",")[0] + ",\n")
    report = check_files(ModelFolders(campaign.measurements), campaign.database, repair=True)
    assert len(report.repaired) == 1
    assert path.read_text() == good


def test_a_table_with_a_foreign_header_is_not_repaired_to_nothing(campaign: SimulatedCampaign) -> None:
    path = table(campaign.database).path
    path.write_text("a,b\n1,2\n")
    report = check_files(ModelFolders(campaign.measurements), campaign.database, repair=True)
    assert report.repaired == ()
    assert "no header" in report.problems[0]
    assert path.read_text() == "a,b\n1,2\n"


def test_databases_are_put_together_once(
    campaign: SimulatedCampaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = Database(tmp_path / "other")
    for operator in (RELU, GELU):
        table(other).append(simulated_row(operator))
    for added in (1, 0):
        assert status(monkeypatch, "merge", campaign.database.folder, other.folder) == 0
        assert f"operator_measurements.csv: {added} rows added" in capsys.readouterr().out
    assert table(campaign.database).rows() == [simulated_row(RELU), simulated_row(GELU)]
    assert table(other).rows() == table(campaign.database).rows()


def test_folders_that_are_not_there_are_reported(campaign: SimulatedCampaign, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for call in (
        lambda: check_files(ModelFolders(missing), campaign.database),
        lambda: check_files(ModelFolders(campaign.measurements), Database(missing)),
        lambda: merge(campaign.database, [Database(missing)]),
    ):
        with pytest.raises(UserError, match="missing: no such folder"):
            call()
