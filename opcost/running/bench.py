"""The port through which a campaign measures, and the bench in a child process.

An operator that crashes the child process loses only its own measurement.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.conditions import Circumstances, Conditions, measurement_key
from opcost.measuring.instruments import NOTHING, Finding, Observer
from opcost.measuring.known_device import HeldQualifications, QualificationRow, QualificationTable
from opcost.measuring.protocol import ANY, MeasurementProtocol
from opcost.measuring.record import MeasuredCases, MeasurementRow, StepTimes
from opcost.measuring.setting import Setting
from opcost.measuring.sweep_record import KernelUse, Repetition
from opcost.meters.gpus import see_only
from opcost.operators.counts import Case, case_columns
from opcost.power.log_rows import new_log_name
from opcost.running.worker_process import OPENING, Answering, ChildFaultError, ChildProcess, ReportStep
from opcost.storage.database import Database

if TYPE_CHECKING:
    # They import torch, which the parent of a measuring process need not wait for.
    from opcost.running.apparatus import HeldWorkload


class Bench(Protocol):
    """A device that is ready to measure."""

    @property
    def device(self) -> str:
        """The torch device: ``cpu`` or ``cuda:N``."""

    @property
    def is_gpu(self) -> bool: ...

    @property
    def has_meter(self) -> bool: ...

    @property
    def drift_case(self) -> Case | None:
        """The case that a campaign measures repeatedly to detect drift, None for no drift checks."""

    @property
    def step_times_s(self) -> Mapping[str, float]:
        """The time spent so far in each step of measurements, in s; empty if unknown."""

    def conditions(self, setting: Setting) -> Conditions:
        """Return the conditions in a setting. Raises UserError: there is no such setting or meter on the device."""

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances: ...

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> MeasuredCases:
        """Measure an operator or a model; its raw power log gets a name. Raises CannotMeasureError: it cannot be."""


class HoldingBench(Bench, Protocol):
    """A bench that measures a model again and again. Raises CannotMeasureError: it cannot be built or measured."""

    def hold(self, case: Case, setting: Setting) -> None:
        """Build a model and keep it until the next one, or its release."""

    def repeat(self, protocol: MeasurementProtocol, log_name: str) -> Repetition:
        """Measure the model that is held; its raw power log gets a name."""

    def kernels(self, case: Case, setting: Setting) -> tuple[KernelUse, ...]:
        """Return the kernels of one eager run of a model, those that take most time first; none on a CPU.

        A model that is held is released before.
        """


class LostProcessError(CannotMeasureError):
    """The process that measured was killed from outside, as far as its status shows."""


def spending(bench: Bench) -> Callable[[], tuple[float, dict[str, float]]]:
    """Return what gives the time since now, and that of each step of a bench, in s; names of steps are keys of JSON."""
    begin_s, before_s = time.monotonic(), dict(bench.step_times_s)

    def spent() -> tuple[float, dict[str, float]]:
        steps_s = {step: time_s - before_s.get(step, 0.0) for step, time_s in bench.step_times_s.items()}
        return time.monotonic() - begin_s, {step.replace(" ", "_"): time_s for step, time_s in steps_s.items()}

    return spent


def device_uuid(bench: Bench) -> str | None:
    """Return the UUID of a bench's board, which no protocol changes; None on a CPU."""
    return bench.circumstances(ANY).device_uuid


