"""The scripts themselves, one after the other on tiny models: whole commands, real torch, the CPU.

Block 0 and the interrupted block 2 are processes of their own, as users start them.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import warm_python
from run_logs import ended_logs

from opcost.command.log import RUN_LOGS
from opcost.command.subcommands.count import COUNT
from opcost.command.subcommands.filter import FILTER
from opcost.command.subcommands.measure import MEASURE
from opcost.command.subcommands.measure_models import MEASURE_MODELS
from opcost.errors import UserError
from opcost.invocation import SCRIPTS
from opcost.measuring import procedure
from opcost.measuring.record import MeasurementRow, is_flagged
from opcost.measuring.retries import RETRIES
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.running import worker_bench
from opcost.running.heartbeat import STEPS
from opcost.running.worker_bench import Question
from opcost.running.worker_process import OpenAnswering
from opcost.storage.counts_file import read_counts, write_counts
from opcost.storage.database import Database
from opcost.torch_backend.relocation import DIVERGES, NO_INPUT

ROOT = Path(__file__).parents[1]
SUMMARY = """\
# A tiny model for the tests.
model_name: {model_name}
weights_name: null  # random
input_size: [2, 3, 32, 32]
done: {done}
"""
MODELS = {"a_resnet": "resnet18", "b_same": "resnet18", "c_squeezenet": "squeezenet1_1"}
BY_SCRIPT = {SCRIPTS[one.name][0]: one for one in (COUNT, FILTER, MEASURE, MEASURE_MODELS)}
UNMEASURABLE = OperatorTuple(
    "torch.nn.Linear", (("in_features", 3), ("out_features", 4)), (TensorSpec((2, 5), "float32"),)
)
"""Its input is wider than its weights: torch refuses it."""


class InThisProcess:
    """Plays ``ChildProcess``: what answers is opened here."""

    def __init__(self, open_answering: OpenAnswering, _: object = None) -> None:
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


class Project:
    """A folder with configs and a database, and the scripts at work on it."""

    def __init__(self, folder: Path) -> None:
        self.measurements = folder / "measurements"
        self.database = Database(folder / "database")

    def command(self, script: str, *arguments: str) -> list[str]:
        folders = ["--measurements", str(self.measurements), "--database", str(self.database.folder)]
        return [sys.executable, str(ROOT / script), *arguments, *folders, "--device", "cpu"]

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return warm_python.run(self.command(script, *arguments), env=os.environ | environment, timeout=120)

    def main(self, monkeypatch: pytest.MonkeyPatch, script: str, *arguments: str) -> int:
        """Run a script's subcommand in this process, and what measures too, which saves importing torch again; what is
        disturbed is not measured again at once, as other tests disturb it too.
        """
        monkeypatch.setattr(worker_bench, "ChildProcess", InThisProcess)
        monkeypatch.setattr(procedure, "RETRIES", replace(RETRIES, at_once=1))
        monkeypatch.setattr(sys, "argv", self.command(script, *arguments)[1:])
        own = runpy.run_path(str(ROOT / script)).get("main")
        return BY_SCRIPT[script].main() if own is None else own()

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


def new_project(folder: Path, models: dict[str, str]) -> Project:
    project = Project(folder)
    for name, model_name in models.items():
        path = project.measurements / name / "summary.yml"
        path.parent.mkdir(parents=True)
        path.write_text(SUMMARY.format(model_name=model_name, done="false"))
    (project.measurements / "operator_whitelist.yml").write_text("operators: [Linear, MaxPool2d, AdaptiveAvgPool2d]\n")
    return project


def objects(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The objects of the list that must be all there is on stdout."""
    values = json.loads(result.stdout)
    assert isinstance(values, list)
    return values


# Each step is a run on top of the one before.


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return new_project(tmp_path_factory.mktemp("project"), MODELS)


