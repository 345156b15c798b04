"""A simulated bench whose operators fail in all ways that a measuring process knows; a child process opens it without
torch. An operator's name says what happens.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fatal_bench import FatalBench

from opcost.errors import CannotMeasureError
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement
from opcost.measuring.setting import Setting
from opcost.operators.cases import Case
from opcost.running.worker_bench import Opening, answer
from opcost.running.worker_process import Answering, ReportStep

LIMIT_S = 2.0
"""Of silence, in place of minutes."""

REASONS = {
    "OutOfMemory": "out of memory",
    "Unsupported": "not implemented for this device",
    "Bug": "it ended the measuring process: ZeroDivisionError: a bug",
    "Killed": "it ended the measuring process: ended by SIGKILL",
    "Segmentation": "it ended the measuring process: ended by SIGSEGV",
    "Exited": "it ended the measuring process: ended with status 3",
    "Hanging": f"it ended the measuring process: silent for {LIMIT_S:g} s while building",
}
"""Expected report of each kind of fault."""


class FaultyBench(FatalBench):
    """Measures one load for every operator, but for those whose names are faults."""

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> Measurement:
        """Measure, or do what the operator's name says."""
        name = case.operator.short_name
        if name in ("OutOfMemory", "Unsupported"):
            raise CannotMeasureError(REASONS[name])
        if name == "Bug":
            raise ZeroDivisionError("a bug")
        if name == "Killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "Segmentation":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "Exited":
            os._exit(3)
        if name == "Hanging":
            time.sleep(1000)
        return super().measure(case, setting, protocol, log_name)


@contextmanager
def faulty_answering(opening: Opening, *, report_step: ReportStep) -> Iterator[Answering]:
    """Play ``opcost.running.worker_bench.answering``."""
    bench = FaultyBench(report_step)
    yield lambda question: answer(bench, question)
