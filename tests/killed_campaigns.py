"""Campaigns on the simulated device whose processes are killed or interrupted at random, or run out of disk, and go on.

Files are real: configs, pickles, the database. A process is forked, so that it is at work at once.
"""

import logging
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulated_apparatus import RecordedProgress, SimulatedCampaign
from simulated_machine import Load

from opcost.command.run import run
from opcost.errors import UserError
from opcost.measuring.protocol import GPU_WARM_UP_S, MeasurementProtocol
from opcost.measuring.record import MeasurementRow
from opcost.operators.counts import tuple_key
from opcost.operators.tuples import OperatorTuple, TensorSpec
from opcost.stages.measure_operators import measure_operators
from opcost.storage.model_counts import FILTERED_COUNTS

FULL = MeasurementProtocol(warm_up_s=GPU_WARM_UP_S, loop_s=30.0)
MODELS = ("a", "b", "c", "d")
OPERATORS_OF_A_MODEL = 4
NO_ROOM = 7
"""The status of a process that met a full disk."""

LONGEST_LIFE_S = 0.2
"""Of a process that is to be ended; on a busy machine, where that is too short for a row, the next one lives longer."""

LONGEST_S = 60.0
LONGEST_END_S = 3.0
"""After a signal."""

STARTED, REPORTED = b"s", b"."
"""Reports of processes, byte by byte."""

ENDED_BY = {signal.SIGKILL: {-signal.SIGKILL}, signal.SIGINT: {128 + signal.SIGINT, -signal.SIGINT}}
"""Statuses after a signal; -SIGINT after main has ended. A shell sees the same status for both."""


class PipedProgress(RecordedProgress):
    """Reports each row to another process."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def finish(self, result: str, worker: str = "") -> None:
        """Report: the row is on disk."""
        os.write(self._descriptor, REPORTED)


@dataclass(frozen=True)
class Process:
    """A process that was forked, and where it reports rows."""

    identifier: int
    reading: int

    def status_after(self, seconds: float, sent: signal.Signals = signal.SIGKILL) -> int:
        """Send it a signal then, unless it has ended; return its status, below 0 for the signal that ended it."""
        status = self._status_within(seconds)
        if status is None:
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


class KilledCampaign:
    """A folder with four models of operators of their own, and how many rows were reported in it so far."""

    def __init__(self, folder: Path) -> None:
        self.reported = self.ends = 0
        self.longest_s = LONGEST_LIFE_S
        folder.mkdir()
        operators = {
            name: [
                OperatorTuple("torch.nn.ReLU", (), (TensorSpec((index, number), "float32"),))
                for number in range(1, OPERATORS_OF_A_MODEL + 1)
            ]
            for index, name in enumerate(MODELS, 1)
        }
        load = Load(time_s=0.01, power_w=300.0)
        self.campaign = SimulatedCampaign(folder, {operator: load for own in operators.values() for operator in own})
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
        request = self.campaign.request(*names)
        try:
            measure_operators(request, lambda _: FULL, self.campaign.open_apparatus, PipedProgress(writing))
        except UserError as error:
            return NO_ROOM if "make room" in str(error) else 1
        return 0

    def note(self, *processes: Process) -> None:
        """Count what ended processes had reported, and check all files.

        Raises:
            AssertionError: a row is lost or there twice, or a file cannot be read or contradicts another.
        """
        reported = sum(process.reported() for process in processes)
        self.longest_s = LONGEST_LIFE_S if reported else 1.5 * self.longest_s
        self.reported += reported
        self.ends += len(processes)
        keys = [row.key for row in self.rows()]
        assert len(set(keys)) == len(keys), "a row is there twice"
        assert self.reported <= len(keys) <= self.reported + self.ends, (
            f"{self.reported} rows reported, {len(keys)} there"
        )
        measured = {tuple_key(key) for key in keys}
        for config in self.campaign.request().configs():
            wanted = {count.operator.key for count in FILTERED_COUNTS.read(config).counts}
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


def killed(campaign: KilledCampaign, chance: random.Random, sent: signal.Signals = signal.SIGKILL) -> int:
    """Go on in a process, and send it a signal at a random moment; return whether that ended it."""
    process = campaign.started()
    if sent != signal.SIGKILL:
        # Python itself may not be interrupted while it forks.
        os.read(process.reading, len(STARTED))
    status = process.status_after(chance.uniform(0, campaign.longest_s), sent)
    assert status in {0, *ENDED_BY[sent]}, f"status {status}"
    campaign.note(process)
    return int(status != 0)


def interrupted(campaign: KilledCampaign, chance: random.Random) -> int:
    """Do the same with Ctrl-C."""
    return killed(campaign, chance, signal.SIGINT)


def without_room(campaign: KilledCampaign, chance: random.Random) -> int:
    """Go on in a process whose files may grow to a random size only; return whether it met that limit."""
    path = campaign.campaign.database.operator_measurements.path
    size = path.stat().st_size if path.exists() else 0
    process = campaign.started(file_bytes=size + chance.randrange(4000))
    status = process.status_after(LONGEST_S)
    assert status in (0, NO_ROOM), f"status {status}"
    campaign.note(process)
    return int(status == NO_ROOM)


def killed_among_four(campaign: KilledCampaign, chance: random.Random) -> int:
    """Kill some of four processes that write into the same files; return how many."""
    processes = [campaign.started(name) for name in MODELS]
    victims = chance.sample(processes, chance.randrange(1, len(processes) + 1))
    statuses = [
        one.status_after(chance.uniform(0, campaign.longest_s / 2) if one in victims else LONGEST_S)
        for one in processes
    ]
    assert {*statuses} <= {0, *ENDED_BY[signal.SIGKILL]}, f"statuses {statuses}"
    campaign.note(*processes)
    return sum(status != 0 for status in statuses)


ATTACKS = {"kills": killed, "among_four": killed_among_four, "full_disks": without_room, "interrupts": interrupted}


def attack(name: str, folder: Path, times: int, seed: int) -> tuple[int, int]:
    """Attack campaigns one after the other until so many processes were ended by it; each goes on until it is complete.

    Returns:
        How many processes were ended, and how many campaigns were completed.

    Raises:
        AssertionError: what an attack left is not as it must be.
    """
    chance, ended, complete = random.Random(seed), 0, 0
    while ended < times:
        campaign = KilledCampaign(folder / f"campaign-{complete}")
        while not campaign.is_complete:
            ended += ATTACKS[name](campaign, chance)
        complete += 1
    return ended, complete
