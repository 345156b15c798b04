"""A campaign whose bench is in another process: what a fault there costs. Benches are simulated, processes are real."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import fields, replace
from functools import partial
from itertools import count, islice
from pathlib import Path

import pytest
from fatal_bench import (
    BUG,
    FATALS,
    HANGING_IN_ITS_LOOP,
    HANGING_WHILE_BUILT,
    LARGE,
    LIFE_S,
    LOAD,
    LONG,
    fatal_answering,
    operator,
)
from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import SIMULATED_CONDITIONS

from opcost.columns import values_of
from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import StepTimes
from opcost.measuring.setting import Setting
from opcost.operators.counts import Case
from opcost.running import bench as bench_module
from opcost.running.bench import (
    BUILDING,
    CPU_PATIENCE,
    FACTS,
    FAULTS_IN_A_ROW,
    INTERVAL_S,
    LOOPING,
    READING_METERS,
    STEPS,
    USUAL_LIMITS,
    WARMING_UP,
    Heartbeat,
    Limits,
    Question,
    open_child_bench,
)
from opcost.running.worker_process import ChildFaultError
from opcost.stages.measure_operators import OperatorsReport, measure_operators
from opcost.storage.database import Database

ROOT = Path(__file__).parents[2]
SHORT = MeasurementProtocol(0.5, 1.0)
RELU, GELU = operator("ReLU"), operator("GELU")


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "answering", fatal_answering)


def run(campaign: SimulatedCampaign, device: str | None = None, limits: Limits = USUAL_LIMITS) -> OperatorsReport:
    request = campaign.request(device=device)
    bench = partial(open_child_bench, limits=limits)
    (report,) = measure_operators(request, lambda _: SHORT, bench, RecordedProgress())
    return report


def test_a_bench_in_another_process_measures_as_one_here(tmp_path: Path) -> None:
    campaign = SimulatedCampaign(tmp_path, {})
    campaign.add_model("a", {RELU: 3, GELU: 1})
    report = run(campaign)
    assert (report.wanted, report.measured, report.failed) == (2, 2, 0)
    for row in campaign.database.operator_measurements.rows():
        assert row.measurement.time_s == pytest.approx(LOAD.time_s)
        assert row.measurement.energy_j == pytest.approx(LOAD.energy_j, rel=0.01)
        assert row.conditions == SIMULATED_CONDITIONS
        assert row.circumstances.loop_s == 1.0


def test_an_operator_that_ends_the_process_costs_only_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    campaign = SimulatedCampaign(tmp_path, {})
    campaign.add_model("a", {RELU: 1, FATALS[0]: 1, LARGE: 1, BUG: 1, GELU: 1})
    report = run(campaign)
    assert (report.wanted, report.measured, report.failed, report.remaining) == (5, 2, 3, 3)
    reasons = {row.operator: row.reason for row in campaign.database.failures.rows()}
    assert reasons == {
        "torch.nn.Fatal": "it ended the measuring process: ended by SIGKILL",
        "torch.nn.Large": "out of memory",
        "torch.nn.Bug": "it ended the measuring process: ZeroDivisionError: a bug",
    }
    # A bug shows its traceback wherever it happens.
    assert "in measure" in caplog.text


def test_a_qualification_is_written_once_and_by_this_process_alone(tmp_path: Path) -> None:
    """The child knows it after a restart, too."""
    campaign = SimulatedCampaign(tmp_path, {})
    campaign.add_model("a", {RELU: 1, FATALS[0]: 1, GELU: 1})
    for _ in range(2):
        run(campaign)
    assert [row.device_uuid for row in campaign.database.meter_qualifications.rows()] == ["simulated-0"]


def test_a_device_that_ends_every_process_ends_the_run(tmp_path: Path) -> None:
    campaign = SimulatedCampaign(tmp_path, {})
    campaign.add_model("a", {RELU: 1} | dict.fromkeys(FATALS, 1) | {GELU: 1})
    with pytest.raises(UserError, match=f"^{FAULTS_IN_A_ROW} operators in a row ended the measuring process"):
        run(campaign)
    rows = campaign.database.operator_measurements.rows()
    assert [row.operator for row in rows] == ["torch.nn.ReLU"]
    assert len(campaign.database.failures.rows()) == FAULTS_IN_A_ROW
    # A failed case comes last in the next run, so the rest is measured first.
    with pytest.raises(UserError):
        run(campaign)
    rows = campaign.database.operator_measurements.rows()
    assert [row.operator for row in rows] == ["torch.nn.ReLU", "torch.nn.GELU"]


def test_operators_that_were_killed_are_tried_again_without_ending_the_run(tmp_path: Path) -> None:
    campaign = SimulatedCampaign(tmp_path, {})
    campaign.add_model(
        "a", {operator(name, width): 1 for width in range(FAULTS_IN_A_ROW) for name in ("Fatal", "Mish")}
    )
    report = run(campaign)
    assert (report.measured, report.failed) == (FAULTS_IN_A_ROW, FAULTS_IN_A_ROW)


class PlayedChild:
    """Plays ``ChildProcess``: a fatal operator ends it, and it can be entered again."""

    def __init__(self, *_: object) -> None:
        self.starts = 0

    def __enter__(self) -> PlayedChild:
        self.starts += 1
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to end."""

    def ask(self, question: Question, limits_s: object = None) -> object:
        if question[0] == FACTS:
            return "cuda:0", True, True, None, ()
        if question[1][0].operator.short_name == "Fatal":
            raise ChildFaultError("ended by SIGKILL")
        return "measured"


