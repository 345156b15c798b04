"""A simulated bench that a child process can open without torch, and operators that fail in all ways that are known.

An operator's name says what happens.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from simulated_machine import SIMULATED_CIRCUMSTANCES, SIMULATED_CONDITIONS, Load, SimulatedMachine

from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.conditions import Circumstances, Conditions
from opcost.measuring.known_device import GOOD, MeterQuality, QualificationRow
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import MeasuredCases, Measurement
from opcost.measuring.setting import Setting
from opcost.measuring.sweep_record import HostPower, MemoryUse, Repetition
from opcost.operators.counts import Case
from opcost.operators.tuples import OperatorTuple, TensorSpec, tensor_specs
from opcost.running.bench import BUILDING, LOOPING, answer, device_uuid
from opcost.running.worker_process import Answering, ReportStep
from opcost.storage.database import Database


def operator(name: str, width: int = 4) -> OperatorTuple:
    """Return a tuple of a module without parameters."""
    return OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((width,), "float32"),))


LARGE, BUG = operator("Large"), operator("Bug")
FATALS = tuple(operator("Fatal", width) for width in range(10, 13))
HANGING_WHILE_BUILT, HANGING_IN_ITS_LOOP = operator("HangingWhileBuilt"), operator("HangingInItsLoop")
LONG = operator("Long")
SLOW_S = 0.05
SLEEPS_S = {"Slow": SLOW_S, "HalfASecond": 0.5}
BROKEN = "cuda:2"
"""A device on which an operator of the name OfOneBoard ends the process."""
LOST_ONCE, LOST = 32, 64
"""Sizes of a held model."""
LETHAL, WAITING = "lethal", "waiting"
"""While the database has a file of this name, an operator Lethal kills the process that asks, a Waiting one waits."""
OTHERS, OTHER_CARD = ("cuda:8", "cuda:10"), "Simulated B"
"""Devices of another kind."""
LIFE_S = 0.25
LIMIT_S = 2.0
"""Of silence, in place of minutes."""

LOAD = Load(time_s=0.001, power_w=300.0)

CANNOT = {"Large": "out of memory", "Unsupported": "not implemented for this device"}
ENDS: Mapping[str, Callable[[], object]] = {
    "Fatal": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "Segmentation": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "Exited": lambda: os._exit(3),
}
ENDED = "it ended the measuring process:"
REASONS = {
    **CANNOT,
    "Bug": f"{ENDED} ZeroDivisionError: a bug",
    "Fatal": f"{ENDED} ended by SIGKILL",
    "Segmentation": f"{ENDED} ended by SIGSEGV",
    "Exited": f"{ENDED} ended with status 3",
    "HangingWhileBuilt": f"{ENDED} silent for {LIMIT_S:g} s while building",
}
"""Expected report of each kind of fault."""


class FatalBench:
    """Measures one load for every operator, but for those that act up; each device has a board of its own."""

    def __init__(self, report_step: ReportStep, device: str | None, database: Database) -> None:
        self.report_step = report_step
        self.device = device or "cuda:0"
        self.database = database
        self.known: Measurement | None = None
        self._marker = database.folder / "lost"
        self._side = 0

    is_gpu = True
    has_meter = True
    drift_case = None
    step_times_s: Mapping[str, float] = {}

    def conditions(self, setting: Setting) -> Conditions:
        conditions = replace(SIMULATED_CONDITIONS, precision=setting.precision, cache=setting.cache)
        return replace(conditions, device_product=OTHER_CARD) if self.device in OTHERS else conditions

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances:
        board = f"simulated-{self.device.removeprefix('cuda:')}"
        lengths = {"warm_up_s": protocol.warm_up_s, "loop_s": protocol.loop_s}
        return replace(SIMULATED_CIRCUMSTANCES, device_uuid=board, **lengths)

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> MeasuredCases:
        """Measure, or do what the operator's name says."""
        name = case.operator.short_name
        if name in CANNOT:
            raise CannotMeasureError(CANNOT[name])
        if name == "Bug":
            raise ZeroDivisionError("a bug")
        if name in ENDS:
            ENDS[name]()
        if name == "OfOneBoard" and self.device == BROKEN:
            ENDS["Fatal"]()
        if name == "Lethal" and (self.database.folder / LETHAL).exists():
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(1000)
        self.report_step(BUILDING)
        if name == "HangingWhileBuilt":
            time.sleep(1000)
        self.report_step(LOOPING)
        if name == "HangingInItsLoop":
            time.sleep(1000)
        time.sleep(SLEEPS_S.get(name, 0.0))
        while name == "Waiting" and (self.database.folder / WAITING).exists():
            time.sleep(0.01)
        for _ in range(8 if name == "Long" else 0):
            time.sleep(LIFE_S)
            self.report_step(LOOPING)
        machine = SimulatedMachine(LOAD)
        if name == "Instant":
            # Only the first one is simulated.
            self.known = self.known or measure(machine, machine.instruments(), protocol)
            return ((case, self.known),)
        self.database.power_logs.mkdir(parents=True, exist_ok=True)
        (self.database.power_logs / f"{log_name}.csv").write_text(self.device)
        return ((case, measure(machine, machine.instruments(), protocol)),)

    def hold(self, case: Case, setting: Setting) -> None:
        self._side = tensor_specs(case.operator.inputs)[0].shape[-1]

    def repeat(self, protocol: MeasurementProtocol, log_name: str) -> Repetition:
        """Measure, or be killed in a second repetition, of one size once, of another each time."""
        if log_name.endswith("-2") and self._side in (LOST, LOST_ONCE):
            is_first = not self._marker.exists()
            if self._side == LOST_ONCE:
                self._marker.touch()
            if is_first or self._side == LOST:
                ENDS["Fatal"]()
        machine = SimulatedMachine(LOAD)
        measured = measure(machine, machine.instruments(), protocol)
        return Repetition(measured, (), HostPower(None, None, "none"), MemoryUse(None, None, "none"))


@contextmanager
def fatal_answering(
    device: str | None,
    database: Database,
    with_meter: bool,
    known: Sequence[QualificationRow],
    *,
    report_step: ReportStep,
) -> Iterator[Answering]:
    """Play ``opcost.running.bench.answering``; each process that has a meter qualifies it unless that is known."""
    if device == "cuda:9":
        raise UserError("there is no such GPU")
    bench = FatalBench(report_step, device, database)
    board = str(device_uuid(bench))
    new = [] if not with_meter or any(row.device_uuid == board for row in known) else [qualification(board)]
    yield lambda question: answer(bench, question, bench, new)


def qualification(board: str) -> QualificationRow:
    quality = MeterQuality("simulated", 0.1, 0.15, None, None, 0.0, 0.05, 0.0, 0.0, GOOD)
    moment = "2026-11-30T00:00:00+00:00"
    return QualificationRow(
        device_uuid=board,
        driver_version="1.0",
        quality=quality,
        read_time_s=None,
        polling_deviation_ratio=None,
        power_per_kelvin_ratio=None,
        power_per_kelvin_standard_error_ratio=None,
        idle_power_w=None,
        idle_power_after_load_w=None,
        qualified_at=moment,
        device_product="simulated machine",
        torch_version="2.11.0",
    )
