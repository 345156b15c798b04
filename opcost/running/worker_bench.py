"""A bench in a process of its own: it measures many operators, and one that ends it costs only itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.conditions import Circumstances, Conditions
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import Measurement
from opcost.measuring.setting import Setting
from opcost.operators.cases import Case
from opcost.running.bench import Bench
from opcost.running.heartbeat import BUILDING, RUNNING, Heartbeat
from opcost.running.worker_process import OPENING, Answering, ChildFaultError, ChildProcess, Tell
from opcost.storage.database import Database

CPU_PATIENCE = 10.0
"""How much longer a CPU may be silent: a call of a model that takes seconds on a GPU takes minutes there."""

FAULTS_IN_A_ROW = 3
"""After so many operators that end the process one after the other, it is not the operators."""


FACTS = "facts"


@dataclass(frozen=True)
class Question:
    """A method of a bench and its arguments, or ``FACTS``."""

    method: str
    arguments: tuple[object, ...] = ()


@dataclass(frozen=True)
class Opening:
    """What a bench is opened with."""

    device: str | None
    database: Database
    with_meter: bool


@dataclass(frozen=True)
class Limits:
    """How long the process may be silent on a GPU, in s, until it is taken to hang.

    Qualifying a board's meters takes half a minute, and is part of the opening. Building an operator (weights, inputs,
    graphs, a first call that loads libraries) takes a second, the largest models a minute; they may also download
    weights. A loop of any length tells of itself after a chunk, of 0.07 s or of one longer call.
    """

    opening_s: float = 600.0
    building_s: float = 120.0
    building_model_s: float = 600.0
    running_s: float = 120.0

    def steps_s(self, is_model: bool, is_gpu: bool) -> dict[str, float]:
        """Return the limits of a measurement's steps, the first one first."""
        patience = 1.0 if is_gpu else CPU_PATIENCE
        building_s = self.building_model_s if is_model else self.building_s
        return {BUILDING: patience * building_s, RUNNING: patience * self.running_s}


USUAL_LIMITS = Limits()


@dataclass(frozen=True)
class BenchFacts:
    """What does not change while a bench is open."""

    is_gpu: bool
    has_meter: bool
    sentinel: Case | None


@contextmanager
def open_child_bench(
    device: str | None,
    database: Database,
    with_meter: bool,
    limits: Limits = USUAL_LIMITS,
) -> Iterator[ChildBench]:
    """Make a device ready in a process of its own; its meters are qualified there where that has not been done.

    A process that is silent for longer than its ``limits`` is ended.

    Raises:
        UserError: what the opening of an apparatus raises.
    """
    with ExitStack() as stack:
        bench = ChildBench(Opening(device, database, with_meter), limits)
        stack.push(bench.end)
        bench.start()
        yield bench


class ChildBench:
    """Plays ``Bench`` by asking one in another process, which is started again when an operator has ended it."""

    def __init__(self, opening: Opening, limits: Limits = USUAL_LIMITS) -> None:
        self._child = ChildProcess(partial(answering, opening), limits.opening_s)
        self._limits = limits
        self._facts = BenchFacts(is_gpu=False, has_meter=False, sentinel=None)
        self._answers: dict[Question, Any] = {}
        self._faults = 0

    def start(self) -> None:
        """Start the process.

        Raises:
            UserError: the device cannot be made ready.
        """
        try:
            self._child.__enter__()
            self._facts = self._child.ask(Question(FACTS), {OPENING: self._limits.opening_s})
        except ChildFaultError as fault:
            raise UserError(f"the measuring process does not start: {fault}; what it said stands above") from fault

    def end(self, *error: Any) -> None:
        """End the process: at once where an error ends its use (as arguments of ``__exit__``)."""
        self._child.__exit__(*(error or (None, None, None)))

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self._facts.is_gpu

    @property
    def has_meter(self) -> bool:
        """Whether energy can be measured at all."""
        return self._facts.has_meter

    @property
    def sentinel(self) -> Case | None:
        """What is measured now and then."""
        return self._facts.sentinel

    def conditions(self, setting: Setting) -> Conditions:
        """Return under what figures hold.

        Raises:
            UserError: the device cannot run anything so, or has no such meter.
        """
        found: Conditions = self._remembered(Question("conditions", (setting,)))
        return found

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances:
        """Return what else is to be told of figures that a protocol yields."""
        found: Circumstances = self._remembered(Question("circumstances", (protocol,)))
        return found

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> Measurement:
        """Measure an operator or a model.

        Raises:
            CannotMeasureError: it cannot be measured here, or it has ended the process.
            UserError: one operator after the other ends the process.
        """
        question = Question("measure", (case, setting, protocol, log_name))
        limits_s = self._limits.steps_s(case.operator.is_model, self.is_gpu)
        try:
            found: Measurement = self._child.ask(question, limits_s)
        except ChildFaultError as fault:
            self._start_again(fault)
            raise CannotMeasureError(f"it ended the measuring process: {fault}") from fault
        self._faults = 0
        return found

    def _start_again(self, fault: ChildFaultError) -> None:
        self._faults += 1
        if self._faults >= FAULTS_IN_A_ROW:
            raise UserError(
                f"{FAULTS_IN_A_ROW} operators in a row have ended the measuring process, the last one with: {fault}; "
                "if that names no bug of opcost, look at `nvidia-smi` and `dmesg`; then start the same command again"
            ) from fault
        logging.getLogger(__name__).warning("the measuring process ended (%s) and is started again", fault)
        self.start()

    def _remembered(self, question: Question) -> Any:
        """Return an answer that stays the same: a row is keyed by it also when the process has ended."""
        if question not in self._answers:
            try:
                self._answers[question] = self._child.ask(question, {OPENING: self._limits.opening_s})
            except ChildFaultError as fault:
                raise UserError(f"the measuring process ended: {fault}; start the same command again") from fault
        return self._answers[question]


@contextmanager
def answering(opening: Opening, *, tell: Tell) -> Iterator[Answering]:
    """Open a bench here, in the process that measures."""
    # torch, which the process that asks need not wait for.
    from opcost.running.apparatus import open_apparatus
    from opcost.running.qualification import qualified

    with qualified(open_apparatus, opening.device, opening.database, opening.with_meter) as apparatus:
        # First, so that it is known what the others hang in.
        observed = replace(apparatus, observers=(Heartbeat(tell), *apparatus.observers))
        yield partial(answer, observed)


def answer(bench: Bench, question: Question) -> object:
    """Answer one question by asking a bench that is here."""
    if question.method == FACTS:
        return BenchFacts(bench.is_gpu, bench.has_meter, bench.sentinel)
    return getattr(bench, question.method)(*question.arguments)
