"""Pauses between calls, and a load between measurements. On a GPU: tests/test_gpu.py."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch

from opcost.errors import CannotMeasureError
from opcost.measuring.flags import Flag
from opcost.measuring.instruments import NOTHING
from opcost.measuring.workload import Calls
from opcost.torch_backend import workload as module
from opcost.torch_backend.cuda_graph import CaptureRefusal
from opcost.torch_backend.workload import BackgroundLoad, with_pauses

CLOCK_HZ = 2e9


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls in order; pauses with their length."""
    made: list[str] = []
    monkeypatch.setattr(module, "_pause", lambda clocks, _: made.append(f"pause of {1e3 * clocks / CLOCK_HZ:.3f} ms"))
    return made


def taking(monkeypatch: pytest.MonkeyPatch, cycle_s: float, is_captured: bool = True) -> None:
    """Let a cycle take so long, 10 % longer where it is not captured, and a pause as long as its clocks."""

    def in_graph_s(call: Callable[[], object], calls: int, _: str) -> float:
        if not is_captured:
            raise CaptureRefusal("it waits")
        return calls * cycle_s

    def eager_s(call: Callable[[], object], calls: int, _: str) -> float:
        return module.PROBE_CLOCKS / CLOCK_HZ if calls == 1 else 1.1 * cycle_s

    monkeypatch.setattr(module, "time_in_graph_s", in_graph_s)
    monkeypatch.setattr(module, "_time_s", eager_s)


def test_calls_run_for_a_while_and_then_pause(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    taking(monkeypatch, 0.5e-3)
    calls = with_pauses(Calls(partial(made.append, "call"), notes="as it is"), "cuda", 0.75)
    calls.cycle()
    # A period of 2.618 looks.
    assert made == ["call"] * 3 + ["pause of 0.594 ms"]
    assert calls.period == 3
    assert (calls.notes, calls.flags) == ("as it is", (Flag.DUTY_CYCLE,))
    made.clear()
    assert calls.overhead is not None
    calls.overhead()
    assert made == ["pause of 0.594 ms"]
    assert calls.relocated is None


def test_an_overhead_of_each_cycle_stays_one(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    taking(monkeypatch, 0.45e-3)
    cold = Calls(partial(made.append, "turn"), period=3, overhead=partial(made.append, "evict"))
    calls = with_pauses(cold, "cuda", 0.5)
    calls.cycle()
    assert made == ["turn", "turn", "pause of 1.006 ms"]
    assert calls.period == 6
    made.clear()
    assert calls.overhead is not None
    calls.overhead()
    assert made == ["evict", "evict", "pause of 1.006 ms"]


def test_calls_on_other_memory_pause_as_well(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    taking(monkeypatch, 4e-3)
    places = iter("ab")
    calls = Calls(partial(made.append, "first"), relocated=lambda: partial(made.append, next(places)))
    relocated = with_pauses(calls, "cuda", 0.75).relocated
    assert relocated is not None
    one, other = relocated(), relocated()
    other()
    one()
    assert made == ["b", "pause of 1.906 ms", "a", "pause of 1.906 ms"]


def test_calls_that_fill_a_reading_have_no_room_for_pauses(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    taking(monkeypatch, 16e-3)
    with pytest.raises(CannotMeasureError, match="a call of 0.016 s is too long for pauses"):
        with_pauses(Calls(partial(made.append, "call")), "cuda", 0.75)


def test_calls_that_are_not_captured_are_timed_as_they_are(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    taking(monkeypatch, 1e-3 / 1.1, is_captured=False)
    with_pauses(Calls(partial(made.append, "call")), "cuda", 0.5).cycle()
    # Eager calls take 1 ms here; a period of 2.618 looks.
    assert made == ["call", "pause of 1.094 ms"]


def test_an_eager_call_is_timed_behind_a_pause_that_hides_its_launch(
    made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def device_time_s(work: Callable[[], object], stream: str) -> float:
        work()
        return {"stream of cuda:1": 0.3}[stream]

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(module, "device_time_s", device_time_s)
    assert module._time_s(partial(made.append, "call"), 3, "cuda:1") == pytest.approx(0.1)
    assert made == ["call", f"pause of {1e3 * module.PROBE_CLOCKS / CLOCK_HZ:.3f} ms", "call", "call", "call"]


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


def test_while_it_is_paused_no_loop_that_ends_starts_it(workload: Recorded, background: BackgroundLoad) -> None:
    background.resume()
    assert workload.await_more()
    with background.paused():
        rounds = workload.rounds
        background.before_start()
        assert background.after_finish() == NOTHING
        time.sleep(0.02)
        assert workload.rounds == rounds
    assert workload.await_more()


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
