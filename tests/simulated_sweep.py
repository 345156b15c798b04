"""Sweeps of resnet18 on the simulated machine, in this process: the device is a CPU whose time is virtual.

sweep = SimulatedSweep(tmp_path, {32: Load(0.001, 300.0), 64: Load(0.004, 300.0)})
measured = sweep.measure(repetitions=3)
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import Load

from opcost.errors import CannotMeasureError
from opcost.operators.sweep_axes import Axis, AxisKind
from opcost.operators.tuples import OperatorTuple
from opcost.progress import Progress
from opcost.running.apparatus import HeldWorkload
from opcost.running.bench import HoldingBench
from opcost.running.engine import OpenBench
from opcost.stages.sweep import Measured, Sweep, SweepProtocol, SweepResult, measure_sweep, result_of, sweep_of
from opcost.stages.wanted_model import WantedModel
from opcost.storage.database import Database

LOOP_S = 0.5


class InThisProcess(HeldWorkload):
    """A bench that holds a workload in this process."""

    step_times_s: Mapping[str, float] = {}

    @property
    def is_gpu(self) -> bool:
        return self.apparatus.is_gpu

    @property
    def conditions(self):
        return self.apparatus.conditions

    @property
    def circumstances(self):
        return self.apparatus.circumstances


@dataclass
class SimulatedSweep:
    """A sweep over sizes with declared loads. Sizes in ``failing`` cannot be built, for the reason given there."""

    folder: Path
    loads: Mapping[int, Load]
    failing: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.campaign = SimulatedCampaign(self.folder, {}, device="cpu", before=self._refuse)
        axis = Axis(AxisKind.SIZE, tuple(sorted({*self.loads, *self.failing})))
        wanted = WantedModel("resnet18", (2, 3, 32, 32))
        self.sweep: Sweep = sweep_of(self.campaign.request(), wanted, axis)
        self._sizes = {point.case.operator: point.size for point in self.sweep.points}
        self.campaign.loads = {
            point.case.operator: self.loads[point.size] for point in self.sweep.points if point.size in self.loads
        }

    @property
    def database(self) -> Database:
        return self.campaign.database

    @property
    def built(self) -> list[int]:
        """The sizes that were built, in order."""
        return [self._sizes[operator] for operator in self.campaign.built]

    def measure(
        self,
        repetitions: int = 3,
        progress: Progress | None = None,
        dry_run: bool = False,
        seed: int = 0,
        opened: OpenBench | None = None,
    ) -> Measured:
        request = self.campaign.request(dry_run=dry_run)
        protocol = SweepProtocol(repetitions, LOOP_S, seed)
        return measure_sweep(request, self.sweep, protocol, opened or self.open_bench, progress or RecordedProgress())

    def result(self, measured: Measured) -> SweepResult:
        return result_of(self.database, self.sweep, measured, {})

    @contextmanager
    def open_bench(self, device: str | None, database: Database, with_meter: bool) -> Iterator[HoldingBench]:
        with self.campaign.open_apparatus(device, database, with_meter) as apparatus:
            held = InThisProcess(apparatus)
            try:
                yield held
            finally:
                held.release()

    def _refuse(self, operator: OperatorTuple) -> None:
        size = self._sizes[operator]
        if size in self.failing:
            raise CannotMeasureError(self.failing[size])
