"""An apparatus around the simulated machine, and models made of operators with declared costs.

campaign = SimulatedCampaign(tmp_path, {RELU: Load(time_s=0.001, power_w=300.0)})
campaign.add_model("small", {RELU: 3})
reports = measure_operators(campaign.request(), lambda _: protocol, campaign.open_apparatus, progress)
"""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fatal_bench import WAITING, operator
from simulated_machine import (
    SIMULATED_CIRCUMSTANCES,
    SIMULATED_CONDITIONS,
    Device,
    Load,
    MeterModel,
    SimulatedMachine,
    SimulatedPair,
)

from opcost.comparing.model_result import USUAL_RUNS, OperatorRuns
from opcost.measuring.conditions import GRAPH, Circumstances, Conditions, is_gpu
from opcost.measuring.known_device import GPU_REPEATABILITY, KnownDevice, Repeatability
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.setting import Setting
from opcost.measuring.workload import Workload
from opcost.meters.opening import Meters, no_meters
from opcost.operators.counts import Case, OperatorCount, OperatorCounts
from opcost.operators.tuples import OperatorTuple
from opcost.progress import Progress
from opcost.running.apparatus import Apparatus, Rest
from opcost.running.request import RunRequest
from opcost.stages.compare import ComparingReport, find_comparisons, keep_comparisons
from opcost.storage.configs import WHITELIST, ModelConfig, ModelFolders, model_tuple
from opcost.storage.counts_file import write_counts
from opcost.storage.database import Database
from opcost.storage.model_counts import COUNTS, FILTERED_COUNTS

FLOP = 100
EVICTION = Load(time_s=1e-4, jitter_ratio=0.001)
SUMMARY = """\
# {name}: a comment that stays
model_name: resnet18   # the real one
weights_name: null
input_size: [{batch}, 3, 8, 8]
done: {done}   # set by programs
precision: {precision}
"""


@dataclass
class SimulatedCampaign:
    """Folders with models, one simulated machine, and a record of what was built on it.

    ``loads`` are those on normal values, ``loads_on`` those on others, ``loads_in`` those in states. ``state_ratios``
    are the times of an operator's builds over its declared time, in turn. ``before`` is called with each operator
    before it is built; it may raise.
    """

    folder: Path
    loads: Mapping[OperatorTuple, Load]
    loads_on: Mapping[Case, Load] = field(default_factory=dict)
    loads_in: Mapping[tuple[OperatorTuple, str], Load] = field(default_factory=dict)
    state_ratios: Mapping[OperatorTuple, Sequence[float]] = field(default_factory=dict)
    device: str = "cuda:0"
    conditions: Conditions = SIMULATED_CONDITIONS
    meter: MeterModel = field(default_factory=MeterModel)
    has_meter: bool = True
    drift_case: Case | None = None
    meter_names: tuple[str, ...] = ("simulated",)
    before: Callable[[OperatorTuple], None] = lambda _: None
    built: list[OperatorTuple] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    with_meter: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine = SimulatedMachine(device=Device(white_noise_w=2.0), meter=self.meter, seed=1)
        self.measurements.mkdir(exist_ok=True)
        whitelist = self.measurements / WHITELIST
        if not whitelist.exists():
            whitelist.write_text('operators: ["*"]\n')

    @property
    def measurements(self) -> Path:
        return self.folder / "measurements"

    @property
    def database(self) -> Database:
        return Database(self.folder / "database")

    def request(self, *names: str, dry_run: bool = False, device: str | None = None) -> RunRequest:
        return RunRequest(names, ModelFolders(self.measurements), self.database, device, dry_run=dry_run)

    def add_model(
        self,
        name: str,
        occurrences: Mapping[OperatorTuple, int],
        batch: int = 2,
        precision: str = "torch-default",
        done: bool = False,
    ) -> ModelConfig:
        """Write a model's ``summary.yml`` and the counts that blocks 0 and 1 would make."""
        path = self.measurements / name / "summary.yml"
        path.parent.mkdir()
        path.write_text(SUMMARY.format(name=name, batch=batch, precision=precision, done=str(done).lower()))
        (config,) = ModelFolders(self.measurements).configs([name])
        counts = tuple(OperatorCount(operator, number, FLOP, FLOP) for operator, number in occurrences.items())
        whole = FLOP * sum(occurrences.values())
        write_both(config, OperatorCounts(model_tuple(config), counts, whole, whole, 7, "2.11.0", "cuda"))
        return config

    @contextmanager
    def open_apparatus(self, device: str | None, database: Database, with_meter: bool) -> Iterator[Apparatus]:
        """Play ``opcost.running.apparatus.open_apparatus``."""
        self.with_meter.append(with_meter)
        yield Apparatus(
            device=self.device,
            clock=self.machine,
            meters=Meters(lambda _: self.machine, lambda _: self.machine, names=self.meter_names)
            if with_meter
            else no_meters(self.device),
            workload=self._workload,
            conditions_of=self._conditions,
            circumstances=circumstances,
            has_meter=self.has_meter,
            known=KnownDevice(
                None,
                self.conditions.device_power_limit_w,
                GPU_REPEATABILITY if is_gpu(self.device) else Repeatability(),
            ),
            pause=self.machine.idle,
            rest=Rest(self.machine, self.machine.idle),
            drift_case=self.drift_case,
        )

    def _conditions(self, setting: Setting) -> Conditions:
        execution = setting.execution or self.conditions.execution
        return replace(self.conditions, precision=setting.precision, execution=execution, cache=setting.cache)

    @contextmanager
    def _workload(self, case: Case, setting: Setting, duty_cycle: float = 1.0) -> Iterator[Workload]:
        self.settings.append(setting)
        self.before(case.operator)
        load = self.loads_on.get(case, self.loads[case.operator])
        if case.state:
            self.built.append(case.operator)
            pair = SimulatedPair(self.machine, self.loads_in[case.operator, case.state], EVICTION)
            pair.execution = GRAPH
            yield pair
            return
        states = self.state_ratios.get(case.operator, (1.0,))
        state_ratio = states[self.built.count(case.operator) % len(states)]
        self.built.append(case.operator)
        workload = self.machine.workload(replace(load, time_s=state_ratio * load.time_s), duty_cycle)
        workload.execution = self._conditions(setting).execution
        yield workload


