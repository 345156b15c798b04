"""A process that answers questions: what happens there, and what is seen of it here."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

from opcost.errors import CannotMeasureError, UserError
from opcost.running import worker_process
from opcost.running.worker_process import Answering, ChildFaultError, ChildProcess, ReportStep

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30.0
STEPS, STEP_S = 8, 0.2
DEAF_S = 3.0


def answer(report_step: ReportStep, question: object) -> object:
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
        case "sleep through SIGTERM":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            report_step("deaf")
            time.sleep(DEAF_S)
        case "steps":
            for _ in range(STEPS):
                report_step("walking")
                time.sleep(STEP_S)
        case "walk and sleep":
            report_step("walking")
            time.sleep(PATIENCE_S)
        case "log":
            logging.getLogger("far.away").debug("no one wants this")
            logging.getLogger("far.away").info("seen nothing yet")
            logging.getLogger("far.away").warning("seen %d of %s", 3, object)
    return question


@contextmanager
def opened(
    closed_path: Path | None = None, error: Exception | None = None, sleep_s: float = 0.0, *, report_step: ReportStep
) -> Iterator[Answering]:
    if error is not None:
        raise error
    time.sleep(sleep_s)
    yield partial(answer, report_step)
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
def test_what_ends_the_process_is_reported(question: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    with ChildProcess(opened) as child:
        with pytest.raises(ChildFaultError, match=f"^{words}$"):
            child.ask(question)
        with pytest.raises(ChildFaultError, match="already ended"):
            child.ask("pid")
    assert ("ZeroDivisionError: by\nzero" in caplog.text) == (question == "bug")


@pytest.mark.parametrize(
    ("question", "limits_s", "reason"),
    [
        ("sleep", {"thinking": 0.2}, "silent for 0.2 s while thinking"),
        ("walk and sleep", {"thinking": PATIENCE_S, "walking": 0.3}, "silent for 0.3 s while walking"),
        # As one that hangs in a driver: only SIGKILL ends it.
        ("sleep through SIGTERM", {"thinking": PATIENCE_S, "deaf": 0.2}, "silent for 0.2 s while deaf"),
    ],
)
def test_a_process_that_is_silent_for_too_long_in_a_step_is_ended_at_once(
    question: str, limits_s: dict[str, float], reason: str
) -> None:
    with ChildProcess(opened) as child:
        process_id = child.ask("pid", {"thinking": PATIENCE_S})
        begin_s = time.monotonic()
        with pytest.raises(ChildFaultError, match=f"^{reason}$"):
            child.ask(question, limits_s)
        assert not _lives(process_id)
    assert time.monotonic() - begin_s < DEAF_S


@pytest.mark.parametrize("look_s", [0.1, 5.0])
def test_a_process_that_reports_a_step_again_and_again_may_take_longer_than_its_limit(
    look_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "POLL_S", look_s)
    with ChildProcess(opened) as child:
        begin_s = time.monotonic()
        assert child.ask("steps", {"thinking": PATIENCE_S, "walking": 5 * STEP_S}) == "steps"
    assert time.monotonic() - begin_s > 6 * STEP_S


def test_a_step_without_a_limit_may_be_silent() -> None:
    with ChildProcess(opened) as child:
        assert child.ask("steps", {"thinking": 10 * STEP_S}) == "steps"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"sleep_s": PATIENCE_S}, ChildFaultError, "^silent for 0.5 s while opening$"),
        ({"error": UserError("no such device")}, UserError, "no such device"),
        ({"error": KeyError("x")}, ChildFaultError, "KeyError"),
    ],
)
def test_an_opening_that_hangs_or_fails_is_reported(options: dict[str, Any], error: type, words: str) -> None:
    opening_s = 0.5 if "sleep_s" in options else None
    with pytest.raises(error, match=words), ChildProcess(partial(opened, **options), opening_s=opening_s):
        pass


def test_time_in_which_no_one_listened_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-Z, or when the machine has slept: both processes had stopped."""
    monkeypatch.setattr(worker_process, "POLL_S", 0.1)
    looks: list[float] = []

    class Stopped:
        def poll(self, timeout: float) -> bool:
            looks.append(timeout)
            return len(looks) > 3

        def recv(self) -> tuple[str, str]:
            return "answer", "late"

        def send(self, question: object) -> None:
            """No process is there."""

    child = ChildProcess(opened)
    monkeypatch.setattr(child, "_connection", Stopped())
    assert child.ask("anything", {"thinking": 0.35}) == "late"
    assert looks == pytest.approx([0.1, 0.1, 0.1, 0.05])


