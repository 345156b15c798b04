"""Workers on many hosts, through a Dask scheduler (``opcost worker``): this client alone writes the database.

A worker that is lost leaves its items to others. Its nanny starts it again, and it takes part again.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, cast

from distributed import Client, Future, fire_and_forget
from distributed.scheduler import KilledWorker

from opcost.errors import UserError
from opcost.measuring.conditions import Circumstances, Conditions
from opcost.measuring.known_device import QualificationRow
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import MeasuredCases
from opcost.measuring.setting import Setting, is_part_of
from opcost.operators.counts import Case
from opcost.running.dask_workers import RESOURCE, TOPIC, WAIT_S, Claim, Facts, answer, scheduler_at, seen
from opcost.running.engine import Event, Executor, Lost, Supply, Unit, Worker
from opcost.storage.database import Database

ALL = "all"
"""The topic of Dask's own messages."""

WINDOW = 2
"""The units of a worker in flight: the next one is there when one ends."""

TICK_S = 1.0
"""The time without messages after which a client looks whether the scheduler is still there."""

RETURN_S = 60.0
"""The longest wait for the last worker of a kind to take part again; a nanny starts it in seconds."""

CONNECT_S = 10.0
"""The longest time until a scheduler answers."""

COLLECTED_AT_ONCE = 8
"""Workers whose power logs are collected at once: a piece of each is in memory."""

AGAIN = "run the same command again to continue"
ENDED = "its process has ended"


@dataclass(eq=False)
class _Station:
    """A worker that takes part, and the keys of its units in flight; ``is_dry`` if its last request got no unit."""

    address: str
    worker: Worker
    keys: set[object] = field(default_factory=set)
    is_dry: bool = False


class RemoteBench:
    """Implements ``Bench`` for a kind of device: workers of this kind answer, and measure units."""

    step_times_s: Mapping[str, float] = {}

    def __init__(self, facts: Facts, executor: ManyHosts) -> None:
        self.device, self.is_gpu, self.has_meter = facts.device, facts.is_gpu, facts.has_meter
        self.drift_case, self._kind, self._executor = facts.drift_case, facts.kind, executor
        self._answers: dict[object, Any] = {}

    def conditions(self, setting: Setting) -> Conditions:
        return cast("Conditions", self._remembered("conditions", setting))

    def circumstances(self, protocol: MeasurementProtocol) -> Circumstances:
        return cast("Circumstances", self._remembered("circumstances", protocol))

    def measure(self, case: Case, setting: Setting, protocol: MeasurementProtocol, log_name: str) -> MeasuredCases:
        raise AssertionError("units measure")

    def _remembered(self, method: str, argument: object) -> Any:
        if argument not in self._answers:
            self._answers[argument] = self._executor.ask(self._kind, method, argument)
        return self._answers[argument]


