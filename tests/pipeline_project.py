"""A folder with configs of tiny models and a database, and the scripts at work on it: real torch, the CPU."""

from __future__ import annotations

import io
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import warm_python
from run_logs import ended_logs

from opcost.measuring import procedure, protocol
from opcost.measuring.protocol import RETRIES
from opcost.measuring.record import MeasurementRow, is_flagged
from opcost.running import bench
from opcost.running.bench import STEPS, Question
from opcost.running.worker_process import OpenAnswering
from opcost.storage.database import Database

ROOT = Path(__file__).parents[1]
SUMMARY = """\
# A tiny model for the tests.
model_name: {model_name}
weights_name: null  # random
input_size: [2, 3, 32, 32]
done: {done}
"""
WARM_UP_S = 0.05


class InThisProcess:
    """Plays ``ChildProcess``: what answers is opened here."""

    def __init__(self, open_answering: OpenAnswering, *_: object) -> None:
        self.step_times_s = dict.fromkeys(STEPS, 0.0)
        self._open_answering = open_answering
        self._opened = ExitStack()

    def __enter__(self) -> InThisProcess:
        self._answer = self._opened.enter_context(self._open_answering(report_step=lambda _: None))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def ask(self, question: Question, _: object = None) -> object:
        return self._answer(question)


def measure_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what measures run in this process, which saves importing torch again.

    Warm-ups are short. Disturbed measurements are not repeated at once, as other tests disturb them, too.
    """
    monkeypatch.setattr(bench, "ChildProcess", InThisProcess)
    monkeypatch.setattr(procedure, "RETRIES", replace(RETRIES, at_once=1))
    monkeypatch.setattr(protocol, "CPU_WARM_UP_S", WARM_UP_S)


class Project:
    """A folder with configs and a database, and the scripts at work on it."""

    def __init__(self, folder: Path) -> None:
        self.measurements = folder / "measurements"
        self.database = Database(folder / "database")

    def command(self, script: str, *arguments: str) -> list[str]:
        folders = ["--measurements", str(self.measurements), "--database", str(self.database.folder)]
        return [sys.executable, str(ROOT / script), *arguments, *folders, "--device", "cpu"]

    def process(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a script as users do."""
        command = self.command(script, *arguments)
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script as a process in which torch is imported already."""
        return warm_python.run(self.command(script, *arguments), env=os.environ | environment, timeout=120)

    def main(self, monkeypatch: pytest.MonkeyPatch, script: str, *arguments: str) -> int:
        """Run a script's ``main`` in this process, and what measures too."""
        measure_here(monkeypatch)
        monkeypatch.setattr(sys, "argv", self.command(script, *arguments)[1:])
        status: int = runpy.run_path(str(ROOT / script))["main"]()
        return status

    def result(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a script's ``main`` in this process, for a fixture of a whole module."""
        with (
            ended_logs(),
            pytest.MonkeyPatch.context() as patch,
            redirect_stdout(io.StringIO()) as output,
            redirect_stderr(io.StringIO()) as errors,
        ):
            status = self.main(patch, script, *arguments)
        return subprocess.CompletedProcess([script, *arguments], status, output.getvalue(), errors.getvalue())

    def rows(self) -> list[MeasurementRow]:
        return self.database.operator_measurements.rows()

    def summaries(self) -> dict[str, bytes]:
        return {path.parent.name: path.read_bytes() for path in self.measurements.glob("*/summary.yml")}

    def copied_to(self, folder: Path) -> Project:
        copied = Project(folder)
        shutil.copytree(self.measurements, copied.measurements)
        shutil.copytree(self.database.folder, copied.database.folder)
        return copied

    def files(self) -> list[Path]:
        return sorted([*self.measurements.rglob("*"), *self.database.folder.rglob("*")])


def new_project(folder: Path, models: Mapping[str, str]) -> Project:
    project = Project(folder)
    for name, model_name in models.items():
        path = project.measurements / name / "summary.yml"
        path.parent.mkdir(parents=True)
        path.write_text(SUMMARY.format(model_name=model_name, done="false"))
    (project.measurements / "operator_whitelist.yml").write_text("operators: [Linear, MaxPool2d, AdaptiveAvgPool2d]\n")
    return project


def measured_project(folder: Path, models: Mapping[str, str]) -> Project:
    """Return a project whose models are counted, measured in operators and as wholes, and compared."""
    project = new_project(folder, models)
    for block in ("general_pipeline_block0.py", "general_pipeline_block1.py"):
        assert project.result(block).returncode == 0
    for measuring in ("general_pipeline_block2.py", "full_model_measurement.py"):
        assert project.result(measuring, "--seconds", "0.05").returncode == 0
    assert project.result("compare_sum_vs_full.py").returncode == 0
    return project


def objects(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The objects of the list that must be all there is on stdout."""
    values = json.loads(result.stdout)
    assert isinstance(values, list)
    return values


def assert_measured_again_if_disturbed(rows: list[MeasurementRow]) -> None:
    """Other programs may have disturbed any row, which is then not the last of its key, unless it is the third."""
    by_key: dict[str, list[MeasurementRow]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    for same in by_key.values():
        assert len(same) <= RETRIES.runs
        assert all(is_flagged(row.measurement) for row in same[:-1])
