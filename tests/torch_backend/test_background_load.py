"""A load that keeps a device at work while nothing is measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from opcost.errors import CannotMeasureError
from opcost.measuring.observers import NOTHING
from opcost.torch_backend.interludes import BackgroundLoad

PATIENCE_S = 10.0


class Recorded:
    """A workload that counts its rounds."""

    execution = "eager"
    iterations_per_round = 1
    placements = 1
    waits = None
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
def background(workload: Recorded) -> Iterator[BackgroundLoad]:
    background = BackgroundLoad(lambda: workload)
    yield background
    background.close()


def test_it_runs_from_resume_to_pause_again_and_again(workload: Recorded, background: BackgroundLoad) -> None:
    for _ in range(3):
        background.resume()
        background.resume()
        assert workload.await_more()
        assert workload.await_more()
        background.pause()
        rounds = workload.rounds
        assert workload.finished_at == rounds
        time.sleep(0.02)
        assert workload.rounds == rounds


def test_as_an_observer_it_rests_in_loops_and_goes_on_when_they_end(
    workload: Recorded, background: BackgroundLoad
) -> None:
    background.resume()
    for _ in range(2):
        assert workload.await_more()
        background.before_build()
        assert workload.await_more()
        background.before_start()
        rounds = workload.rounds
        background.during()
        time.sleep(0.02)
        assert workload.rounds == rounds
        assert background.after_finish() == NOTHING


def test_a_pause_before_any_work_is_nothing(workload: Recorded, background: BackgroundLoad) -> None:
    background.pause()
    assert workload.rounds == 0
    assert workload.finished_at == -1


def test_it_ends_when_it_is_closed(workload: Recorded) -> None:
    before = threading.active_count()
    background = BackgroundLoad(lambda: workload)
    background.resume()
    assert workload.await_more()
    background.close()
    assert threading.active_count() == before
    BackgroundLoad(lambda: workload).close()


def test_where_there_is_no_room_the_device_idles(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> Recorded:
        raise CannotMeasureError("out of memory")

    background = BackgroundLoad(refuse)
    for _ in range(3):
        background.resume()
        background.pause()
    background.close()
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["out of memory"]
