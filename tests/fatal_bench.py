"""A simulated bench that a child process can open without torch, and operators that end that process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from simulated_machine import SIMULATED_CIRCUMSTANCES, SIMULATED_CONDITIONS, Load, SimulatedMachine

from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.conditions import Circumstances, Conditions
from opcost.measuring.procedure import measure
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement
from opcost.measuring.setting import Setting
from opcost.operators.cases import Case
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.running.worker_bench import BUILDING, LOOPING, Opening, answer
from opcost.running.worker_process import Answering, ReportStep


def operator(name: str, width: int = 4) -> OperatorTuple:
    """Return a tuple of a module without parameters."""
    return OperatorTuple(f"torch.nn.{name}", (), (TensorSpec((width,), "float32"),))


LARGE, BUG = operator("Large"), operator("Bug")
FATALS = tuple(operator("Fatal", width) for width in range(10, 13))
HANGING_WHILE_BUILT, HANGING_IN_ITS_LOOP = operator("HangingWhileBuilt"), operator("HangingInItsLoop")
LONG = operator("Long")
LIFE_S = 0.25
LOAD = Load(time_s=0.001, power_w=300.0)


class FatalBench:
    """Measures one load for every operator, but for those that act up."""

    def __init__(self, report_step: ReportStep) -> None:
        self.report_step = report_step

    device = "cuda:0"
    is_gpu = True
    has_meter = True
    drift_case = None
    step_times_s: Mapping[str, float] = {}

    def conditions(self, setting: Setting) -> Conditions:
        return replace(SIMULATED_CONDITIONS, precision=setting.precision)

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances:
        return replace(SIMULATED_CIRCUMSTANCES, warm_up_s=protocol.warm_up_s, loop_s=protocol.loop_s)

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> Measurement:
        if case.operator in FATALS:
            os.kill(os.getpid(), signal.SIGKILL)
        if case.operator == LARGE:
            raise CannotMeasureError("out of memory")
        if case.operator == BUG:
            raise ZeroDivisionError("a bug")
        self.report_step(BUILDING)
        if case.operator == HANGING_WHILE_BUILT:
            time.sleep(1000)
        self.report_step(LOOPING)
        if case.operator == HANGING_IN_ITS_LOOP:
            time.sleep(1000)
        for _ in range(8 if case.operator == LONG else 0):
            time.sleep(LIFE_S)
            self.report_step(LOOPING)
        machine = SimulatedMachine(LOAD)
        return measure(machine, machine.instruments(), protocol)


@contextmanager
def fatal_answering(opening: Opening, *, report_step: ReportStep) -> Iterator[Answering]:
    """Play ``opcost.running.worker_bench.answering``."""
    if opening.device == "cuda:9":
        raise UserError("there is no such GPU")
    bench = FatalBench(report_step)
    yield lambda question: answer(bench, question)