class ManyHosts(Executor):
    """The workers of a scheduler that have a device: those that are there first, and later ones of the same kinds.

    With ``products``, parts of products' names, other devices are left out.
    """

    def __init__(self, client: Client, claim: Claim, products: Sequence[str], database: Database) -> None:
        self._client, self._claim, self._products = client, claim, products
        self._table = database.meter_qualifications
        self._benches: dict[str, RemoteBench] = {}
        self.kinds, self.workers = self._benches, ()
        # Messages of workers, futures that have ended, and None if workers have come or gone.
        self._messages: SimpleQueue[bytes | Future[Any] | None] = SimpleQueue()
        self._numbers = count()
        self._stations: dict[str, _Station] = {}
        self._flying: dict[object, tuple[_Station, Future[Any]]] = {}
        # Workers that open a bench, by the key of the answer, and why others take no part, by address.
        self._opening: dict[object, tuple[str, str, Future[Any]]] = {}
        self._refusals: dict[str, str] = {}
        self._hungry: set[_Station] = set()
        # Until when a worker of a kind is awaited, and why the last one was lost.
        self._awaited: dict[str, tuple[float, str]] = {}
        self._is_open = False
        client.subscribe_topic(TOPIC, lambda event: self._messages.put(event[1]))
        client.subscribe_topic(ALL, self._notice)

    def open(self) -> None:
        """Open a bench on each worker that is there. Raises UserError: there is none, or none can be opened."""
        end_s = time.monotonic() + WAIT_S
        while True:
            # Others may have come while benches were opened.
            list(self._look())
            if self._stations and not self._opening:
                break
            if not self._opening and self._refusals:
                raise UserError(*dict.fromkeys(self._refusals.values()))
            if not self._opening and time.monotonic() > end_s:
                raise UserError(f"the scheduler has no worker with a {RESOURCE}; start some: opcost worker")
            list(self._heard())
        self._is_open = True

    def execute(self, supply: Supply) -> Iterator[tuple[Worker, Event]]:
        course = f"course-{next(self._numbers)}"
        self._hungry = set(self._stations.values())
        there = {station.worker.kind for station in self._stations.values()}
        self._awaited = {kind: (time.monotonic() + RETURN_S, ENDED) for kind in self._benches.keys() - there}
        try:
            while self._give(course, supply):
                yield from self._heard()
            for station in self._stations.values():
                self._submit(station, course, None)
            while self._flying:
                yield from self._heard()
        except BaseException:
            for station in self._stations.values():
                self._cancel(station)
            raise

    def ask(self, kind: str, method: str, argument: object) -> Any:
        """Return the answer of a bench of a kind. Raises UserError: no worker of this kind is left."""
        for station in self._stations.values():
            if station.worker.kind == kind:
                return self._result(station, self._question(station.address, "ask", method, argument))
        raise UserError(f"no worker with this kind of device is left; start it, and {AGAIN}")

    def collect_logs(self, folder: Path) -> None:
        """Copy the power logs that the workers have to a folder, and close their benches."""
        waiting = list(self._stations.values())
        asked: dict[_Station, Future[Any]] = {}
        closing: dict[_Station, Future[Any]] = {}
        while waiting or asked:
            while waiting and len(asked) < COLLECTED_AT_ONCE:
                station = waiting.pop()
                asked[station] = self._question(station.address, "logs", ("", 0))
            station = next(iter(asked))
            with self._forgiven():
                pieces = self._result(station, asked.pop(station))
                for name, offset, content in pieces:
                    with open(folder / name, "ab" if offset else "wb") as log:
                        log.write(content)
                if pieces:
                    name, offset, content = pieces[-1]
                    asked[station] = self._question(station.address, "logs", (name, offset + len(content)))
                else:
                    closing[station] = self._question(station.address, "close", True)
        for station, future in closing.items():
            with self._forgiven():
                self._result(station, future)

    @contextmanager
    def _forgiven(self) -> Iterator[None]:
        """Only warn of a worker that has ended: all rows are there."""
        try:
            yield
        except UserError as error:
            logging.getLogger(__name__).warning("not all power logs were collected: %s", error)

    def abandon(self) -> None:
        """Close benches without waiting for it; power logs stay with the workers until a run ends well."""
        if self._client.status == "running":
            for station in self._stations.values():
                fire_and_forget(self._question(station.address, "close", False))

    def _notice(self, event: tuple[float, Any]) -> None:
        if isinstance(event[1], dict) and event[1].get("action") in ("add-worker", "remove-worker"):
            self._messages.put(None)

    def _question(self, address: str, *question: object) -> Future[Any]:
        return self._client.submit(
            answer,
            pickle.dumps(question),
            key=f"opcost-{self._claim.client}-{next(self._numbers)}",
            workers=[address],
            resources={RESOURCE: 1},
        )

    def _result(self, station: _Station, future: Future[Any]) -> Any:
        """Return an answer. Raises UserError: the worker raised this, or has gone meanwhile, as may the scheduler."""
        gone = UserError(f"{station.worker.name}: {ENDED}; {AGAIN}")
        while True:
            try:
                return future.result(timeout=TICK_S)
            except (TimeoutError, asyncio.TimeoutError):
                # A busy host may hand over an answer later.
                if future.status == "error":
                    raise
            except (KilledWorker, asyncio.CancelledError) as error:
                raise gone from error
            if station.address not in self._seen()[0]:
                raise gone

    def _seen(self) -> tuple[dict[str, str], frozenset[str]]:
        self._check()
        try:
            found: tuple[dict[str, str], frozenset[str]] = self._client.run_on_scheduler(seen)
        except OSError as error:
            raise UserError(self._gone) from error
        return found

    def _check(self) -> None:
        if self._client.status != "running":
            raise UserError(self._gone)

    @property
    def _gone(self) -> str:
        return f"the scheduler does not answer any more; start it and its workers, and {AGAIN}"

    def _look(self) -> Iterator[tuple[Worker, Event]]:
        """Yield the workers that are lost, and have new ones open a bench."""
        there, clients = self._seen()
        for address in self._stations.keys() - there:
            yield from self._lose(self._stations[address], ENDED)
        known = {*self._stations, *self._refusals, *(address for address, _, _ in self._opening.values())}
        for address in there.keys() - known:
            future = self._question(address, "open", replace(self._claim, clients=clients))
            self._opening[future.key] = address, there[address], future
            future.add_done_callback(self._messages.put)
        gone = [key for key, (address, _, _) in self._opening.items() if address not in there]
        for key in gone:
            del self._opening[key]

    def _heard(self) -> Iterator[tuple[Worker, Event]]:
        """Yield the events of the next message, if one comes soon."""
        try:
            message = self._messages.get(timeout=TICK_S)
        except Empty:
            self._check()
            return
        if message is None:
            yield from self._look()
        elif isinstance(message, bytes):
            key, content = pickle.loads(message)
            if key in self._flying:
                yield from ((self._flying[key][0].worker, event) for event in content)
            elif isinstance(content, QualificationRow) and key == self._claim.client:
                self._table.append(content)
        elif message.key in self._opening:
            self._join(*self._opening.pop(message.key))
        elif message.key in self._flying:
            yield from self._ended(self._flying[message.key][0], message)

    def _join(self, address: str, name: str, future: Future[Any]) -> None:
        try:
            facts: Facts = self._result(_Station(address, Worker(name, "", None)), future)
            if self._is_open and facts.kind not in self._benches:
                raise UserError(f"{name} has a device of another kind; it takes part in the next run")
        except UserError as error:
            self._refusals[address] = str(error)
            logging.getLogger(__name__).warning("takes no part: %s", error)
            return
        if self._products and not any(is_part_of(one, facts.product) for one in self._products):
            self._refusals[address] = f"--device {','.join(self._products)}: {name} has {facts.product}"
            fire_and_forget(self._question(address, "close", False))
            return
        self._benches.setdefault(facts.kind, RemoteBench(facts, self))
        self._stations[address] = station = _Station(address, Worker(name, facts.kind, facts.board))
        self.workers = [one.worker for one in self._stations.values()]
        self._hungry.add(station)
        self._awaited.pop(facts.kind, None)

    def _ended(self, station: _Station, future: Future[Any]) -> Iterator[tuple[Worker, Event]]:
        error = future.exception() if future.status == "error" else None
        if future.status == "finished":
            del self._flying[future.key]
            station.keys.remove(future.key)
            self._hungry.add(station)
        elif isinstance(error, UserError):
            self._refusals[station.address] = str(error)
            yield from self._lose(station, str(error))
            if not self._stations:
                raise error
        elif error is None or isinstance(error, KilledWorker):
            self._check()
            yield from self._lose(station, ENDED)
        else:
            raise error

    def _lose(self, station: _Station, reason: str) -> Iterator[tuple[Worker, Event]]:
        del self._stations[station.address]
        self.workers = [one.worker for one in self._stations.values()]
        kind, may_return = station.worker.kind, station.address not in self._refusals
        is_last = all(one.worker.kind != kind for one in self._stations.values())
        if may_return and is_last and (station.keys or not station.is_dry):
            self._awaited[kind] = time.monotonic() + RETURN_S, f"{station.worker.name}: {reason}"
        self._cancel(station)
        # Its items are theirs.
        self._hungry.discard(station)
        self._hungry.update(self._stations.values())
        yield station.worker, Lost(reason)

    def _cancel(self, station: _Station) -> None:
        futures = [self._flying.pop(key)[1] for key in station.keys]
        station.keys.clear()
        if futures and self._client.status == "running":
            self._client.cancel(futures)

    def _give(self, course: str, supply: Supply) -> bool:
        """Fill the windows of workers that may take a unit; return whether anything is to be waited for."""
        while self._hungry:
            station = self._hungry.pop()
            while len(station.keys) < WINDOW:
                unit = supply(station.worker)
                station.is_dry = unit is None
                if unit is None:
                    break
                self._submit(station, course, unit)
        for kind, (end_s, reason) in list(self._awaited.items()):
            if time.monotonic() > end_s:
                text = f"no worker of its kind is left: {reason}; start it, and {AGAIN}"
                if not self._stations:
                    raise UserError(text)
                logging.getLogger(__name__).warning("%s", text)
                del self._awaited[kind]
        return bool(self._flying or self._awaited)

    def _submit(self, station: _Station, course: str, unit: Unit | None) -> None:
        future = self._question(station.address, "execute", course, unit)
        station.keys.add(future.key)
        self._flying[future.key] = station, future
        future.add_done_callback(self._messages.put)


