"""Refusals of the scripts: a mistake is a line with its remedy, and nothing is written."""

from pathlib import Path

import pytest
from pipeline_project import Project, new_project

from opcost.errors import UserError


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return new_project(tmp_path, {"a_resnet": "resnet18", "b_same": "resnet18"})


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = new_project(tmp_path_factory.mktemp("project"), {"a_resnet": "resnet18"})
    for block in ("general_pipeline_block0.py", "general_pipeline_block1.py"):
        assert project.result(block).returncode == 0
    return project


@pytest.mark.parametrize(
    ("script", "options", "remedy"),
    [
        ("general_pipeline_block2.py", ("--meter", "samples"), "available: "),
        ("full_model_measurement.py", ("--meter", "samples"), "available: "),
    ],
)
def test_what_a_cpu_has_not_is_one_line(
    counted: Project, monkeypatch: pytest.MonkeyPatch, script: str, options: tuple[str, ...], remedy: str
) -> None:
    with pytest.raises(UserError) as mistake:
        counted.main(monkeypatch, script, "a_resnet", "--seconds", "0.05", *options)
    (line,) = mistake.value.lines
    assert line.startswith(" ".join(options) + ": ")
    assert remedy in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--coverage-target", "0.9", "--cache", "state"], ["error: --coverage-target ", "--cache"]),
        (["--coverage-target", "0.9", "--counted", "leaf"], ["error: --coverage-target ", "--counted"]),
        (["--coverage-target", "0.9", "--figures", "figures"], ["error: --coverage-target ", "--figures"]),
        (["--write-whitelist"], ["error: --write-whitelist needs --coverage-target, such as 0.9; see "]),
        (["--figures", "{file}"], ["error: ", "figures is a file; name a folder"]),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_compared(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    options: list[str],
    words: list[str],
) -> None:
    file = tmp_path / "figures"
    file.write_text("mine")
    with pytest.raises(SystemExit, match="^2$"):
        project.main(monkeypatch, "compare_sum_vs_full.py", *(option.format(file=file) for option in options))
    output, errors = capsys.readouterr()
    assert (output, file.read_text()) == ("", "mine")
    assert errors.startswith(words[0])
    assert all(text in errors for text in words)