def test_operators_that_end_the_process_are_counted_again_after_each_that_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So that a model of which every second operator is fatal is measured. One that is fatal again is not counted."""
    monkeypatch.setattr(bench_module, "ChildProcess", PlayedChild)
    fatals = (Case(operator("Fatal", width)) for width in count())
    with open_child_bench(None, Database(tmp_path), True) as bench:
        for faults in (1, FAULTS_IN_A_ROW - 1, FAULTS_IN_A_ROW - 1):
            for fatal in islice(fatals, faults):
                for _ in range(FAULTS_IN_A_ROW):
                    with pytest.raises(CannotMeasureError, match="it ended the measuring process: ended by SIGKILL"):
                        bench.measure(fatal, Setting("fp32"), SHORT, "log")
            assert bench.measure(Case(RELU), Setting("fp32"), SHORT, "log") == "measured"
        for _ in range(FAULTS_IN_A_ROW - 1):
            with pytest.raises(CannotMeasureError):
                bench.measure(next(fatals), Setting("fp32"), SHORT, "log")
        with pytest.raises(UserError, match="operators in a row"):
            bench.measure(next(fatals), Setting("fp32"), SHORT, "log")


def test_what_hangs_costs_the_limit_of_its_step_and_what_takes_long_is_measured(tmp_path: Path) -> None:
    campaign = SimulatedCampaign(tmp_path, {})
    campaign.add_model("a", {HANGING_WHILE_BUILT: 1, HANGING_IN_ITS_LOOP: 1, LONG: 1})
    begin_s = time.monotonic()
    report = run(campaign, limits=Limits(building_s=1.0, running_s=4 * LIFE_S))
    assert report.steps_s[BUILDING] >= 1.0
    assert report.steps_s[LOOPING] >= 4 * LIFE_S + 8 * LIFE_S
    assert sum(report.steps_s.values()) <= report.taken_s
    (row,) = campaign.database.operator_measurements.rows()
    taken_s, *steps_s = (time_s or 0.0 for time_s in values_of(row.step_times))
    assert row.step_times.looping_s == pytest.approx(8 * LIFE_S, rel=0.5)
    assert sum(steps_s) == pytest.approx(taken_s, rel=0.1)
    # A long case takes eight signs of life.
    assert time.monotonic() - begin_s < 30
    assert (report.measured, report.failed) == (1, 2)
    reasons = {row.operator: row.reason for row in campaign.database.failures.rows()}
    ended = "it ended the measuring process: silent for 1 s while"
    assert reasons == {
        "torch.nn.HangingWhileBuilt": f"{ended} {BUILDING}",
        "torch.nn.HangingInItsLoop": f"{ended} {LOOPING}",
    }


def test_a_row_has_a_column_for_each_step() -> None:
    assert {field.name for field in fields(StepTimes)} == {f"{step.replace(' ', '_')}_s" for step in ("taken", *STEPS)}


def test_a_hang_costs_three_minutes_at_most_on_a_gpu_a_cpu_takes_longer_and_so_does_building_a_model() -> None:
    assert max(USUAL_LIMITS.steps_s(is_model=False, is_gpu=True).values()) + INTERVAL_S < 180
    assert USUAL_LIMITS.building_model_s > USUAL_LIMITS.building_s
    assert CPU_PATIENCE > 1
    limits = Limits(building_s=1.0, building_model_s=10.0, running_s=2.0)
    for is_model, building_s in ((True, 10.0), (False, 1.0)):
        for is_gpu, patience in ((True, 1.0), (False, CPU_PATIENCE)):
            found = limits.steps_s(is_model, is_gpu)
            assert tuple(found) == STEPS
            assert found == {step: patience * (building_s if step == BUILDING else 2.0) for step in STEPS}


def test_an_apparatus_reports_each_step(tmp_path: Path) -> None:
    campaign = SimulatedCampaign(tmp_path, {RELU: LOAD})
    reported: list[str] = []
    with campaign.open_apparatus(None, campaign.database, True) as apparatus:
        observed = replace(apparatus, observers=(Heartbeat(reported.append),))
        campaign.before = lambda _: reported.append("built")
        for _ in range(2):
            observed.measure(Case(RELU), Setting("fp32"), SHORT, "log")
    assert reported == [BUILDING, "built", WARMING_UP, LOOPING, READING_METERS] * 2


def test_a_step_that_goes_on_is_reported_now_and_then() -> None:
    reported: list[tuple[float, str]] = []
    seconds = 0.0
    heartbeat = Heartbeat(lambda step: reported.append((seconds, step)), lambda: seconds)
    for hundredth in range(1200):
        seconds = hundredth / 100
        if hundredth < 10:
            heartbeat.before_build()
        else:
            heartbeat.during()
    assert reported == [(0.0, BUILDING), (0.1, WARMING_UP), (5.1, WARMING_UP), (10.1, WARMING_UP)]


def test_a_device_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    campaign = SimulatedCampaign(tmp_path, {})
    campaign.add_model("a", {RELU: 1})
    with pytest.raises(UserError, match="no such GPU"):
        run(campaign, "cuda:9")


# The steps of block 2 and its measuring process, in one process that prints at three moments what it has imported.
PROGRAM = """
import itertools, sys
from pathlib import Path
from opcost.running import bench
from opcost.stages import measure_operators
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.setting import Setting
from opcost.operators.counts import Case
from opcost.storage.database import Database

