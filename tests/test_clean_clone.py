"""Trying opcost out in a fresh clone leaves ``git status`` clean."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from repository_copy import ROOT, copy_repository

MODEL = "resnet18_32x3x32x32"
BUILD = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_repository(tmp_path_factory.mktemp("clone"))
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)
    return folder


def run_in(clone: Path, *command: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(clone)}
    warm_python.run([sys.executable, *command], clone, environment).check_returncode()


def changes_in(clone: Path) -> str:
    command = ["git", "status", "--porcelain"]
    return subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout


def first_steps() -> list[str]:
    """Return the commands of the README's quick start, make's left out."""
    quick_start = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Quick start")[2].partition("\n## ")[0]
    return re.findall(r"\.venv/bin/(?:python|opcost) [^`#\n]+", quick_start)


@pytest.mark.parametrize("step", first_steps())
def test_the_readmes_first_steps_change_no_file_of_git(clone: Path, step: str) -> None:
    program, *arguments = shlex.split(step)
    run_in(clone, *(["-m", "opcost"] if program.endswith("opcost") else []), *arguments)
    assert changes_in(clone) == ""


def test_installing_and_counting_change_no_file_of_git(clone: Path, tmp_path: Path) -> None:
    run_in(clone, "-c", BUILD, str(tmp_path))
    run_in(clone, "general_pipeline_block0.py", MODEL)
    run_in(clone, "general_pipeline_block1.py", MODEL)
    run_in(clone, "-m", "opcost", "make-configs", "resnet*")
    assert changes_in(clone) == ""


@pytest.mark.parametrize(
    "made_by_make", [".venv/pip.log", "build/demo/database/operator_measurements.csv", "report.html"]
)
def test_git_ignores_what_the_makefile_and_a_report_write(clone: Path, made_by_make: str) -> None:
    subprocess.run(["git", "check-ignore", "--quiet", made_by_make], cwd=clone, check=True)
    assert not made_by_make.startswith("build") or "demo := build/demo" in (clone / "Makefile").read_text()
