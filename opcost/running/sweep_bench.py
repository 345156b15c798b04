"""A bench that repeats measurements of a workload it holds, in a child process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from opcost.measuring.conditions import Circumstances, Conditions
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.setting import Setting
from opcost.measuring.sweep_record import KernelUse, Repetition
from opcost.operators.cases import Case
from opcost.running.worker_bench import (
    USUAL_LIMITS,
    ChildBench,
    Limits,
    Opening,
    Question,
    answer,
    open_observed,
    started,
)
from opcost.running.worker_process import Answering, ReportStep
from opcost.storage.database import Database

if TYPE_CHECKING:
    from opcost.running.held_workload import HeldWorkload

HELD = ("hold", "repeat", "kernels")
"""The methods of a bench that holds a workload."""


class SweepBench(Protocol):
    """A device that is ready to measure a workload again and again."""

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""

    def conditions(self, setting: Setting) -> Conditions:
        """Return the conditions of measurements in a setting.

        Raises UserError: the device does not support the setting, or has no such meter.
        """

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances:
        """Return the circumstances of measurements with a protocol."""

    def hold(self, case: Case, setting: Setting) -> None:
        """Build a model and keep it until the next one, or its release.

        Raises CannotMeasureError: it cannot be built here.
        """

    def repeat(self, protocol: MeasurementProtocol, log_name: str) -> Repetition:
        """Measure the model that is held; its raw power log gets a name.

        Raises CannotMeasureError: it cannot be measured here.
        """

    def kernels(self, case: Case, setting: Setting) -> tuple[KernelUse, ...]:
        """Return the kernels of one eager run of a model; none on a CPU. A model that is held is released before.

        Raises CannotMeasureError: it cannot be built here.
        """


OpenSweepBench: TypeAlias = Callable[[str | None, Database, bool], AbstractContextManager[Any]]
"""Makes a device ready, see ``OpenBench``: yields a ``SweepBench``, or a ``Bench`` if nothing is measured."""


class ChildSweepBench(ChildBench):
    """Implements ``SweepBench`` by asking one in a child process, which is started again after a crash."""

    def __init__(self, opening: Opening, limits: Limits = USUAL_LIMITS) -> None:
        super().__init__(opening, limits, sweep_answering)

    def hold(self, case: Case, setting: Setting) -> None:
        """Build a model and keep it, see ``SweepBench``."""
        self.guarded(Question("hold", (case, setting)), is_model=True)

    def repeat(self, protocol: MeasurementProtocol, log_name: str) -> Repetition:
        """Measure the model that is held, see ``SweepBench``."""
        found: Repetition = self.guarded(Question("repeat", (protocol, log_name)), is_model=True)
        return found

    def kernels(self, case: Case, setting: Setting) -> tuple[KernelUse, ...]:
        """Return the kernels of one eager run, see ``SweepBench``."""
        found: tuple[KernelUse, ...] = self.guarded(Question("kernels", (case, setting)), is_model=True)
        return found


@contextmanager
def open_sweep_bench(device: str | None, database: Database, with_meter: bool) -> Iterator[ChildSweepBench]:
    """Make a device ready in a child process, see ``open_child_bench``.

    Raises UserError: the device cannot be made ready.
    """
    with started(ChildSweepBench(Opening(device, database, with_meter))) as bench:
        yield bench


@contextmanager
def sweep_answering(opening: Opening, *, report_step: ReportStep) -> Iterator[Answering]:
    """Open a bench that holds a workload in this process, the one that measures."""
    # It imports torch, which the parent need not wait for.
    from opcost.running.held_workload import HeldWorkload

    with open_observed(opening, report_step) as apparatus:
        held = HeldWorkload(apparatus)
        try:
            yield partial(held_answer, held)
        finally:
            held.release()


def held_answer(held: HeldWorkload, question: Question) -> object:
    """Answer one question with a workload that is held, or with its apparatus."""
    if question.method in HELD:
        return getattr(held, question.method)(*question.arguments)
    return answer(held.apparatus, question)