RELU = OperatorTuple("torch.nn.ReLU", (), (TensorSpec((4,), "float32"),))
BOXES = TensorSpec((4, 4), "float32"), TensorSpec((4,), "float32", identity=1), 0.5
NMS = OperatorTuple("torch.ops.torchvision.nms", (), BOXES, mode=None)

reported = []

def show():
    print(*[name for name in ("torch", "torch._dynamo", "torchvision") if name in sys.modules], sep=",")

show()
with bench.answering("cpu", Database(Path(sys.argv[1])), False, (), report_step=reported.append) as answer:
    protocol = MeasurementProtocol(0.01, 0.05)
    answer(("circumstances", (protocol,)))
    for operator in (RELU, NMS):
        answer(("measure", (Case(operator), Setting("fp32"), protocol, "log")))
        show()
# A step of several seconds is reported repeatedly.
print(*[step for step, _ in itertools.groupby(reported)])
"""


def test_only_what_needs_torchvision_waits_for_it(tmp_path: Path) -> None:
    """It takes seconds to import, as torch's compiler does; without it torch does not know operators of its own."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    *imported, reported = result.stdout.splitlines()
    assert imported == ["", "torch", "torch,torch._dynamo,torchvision"]
    # The knowledge of the asking process about one that hangs; on a busy machine some are measured again.
    assert reported.replace(" ".join(STEPS), "").split() == []
    assert reported.count("building") >= 2
