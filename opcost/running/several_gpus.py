"""Workers for several GPUs of this host: a process of its own for each, which has cores of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import TypeAlias

from opcost.errors import UserError
from opcost.measuring.setting import USUAL
from opcost.meters.gpus import visible_gpus
from opcost.power.ports import GpuError
from opcost.running.bench import Bench, ChildBench, device_uuid
from opcost.running.engine import Board, Event, Executor, Lost, Supply, Unit, Worker
from opcost.storage.database import Database
from opcost.units import some_of

ALL = "all"

Message: TypeAlias = Event | BaseException | None
"""An event, an error that has ended the worker, or None: it waits for a unit, or has come to its end."""


def named_gpus(numbers: Sequence[str]) -> dict[str, str]:
    """Return the UUIDs of GPUs by names ``cuda:N``; ``numbers`` may be ``ALL``. Raises UserError: one is missing."""
    named = ",".join(numbers)
    try:
        there = visible_gpus(os.environ)
    except GpuError as error:
        raise UserError(f"--gpus {named}: {error}") from error
    wanted = list(there) if named == ALL else [f"cuda:{number}" for number in numbers]
    for name in wanted:
        if name not in there:
            found = some_of([name.removeprefix("cuda:") for name in there])
            raise UserError(f"--gpus {named}: {name} is not there; there are {found}")
    return {name: there[name] for name in wanted}


def shares_of_cores(cores: Sequence[int], workers: int) -> list[Sequence[int] | None]:
    """Return the cores of each worker, neighbours together; None for all if there are fewer than workers."""
    each = len(cores) // workers
    return [cores[number * each : (number + 1) * each] if each else None for number in range(workers)]


class SeveralGpus(Executor):
    """A thread for each GPU asks its process; all events are yielded in one thread."""

    def __init__(self, benches: Mapping[str, ChildBench]) -> None:
        self._benches = benches
        of_kind: dict[str, Bench] = {}
        for bench in benches.values():
            of_kind.setdefault(bench.conditions(USUAL).key, bench)
        self.kinds = of_kind
        self.workers = tuple(
            Worker(name, bench.conditions(USUAL).key, device_uuid(bench)) for name, bench in benches.items()
        )

    def execute(self, supply: Supply) -> Iterator[tuple[Worker, Event]]:
        messages: SimpleQueue[tuple[Worker, Message]] = SimpleQueue()
        inboxes: dict[Worker, SimpleQueue[Unit | None]] = {worker: SimpleQueue() for worker in self.workers}
        threads: list[threading.Thread] = []
        busy: set[Worker] = set()

        def heard() -> Iterator[tuple[Worker, Event]]:
            worker, message = messages.get()
            if isinstance(message, UserError) and len(inboxes) > 1:
                del inboxes[worker]
                busy.remove(worker)
                yield worker, Lost(str(message))
            elif isinstance(message, BaseException):
                raise message
            elif message is None:
                busy.remove(worker)
            else:
                yield worker, message

        try:
            for worker, inbox in inboxes.items():
                threads.append(_started(_work, worker, Board(self._benches[worker.name]), inbox, messages))
            while True:
                for worker in [one for one in inboxes if one not in busy]:
                    if (unit := supply(worker)) is not None:
                        busy.add(worker)
                        inboxes[worker].put(unit)
                if not busy:
                    break
                yield from heard()
            for worker, inbox in inboxes.items():
                busy.add(worker)
                inbox.put(None)
            while busy:
                yield from heard()
        except BaseException:
            for inbox in inboxes.values():
                inbox.put(None)
            _abandon(self._benches, threads)
            raise


def _started(function: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def _abandon(benches: Mapping[str, ChildBench], threads: Iterable[threading.Thread]) -> None:
    """End the processes, and wait for the threads that ask them: only one of all may end a process."""
    for bench in benches.values():
        bench.abandon()
    for thread in threads:
        thread.join()


def _work(
    worker: Worker, board: Board, inbox: SimpleQueue[Unit | None], messages: SimpleQueue[tuple[Worker, Message]]
) -> None:
    try:
        while (unit := inbox.get()) is not None:
            for event in board.execute(unit):
                messages.put((worker, event))
            messages.put((worker, None))
        for event in board.finish():
            messages.put((worker, event))
        messages.put((worker, None))
    except BaseException as error:
        messages.put((worker, error))


@contextmanager
def open_several_gpus(
    devices: Collection[str], _: str | None, database: Database, with_meter: bool
) -> Iterator[SeveralGpus]:
    """Make GPUs (``cuda:N``) ready side by side, each in a process. Raises UserError: one cannot be made ready."""
    cores = shares_of_cores(sorted(os.sched_getaffinity(0)), len(devices))
    with ExitStack() as stack:
        benches = {
            device: stack.enter_context(ChildBench(device, database, with_meter, cores=own))
            for device, own in zip(devices, cores, strict=True)
        }
        ends: SimpleQueue[BaseException | None] = SimpleQueue()
        threads: list[threading.Thread] = []
        try:
            for bench in benches.values():
                threads.append(_started(_start, bench, ends))
            for error in (ends.get() for _ in benches):
                if error is not None:
                    raise error
        except BaseException:
            _abandon(benches, threads)
            raise
        try:
            yield SeveralGpus(benches)
        finally:
            # Side by side, since a process takes seconds to close its device.
            for thread in [_started(bench.__exit__, None, None, None) for bench in benches.values()]:
                thread.join()


def _start(bench: ChildBench, ends: SimpleQueue[BaseException | None]) -> None:
    try:
        bench.start()
        ends.put(None)
    except BaseException as error:
        ends.put(error)
