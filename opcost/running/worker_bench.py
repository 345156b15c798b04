"""A bench in a child process: an operator that crashes the process loses only its own measurement."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.conditions import Circumstances, Conditions
from opcost.measuring.instruments import NOTHING, Finding, Observer
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement
from opcost.measuring.setting import Setting
from opcost.measuring.sweep_record import KernelUse, Repetition
from opcost.operators.cases import Case
from opcost.running.bench import Bench
from opcost.running.worker_process import OPENING, Answering, ChildFaultError, ChildProcess, OpenAnswering, ReportStep
from opcost.storage.database import Database

if TYPE_CHECKING:
    from opcost.running.apparatus import Apparatus
    from opcost.running.held_workload import HeldWorkload

HELD = ("hold", "repeat", "kernels")
"""The methods of a bench that holds a workload."""

CPU_PATIENCE = 10.0
"""The factor on limits on a CPU: a call of a model that takes seconds on a GPU takes minutes there."""

FAULTS_IN_A_ROW = 3
"""Crashes in a row after which the operators are not the cause."""


FACTS = "facts"
"""The question for properties that do not change while a bench is open."""

AnyChildBench = TypeVar("AnyChildBench", bound="ChildBench")

BUILDING = "building"
WARMING_UP = "warming up"
LOOPING = "looping"
READING_METERS = "reading meters"
STEPS = (BUILDING, WARMING_UP, LOOPING, READING_METERS)
"""The steps of a measurement. Building includes the first call, which may load libraries and choose algorithms."""

INTERVAL_S = 5.0
"""The time between two reports of one step. A report takes 20 us, between two chunks of a loop."""


@dataclass(frozen=True)
class Question:
    """A method of a bench and its arguments, or ``FACTS``."""

    method: str
    arguments: tuple[object, ...] = ()


@dataclass(frozen=True)
class Opening:
    """The arguments with which a bench is opened."""

    device: str | None
    database: Database
    with_meter: bool


@dataclass(frozen=True)
class Limits:
    """The longest silence of the process on a GPU, in s; after that it counts as hanging.

    The opening includes the qualification of a board's meters, which takes half a minute. Building an operator
    (weights, inputs, graphs, a first call that loads libraries) takes a second; the largest models take a minute, and
    may download weights. A loop of any length reports after each chunk, of 0.07 s or of one longer call.
    """

    opening_s: float = 600.0
    building_s: float = 120.0
    building_model_s: float = 600.0
    running_s: float = 120.0

    def steps_s(self, is_model: bool, is_gpu: bool) -> dict[str, float]:
        patience = 1.0 if is_gpu else CPU_PATIENCE
        building_s = self.building_model_s if is_model else self.building_s
        return {step: patience * (building_s if step == BUILDING else self.running_s) for step in STEPS}


USUAL_LIMITS = Limits()


@contextmanager
def open_child_bench(
    device: str | None, database: Database, with_meter: bool, limits: Limits = USUAL_LIMITS
) -> Iterator[ChildBench]:
    """Make a device ready in a child process, which qualifies the board's meters if that has not been done.

    A process that is silent for longer than its ``limits`` is ended. Raises UserError: the device cannot be made ready.
    """
    with ChildBench(Opening(device, database, with_meter), limits) as bench:
        bench.start()
        yield bench


class ChildBench:
    """Implements ``Bench`` by asking one in a child process, which is started again after a crash."""

    def __init__(
        self, opening: Opening, limits: Limits = USUAL_LIMITS, open_answering: OpenAnswering | None = None
    ) -> None:
        self._child = ChildProcess(open_answering or partial(answering, opening), limits.opening_s)
        self._limits = limits
        self.device, self.is_gpu, self.has_meter = "", False, False
        self.drift_case: Case | None = None
        self._answers: dict[Question, Any] = {}
        self._faults = 0

    def __enter__(self: AnyChildBench) -> AnyChildBench:
        return self

    def __exit__(self, *error: Any) -> None:
        self._child.__exit__(*error)

    def start(self) -> None:
        """Start the process, within the context that ends it: Ctrl-C may come at any moment.

        Raises UserError: the device cannot be made ready.
        """
        try:
            self._child.__enter__()
            facts = self._child.ask(Question(FACTS), {OPENING: self._limits.opening_s})
            self.device, self.is_gpu, self.has_meter, self.drift_case = facts
        except ChildFaultError as fault:
            raise UserError(f"the measuring process does not start: {fault}; see its messages above") from fault

    @property
    def step_times_s(self) -> dict[str, float]:
        return {step: self._child.step_times_s[step] for step in STEPS}

    def conditions(self, setting: Setting) -> Conditions:
        found: Conditions = self._remembered(Question("conditions", (setting,)))
        return found

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances:
        found: Circumstances = self._remembered(Question("circumstances", (protocol,)))
        return found

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> Measurement:
        """Measure an operator or a model.

        Raises CannotMeasureError: it cannot be measured here, or it has ended the process; UserError:
        ``FAULTS_IN_A_ROW`` operators in a row have ended the process.
        """
        question = Question("measure", (case, setting, protocol, log_name))
        found: Measurement = self.guarded(question, case.operator.is_model)
        return found

    def guarded(self, question: Question, is_model: bool) -> Any:
        """Return the answer to a question of several steps, after which a process that ended is started again.

        Raises CannotMeasureError: the answer raised this, or the question has ended the process; UserError:
        ``FAULTS_IN_A_ROW`` questions in a row have ended the process.
        """
        try:
            found = self._child.ask(question, self._limits.steps_s(is_model, self.is_gpu))
        except ChildFaultError as fault:
            self._faults += 1
            if self._faults >= FAULTS_IN_A_ROW:
                raise UserError(
                    f"{FAULTS_IN_A_ROW} operators in a row ended the measuring process, the last one with: {fault}; "
                    "check `nvidia-smi` and `dmesg`, then run the same command again"
                ) from fault
            logging.getLogger(__name__).warning("the measuring process ended (%s); starting it again", fault)
            self.start()
            raise CannotMeasureError(f"it ended the measuring process: {fault}") from fault
        self._faults = 0
        return found

    def _remembered(self, question: Question) -> Any:
        """Return an answer that stays the same, also after the process has ended."""
        if question not in self._answers:
            try:
                self._answers[question] = self._child.ask(question, {OPENING: self._limits.opening_s})
            except ChildFaultError as fault:
                raise UserError(f"the measuring process ended: {fault}; run the same command again") from fault
        return self._answers[question]


@contextmanager
def answering(opening: Opening, *, report_step: ReportStep) -> Iterator[Answering]:
    """Open a bench in this process, the one that measures."""
    with open_observed(opening, report_step) as apparatus:
        yield partial(answer, apparatus)


@contextmanager
def open_observed(opening: Opening, report_step: ReportStep) -> Iterator[Apparatus]:
    """Open a device in this process; each step of a measurement is reported."""
    # They import torch, which the parent need not wait for.
    from opcost.running.apparatus import open_apparatus
    from opcost.running.qualification import qualified

    with qualified(open_apparatus, opening.device, opening.database, opening.with_meter) as apparatus:
        # First, so that a hang in another observer has a step.
        yield replace(apparatus, observers=(Heartbeat(report_step), *apparatus.observers))


def answer(bench: Bench, question: Question) -> object:
    """Answer one question with a bench in this process."""
    if question.method == FACTS:
        return bench.device, bench.is_gpu, bench.has_meter, bench.drift_case
    return getattr(bench, question.method)(*question.arguments)


class Heartbeat(Observer):
    """Reports each step of a measurement when it begins, and every ``INTERVAL_S`` while it goes on."""

    def __init__(self, report_step: ReportStep, now: Callable[[], float] = time.monotonic) -> None:
        self._report_step = report_step
        self._now = now
        self._last = (BUILDING, -INTERVAL_S)

    def before_build(self) -> None:
        self._beat(BUILDING)

    def before_start(self) -> None:
        self._beat(BUILDING)

    def during(self) -> None:
        step, _ = self._last
        self._beat(WARMING_UP if step == BUILDING else step)

    def before_loop(self) -> None:
        self._beat(LOOPING)

    def after_finish(self) -> Finding:
        self._beat(READING_METERS)
        return NOTHING

    def _beat(self, step: str) -> None:
        last_step, last_s = self._last
        now_s = self._now()
        if step != last_step or now_s - last_s >= INTERVAL_S:
            self._last = step, now_s
            self._report_step(step)


class SweepBench(Protocol):
    """A device that is ready to measure a workload again and again; its properties are those of ``Bench``.

    Each method raises CannotMeasureError where a model cannot be built or measured here.
    """

    @property
    def is_gpu(self) -> bool: ...

    def conditions(self, setting: Setting) -> Conditions: ...

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances: ...

    def hold(self, case: Case, setting: Setting) -> None:
        """Build a model and keep it until the next one, or its release."""

    def repeat(self, protocol: MeasurementProtocol, log_name: str) -> Repetition:
        """Measure the model that is held; its raw power log gets a name."""

    def kernels(self, case: Case, setting: Setting) -> tuple[KernelUse, ...]:
        """Return the kernels of one eager run of a model; none on a CPU. A model that is held is released before."""


OpenSweepBench: TypeAlias = Callable[[str | None, Database, bool], AbstractContextManager[Any]]
"""Makes a device ready, see ``OpenBench``: yields a ``SweepBench``, or a ``Bench`` if nothing is measured."""


class ChildSweepBench(ChildBench):
    """Implements ``SweepBench`` by asking one in a child process, which is started again after a crash."""

    def __init__(self, opening: Opening, limits: Limits = USUAL_LIMITS) -> None:
        super().__init__(opening, limits, partial(sweep_answering, opening))

    def hold(self, case: Case, setting: Setting) -> None:
        self.guarded(Question("hold", (case, setting)), is_model=True)

    def repeat(self, protocol: MeasurementProtocol, log_name: str) -> Repetition:
        found: Repetition = self.guarded(Question("repeat", (protocol, log_name)), is_model=True)
        return found

    def kernels(self, case: Case, setting: Setting) -> tuple[KernelUse, ...]:
        found: tuple[KernelUse, ...] = self.guarded(Question("kernels", (case, setting)), is_model=True)
        return found


@contextmanager
def open_sweep_bench(device: str | None, database: Database, with_meter: bool) -> Iterator[ChildSweepBench]:
    """Make a device ready in a child process, see ``open_child_bench``.

    Raises UserError: the device cannot be made ready.
    """
    with ChildSweepBench(Opening(device, database, with_meter)) as bench:
        bench.start()
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