@pytest.fixture(scope="module")
def counted(project: Project) -> subprocess.CompletedProcess[str]:
    command = project.command("general_pipeline_block0.py", "--json")
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def filtered(project: Project, counted: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    return project.run("general_pipeline_block1.py", "--json")


@pytest.fixture(scope="module")
def interrupted(project: Project, filtered: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """Block 2, sent SIGINT while it measures the third tuple, of a model with one tuple that cannot be measured."""
    for name in ("operators.pkl", "operators_filtered.pkl"):
        path = project.measurements / "c_squeezenet" / name
        counts = read_counts(path, "block 0 or 1")
        added = OperatorCount(UNMEASURABLE, 1, 60, 80, positions=(10**6,), callers=(0,))
        write_counts(path, replace(counts, counts=(added, *counts.counts)))
    command = project.command("general_pipeline_block2.py", "--seconds", "0.05", "--json")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(project.rows()) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


@pytest.fixture(scope="module")
def rows_before(project: Project, interrupted: subprocess.CompletedProcess[str]) -> list[MeasurementRow]:
    return project.rows()


@pytest.fixture(scope="module")
def resumed(project: Project, rows_before: list[MeasurementRow]) -> subprocess.CompletedProcess[str]:
    with (
        ended_logs(),
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()) as output,
        redirect_stderr(io.StringIO()) as errors,
    ):
        status = project.main(patch, "general_pipeline_block2.py", "--seconds", "0.05", "--json")
    return subprocess.CompletedProcess([], status, output.getvalue(), errors.getvalue())


@pytest.fixture(scope="module")
def whole(project: Project, resumed: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    return project.run("full_model_measurement.py", "a_resnet", "c_*", "--seconds", "0.05", "--json")


@pytest.fixture(scope="module")
def compared(project: Project, whole: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    return project.run("compare_sum_vs_full.py", "--json")


def test_block_0_prints_one_object_per_model_and_nothing_else(counted: subprocess.CompletedProcess[str]) -> None:
    assert counted.returncode == 0, counted.stderr
    first, same, _ = objects(counted)
    assert [values["name"] for values in objects(counted)] == list(MODELS)
    assert {"name", "operator_calls", "unique_tuples", "flops", "bytes", "parameters"} <= set(first)
    assert (first["operator_calls"], first["module_calls"], first["function_calls"]) == (68, 60, 8)
    assert (first["parameters"], first["counted_flops"]) == (11689512, first["flops"])
    assert (first["counted_bytes"], first["outside"], first["counted_on"]) == (first["bytes"], [], "cpu")
    assert 0 < first["whitelisted_flops"] < first["flops"]
    assert {**same, "name": "a_resnet"} == first


def test_block_1_keeps_what_the_whitelist_names(project: Project, filtered: subprocess.CompletedProcess[str]) -> None:
    assert filtered.returncode == 0, filtered.stderr
    first, _, last = objects(filtered)
    assert (first["kept_tuples"], first["kept"]["calls"]) == (3, 3)
    assert (last["kept_tuples"], last["kept"]["calls"]) == (4, 4)
    kept = read_counts(project.measurements / "a_resnet" / "operators_filtered.pkl", "x")
    assert [count.operator.short_name for count in kept.counts] == ["MaxPool2d", "AdaptiveAvgPool2d", "Linear"]


def test_an_interrupt_keeps_what_was_measured(
    interrupted: subprocess.CompletedProcess[str], rows_before: list[MeasurementRow]
) -> None:
    assert interrupted.returncode == 130
    assert interrupted.stdout == ""
    assert interrupted.stderr.endswith("interrupted; run the same command again to continue\n")
    assert "Traceback" not in interrupted.stderr
    assert 2 <= len(rows_before) < 7


def test_the_next_run_measures_the_rest_and_nothing_twice(
    project: Project, rows_before: list[MeasurementRow], resumed: subprocess.CompletedProcess[str]
) -> None:
    reports = objects(resumed)
    rows = project.rows()
    assert rows[: len(rows_before)] == rows_before
    assert len({row.key for row in rows}) == 7
    assert_measured_again_if_disturbed(rows)
    assert sum(report["measured"] for report in reports) == len(rows) - len(rows_before)
    # The second model asks for what the first one has.
    assert reports[1]["measured"] == 0
    assert all(row.measurement.time_s > 0 and row.measurement.loop_time_s >= 0.05 for row in rows)
    assert all(row.measurement.energy_j or row.measurement.energy_missing_reason for row in rows)
    assert all(row.conditions.device_type == "cpu" and row.circumstances.loop_s == 0.05 for row in rows)


def test_a_tuple_that_torch_refuses_is_a_failure_and_status_1(
    project: Project, resumed: subprocess.CompletedProcess[str]
) -> None:
    assert resumed.returncode == 1
    assert [report["failed"] for report in objects(resumed)] == [0, 0, 1]
    (failure,) = project.database.failures.rows()
    assert failure.operator == "torch.nn.Linear"
    assert failure.reason.startswith("RuntimeError: ")
    assert objects(resumed)[2]["reasons"] == [failure.reason]


def test_progress_on_stderr_shows_name_result_and_time_left(
    project: Project, resumed: subprocess.CompletedProcess[str]
) -> None:
    *lines, end = resumed.stderr.splitlines()
    # Flags are explained in lines between.
    first, *_, last = (line for line in lines if line.startswith("["))
    assert end == f"rows in: {project.database.operator_measurements.path}"
    assert first.startswith("[1/")
    assert first.endswith(" left")
    assert last.partition("]")[0].partition("/")[0].strip("[") == last.partition("]")[0].partition("/")[2]
    assert any(" ms" in line for line in resumed.stderr.splitlines())


def test_whole_models_are_measured_by_name_and_glob(project: Project, whole: subprocess.CompletedProcess[str]) -> None:
    assert whole.returncode == 0, whole.stderr
    assert [report["name"] for report in objects(whole)] == ["a_resnet", "c_squeezenet"]
    assert all(report["newly_measured"] and report["time_s"] > 0 for report in objects(whole))
    operators = [row.operator for row in project.database.full_model_measurements.rows()]
    assert operators == ["torchvision.models.resnet18", "torchvision.models.squeezenet1_1"]


def test_each_run_that_writes_the_database_leaves_a_log(
    project: Project, compared: subprocess.CompletedProcess[str]
) -> None:
    logs = [path.read_text() for path in sorted((project.database.folder / RUN_LOGS).iterdir())]
    begins = [log.splitlines()[0].partition("begins: python ")[2].split()[0] for log in logs]
    measuring = ["general_pipeline_block2.py", "general_pipeline_block2.py", "full_model_measurement.py"]
    assert begins == [*measuring, "compare_sum_vs_full.py"]
    ends = [log.splitlines()[-1].partition("ended with status ")[2] for log in logs]
    # The second one is no process of its own, whose end is logged.
    assert [ends[0], *ends[2:]] == ["130", "0", "0"]
    assert "AdaptiveAvgPool2d" in logs[0] + logs[1]


def test_the_comparison_sets_sums_beside_wholes(project: Project, compared: subprocess.CompletedProcess[str]) -> None:
    assert compared.returncode == 0, compared.stderr
    reports = objects(compared)
    # Models a and b are one model at one size: measured once, compared twice.
    assert [report["name"] for report in reports] == list(MODELS)
    rows = [row for report in reports for row in report["comparisons"]]
    assert [row["missing_operators"] for row in rows] == [0, 0, 1]
    assert rows[2]["missing"] == str(UNMEASURABLE)
    times = [(row.measurement.time_s, row.operator) for row in project.rows()]
    for row in rows:
        # How near to 1 depends on what else runs here.
        assert row["time_ratio"] == pytest.approx(row["time_s"] / row["full_time_s"])
        assert row["time_s"] <= sum(time_s for time_s, _ in times) * 1.0001
    lines = project.database.sum_vs_full.path.read_text().splitlines()
    assert lines[0].startswith("key,operator,time_s,energy_j,")
    assert len(lines) == 4


def test_the_cpu_and_short_loops_never_set_done(project: Project, compared: subprocess.CompletedProcess[str]) -> None:
    expected = {name: SUMMARY.format(model_name=model, done="false").encode() for name, model in MODELS.items()}
    assert project.summaries() == expected


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
    project: Project,
    compared: subprocess.CompletedProcess[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
    shown: str,
) -> None:
    before = {path: path.stat().st_mtime_ns for path in project.files()}
    seconds = ["--seconds", "7"] if "measure" in script or "block2" in script else []
    assert project.main(monkeypatch, script, "--dry-run", *seconds) == 0
    output = capsys.readouterr().out
    assert shown in output
    assert "dry run" in output
    assert {path: path.stat().st_mtime_ns for path in project.files()} == before


def test_what_is_there_is_not_measured_again(
    project: Project,
    compared: subprocess.CompletedProcess[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    is_disturbed = is_flagged(project.database.full_model_measurements.rows()[0].measurement)
    for script in ("general_pipeline_block2.py", "full_model_measurement.py"):
        assert project.main(monkeypatch, script, "a_resnet", "--seconds", "0.05") == 0
    assert ("earlier" in capsys.readouterr().out) != is_disturbed
    for table, keys in ((project.database.operator_measurements, 7), (project.database.full_model_measurements, 2)):
        rows = table.rows()
        assert len({row.key for row in rows}) == keys
        assert_measured_again_if_disturbed(rows)


def assert_measured_again_if_disturbed(rows: list[MeasurementRow]) -> None:
    """Other programs may have disturbed any row, which is then not the last of its key, unless it is the third."""
    by_key: dict[str, list[MeasurementRow]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    for same in by_key.values():
        assert len(same) <= RETRIES.runs
        assert all(is_flagged(row.measurement) for row in same[:-1])


def test_chained_operators_get_rows_of_their_own_and_are_compared_when_asked_for(
    project: Project,
    compared: subprocess.CompletedProcess[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    copied = project.copied_to(tmp_path)
    chained = ("a_resnet", "--cache", "chained")
    assert copied.main(monkeypatch, "general_pipeline_block2.py", *chained, "--seconds", "0.05", "--json") == 0
    rows = copied.rows()[len(project.rows()) :]
    assert [row.conditions.cache for row in rows] == ["chained"] * 3
    # Other programs may disturb this one, which stands behind.
    notes = {row.operator.rpartition(".")[2]: row.measurement.notes.partition(";")[0] for row in rows}
    assert notes.pop("AdaptiveAvgPool2d") not in (NO_INPUT, DIVERGES)
    assert notes == {"MaxPool2d": NO_INPUT, "Linear": NO_INPUT}
    capsys.readouterr()
    assert copied.main(monkeypatch, "compare_sum_vs_full.py", *chained, "--json") == 0
    ((comparison,),) = [report["comparisons"] for report in json.loads(capsys.readouterr().out)]
    assert (comparison["conditions"]["cache"], comparison["missing_operators"]) == ("chained", 0)


@pytest.mark.usefixtures("compared")
@pytest.mark.parametrize(
    ("script", "options", "remedy"),
    [
        ("general_pipeline_block2.py", ("--cache", "cold"), "--device cuda"),
        ("general_pipeline_block2.py", ("--meter", "samples"), "available: "),
        ("full_model_measurement.py", ("--meter", "samples"), "available: "),
    ],
)
def test_what_a_cpu_has_not_is_one_line(
    project: Project, monkeypatch: pytest.MonkeyPatch, script: str, options: tuple[str, ...], remedy: str
) -> None:
    with pytest.raises(UserError) as mistake:
        project.main(monkeypatch, script, "a_resnet", "--seconds", "0.05", *options)
    (line,) = mistake.value.lines
    assert line.startswith(" ".join(options) + ": ")
    assert remedy in line


def test_all_mistakes_in_yaml_are_one_line_each_and_status_2(tmp_path: Path) -> None:
    project = new_project(tmp_path, MODELS)
    summary = project.measurements / "a_resnet" / "summary.yml"
    summary.write_text("model_name: resnet18\nmodel_name: resnet18\nsize: 3\nweights_name: null\ninput_size: [2]\n")
    (project.measurements / "b_same" / "summary.yml").unlink()
    result = project.run("general_pipeline_block1.py", "--json")
    assert (result.returncode, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert all(line.startswith(f"error: {project.measurements}") for line in lines)
    assert len([line for line in lines if line.startswith(f"error: {summary}:")]) == 3
    assert len([line for line in lines if "b_same" in line]) == 1
    assert len(lines) == 4


@pytest.mark.usefixtures("compared")
def test_a_named_model_without_a_whole_ends_in_status_1(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = project.copied_to(tmp_path)
    copied.database.full_model_measurements.path.unlink()
    assert copied.main(monkeypatch, "compare_sum_vs_full.py") == 0
    assert copied.main(monkeypatch, "compare_sum_vs_full.py", "a_resnet") == 1
    assert "the whole model is not measured on cpu; run " in capsys.readouterr().out


@pytest.mark.usefixtures("compared")
def test_advice_names_what_the_whitelist_lacks_and_writes_one_that_lacks_nothing(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = project.copied_to(tmp_path)
    assert copied.main(monkeypatch, "compare_sum_vs_full.py", "--coverage-target", "0.9", "--json") == 1
    (advice,) = json.loads(capsys.readouterr().out)
    assert [model["name"] for model in advice["models"]] == sorted(MODELS)
    assert any(model["additions"] for model in advice["models"])
    assert len(advice["smallest"]) > 1
    assert copied.main(monkeypatch, "compare_sum_vs_full.py", "--coverage-target", "0.9", "--write-whitelist") == 0
    assert "written: " in capsys.readouterr().out
    assert copied.main(monkeypatch, "general_pipeline_block1.py") == 0
    assert copied.main(monkeypatch, "compare_sum_vs_full.py", "--coverage-target", "0.9") == 0


@pytest.mark.parametrize("option", [["--cache", "chained"], ["--counted", "leaf"], ["--figures", "figures"]])
def test_advice_refuses_what_only_comparisons_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    project = new_project(tmp_path, MODELS)
    with pytest.raises(SystemExit, match="^2$"):
        project.main(monkeypatch, "compare_sum_vs_full.py", "--coverage-target", "0.9", *option)
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("error: --coverage-target ")
    assert option[0] in errors


def test_figures_are_drawn_beside_the_comparison(
    project: Project, compared: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    result = project.run("compare_sum_vs_full.py", "a_resnet", "--figures", str(tmp_path / "figures"))
    assert result.returncode == 0, result.stderr
    drawn = list((tmp_path / "figures").glob("*.svg"))
    assert {path.name for path in drawn} == {"parity.svg", "operators.svg", "errors.svg"}
    (written,) = [line for line in result.stderr.splitlines() if line.startswith("written: ")]
    assert all(str(path) in written for path in drawn)


def test_nothing_is_drawn_in_a_dry_run_and_that_is_reported(
    project: Project, compared: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    figures, report = tmp_path / "figures", tmp_path / "report.html"
    wanted = ("--figures", str(figures), "--report", str(report))
    result = project.run("compare_sum_vs_full.py", "a_resnet", "--dry-run", *wanted)
    assert result.returncode == 0, result.stderr
    assert f"dry run: not written: {figures}, {report}\n" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_figures_into_a_file_are_refused_before_anything_is_compared(project: Project, tmp_path: Path) -> None:
    (tmp_path / "figures").write_text("mine")
    result = project.run("compare_sum_vs_full.py", "a_resnet", "--figures", str(tmp_path / "figures"))
    assert (result.returncode, result.stdout) == (2, "")
    assert "figures is a file; name a folder" in result.stderr
    assert (tmp_path / "figures").read_text() == "mine"


def test_figures_without_matplotlib_are_refused_before_anything_is_written(
    project: Project, whole: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    assert whole.returncode == 0
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('gone', name='matplotlib')\n")
    table = project.database.sum_vs_full.path
    before = table.read_bytes() if table.exists() else None
    figures = tmp_path / "figures"
    result = project.run("compare_sum_vs_full.py", "a_resnet", "--figures", str(figures), PYTHONPATH=str(tmp_path))
    assert result.returncode == 2
    assert "pip install 'opcost[figures]'" in result.stderr
    assert not figures.exists()
    assert (table.read_bytes() if table.exists() else None) == before


def test_only_figures_need_matplotlib(
    project: Project, whole: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    assert whole.returncode == 0
    copied = project.copied_to(tmp_path / "copy")
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('gone', name='matplotlib')\n")
    page = tmp_path / "report.html"
    result = copied.run("compare_sum_vs_full.py", "a_resnet", "--report", str(page), PYTHONPATH=str(tmp_path))
    written = f"rows in: {copied.database.sum_vs_full.path}\nwritten: {page}\n"
    assert (result.returncode, result.stderr) == (0, written)
    assert page.exists()


def test_a_whitelist_is_not_written_without_a_target(tmp_path: Path) -> None:
    result = new_project(tmp_path, MODELS).run("compare_sum_vs_full.py", "--write-whitelist")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: --write-whitelist needs --coverage-target, such as 0.9; see ")


def test_a_name_that_no_folder_has_gets_a_suggestion_and_status_2(tmp_path: Path) -> None:
    project = new_project(tmp_path, MODELS)
    result = project.run("compare_sum_vs_full.py", "a_resnit", "zzz*")
    assert (result.returncode, result.stdout) == (2, "")
    first, second = result.stderr.splitlines()
    assert "did you mean a_resnet" in first
    assert "'zzz*'" in second