def measured_rows(bench: Bench, case: Case, setting: Setting, protocol: MeasurementProtocol) -> list[MeasurementRow]:
    """Measure an operator or a model on a bench and return its row, then those of further phases.

    The first has the time that all took. Raises CannotMeasureError: it cannot be measured.
    """
    conditions, circumstances = bench.conditions(setting), bench.circumstances(protocol)
    log_name, spent = new_log_name(measurement_key(case, conditions)), spending(bench)
    try:
        measured = bench.measure(case, setting, protocol, log_name)
    finally:
        taken_s, steps_s = spent()
        steps = ", ".join(f"{name.replace('_', ' ')} {time_s:.3f} s" for name, time_s in steps_s.items())
        logging.getLogger(__name__).info("took %.3f s: %s", taken_s, steps or "in one step")
    taken = StepTimes(taken_s, **{f"{name}_s": time_s for name, time_s in steps_s.items()})
    return [
        MeasurementRow(
            key=measurement_key(one, conditions),
            **case_columns(one),
            measurement=measurement,
            order_seed=protocol.order_seed,
            conditions=conditions,
            circumstances=circumstances,
            step_times=taken if one == case else StepTimes(),
        )
        for one, measurement in measured
    ]


CPU_PATIENCE = 10.0
"""The factor on limits on a CPU: a call of a model that takes seconds on a GPU takes minutes there."""

FAULTS_IN_A_ROW = 3
"""Crashes in a row after which the operators are not the cause."""

FACTS = "facts"
"""The question for properties that do not change while a bench is open."""

BUILDING = "building"
WARMING_UP = "warming up"
LOOPING = "looping"
READING_METERS = "reading meters"
STEPS = (BUILDING, WARMING_UP, LOOPING, READING_METERS)
"""The steps of a measurement. Building includes the first call, which may load libraries and choose algorithms."""

INTERVAL_S = 5.0
"""The time between two reports of one step. A report takes 20 us, between two chunks of a loop."""

Question: TypeAlias = tuple[str, tuple[object, ...]]
"""A method of a bench and its arguments, or ``FACTS``."""


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


class ChildBench:
    """Implements ``HoldingBench`` by asking one in a child process, which is started again after a crash.

    The child writes raw power logs. Its ``table`` of qualifications is read and written in this process.
    """

    def __init__(
        self,
        device: str | None,
        database: Database,
        with_meter: bool,
        limits: Limits = USUAL_LIMITS,
        cores: Sequence[int] | None = None,
    ) -> None:
        self.table: QualificationTable = database.meter_qualifications
        self._known: list[QualificationRow] = []
        opening = partial(answering, device, database, with_meter, self._known)
        self._child = ChildProcess(opening, limits.opening_s, cores)
        self._name, self._limits = device, limits
        self._is_abandoned = False
        self.device, self.is_gpu, self.has_meter = "", False, False
        self.drift_case: Case | None = None
        self._answers: dict[Question, Any] = {}
        self._faults, self._fatal = 0, set[tuple[object, ...]]()

    def __enter__(self) -> ChildBench:
        return self

    def __exit__(self, *error: Any) -> None:
        self._child.__exit__(*error)

    def start(self) -> None:
        """Start the process, within the context that ends it: Ctrl-C may come at any moment.

        Raises UserError: the device cannot be made ready.
        """
        # Each child gets those that are known when it starts.
        self._known[:] = self.table.rows()
        try:
            self._child.__enter__()
            facts = self._child.ask((FACTS, ()), {OPENING: self._limits.opening_s})
            device, self.is_gpu, self.has_meter, self.drift_case, new = facts
            # In its process a numbered GPU may be the only one.
            self.device = self._name if self._name is not None and ":" in self._name else device
        except ChildFaultError as fault:
            raise UserError(f"the measuring process does not start: {fault}; see its messages above") from fault
        for row in new:
            self.table.append(row)

    def abandon(self) -> None:
        """End the process, whatever another thread waits for; it is not started again."""
        self._is_abandoned = True
        self._child.kill()

    @property
    def step_times_s(self) -> dict[str, float]:
        return {step: self._child.step_times_s[step] for step in STEPS}

    def conditions(self, setting: Setting) -> Conditions:
        return cast("Conditions", self._remembered(("conditions", (setting,))))

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances:
        return cast("Circumstances", self._remembered(("circumstances", (protocol,))))

    def _remembered(self, question: Question) -> Any:
        """Return an answer that stays the same, also after the process has ended."""
        if question not in self._answers:
            try:
                self._answers[question] = self._child.ask(question, {OPENING: self._limits.opening_s})
            except ChildFaultError as fault:
                raise UserError(f"the measuring process ended: {fault}; run the same command again") from fault
        return self._answers[question]

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> MeasuredCases:
        question = ("measure", (case, setting, protocol, log_name))
        return cast("MeasuredCases", self._guarded(question, case.operator.is_model))

    def hold(self, case: Case, setting: Setting) -> None:
        self._guarded(("hold", (case, setting)))

    def repeat(self, protocol: MeasurementProtocol, log_name: str) -> Repetition:
        return cast("Repetition", self._guarded(("repeat", (protocol, log_name))))

    def kernels(self, case: Case, setting: Setting) -> tuple[KernelUse, ...]:
        return cast("tuple[KernelUse, ...]", self._guarded(("kernels", (case, setting))))

    def _guarded(self, question: Question, is_model: bool = True) -> Any:
        """Return the answer to a question of several steps, after which a process that ended is started again.

        Raises CannotMeasureError: the answer raised this, or the question has ended the process; UserError:
        ``FAULTS_IN_A_ROW`` new questions in a row have ended the process.
        """
        try:
            found = self._child.ask(question, self._limits.steps_s(is_model, self.is_gpu))
        except ChildFaultError as fault:
            # All but the name of a log; one that ends the process again is the cause itself.
            fatal = question[0], *question[1][:-1]
            self._faults += fatal not in self._fatal
            self._fatal.add(fatal)
            if self._is_abandoned:
                raise UserError("abandoned") from fault
            if self._faults >= FAULTS_IN_A_ROW:
                raise UserError(
                    f"{FAULTS_IN_A_ROW} operators in a row ended the measuring process, the last one with: {fault}; "
                    "check `nvidia-smi` and `dmesg`, then run the same command again"
                ) from fault
            logging.getLogger(__name__).warning("the measuring process ended (%s); starting it again", fault)
            self.start()
            kind = LostProcessError if fault.is_killed else CannotMeasureError
            raise kind(f"it ended the measuring process: {fault}") from fault
        self._faults = 0
        return found


