"""The engine on plain numbers: what a lost worker had found is kept once, and others find the rest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

import pytest
from simulated_apparatus import RecordedProgress

from opcost.errors import UserError
from opcost.running.engine import Board, Event, Executor, Job, Lost, Supply, Worker, carry_out

FIRST, SECOND = Worker("first", "", None), Worker("second", "", None)


class Nothing:
    """A bench of numbers."""

    step_times_s: Mapping[str, float] = {}


@dataclass(frozen=True)
class Numbers:
    """Finds its numbers."""

    numbers: tuple[int, ...]
    board: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self.numbers))

    def run(self, bench: Nothing) -> Iterator[int]:
        yield from self.numbers


class NumbersJob(Job):
    """Keeps numbers."""

    number = 5
    unit_items = 2

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.failed: list[str] = []

    def groups(self) -> Iterator[tuple[Numbers, ...]]:
        yield Numbers((1, 2, 3)), Numbers((4, 5))

    def rest(self, item: Numbers) -> Numbers:
        return replace(item, numbers=tuple(number for number in item.numbers if number not in self.kept))

    def keep(self, worker: Worker, item: Numbers, content: int) -> str:
        self.kept.append(content)
        return str(content)

    def fail(self, item: Numbers, reason: str) -> None:
        self.failed.append(reason)


@dataclass
class Losing(Executor):
    """Loses the first worker after some events, then the second one after as many if it is to be lost, too."""

    events: int
    are_both_lost: bool = False
    kinds: Mapping[str, Nothing] = field(default_factory=dict)
    workers = (FIRST, SECOND, replace(SECOND, name="third"))

    def execute(self, supply: Supply) -> Iterator[tuple[Worker, Event]]:
        for worker in self.workers:
            is_lost = worker == FIRST or (self.are_both_lost and worker == SECOND)
            for event in islice(self._events(worker, supply), self.events if is_lost else None):
                yield worker, event
            if is_lost:
                yield worker, Lost("gone")

    def _events(self, worker: Worker, supply: Supply) -> Iterator[Event]:
        board = Board(Nothing())
        while (unit := supply(worker)) is not None:
            yield from board.execute(unit)


@pytest.mark.parametrize("events", range(12))
def test_what_a_lost_worker_had_found_is_kept_once_and_another_finds_the_rest(events: int) -> None:
    job, progress = NumbersJob(), RecordedProgress()
    ended = list(carry_out(Losing(events), {"": job}, progress))
    assert (sorted(job.kept), job.failed) == ([1, 2, 3, 4, 5], [])
    assert len(ended) == 2
    assert len(progress.results) == job.number


def test_an_item_that_two_workers_were_lost_with_is_set_aside() -> None:
    job = NumbersJob()
    ended = list(carry_out(Losing(1, are_both_lost=True), {"": job}, RecordedProgress()))
    assert (sorted(job.kept), job.failed) == ([4, 5], ["gone"])
    assert len(ended) == 2


def test_a_kind_without_workers_ends_the_run_once_others_have_ended() -> None:
    job, executor = NumbersJob(), Losing(2)
    executor.workers = (FIRST, Worker("other", "other kind", None))
    with pytest.raises(UserError, match="no worker of its kind is left: first: gone; run the same command again"):
        list(carry_out(executor, {"": job, "other kind": NumbersJob()}, RecordedProgress()))
    assert (job.kept, job.failed) == ([1], ["gone"])


class FullJob(NumbersJob):
    """Has one number for each worker, and no room for any."""

    unit_items = 1

    def groups(self) -> Iterator[tuple[Numbers, ...]]:
        yield from ((Numbers((number,)),) for number in range(2))

    def keep(self, worker: Worker, item: Numbers, content: int) -> str:
        raise UserError("the disk is full")


class SideBySide(Losing):
    """Events come from all workers in turn."""

    def execute(self, supply: Supply) -> Iterator[tuple[Worker, Event]]:
        for events in zip(*(self._events(worker, supply) for worker in self.workers[:2]), strict=True):
            yield from zip(self.workers, events, strict=False)


def test_a_row_that_cannot_be_kept_is_no_failure_of_what_others_measure() -> None:
    job = FullJob()
    with pytest.raises(UserError, match="the disk is full"):
        list(carry_out(SideBySide(0), {"": job}, RecordedProgress()))
    assert job.failed == []
