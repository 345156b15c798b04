"""A process that answers questions: what happens there, and what is seen of it here."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from opcost.errors import CannotMeasureError, UserError
from opcost.running import worker_process
from opcost.running.worker_process import Answering, ChildFaultError, ChildProcess, Tell

PATIENCE_S = 30.0
STEPS, STEP_S = 8, 0.2


def answer(tell: Tell, question: object) -> object:
    """Do what is asked for."""
    match question:
        case "pid":
            return os.getpid()
        case "refuse":
            raise CannotMeasureError("no room")
        case "mistake":
            raise UserError("one", "two")
        case "bug":
            raise ZeroDivisionError("by\nzero")
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "leave":
            os._exit(7)
        case "sleep":
            time.sleep(PATIENCE_S)
        case "steps":
            for _ in range(STEPS):
                tell("walking")
                time.sleep(STEP_S)
        case "walk and sleep":
            tell("walking")
            time.sleep(PATIENCE_S)
        case "log":
            logging.getLogger("far.away").debug("nobody wants this")
            logging.getLogger("far.away").info("seen nothing yet")
            logging.getLogger("far.away").warning("seen %d of %s", 3, object)
    return question


@contextmanager
def opened(
    closed_path: Path | None = None, error: Exception | None = None, sleep_s: float = 0.0, *, tell: Tell
) -> Iterator[Answering]:
    if error is not None:
        raise error
    time.sleep(sleep_s)
    yield partial(answer, tell)
    if closed_path is not None:
        closed_path.write_text("closed")


def test_questions_are_answered_in_another_process_and_what_it_holds_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "closed"
    with ChildProcess(partial(opened, path)) as child:
        process_ids = {child.ask("pid"), child.ask("pid")}
        assert child.ask((1, "a")) == (1, "a")
        assert not path.exists()
    assert len(process_ids) == 1
    assert os.getpid() not in process_ids
    assert path.read_text() == "closed"
    assert not _lives(process_ids.pop())


def test_refusals_and_mistakes_are_answers(caplog: pytest.LogCaptureFixture) -> None:
    with ChildProcess(opened) as child:
        with pytest.raises(CannotMeasureError, match="no room"):
            child.ask("refuse")
        with pytest.raises(UserError) as mistake:
            child.ask("mistake")
        assert mistake.value.lines == ("one", "two")
        assert child.ask("still there") == "still there"
    assert caplog.records == []


@pytest.mark.parametrize(
    ("question", "words"),
    [("crash", "ended by SIGSEGV"), ("leave", "ended with status 7"), ("bug", "ZeroDivisionError: by")],
)
def test_what_ends_the_process_is_told(question: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    with ChildProcess(opened) as child:
        with pytest.raises(ChildFaultError, match=f"^{words}$"):
            child.ask(question)
        with pytest.raises(ChildFaultError, match="had ended"):
            child.ask("pid")
    assert ("ZeroDivisionError: by\nzero" in caplog.text) == (question == "bug")


def test_a_process_that_is_silent_for_too_long_is_ended() -> None:
    with ChildProcess(opened) as child:
        process_id = child.ask("pid", {"thinking": PATIENCE_S})
        with pytest.raises(ChildFaultError, match="^silent for 0.2 s while thinking$"):
            child.ask("sleep", {"thinking": 0.2})
        assert not _lives(process_id)


def test_each_step_has_its_own_limit() -> None:
    with (
        ChildProcess(opened) as child,
        pytest.raises(ChildFaultError, match="^silent for 0.3 s while walking$"),
    ):
        child.ask("walk and sleep", {"thinking": PATIENCE_S, "walking": 0.3})


@pytest.mark.parametrize("look_s", [0.1, 5.0])
def test_who_tells_of_a_step_again_and_again_may_take_longer_than_its_limit(
    look_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "LOOK_S", look_s)
    with ChildProcess(opened) as child:
        begin_s = time.monotonic()
        assert child.ask("steps", {"thinking": PATIENCE_S, "walking": 5 * STEP_S}) == "steps"
    assert time.monotonic() - begin_s > 6 * STEP_S


def test_a_step_without_a_limit_may_be_silent() -> None:
    with ChildProcess(opened) as child:
        assert child.ask("steps", {"thinking": 10 * STEP_S}) == "steps"


def test_an_opening_that_hangs_is_ended() -> None:
    with (
        pytest.raises(ChildFaultError, match="^silent for 0.5 s while opening$"),
        ChildProcess(partial(opened, sleep_s=PATIENCE_S), opening_s=0.5),
    ):
        pass


def test_time_in_which_nobody_listened_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-Z, or when the machine has slept: both processes had stopped."""
    monkeypatch.setattr(worker_process, "LOOK_S", 0.1)
    looks: list[float] = []

    class Stopped:
        def poll(self, timeout: float) -> bool:
            looks.append(timeout)
            return len(looks) > 3

        def recv(self) -> tuple[str, str]:
            return "answer", "late"

        def send(self, question: object) -> None:
            """Nobody is there."""

    child = ChildProcess(opened)
    monkeypatch.setattr(child, "_connection", Stopped())
    assert child.ask("anything", {"thinking": 0.35}) == "late"
    assert looks == pytest.approx([0.1, 0.1, 0.1, 0.05])


def test_a_mistake_at_the_opening_is_told_as_such() -> None:
    with (
        pytest.raises(UserError, match="no such device"),
        ChildProcess(partial(opened, error=UserError("no such device"))),
    ):
        pass


def test_a_fault_at_the_opening_is_told_as_such() -> None:
    with pytest.raises(ChildFaultError, match="KeyError"), ChildProcess(partial(opened, error=KeyError("x"))):
        pass


def test_what_is_logged_there_is_logged_here(caplog: pytest.LogCaptureFixture) -> None:
    with ChildProcess(opened) as child:
        child.ask("log")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("far.away", "WARNING")
    assert record.getMessage() == "seen 3 of <class 'object'>"


def test_what_is_logged_there_is_what_is_wanted_here(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), ChildProcess(opened) as child:
        child.ask("log")
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


def test_an_error_here_ends_the_process_at_once() -> None:
    begin_s = time.monotonic()
    process_ids = []

    def interrupted() -> None:
        with ChildProcess(opened) as child:
            process_ids.append(child.ask("pid"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not _lives(process_ids[0])
    assert time.monotonic() - begin_s < PATIENCE_S


def test_the_process_ends_with_the_one_that_asks_even_if_that_is_killed() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_child_process import ChildProcess, opened\n"
        "if __name__ == '__main__':\n"
        "    with ChildProcess(opened) as child:\n"
        "        print(child.ask('pid'), flush=True)\n"
        "        child.ask('sleep')\n"
    )
    folder = Path(__file__).parent
    script = [sys.executable, "-c", program, str(folder)]
    environment = os.environ | {"PYTHONPATH": f"{folder}:{folder.parent}"}
    with subprocess.Popen(script, stdout=subprocess.PIPE, env=environment) as asking:
        assert asking.stdout is not None
        process_id = int(asking.stdout.readline())
        assert _lives(process_id)
        asking.kill()
    deadline_s = time.monotonic() + PATIENCE_S / 2
    while _lives(process_id) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert not _lives(process_id)


def _lives(process_id: int) -> bool:
    """Return whether a process runs; one that has ended but was not waited for does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