@contextmanager
def open_child_bench(
    device: str | None, database: Database, with_meter: bool, limits: Limits = USUAL_LIMITS
) -> Iterator[ChildBench]:
    """Make a device ready in a child process, which qualifies the board's meters if that has not been done.

    A process that is silent for longer than its ``limits`` is ended. Raises UserError: the device cannot be made ready.
    """
    with ChildBench(device, database, with_meter, limits) as bench:
        bench.start()
        yield bench


@contextmanager
def answering(
    device: str | None,
    database: Database,
    with_meter: bool,
    known: Sequence[QualificationRow],
    *,
    report_step: ReportStep,
) -> Iterator[Answering]:
    """Open a bench in this process, the one that measures; each step of a measurement is reported.

    Of the database only the folder of raw power logs is used. ``known`` are the qualifications that it has; the bench's
    facts have the new ones.
    """
    # Before torch is imported.
    device = see_only(device, os.environ)
    from opcost.running.apparatus import HeldWorkload, open_apparatus
    from opcost.running.qualification import qualified

    held_rows = HeldQualifications(known)
    with qualified(open_apparatus, device, database, with_meter, held_rows) as apparatus:
        # First, so that a hang in another observer has a step.
        observed = replace(apparatus, observers=(Heartbeat(report_step), *apparatus.observers))
        held = HeldWorkload(observed)
        try:
            yield partial(answer, observed, held=held, new=held_rows.new)
        finally:
            held.release()


def answer(
    bench: Bench, question: Question, held: HeldWorkload | None = None, new: Sequence[QualificationRow] = ()
) -> object:
    """Answer one question with a bench in this process, or with the workload that it holds."""
    method, arguments = question
    if method == FACTS:
        return bench.device, bench.is_gpu, bench.has_meter, bench.drift_case, new
    return getattr(held if method in ("hold", "repeat", "kernels") else bench, method)(*arguments)


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
