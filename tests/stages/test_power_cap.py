"""opcost power-cap on a library that plays NVML: consent, rights, dry runs, and the sweep of a command."""

import csv
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import nvml_stage
import pytest
import warm_python
from simulated_apparatus import RecordedProgress
from simulated_caps import SimulatedLimit
from simulated_machine import Load, SimulatedWorkload
from simulated_sweep import SimulatedSweep

from opcost.errors import UserError
from opcost.metering.cap_rows import Objective, PowerCapRow, Wish
from opcost.stages.cap_models import open_model
from opcost.stages.power_cap import CapBoard, CapJob, CappedWork, CapSweepPlan
from opcost.storage.database import Database

ROOT = Path(__file__).parents[2]
CONSENT = "--allow-power-limit"
# The path of libraries in the environment is read when a Python starts, which a warm one has done.
PROGRAM = """
import ctypes, sys
library = sys.argv.pop(1)
if library:
    ctypes.CDLL(library)
from opcost.__main__ import start
start()
"""
WORK = ("sleep", "0.4")


@dataclass
class Stage:
    """A folder with the limit of a card in mW, and the words of its faults."""

    folder: Path
    library: Path | None

    @property
    def limit_mw(self) -> int:
        return int((self.folder / "limit").read_text())

    def fail(self, words: str) -> None:
        (self.folder / "faults").write_text(words)

    def run(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        environment = {
            **{name: value for name, value in os.environ.items() if name != "OPCOST_ALLOW_POWER_LIMIT"},
            "PYTHONPATH": str(ROOT),
            "LD_LIBRARY_PATH": str(self.library or ""),
            "FAKE_NVML_LIMIT": str(self.folder / "limit"),
            "FAKE_NVML_FAULTS": str(self.folder / "faults"),
            "TMPDIR": str(self.folder),
            **variables,
        }
        library = "" if self.library is None else str(self.library / nvml_stage.LIBRARY)
        command = [sys.executable, "-c", PROGRAM, library, "power-cap", "--home", "home", *arguments]
        done = warm_python.run(command, self.folder, environment, timeout=120)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_stage.build(tmp_path_factory.mktemp("nvml") / "library", ())


@pytest.fixture
def stage(library: Path, tmp_path: Path) -> Stage:
    (tmp_path / "limit").write_text("650000")
    return Stage(tmp_path, library)


def test_a_command_is_swept_and_the_old_limit_comes_back(stage: Stage) -> None:
    words = ("--figure", "caps.svg", "--output", "caps.csv", "--objective", "edp")
    status, output, errors = stage.run(*words, "--", *WORK, OPCOST_ALLOW_POWER_LIMIT="1")
    assert status == 0, errors
    assert stage.limit_mw == 650000
    with (stage.folder / "caps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    caps = [float(row["cap_w"]) for row in rows]
    assert (caps[0], caps[-1], min(caps), max(caps)) == (650.0, 650.0, 200.0, 650.0)
    assert len(set(caps)) >= 8
    assert all(float(row["power_w"]) == pytest.approx(400.0, rel=0.05) for row in rows)
    assert {row["work"] for row in rows} == {" ".join(WORK)}
    assert {row["device_uuid"] for row in rows} == {nvml_stage.UUID[:12]}
    assert (stage.folder / "home" / "database" / "power_caps.csv").is_file()
    assert (stage.folder / "caps.svg").stat().st_size > 1000
    assert "time and energy under power caps" in output
    assert "650 W is set." in output


def test_a_command_that_fails_ends_the_sweep(stage: Stage) -> None:
    program = "import sys, pathlib; sys.exit(3 if pathlib.Path('ran').exists() else pathlib.Path('ran').touch())"
    status, _, errors = stage.run(CONSENT, "--", sys.executable, "-c", f"import time; time.sleep(0.3); {program}")
    assert status == 2
    assert "ended with status 3; the sweep ends" in errors
    assert stage.limit_mw == 650000


@pytest.mark.parametrize("variables", [{}, {"OPCOST_ALLOW_POWER_LIMIT": "no"}])
def test_nothing_runs_and_nothing_is_set_without_consent(stage: Stage, variables: dict[str, str]) -> None:
    status, _, errors = stage.run("--", "touch", "ran", **variables)
    assert status == 2
    (line,) = errors.splitlines()
    assert "only if the card's owner has agreed" in line
    assert not (stage.folder / "ran").exists()
    assert stage.limit_mw == 650000


def test_nothing_runs_without_the_right(stage: Stage) -> None:
    stage.fail("nvmlDeviceSetPowerManagementLimit=4")
    status, _, errors = stage.run(CONSENT, "--", "touch", "ran")
    assert status == 2
    (line,) = errors.splitlines()
    assert "no right to set its power limit" in line
    assert not (stage.folder / "ran").exists()


def test_mig_shares_a_limit_and_is_refused(stage: Stage) -> None:
    stage.fail("mig=1")
    status, _, errors = stage.run(CONSENT, "--", "touch", "ran")
    assert (status, "share one power limit (MIG is on" in errors) == (2, True)


def test_a_dry_run_shows_the_caps_and_sets_nothing(stage: Stage) -> None:
    stage.fail("nvmlDeviceSetPowerManagementLimit=4")
    status, output, errors = stage.run("--dry-run", "--json", "--", "true")
    assert status == 0, errors
    plan = json.loads(output)
    assert (plan["found_limit_w"], plan["caps_w"][0], plan["caps_w"][-1]) == (650.0, 200.0, 650.0)
    assert (plan["repetitions"], plan["measurements"]) == (1, 13)


def test_a_dry_run_of_a_model_says_what_rows_know_without_a_gpu(stage: Stage) -> None:
    stage.library = None
    status, output, errors = stage.run("mobilenet_v3_small", "--dry-run", "--device", "H200", "--json")
    assert status == 0, errors
    plan = json.loads(output)
    assert plan["device"] == "NVIDIA H200"
    assert plan["caps_w"] is None
    assert 100 < plan["power_at_full_clocks_w"] < plan["full_clocks_limit_w"] == 700.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name one model, or a command after --"),
        (("resnet50", "resnet18"), "name one model, or a command after --"),
        (("resnet50", "--device", "H200"), "not a GPU here"),
        ((CONSENT, "resnet18"), "no GPU of this name"),
        ((CONSENT, "--", "true"), "no GPU of this name"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    status, _, errors = Stage(tmp_path, None).run(*words)
    assert status == 2
    (line,) = errors.splitlines()
    assert message in line


def test_files_that_cannot_be_written_are_refused_before_anything_runs(stage: Stage) -> None:
    for words in (("--figure", "caps.doc"), ("--output", "nowhere/caps.csv")):
        status, _, errors = stage.run(CONSENT, *words, "--", "touch", "ran")
        assert status == 2
        assert words[1] in errors
    assert not (stage.folder / "ran").exists()


# A model as the work of a power-cap sweep, on the simulated machine, whose power follows the cap


FREE_W, FULL_W = 400.0, 500.0
"""The model's time rises below the first, its power without a cap is the second."""


class LimitOfLoads(SimulatedLimit):
    """A limit that changes the load of a workload on the simulated machine."""

    def __init__(self, workload: SimulatedWorkload) -> None:
        super().__init__()
        self._workload = workload

    def set_w(self, power_w: float) -> None:
        super().set_w(power_w)
        self._workload.load = Load(0.004 * max(1.0, FREE_W / power_w), min(power_w, FULL_W))


def test_a_model_is_built_once_and_measured_at_each_cap(tmp_path: Path) -> None:
    sweep = SimulatedSweep(tmp_path, {32: Load(0.004, FULL_W)})
    request, config = sweep.campaign.request(), sweep.sweep.points[0].config
    table = Database(tmp_path / "caps").power_caps
    with open_model(request, config, uuid_in(sweep), 0.5, sweep.open_bench) as work:
        limit = LimitOfLoads(work.bench._held.workload)
        board = CapBoard("cuda:0", "GPU-1", lambda: pytest.fail("no limit is opened here"))
        plan = CapSweepPlan(Wish(Objective.ED2P), 1, 4)
        found = CapJob(board, CappedWork(limit, work), plan, table.append).carry_out(RecordedProgress())
    assert sweep.built == [32]
    assert found.work == config.name
    rows: list[PowerCapRow] = table.rows()
    assert rows == list(found.rows)
    assert limit.set_caps_w == [row.cap_w for row in rows]
    # Caps far above the power of a steady load are left out.
    assert max(row.cap_w for row in rows[1:-1]) == pytest.approx(1.05 * FULL_W, abs=3)
    assert found.proposal.cap_w == pytest.approx(FREE_W, rel=0.03)
    assert found.proposal.energy_ratio == pytest.approx(FREE_W / FULL_W, rel=0.03)


def test_another_board_than_the_one_whose_limit_is_set_is_refused(tmp_path: Path) -> None:
    sweep = SimulatedSweep(tmp_path, {32: Load(0.004, FULL_W)})
    request, config = sweep.campaign.request(), sweep.sweep.points[0].config
    opening = open_model(request, config, "GPU-another", 0.5, sweep.open_bench)
    with pytest.raises(UserError, match="number the GPUs in different orders"), opening:
        pass


def test_a_model_that_cannot_be_built_is_one_line(tmp_path: Path) -> None:
    sweep = SimulatedSweep(tmp_path, {}, failing={32: "out of memory"})
    request, config = sweep.campaign.request(), sweep.sweep.points[0].config
    opening = open_model(request, config, uuid_in(sweep), 0.5, sweep.open_bench)
    with pytest.raises(UserError, match="cannot be built: out of memory"), opening:
        pass


def uuid_in(sweep: SimulatedSweep) -> str:
    """Return the UUID of the simulated board."""
    from opcost.measuring.protocol import protocol_for

    with sweep.open_bench(None, sweep.database, True) as bench:
        return bench.circumstances(protocol_for(True, 1.0)).device_uuid
