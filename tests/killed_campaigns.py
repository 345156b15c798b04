"""Campaigns on the simulated device whose processes are killed or interrupted at random, or run out of disk, and go on.

Files are real: configs, pickles, the database. A process is forked, so that it is at work at once.
"""

from __future__ import annotations

import logging
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import Load

from opcost.command.run import run
from opcost.errors import UserError
from opcost.measuring.protocol import GPU_WARM_UP_S, MeasurementProtocol
from opcost.measuring.record import MeasurementRow
from opcost.operators.cases import tuple_key
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.running.request import FILTERED_COUNTS
from opcost.stages.measure_operators import measure_operators

FULL = MeasurementProtocol(warm_up_s=GPU_WARM_UP_S, loop_s=30.0)
MODELS = ("a", "b", "c", "d")
OPERATORS_OF_A_MODEL = 4
NO_ROOM = 7
"""The status of a process that met a full disk."""

LONGEST_S = 60.0
LONGEST_END_S = 3.0
"""After a signal."""

STARTED, REPORTED = b"s", b"."
"""Reports of processes, byte by byte."""

KILLED = -signal.SIGKILL
INTERRUPTED = {128 + signal.SIGINT, -signal.SIGINT}
"""The second after its main has ended. A shell sees the same status for both."""


class PipedProgress(RecordedProgress):
    """Reports each row to another process."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def finish(self, result: str) -> None:
        """Report: the row is on disk."""
        os.write(self._descriptor, REPORTED)


@dataclass
class KilledCampaign:
    """A folder with four models of operators of their own, and how many rows were reported in it so far."""

    folder: Path
    seed: int
    reported: int = 0
    ends: int = 0
    campaign: SimulatedCampaign = field(init=False)

    def __post_init__(self) -> None:
        operators = {
            name: [_operator(index, number) for number in range(1, OPERATORS_OF_A_MODEL + 1)]
            for index, name in enumerate(MODELS)
        }
        load = Load(time_s=0.01, power_w=300.0)
        self.folder.mkdir()
        self.campaign = SimulatedCampaign(
            self.folder, {operator: load for own in operators.values() for operator in own}
        )
        for name, own in operators.items():
            self.campaign.add_model(name, dict.fromkeys(own, 2))

    def started(self, *names: str, file_bytes: int | None = None) -> Process:
        """Go on with some models, or all, in a process of its own; files may grow to a size."""
        reading, writing = os.pipe()
        identifier = os.fork()
        if identifier:
            os.close(writing)
            return Process(identifier, reading)
        # Nothing of the parent's test framework may run in here.
        try:
            os.close(reading)
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (the process ends with it)
            # A shell's background jobs ignore it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            run(lambda: self._run(names, writing, file_bytes))
        except SystemExit as request:
            os._exit(int(request.code or 0))
        finally:
            os._exit(1)

    def _run(self, names: Sequence[str], writing: int, file_bytes: int | None) -> int:
        logging.disable()
        os.write(writing, STARTED)
        if file_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))
        campaign = self.campaign
        request = campaign.request(*names)
        try:
            measure_operators(request, lambda _: FULL, campaign.open_apparatus, PipedProgress(writing))
        except UserError as error:
            return NO_ROOM if "make room" in str(error) else 1
        return 0

    def note(self, *processes: Process) -> None:
        """Count what ended processes had reported, and check all files.

        Raises:
            AssertionError: a row is lost or there twice, or a file cannot be read or contradicts another.
        """
        self.reported += sum(process.reported() for process in processes)
        self.ends += len(processes)
        rows = self.rows()
        keys = [row.key for row in rows]
        assert len(set(keys)) == len(keys), "a row is there twice"
        assert self.reported <= len(rows) <= self.reported + self.ends, (
            f"{self.reported} rows reported, {len(rows)} there"
        )
        for config in self.campaign.request().configs():
            wanted = {count.operator.key for count in FILTERED_COUNTS.read(config).counts}
            measured = {tuple_key(key) for key in keys}
            assert not config.done or wanted <= measured, f"{config.name} is done and lacks rows"

    def rows(self) -> list[MeasurementRow]:
        """Return what is in the database."""
        logging.disable()
        try:
            return self.campaign.database.operator_measurements.rows()
        finally:
            logging.disable(logging.NOTSET)

    @property
    def is_complete(self) -> bool:
        """Whether all is measured, and said to be."""
        configs = self.campaign.request().configs()
        return all(config.done for config in configs) and len(self.rows()) == len(MODELS) * OPERATORS_OF_A_MODEL


@dataclass(frozen=True)
class Process:
    """A process that was forked, and where it reports rows."""

    identifier: int
    reading: int

    def status_after(self, seconds: float, sent: signal.Signals = signal.SIGKILL) -> int:
        """Send it a signal then, unless it has ended; return its status, below 0 for the signal that ended it."""
        status = self._status_within(seconds)
        if status is not None:
            return status
        os.kill(self.identifier, sent)
        status = self._status_within(LONGEST_END_S)
        assert status is not None, f"{sent.name} did not end it within {LONGEST_END_S} s"
        return status

    def _status_within(self, seconds: float) -> int | None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            identifier, status = os.waitpid(self.identifier, os.WNOHANG)
            if identifier:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.0005)
        return None

    def reported(self) -> int:
        """Return how many rows it reported."""
        with os.fdopen(self.reading, "rb") as pipe:
            return pipe.read().count(REPORTED)

    def wait_for_its_start(self) -> None:
        """Return when it runs its script: Python itself may not be interrupted while it forks."""
        os.read(self.reading, 1)


@dataclass
class Tally:
    """Outcomes of processes: how many were killed, met a full disk, or ended by themselves."""

    killed: int = 0
    interrupted: int = 0
    without_room: int = 0
    complete: int = 0


def kill_one_by_one(folder: Path, kills: int, seed: int) -> Tally:
    """Kill processes one after the other, each going on where the one before was killed."""
    return _until(folder, seed, lambda tally: tally.killed >= kills, _killed)


def interrupt_one_by_one(folder: Path, times: int, seed: int) -> Tally:
    """Send processes Ctrl-C one after the other."""
    return _until(folder, seed, lambda tally: tally.interrupted >= times, _interrupted)


def fill_the_disk(folder: Path, times: int, seed: int) -> Tally:
    """Let files grow to random sizes only, in processes one after the other."""
    return _until(folder, seed, lambda tally: tally.without_room >= times, _without_room)


def kill_among_four(folder: Path, kills: int, seed: int) -> Tally:
    """Kill one of four processes that write into the same files, and start another in its place, again and again."""
    return _until(folder, seed, lambda tally: tally.killed >= kills, _one_of_four_killed)


def _until(
    folder: Path,
    seed: int,
    is_enough: Callable[[Tally], bool],
    step: Callable[[KilledCampaign, random.Random, Tally], None],
) -> Tally:
    """Take steps in one campaign after the other; each ends complete."""
    tally, chance = Tally(), random.Random(seed)
    while not is_enough(tally):
        campaign = KilledCampaign(folder / f"campaign-{tally.complete}", seed)
        while not campaign.is_complete:
            step(campaign, chance, tally)
        tally.complete += 1
    return tally


def _killed(campaign: KilledCampaign, chance: random.Random, tally: Tally) -> None:
    process = campaign.started()
    status = process.status_after(chance.uniform(0, 0.2))
    assert status in (0, KILLED), f"status {status}"
    tally.killed += status == KILLED
    campaign.note(process)


def _interrupted(campaign: KilledCampaign, chance: random.Random, tally: Tally) -> None:
    process = campaign.started()
    process.wait_for_its_start()
    status = process.status_after(chance.uniform(0, 0.2), signal.SIGINT)
    assert status in {0, *INTERRUPTED}, f"status {status}"
    tally.interrupted += status in INTERRUPTED
    campaign.note(process)


def _without_room(campaign: KilledCampaign, chance: random.Random, tally: Tally) -> None:
    path = campaign.campaign.database.operator_measurements.path
    size = path.stat().st_size if path.exists() else 0
    process = campaign.started(file_bytes=size + chance.randrange(4000))
    status = process.status_after(LONGEST_S)
    assert status in (0, NO_ROOM), f"status {status}"
    tally.without_room += status == NO_ROOM
    campaign.note(process)


def _one_of_four_killed(campaign: KilledCampaign, chance: random.Random, tally: Tally) -> None:
    processes = [campaign.started(name) for name in MODELS]
    victims = chance.sample(processes, chance.randrange(1, len(processes) + 1))
    for process in processes:
        status = process.status_after(chance.uniform(0, 0.1) if process in victims else LONGEST_S)
        assert status in (0, KILLED), f"status {status}"
        tally.killed += status == KILLED
    campaign.note(*processes)


def _operator(model: int, number: int) -> OperatorTuple:
    return OperatorTuple("torch.nn.ReLU", (), (TensorSpec((model + 1, number), "float32"),))
