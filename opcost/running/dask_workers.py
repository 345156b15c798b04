"""Workers of a Dask scheduler, one for each device of this host: they measure for clients, and write power logs."""

from __future__ import annotations

import asyncio
import logging
import pickle
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Nanny, Worker, get_worker
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin

from opcost.errors import UserError
from opcost.measuring.known_device import HeldQualifications, QualificationRow
from opcost.measuring.setting import USUAL
from opcost.operators.counts import Case
from opcost.running.bench import ChildBench, device_uuid
from opcost.running.engine import Begun, Board, Event, Unit
from opcost.storage.database import Database
from opcost.version import __version__

RESOURCE = "GPU"
"""A worker has one; each task here takes it."""

STATION, TOPIC = "opcost", "opcost"
"""The name of the plugin of such workers, and of the messages that they send to clients."""

IDLE_S = 60.0
"""A measuring process without work for so long is closed: its background load keeps a GPU busy, and its client may have
gone. The next unit opens another one."""

PIECE_BYTES = 8_000_000
"""Power logs travel in answers of about this size."""

WAIT_S = 60.0
"""The longest time until a scheduler answers, or its file is there: a job may start it at the same moment."""

CONFIG = {
    # A measuring process is a child of a worker.
    "distributed.worker.daemon": False,
    # A thread that looks at all others every 10 ms would disturb measurements; threads and memory are as without Dask.
    "distributed.worker.profile.enabled": False,
    "distributed.nanny.pre-spawn-environ": {},
}


@dataclass(frozen=True)
class Claim:
    """A client's claim on workers: each is to open a bench, whose power logs belong to its database.

    ``clients`` are all that the scheduler knows. ``folder`` is that of the database, where a file ``mark`` shows that a
    worker sees the same folder; else logs stay with the worker under the name ``place``.
    """

    client: str
    clients: frozenset[str]
    folder: Path
    mark: str
    place: str
    with_meter: bool
    known: tuple[QualificationRow, ...]
    version: str = __version__


@dataclass(frozen=True)
class Facts:
    """The properties of a worker's bench; ``kind`` is the key of its usual conditions, ``board`` a UUID."""

    device: str
    is_gpu: bool
    has_meter: bool
    drift_case: Case | None
    kind: str
    product: str
    board: str | None


class Announced(HeldQualifications):
    """The qualifications that a client knows; it gets new ones as messages."""

    def __init__(self, worker: Worker, claim: Claim) -> None:
        super().__init__(claim.known)
        self._worker, self._client = worker, claim.client

    def append(self, row: QualificationRow) -> None:
        super().append(row)
        self._worker.log_event(TOPIC, pickle.dumps((self._client, row)))


class Station(WorkerPlugin):
    """A worker's device: opens a bench on it for a client, and executes units there, one at a time.

    Its methods are called by ``answer``, in the worker's one thread of tasks.
    """

    name = STATION
    _claim: Claim

    def __init__(self, device: str, cores: Sequence[int] | None, logs: Path) -> None:
        self._device, self._cores, self._logs = device, cores, logs

    def setup(self, worker: Worker) -> None:
        self._worker = worker
        self._lock = threading.RLock()
        self._timer = threading.Timer(IDLE_S, self._rest)
        self._bench: ChildBench | None = None
        self._board: Board | None = None
        self._course = ""

    def teardown(self, worker: Worker) -> None:
        if self._bench is not None:
            self._bench.abandon()

    def open(self, claim: Claim) -> Facts:
        """Raise UserError: another client has claimed this worker, has another version, or there is no such device."""
        name = self._worker.name
        if claim.version != __version__:
            raise UserError(f"{name} has opcost {__version__}, and this host {claim.version}; install the same version")
        if self._bench is not None and self._claim.client in claim.clients - {claim.client}:
            raise UserError(f"{name} measures for another client; wait until that has ended")
        with self._lock:
            self._close()
            self._claim, self._table = claim, Announced(self._worker, claim)
            is_shared = (Database(claim.folder).power_logs / claim.mark).exists()
            self._database = Database(claim.folder if is_shared else self._logs / claim.place)
            self._is_shared = is_shared
        with self._at_work() as bench:
            conditions = bench.conditions(USUAL)
            return Facts(
                device=bench.device,
                is_gpu=bench.is_gpu,
                has_meter=bench.has_meter,
                drift_case=bench.drift_case,
                kind=conditions.key,
                product=conditions.device_product,
                board=device_uuid(bench),
            )

    def ask(self, method: str, argument: object) -> object:
        with self._at_work() as bench:
            return getattr(bench, method)(argument)

    def execute(self, course: str, unit: Unit | None) -> int:
        """Execute a unit, or without one the last drift check, and send its events; return their number.

        A board is that of one course of units. The client has heard of all that came before an item that begins: if the
        worker is lost, so is this item alone.
        """
        key = str(self._worker.get_current_task())
        waiting, number = list[Event](), 0

        def send() -> None:
            self._worker.log_event(TOPIC, pickle.dumps((key, waiting)))
            waiting.clear()

        with self._at_work() as bench:
            if self._board is None or course != self._course:
                self._board, self._course = Board(bench), course
            try:
                for event in self._board.finish() if unit is None else self._board.execute(unit):
                    waiting.append(event)
                    number += 1
                    if isinstance(event, Begun):
                        send()
                        if self._worker.state.tasks[key].state == "cancelled":
                            # Its client has gone.
                            break
            finally:
                send()
        return number

    def logs(self, begin: tuple[str, int]) -> list[tuple[str, int, bytes]]:
        """Return pieces of the power logs from a position on: name, offset in bytes, content; none at the end."""
        found, size, (first, offset) = [], 0, begin
        folder = self._database.power_logs
        names = [] if self._is_shared or not folder.is_dir() else sorted(path.name for path in folder.iterdir())
        for name in names:
            if name >= first and size < PIECE_BYTES:
                begin_at = offset if name == first else 0
                with open(folder / name, "rb") as log:
                    log.seek(begin_at)
                    content = log.read(PIECE_BYTES)
                if content or name != first:
                    found.append((name, begin_at, content))
                    size += len(content)
        return found

    def close(self, with_logs: bool) -> None:
        """Close the bench, and remove the power logs if the client has them all."""
        with self._lock:
            self._close()
            if with_logs and not self._is_shared:
                shutil.rmtree(self._database.folder, ignore_errors=True)

    @contextmanager
    def _at_work(self) -> Iterator[ChildBench]:
        with self._lock:
            try:
                if self._bench is None:
                    self._bench = ChildBench(self._device, self._database, self._claim.with_meter, cores=self._cores)
                    self._bench.table = self._table
                    self._bench.start()
                yield self._bench
            except BaseException:
                self._close()
                raise
            finally:
                self._timer.cancel()
                self._timer = threading.Timer(IDLE_S, self._rest)
                self._timer.daemon = True
                self._timer.start()

    def _rest(self) -> None:
        # Not while a unit is executed, which sets another timer at its end.
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()

    def _close(self) -> None:
        bench, self._bench, self._board = self._bench, None, None
        if bench is not None:
            bench.__exit__(None, None, None)


