"""The figures of a comparison."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_project import Project, measured_project

FIGURES = {"parity.svg", "operators.svg", "errors.svg"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return measured_project(tmp_path_factory.mktemp("project"), {"a_resnet": "resnet18"})


def test_figures_are_drawn_beside_the_comparison(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert project.main(monkeypatch, "compare_sum_vs_full.py", "a_resnet", "--figures", str(tmp_path / "figures")) == 0
    drawn = list((tmp_path / "figures").iterdir())
    assert {path.name for path in drawn} == FIGURES
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
