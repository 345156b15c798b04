"""The figures of a comparison, with matplotlib and without."""

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
    assert {path.name for path in drawn if path.suffix == ".svg"} == FIGURES
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


def test_figures_without_matplotlib_are_refused_before_anything_is_written(project: Project, tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('gone', name='matplotlib')\n")
    before = project.database.sum_vs_full.path.read_bytes()
    figures = tmp_path / "figures"
    result = project.run("compare_sum_vs_full.py", "a_resnet", "--figures", str(figures), PYTHONPATH=str(tmp_path))
    assert result.returncode == 2
    assert "pip install 'opcost[figures]'" in result.stderr
    assert not figures.exists()
    assert project.database.sum_vs_full.path.read_bytes() == before


def test_only_figures_need_matplotlib(project: Project, tmp_path: Path) -> None:
    copied = project.copied_to(tmp_path / "copy")
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('gone', name='matplotlib')\n")
    page = tmp_path / "report.html"
    result = copied.run("compare_sum_vs_full.py", "a_resnet", "--report", str(page), PYTHONPATH=str(tmp_path))
    written = f"rows in: {copied.database.sum_vs_full.path}\nwritten: {page}\n"
    assert (result.returncode, result.stderr) == (0, written)
    assert page.exists()