def campaign_of(folder: Path, name: str, tuples: int) -> SimulatedCampaign:
    """Return a campaign of one model, whose operators have the name of one of ``fatal_bench``."""
    folder.mkdir(parents=True, exist_ok=True)
    campaign = SimulatedCampaign(folder, {})
    campaign.add_model("a", {operator(name, width): 1 for width in range(1, tuples + 1)})
    return campaign


def endless_campaign_of(folder: Path, tuples: int) -> SimulatedCampaign:
    """Return a campaign whose second half no worker measures before ``end_midway`` has ended the client."""
    campaign = SimulatedCampaign(folder, {})
    names = ["Slow"] * (tuples - tuples // 2) + ["Waiting"] * (tuples // 2)
    campaign.add_model("a", {operator(name, width): 1 for width, name in enumerate(names, 1)})
    campaign.database.folder.mkdir()
    (campaign.database.folder / WAITING).touch()
    return campaign


def end_midway(campaign: SimulatedCampaign, client: subprocess.Popen[bytes], sent: signal.Signals) -> int:
    """Send a signal to a client once it has some rows, and return how many it has at its end."""
    table = campaign.database.operator_measurements.path
    while client.poll() is None and not (table.exists() and table.read_text().count("\n") > 5):
        time.sleep(0.01)
    client.send_signal(sent)
    client.wait(30)
    (campaign.database.folder / WAITING).unlink()
    return len(campaign.database.operator_measurements.rows())


def compare_models(request: RunRequest, runs: OperatorRuns = USUAL_RUNS) -> list[ComparingReport]:
    """Compare as the script does."""
    reports = find_comparisons(request, runs)
    if not request.dry_run:
        keep_comparisons(request, reports)
    return reports


def write_both(config: ModelConfig, counts: OperatorCounts) -> None:
    """Pickle counts as blocks 0 and 1 do where the whitelist leaves out nothing."""
    for kind in (COUNTS, FILTERED_COUNTS):
        write_counts(kind.path(config), counts)


class RecordedProgress(Progress):
    """Keeps what is reported to it."""

    def __init__(self) -> None:
        self.items: list[int] = []
        self.expected_s: Sequence[float] = ()
        self.names: list[str] = []
        self.results: list[str] = []
        self.ended = 0

    def start(self, items: int, expected_s: Sequence[float] = (), workers: int = 1) -> None:
        self.items.append(items)
        self.expected_s = expected_s

    def begin(self, name: str, worker: str = "") -> None:
        self.names.append(name)

    def finish(self, result: str, worker: str = "") -> None:
        self.results.append(result)

    def fail(self, reason: str, worker: str = "") -> None:
        self.results.append(f"failed: {reason}")

    def end(self) -> None:
        self.ended += 1


def circumstances(protocol: MeasurementProtocol) -> Circumstances:
    loop_s = protocol.loop_s if protocol.relative_error is None else None
    return replace(
        SIMULATED_CIRCUMSTANCES, warm_up_s=protocol.warm_up_s, loop_s=loop_s, relative_error=protocol.relative_error
    )


def change_by_hand(path: Path, old: str, new: str) -> None:
    """Change a table as people do who know that its checksums are to be emptied then."""
    header, *lines = path.read_text().splitlines()
    changed = [line.replace(old, new).rpartition(",")[0] + "," for line in lines]
    path.write_text("\n".join([header, *changed, ""]))
