"""The scripts themselves, one after the other on tiny models: whole commands, real torch, the CPU.

Block 0 and the interrupted block 2 are processes of their own, as users start them.
"""

import signal
import subprocess
import time
from dataclasses import replace

import pytest
from pipeline_project import SUMMARY, Project, assert_measured_again_if_disturbed, new_project, objects

from opcost.command.run import RUN_LOGS
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.storage.counts_file import read_counts, write_counts

MODELS = {"a_resnet": "resnet18", "b_same": "resnet18", "c_squeezenet": "squeezenet1_1"}
UNMEASURABLE = OperatorTuple(
    "torch.nn.Linear", (("in_features", 3), ("out_features", 4)), (TensorSpec((2, 5), "float32"),)
)
"""Its input is wider than its weights: torch refuses it."""


# Each step is a run on top of the one before.


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return new_project(tmp_path_factory.mktemp("project"), MODELS)


@pytest.fixture(scope="module")
def counted(project: Project) -> subprocess.CompletedProcess[str]:
    return project.process("general_pipeline_block0.py", "--json")


@pytest.fixture(scope="module")
def filtered(project: Project, counted: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    return project.result("general_pipeline_block1.py", "--json")


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
    return project.result("general_pipeline_block2.py", "--seconds", "0.05", "--json")


@pytest.fixture(scope="module")
def whole(project: Project, resumed: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    return project.result("full_model_measurement.py", "a_resnet", "c_*", "--seconds", "0.05", "--json")


@pytest.fixture(scope="module")
def compared(project: Project, whole: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    return project.result("compare_sum_vs_full.py", "--json")


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
    # Their names have whole seconds, and two runs may begin in one.
    paths = sorted((project.database.folder / RUN_LOGS).iterdir(), key=lambda path: path.stat().st_mtime_ns)
    logs = [path.read_text() for path in paths]
    begins = [log.splitlines()[0].partition("begins: python ")[2].split()[0] for log in logs]
    measuring = ["general_pipeline_block2.py", "general_pipeline_block2.py", "full_model_measurement.py"]
    assert begins == [*measuring, "compare_sum_vs_full.py"]
    ends = [log.splitlines()[-1].partition("ended with status ")[2] for log in logs]
    # The others are no processes of their own, whose end is logged.
    assert ends[0] == "130"
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