@contextmanager
def open_many_hosts(
    scheduler: str | Path, products: Sequence[str], _: str | None, database: Database, with_meter: bool
) -> Iterator[ManyHosts]:
    """Open the workers of a scheduler, at its address or in its file; power logs come here at the end.

    Raises UserError: the scheduler does not answer, it has no worker of these products, or no worker can be opened.
    """
    where = scheduler_at(scheduler)
    for name in ("distributed", "distributed.client", "tornado", "asyncio"):
        # A lost scheduler is one line here; they would add the tracebacks of all that waits for it.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(**where, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, asyncio.TimeoutError) as error:
        raise UserError(f"no scheduler answers at {scheduler}; start one: dask scheduler") from error
    mark = database.power_logs / f".{client.id}"
    folder = database.folder.resolve()
    claim = Claim(
        client=client.id,
        clients=frozenset(),
        folder=folder,
        mark=mark.name,
        place=blake2b(f"{socket.gethostname()} {folder}".encode(), digest_size=8).hexdigest(),
        with_meter=with_meter,
        known=tuple(database.meter_qualifications.rows()),
    )
    try:
        if with_meter:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        client.forward_logging("opcost", logging.WARNING)
        executor = ManyHosts(client, claim, products, database)
        try:
            executor.open()
            yield executor
            executor.collect_logs(database.power_logs)
        except BaseException:
            executor.abandon()
            raise
    finally:
        mark.unlink(missing_ok=True)
        if client.status == "running":
            client.unsubscribe_topic(ALL)
        client.close(timeout=2)
