"""A load that keeps a device at work while nothing is measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from opcost.errors import CannotMeasureError
from opcost.torch_backend.background_load import Filler

PATIENCE_S = 10.0


class Recorded:
    """A workload that counts its rounds."""

    execution = "eager"
    iterations_per_round = 1
    places = 1
    flags = ()
    notes = ""
    ended_s = None

    def __init__(self) -> None:
        self.rounds = 0
        self.finished_at = -1
        self.more = threading.Event()

    def run(self, rounds: int) -> int:
        time.sleep(0.001)
        self.rounds += rounds
        self.more.set()
        return rounds

    def finish(self) -> None:
        self.finished_at = self.rounds

    def await_more(self) -> bool:
        self.more.clear()
        return self.more.wait(PATIENCE_S)


@pytest.fixture
def workload() -> Recorded:
    return Recorded()


@pytest.fixture
def filler(workload: Recorded) -> Iterator[Filler]:
    filler = Filler(lambda: workload)
    yield filler
    filler.close()


def test_it_runs_from_resume_to_pause_again_and_again(workload: Recorded, filler: Filler) -> None:
    for _ in range(3):
        filler.resume()
        filler.resume()
        assert workload.await_more()
        assert workload.await_more()
        filler.pause()
        rounds = workload.rounds
        assert workload.finished_at == rounds
        time.sleep(0.02)
        assert workload.rounds == rounds


def test_a_pause_before_any_work_is_nothing(workload: Recorded, filler: Filler) -> None:
    filler.pause()
    assert workload.rounds == 0
    assert workload.finished_at == -1


def test_it_ends_when_it_is_closed(workload: Recorded) -> None:
    before = threading.active_count()
    filler = Filler(lambda: workload)
    filler.resume()
    assert workload.await_more()
    filler.close()
    assert threading.active_count() == before
    Filler(lambda: workload).close()


def test_where_there_is_no_room_the_device_idles(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> Recorded:
        raise CannotMeasureError("out of memory")

    filler = Filler(refuse)
    for _ in range(3):
        filler.resume()
        filler.pause()
    filler.close()
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["out of memory"]
