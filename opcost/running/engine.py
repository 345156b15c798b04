"""The engine of campaigns: a job is a plan, workers execute its items in units, and one process keeps what they find.

A worker owns one device. Units, items and events are plain data, so that a worker may be a process here or on another
host. An item may be executed twice, if its worker is lost; what it found is kept once.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, TypeAlias

from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import Setting
from opcost.progress import Progress, reported
from opcost.running.bench import Bench, LostProcessError, device_uuid, measured_rows, spending
from opcost.storage.database import Database

UNIT_ITEMS = 20
"""The most items of a unit: ten seconds of work, against which sending it takes no time."""

UNITS_LEFT = 3
"""The units that are still to be given to each worker determine their size: the last ones are single items, so that no
worker waits long for another."""

EVERY = 100
"""Measurements on a board between two drift checks: at half a second each, one check a minute."""


class Item(Protocol):
    """A piece of work in one or several parts, as plain data."""

    @property
    def names(self) -> Sequence[str]:
        """The name of each part for people."""

    @property
    def board(self) -> str | None:
        """The UUID of the board to execute it on if that has a worker; None for any."""

    def run(self, bench: Any) -> Iterator[Any]:
        """Yield what each part finds. Raises CannotMeasureError: one cannot be measured, and the rest is left out."""


@dataclass(frozen=True)
class Unit:
    """Items that one worker executes in turn, each with its number, and the protocol of drift checks, None for none."""

    items: tuple[tuple[int, Any], ...]
    check: MeasurementProtocol | None = None


@dataclass(frozen=True)
class Begun:
    """A part of the item with a number has begun."""

    item: int
    name: str


@dataclass(frozen=True)
class Found:
    """A part of an item has found something."""

    item: int
    content: Any


@dataclass(frozen=True)
class Failed:
    """A part of an item has failed; with ``is_lost`` because its process was killed, which need not be its fault."""

    item: int
    reason: str
    is_lost: bool = False


@dataclass(frozen=True)
class Ended:
    """An item has ended, with the time that it took and that of each step in s."""

    item: int
    taken_s: float
    steps_s: Mapping[str, float]


@dataclass(frozen=True)
class Checked:
    """A board was checked for drift, or a reason why it is checked no more."""

    row: MeasurementRow | None
    reason: str
    taken_s: float


@dataclass(frozen=True)
class Lost:
    """A worker executes no more, unless it asks for a unit again: it may have been started again."""

    reason: str


Event: TypeAlias = Begun | Found | Failed | Ended | Checked | Lost


class Board:
    """Executes units on a bench; it is checked for drift before the first item, every ``EVERY`` ones and at the end."""

    def __init__(self, bench: Any) -> None:
        self._bench = bench
        self._is_checked = True
        self._since: int | None = None
        self._last: tuple[MeasurementProtocol, Setting] | None = None

    def execute(self, unit: Unit) -> Iterator[Event]:
        for number, item in unit.items:
            if unit.check is not None:
                self._last = unit.check, item.setting
                if self._since is None or self._since >= EVERY:
                    yield from self._check(*self._last)
            yield from self._execute(number, item)

    def finish(self) -> Iterator[Event]:
        if self._since and self._last is not None:
            yield from self._check(*self._last)

    def _execute(self, number: int, item: Item) -> Iterator[Event]:
        spent = spending(self._bench)
        try:
            found = item.run(self._bench)
            for name in item.names:
                yield Begun(number, name)
                yield Found(number, next(found))
                self._since = None if self._since is None else self._since + 1
        except CannotMeasureError as error:
            yield Failed(number, str(error), isinstance(error, LostProcessError))
        except UserError:
            # The worker's, or the whole run's.
            raise
        except Exception as error:
            # A bug: the next campaign measures this item last.
            yield Failed(number, f"{type(error).__name__}: {error}")
            raise
        yield Ended(number, *spent())

    def _check(self, protocol: MeasurementProtocol, setting: Setting) -> Iterator[Checked]:
        self._since, case, spent = 0, self._bench.drift_case, spending(self._bench)
        if case is None or not self._is_checked:
            return
        row, reason = None, ""
        try:
            row, *_ = measured_rows(self._bench, case, setting, protocol)
        except CannotMeasureError as error:
            self._is_checked, reason = False, str(error)
        yield Checked(row, reason, spent()[0])


@dataclass(frozen=True)
class Worker:
    """A worker, the kind of its device, and the UUID of its board, None on a CPU. One alone has no name."""

    name: str
    kind: str
    board: str | None


Supply: TypeAlias = Callable[[Worker], Unit | None]
"""Returns the next unit for a worker, None if there is none now. A worker may be new, and may have units already."""


class Executor(ABC):
    """Workers, each of which owns a device; ``kinds`` has one bench for each kind of device, which answers for all."""

    kinds: Mapping[str, Bench]
    workers: Sequence[Worker]

    @abstractmethod
    def execute(self, supply: Supply) -> Iterator[tuple[Worker, Event]]:
        """Yield each event with its worker, until no unit is supplied any more and all have ended."""


class LocalExecutor(Executor):
    """The bench of this process, on a board with a UUID."""

    def __init__(self, bench: Any, board: str | None = None) -> None:
        self.kinds = {"": bench}
        self.workers = (Worker("", "", board),)

    def execute(self, supply: Supply) -> Iterator[tuple[Worker, Event]]:
        (worker,), board = self.workers, Board(self.kinds[""])
        while (unit := supply(worker)) is not None:
            yield from ((worker, event) for event in board.execute(unit))
        yield from ((worker, event) for event in board.finish())


def executor_of(bench: Bench | Executor) -> Executor:
    """Return an executor as it is, and that of a single bench."""
    return bench if isinstance(bench, Executor) else LocalExecutor(bench, device_uuid(bench))


OpenBench: TypeAlias = Callable[[str | None, Database, bool], AbstractContextManager[Bench | Executor]]
"""Makes a device or several ready. Arguments: the name of one (None for a GPU if there is one, else the CPU), the
database, whether to log power."""


class Job(ABC):
    """A plan for one kind of device: its items, and what is done with what they find.

    ``number`` is that of all parts, ``expected_s`` their times in s, empty if unknown. A job ``is_bound`` if one worker
    has to execute all of it. ``check`` is the protocol of drift checks, None for none.
    """

    number: int
    expected_s: Sequence[float] = ()
    check: MeasurementProtocol | None = None
    unit_items = UNIT_ITEMS
    is_bound = False

    @abstractmethod
    def groups(self) -> Iterator[tuple[Item, ...]]:
        """Yield the items in their order, those that one worker has to execute together.

        If units have one item and the job is bound, the next group may depend on what the ones before have found.
        """

    @abstractmethod
    def keep(self, worker: Worker, item: Any, content: Any) -> str:
        """Keep what a part of an item has found, and return it for people."""

    @abstractmethod
    def fail(self, item: Any, reason: str) -> None:
        """Keep why an item has failed."""

    def rest(self, item: Any) -> Any:
        """Return the parts that have found nothing of an item that was lost in its midst: they are executed again."""
        raise NotImplementedError(f"{item} has parts")

    def checked(self, worker: Worker, event: Checked) -> None:  # noqa: B027 (few jobs have drift checks)
        """Keep a drift check."""

    def ended(self, item: Any, event: Ended) -> None:  # noqa: B027 (few jobs account for times)
        """Account for the time of an item."""


def carry_out(executor: Executor, jobs: Mapping[str, Job], progress: Progress) -> Iterator[tuple[str, Any]]:
    """Execute jobs, by the kind of device; yield the kind and each item that has ended.

    Raises UserError: no worker of a kind is left.
    """
    course = _Course([worker for worker in executor.workers if worker.kind in jobs], jobs, progress)
    expected_s = [time_s for job in jobs.values() for time_s in job.expected_s]
    with reported(progress, sum(job.number for job in jobs.values()), expected_s, len(course.workers)):
        try:
            for worker, event in executor.execute(course.supply):
                yield from course.take(worker, event)
            course.check_ended()
        except UserError as error:
            course.give_up(str(error))
            raise


@dataclass
class _Given:
    """An item, its job, whether it has begun, how many of its parts have found something, and why it was lost."""

    job: Job
    item: Any
    has_begun: bool = False
    found: int = 0
    loss: str = ""

    def lose(self, reason: str) -> None:
        rest = self.job.rest(self.item) if self.found else self.item
        self.item, self.has_begun, self.found, self.loss = rest, False, 0, reason


class _Course:
    """Which items are given to a worker, and which are to be given again."""

    def __init__(self, workers: Sequence[Worker], jobs: Mapping[str, Job], progress: Progress) -> None:
        self.workers, self._jobs, self._progress = list(workers), jobs, progress
        self._groups = {kind: job.groups() for kind, job in jobs.items()}
        self._left = {kind: job.number for kind, job in jobs.items()}
        self._bound: dict[str, Worker] = {}
        self._losses: dict[str, str] = {}
        self._numbers = count()
        self._given: dict[int, _Given] = {}
        self._of_worker: dict[str, list[int]] = defaultdict(list)
        # Items of boards, and those to be given again to any worker of a kind.
        self._of_board: dict[str, deque[int]] = defaultdict(deque)
        self._again: dict[str, deque[int]] = defaultdict(deque)

    def supply(self, worker: Worker) -> Unit | None:
        job = self._jobs.get(worker.kind)
        if job is None:
            return None
        if worker not in self.workers:
            self.workers.append(worker)
        if job.is_bound and (self._bound.setdefault(worker.kind, worker) != worker or self._of_worker[worker.name]):
            return None
        of_kind = [one for one in self.workers if one.kind == worker.kind]
        most = max(1, min(job.unit_items, self._left[worker.kind] // (UNITS_LEFT * len(of_kind))))
        numbers: list[int] = []
        own = self._of_board[worker.board or ""]
        while own and len(numbers) < most:
            numbers.append(own.popleft())
        for group in self._groups[worker.kind] if len(numbers) < most else ():
            of_group = [next(self._numbers) for _ in group]
            self._given |= {number: _Given(job, item) for number, item in zip(of_group, group, strict=True)}
            boards = {one.board for one in of_kind} - {worker.board}
            board = next((item.board for item in group if item.board in boards), None)
            (numbers if board is None else self._of_board[board]).extend(of_group)
            if len(numbers) >= most:
                break
        if not numbers and self._again[worker.kind]:
            numbers.append(self._again[worker.kind].popleft())
        self._left[worker.kind] -= sum(len(self._given[number].item.names) for number in numbers)
        self._of_worker[worker.name] += numbers
        return Unit(tuple((number, self._given[number].item) for number in numbers), job.check) if numbers else None

    def take(self, worker: Worker, event: Event) -> Iterator[tuple[str, Any]]:
        if isinstance(event, Checked):
            self._jobs[worker.kind].checked(worker, event)
        elif isinstance(event, Lost):
            yield from self._lose(worker, event.reason)
        elif event.item in self._of_worker[worker.name]:
            # Else it was lost, and the item may be another's.
            given = self._given[event.item]
            if isinstance(event, Begun):
                given.has_begun = True
                self._progress.begin(event.name, worker.name)
            elif isinstance(event, Found):
                given.found, given.has_begun = given.found + 1, False
                self._progress.finish(given.job.keep(worker, given.item, event.content), worker.name)
            elif isinstance(event, Failed):
                self._fail(worker, event)
            else:
                self._of_worker[worker.name].remove(event.item)
                del self._given[event.item]
                given.job.ended(given.item, event)
                yield worker.kind, given.item

    def give_up(self, reason: str) -> None:
        """Keep why items have failed that were lost before, or are the last worker's: others' were interrupted."""
        for given in self._given.values():
            is_lost = given.loss and given.found < len(given.item.names)
            if is_lost or (given.has_begun and len(self.workers) == 1):
                given.job.fail(given.item, given.loss or reason)

    def check_ended(self) -> None:
        """Raise UserError: a kind has items left, and no worker."""
        for kind in self._groups.keys() - {worker.kind for worker in self.workers}:
            is_left = any(given.job is self._jobs[kind] for given in self._given.values())
            if is_left or next(self._groups[kind], None) is not None:
                reason = self._losses.get(kind, "it ended before")
                raise UserError(f"no worker of its kind is left: {reason}; run the same command again to continue")

    def _fail(self, worker: Worker, event: Failed) -> None:
        given = self._given[event.item]
        if event.is_lost and not given.loss:
            # Another process may have killed it, so it is executed once more, after all others.
            given.lose(event.reason)
            self._of_worker[worker.name].remove(event.item)
            self._again[worker.kind].append(event.item)
            return
        given.job.fail(given.item, event.reason)
        self._progress.fail(event.reason, worker.name)
        for name in given.item.names[given.found + 1 :]:
            self._progress.begin(name, worker.name)
            self._progress.finish("left out: see the failure before", worker.name)

    def _lose(self, worker: Worker, reason: str) -> Iterator[tuple[str, Any]]:
        """Give the items of a worker to others; one that had begun when a worker was lost before is set aside."""
        logging.getLogger(__name__).warning("%s: executes no more: %s", worker.name, reason)
        self.workers = [one for one in self.workers if one != worker]
        self._losses[worker.kind] = f"{worker.name}: {reason}"
        self._bound = {kind: one for kind, one in self._bound.items() if one != worker}
        own = self._of_worker.pop(worker.name, [])
        for number in [*own, *self._of_board.pop(worker.board or "", [])]:
            given = self._given[number]
            # The message that the first one has begun may be lost, too.
            has_begun = given.has_begun or number in own[:1]
            is_set_aside = has_begun and bool(given.loss) and given.found < len(given.item.names)
            if is_set_aside:
                given.job.fail(given.item, reason)
                self._progress.fail(reason, worker.name)
            if is_set_aside or given.found == len(given.item.names):
                del self._given[number]
                yield worker.kind, given.item
                continue
            if has_begun:
                given.lose(reason)
            self._again[worker.kind].append(number)