def answer(question: bytes) -> Any:
    """Answer a client's question in a worker: a pickled method of its station, and arguments."""
    method, *arguments = pickle.loads(question)
    return getattr(get_worker().plugins[STATION], method)(*arguments)


def seen(dask_scheduler: Any) -> tuple[dict[str, str], frozenset[str]]:
    """Return the names of workers with a device by their addresses, and all clients; called in the scheduler."""
    running = [one for one in dask_scheduler.workers.values() if one.status == Status.running]
    return {one.address: one.name for one in running if RESOURCE in one.resources}, frozenset(dask_scheduler.clients)


def scheduler_at(scheduler: str | Path) -> dict[str, str]:
    """Return how Dask finds a scheduler: by its address, or its file, which may come soon. Raises UserError: none."""
    if isinstance(scheduler, str):
        return {"address": scheduler}
    end_s = time.monotonic() + WAIT_S
    while not scheduler.exists():
        if time.monotonic() > end_s:
            start = f"dask scheduler --scheduler-file {scheduler}"
            raise UserError(f"--scheduler-file {scheduler}: no such file; start a scheduler: {start}")
        time.sleep(0.1)
    return {"scheduler_file": str(scheduler)}


def serve(scheduler: Mapping[str, str], devices: Mapping[str, Sequence[int] | None], logs: Path) -> None:
    """Run a worker for each device, with its cores, until the scheduler ends.

    Raises UserError: the scheduler does not answer, or has workers of these names; KeyboardInterrupt: a signal came.
    """
    import dask.config

    where = {"scheduler_ip" if name == "address" else name: value for name, value in scheduler.items()}
    with dask.config.set(CONFIG):
        number = asyncio.run(_serve(where, devices, logs))
    if number is not None:
        raise KeyboardInterrupt(number)


async def _serve(
    scheduler: Mapping[str, str], devices: Mapping[str, Sequence[int] | None], logs: Path
) -> signal.Signals | None:
    interrupted: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()

    def interrupt(number: signal.Signals) -> None:
        if not interrupted.done():
            interrupted.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, interrupt, number)
    host = socket.gethostname()
    nannies = [
        Nanny(
            **scheduler,
            name=f"{host} {device}",
            nthreads=1,
            resources={RESOURCE: 1},
            memory_limit=0,
            plugins=(Station(device, cores, logs),),
            dashboard=False,
            death_timeout=WAIT_S,
            silence_logs=logging.ERROR,
        )
        for device, cores in devices.items()
    ]

    async def work() -> None:
        await asyncio.gather(*nannies)
        names = ", ".join(nanny.name for nanny in nannies)
        logging.getLogger(__name__).warning("measures for clients of %s: %s", nannies[0].scheduler.address, names)
        await asyncio.gather(*(nanny.finished() for nanny in nannies))

    working = asyncio.ensure_future(work())
    ends: list[asyncio.Future[Any]] = [interrupted, working]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    try:
        if working.done() and working.exception() is not None:
            reason = str(working.exception()).partition("\n")[0]
            raise UserError(f"no worker for {', '.join(scheduler.values())}: {reason}; check that its scheduler runs")
    finally:
        working.cancel()
        with suppress(asyncio.TimeoutError):
            closing = (nanny.close(timeout=5, reason="the worker ends") for nanny in nannies)
            await asyncio.wait_for(asyncio.gather(*closing, return_exceptions=True), 10)
    return interrupted.result() if interrupted.done() else None
