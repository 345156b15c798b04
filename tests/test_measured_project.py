"""Scripts at work on a project that has been measured before: what they find, add, compare and advise."""

import json
from pathlib import Path

import pytest
from pipeline_project import Project, assert_measured_again_if_disturbed, measured_project

from opcost.measuring.record import is_flagged


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return measured_project(tmp_path_factory.mktemp("project"), {"a_resnet": "resnet18"})


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("general_pipeline_block0.py", "resnet"),
        ("general_pipeline_block1.py", "resnet"),
        ("general_pipeline_block2.py", "device: cpu ("),
        ("full_model_measurement.py", "device: cpu ("),
        ("compare_sum_vs_full.py", "sum / whole"),
    ],
)
def test_a_dry_run_of_any_script_says_what_it_would_do_and_writes_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str, shown: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in project.files()}
    seconds = ["--seconds", "7"] if "measure" in script or "block2" in script else []
    assert project.main(monkeypatch, script, "--dry-run", *seconds) == 0
    output = capsys.readouterr().out
    assert shown in output
    assert "dry run" in output
    assert {path: path.stat().st_mtime_ns for path in project.files()} == before


def test_what_is_there_is_not_measured_again(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copied = project.copied_to(tmp_path)
    is_disturbed = is_flagged(project.database.full_model_measurements.rows()[0].measurement)
    for script in ("general_pipeline_block2.py", "full_model_measurement.py"):
        assert copied.main(monkeypatch, script, "a_resnet", "--seconds", "0.05") == 0
    assert ("earlier" in capsys.readouterr().out) != is_disturbed
    for table, keys in ((copied.database.operator_measurements, 3), (copied.database.full_model_measurements, 1)):
        rows = table.rows()
        assert len({row.key for row in rows}) == keys
        assert_measured_again_if_disturbed(rows)


def test_a_named_model_without_a_whole_ends_in_status_1(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = project.copied_to(tmp_path)
    copied.database.full_model_measurements.path.unlink()
    assert copied.main(monkeypatch, "compare_sum_vs_full.py") == 0
    assert copied.main(monkeypatch, "compare_sum_vs_full.py", "a_resnet") == 1
    assert "the whole model is not measured on cpu; run " in capsys.readouterr().out


def test_advice_names_what_the_whitelist_lacks_and_writes_one_that_lacks_nothing(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = project.copied_to(tmp_path)
    assert copied.main(monkeypatch, "compare_sum_vs_full.py", "--coverage-target", "0.9", "--json") == 1
    (advice,) = json.loads(capsys.readouterr().out)
    (model,) = advice["models"]
    assert model["name"] == "a_resnet"
    assert model["additions"]
    assert "Conv2d" in advice["smallest"]
    assert copied.main(monkeypatch, "compare_sum_vs_full.py", "--coverage-target", "0.9", "--write-whitelist") == 0
    assert "written: " in capsys.readouterr().out
    assert copied.main(monkeypatch, "general_pipeline_block1.py") == 0
    assert copied.main(monkeypatch, "compare_sum_vs_full.py", "--coverage-target", "0.9") == 0


@pytest.mark.second_tier
def test_figures_are_drawn_beside_the_comparison(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert project.main(monkeypatch, "compare_sum_vs_full.py", "a_resnet", "--figures", str(tmp_path / "figures")) == 0
    drawn = list((tmp_path / "figures").iterdir())
    assert {path.name for path in drawn} == {"parity.svg", "operators.svg", "errors.svg"}
    (written,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("written: ")]
    assert all(str(path) in written for path in drawn)


def test_nothing_is_drawn_in_a_dry_run_and_that_is_reported(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    figures, report = tmp_path / "figures", tmp_path / "report.html"
    wanted = ("--figures", str(figures), "--report", str(report))
    assert project.main(monkeypatch, "compare_sum_vs_full.py", "a_resnet", "--dry-run", *wanted) == 0
    assert f"dry run: not written: {figures}, {report}\n" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