def test_what_is_logged_there_is_logged_here_from_the_level_here_on(caplog: pytest.LogCaptureFixture) -> None:
    with ChildProcess(opened) as child:
        child.ask("log")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("far.away", "WARNING")
    assert record.getMessage() == "seen 3 of <class 'object'>"
    caplog.clear()
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


# Ctrl-C


@pytest.fixture
def another_thread() -> Iterator[None]:
    """Run a thread that blocks no signal, as libraries do: the system may hand it any."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    yield
    ended.set()
    thread.join()


def during_start(monkeypatch: pytest.MonkeyPatch, before: Callable[[], None], after: Callable[[int], None]) -> None:
    """Let something happen right before and right after a process is started, ``after`` with its number."""
    start = SpawnProcess.start

    def watched(process: SpawnProcess) -> None:
        before()
        start(process)
        assert process.pid is not None
        after(process.pid)

    monkeypatch.setattr(SpawnProcess, "start", watched)


@pytest.mark.usefixtures("another_thread")
def test_an_interrupt_while_the_process_is_started_is_delivered_when_it_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process_ids: list[int] = []
    during_start(monkeypatch, partial(os.kill, os.getpid(), signal.SIGINT), process_ids.append)
    with pytest.raises(KeyboardInterrupt), ChildProcess(opened):
        pytest.fail("the interrupt was lost")
    assert len(process_ids) == 1
    assert not _lives(process_ids[0])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_an_interrupt_that_is_ignored_here_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As nohup and a shell's background jobs have it."""
    during_start(monkeypatch, partial(os.kill, os.getpid(), signal.SIGINT), lambda _: None)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ChildProcess(opened) as child:
            assert child.ask("still there") == "still there"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("is_main_thread", [True, False], ids=["main thread", "another thread"])
def test_an_interrupt_never_reaches_the_process(is_main_thread: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor in its first moment, in which it runs no line of Python yet."""
    during_start(monkeypatch, lambda: None, lambda process_id: os.kill(process_id, signal.SIGINT))
    answers: list[object] = []

    def ask() -> None:
        with ChildProcess(opened) as child:
            os.kill(child.ask("pid"), signal.SIGINT)
            answers.append(child.ask("still there"))

    if is_main_thread:
        ask()
    else:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(PATIENCE_S)
    assert answers == ["still there"]


# A fresh process, whose first start is that of multiprocessing's resource tracker, too. It prints how often it was
# interrupted while its child was started, and whether that answers.
INTERRUPTED = """
import os, signal, sys
from multiprocessing.context import SpawnProcess
from test_worker_process import ChildProcess, opened

interrupts = []

def start_among_interrupts(process, start=SpawnProcess.start):
    os.killpg(0, signal.SIGINT)
    start(process)
    os.killpg(0, signal.SIGINT)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
    SpawnProcess.start = start_among_interrupts
    with ChildProcess(opened) as child:
        print(len(interrupts) > 0, child.ask("still there"))
"""


def test_an_interrupt_of_all_processes_while_one_is_started_is_seen_by_the_first_one_only() -> None:
    asking = program(INTERRUPTED, start_new_session=True)
    assert asking.communicate(timeout=PATIENCE_S)[0] == "True still there\n"
    assert asking.returncode == 0


def program(text: str, **options: bool) -> subprocess.Popen[str]:
    """Start a program that may import this module."""
    folder = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": f"{folder}:{folder.parents[1]}"}
    command = [sys.executable, "-c", text]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, **options)


ASKING = """
from test_worker_process import ChildProcess, opened

if __name__ == "__main__":
    with ChildProcess(opened) as child:
        print(child.ask("pid"), flush=True)
        child.ask("sleep")
"""


def test_the_process_ends_with_the_one_that_asks_even_if_that_is_killed() -> None:
    with program(ASKING) as asking:
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


# The working folder is no place of modules

SHADOWED = "multiprocessing pickle signal random queue logging threading struct socket tempfile".split()


def test_modules_in_the_working_folder_do_not_run(tmp_path: Path) -> None:
    """As for the program ``opcost``, whose path does not have it."""
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text("open('ran', 'w'); raise SystemExit('shadowed')\n")
    program = tmp_path / "bin" / "program.py"
    program.parent.mkdir()
    program.write_text(
        "from opcost.running.worker_process import ChildProcess\n"
        "from test_worker_process import opened\n"
        "if __name__ == '__main__':\n"
        "    with ChildProcess(opened) as child:\n"
        "        child.ask('pid')\n"
    )
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests", Path(__file__).parent)))
    command = [sys.executable, str(program)]
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert not (tmp_path / "ran").exists()
