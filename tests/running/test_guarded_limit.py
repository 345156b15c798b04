"""The old power limit comes back whatever ends a sweep."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from file_limit import FileLimit
from killed_caps import FOUND_W, ROOT, guardian_of, is_restored, kill_once, started, wait_for_end, wait_for_set

from opcost.errors import UserError
from opcost.meters.gpus import open_limit
from opcost.running.power_limit import check_consent, guarded_limit, restored, set_for_good


@pytest.fixture
def limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> partial[FileLimit]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "limit").write_text("650")
    return partial(FileLimit, tmp_path / "limit")


def sets(limit: partial[FileLimit]) -> list[float]:
    return [float(line.split()[0]) for line in limit().path.with_suffix(".sets").read_text().splitlines()]


@pytest.mark.second_tier
def test_a_killed_sweep_leaves_the_old_limit() -> None:
    chance = random.Random(1)
    assert [kill_once(chance)[1] for _ in range(3)] == [True] * 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_sweep_leaves_the_old_limit(tmp_path: Path, number: int) -> None:
    with started(tmp_path) as process:
        assert wait_for_set(tmp_path, process)
        process.send_signal(number)
        assert process.wait(10) == 128 + number
        assert float((tmp_path / "limit").read_text()) == FOUND_W


def test_without_its_guardian_a_sweep_restores_the_limit_and_stops(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        assert wait_for_set(tmp_path, process)
        guardian = guardian_of(process.pid)
        assert guardian is not None
        os.kill(guardian, signal.SIGKILL)
        assert process.wait(10) == 2
        assert process.stderr is not None
        (line,) = process.stderr.read().decode().splitlines()
    assert line.endswith("the guardian of its power limit was ended; run the command again")
    assert is_restored(tmp_path)


def test_a_guardian_that_is_terminated_restores_the_limit_itself(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        assert wait_for_set(tmp_path, process)
        guardian = guardian_of(process.pid)
        assert guardian is not None
        process.send_signal(signal.SIGSTOP)
        os.kill(guardian, signal.SIGTERM)
        assert is_restored(tmp_path)
        process.send_signal(signal.SIGCONT)
        assert process.wait(10) == 2
    assert is_restored(tmp_path)


def test_a_cap_left_by_a_killed_sweep_and_its_guardian_is_not_taken_for_the_found_limit(
    tmp_path: Path, limit: partial[FileLimit]
) -> None:
    with started(tmp_path) as process:
        assert wait_for_set(tmp_path, process)
        guardian = guardian_of(process.pid)
        assert guardian is not None
        process.send_signal(signal.SIGSTOP)
        os.kill(guardian, signal.SIGKILL)
        process.kill()
    # It inherited the lock.
    wait_for_end(guardian)
    left_w = limit().limit_w()
    assert left_w < FOUND_W
    for _ in range(2):
        with pytest.raises(UserError) as caught, guarded_limit(limit):
            pass
    (line,) = caught.value.lines
    assert all(text in line for text in (f"{left_w:g} W", f"run: set GPU-of-a-file {FOUND_W:g}"))
    assert limit().limit_w() == left_w
    lock = Path(line.rpartition(" remove ")[2])
    kept = lock.read_text()
    limit().set_limit_w(FOUND_W)
    with guarded_limit(limit) as guarded:
        assert guarded.old_w == FOUND_W
    lock.write_text(kept)
    set_for_good(limit, left_w)
    with guarded_limit(limit) as guarded:
        assert guarded.old_w == left_w


def test_a_guardian_that_restored_the_limit_leaves_no_note_of_it(tmp_path: Path, limit: partial[FileLimit]) -> None:
    with started(tmp_path) as process:
        assert wait_for_set(tmp_path, process)
        process.kill()
        process.wait()
        assert is_restored(tmp_path)
        assert process.stderr is not None
        # The guardian holds this pipe and the lock until it ends.
        assert process.stderr.read() == b""
    limit().set_limit_w(500.0)
    with guarded_limit(limit) as guarded:
        assert guarded.old_w == 500.0


def test_a_stopped_group_of_processes_is_no_end(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        assert wait_for_set(tmp_path, process)
        os.killpg(process.pid, signal.SIGKILL)
        assert is_restored(tmp_path)


FORKING = """
import os, signal, sys, time
from functools import partial
from pathlib import Path
from file_limit import FileLimit
from opcost.running.power_limit import start_guardian

open_limit = partial(FileLimit, Path(sys.argv[1]))
with open(Path(sys.argv[1]).with_suffix(".lock"), "w+") as lock:
    start_guardian(open_limit, lock.fileno())
open_limit().set_limit_w(300.0)
child = os.fork()
if not child:
    time.sleep(60)
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_limit_comes_back_though_a_forked_child_holds_the_pipe_of_its_guardian(limit: partial[FileLimit]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [sys.executable, "-c", FORKING, str(limit().path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert is_restored(limit().path.parent)
            assert Path(f"/proc/{child}/stat").read_text().rpartition(") ")[2][0] == "S"
        finally:
            os.kill(child, signal.SIGKILL)
    assert sets(limit) == [300.0, 650.0]


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_the_limit_is_set_and_comes_back(limit: partial[FileLimit], error: type[Exception] | None) -> None:
    with nullcontext() if error is None else pytest.raises(error), guarded_limit(limit) as guarded:
        guarded.set_w(300.0)
        assert limit().limit_w() == 300.0
        if error is not None:
            raise error
    assert limit().limit_w() == FOUND_W
    assert sets(limit) == [650.0, 300.0, 650.0]


def test_a_limit_of_half_a_watt_comes_back(limit: partial[FileLimit]) -> None:
    board = limit()
    board.set_limit_w(450.0)
    assert restored(board, 450.5) == 0
    assert board.limit_w() == 450.5


def test_a_guardian_starts_without_numpy() -> None:
    program = f"import sys, {open_limit.__module__}, {restored.__module__}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_two_runs_on_one_board_exclude_each_other(limit: partial[FileLimit]) -> None:
    with guarded_limit(limit) as guarded:
        guarded.set_w(300.0)
        with pytest.raises(UserError, match="is being measured by process"), guarded_limit(limit):
            pass
        assert limit().limit_w() == 300.0
    with guarded_limit(limit) as guarded:
        assert guarded.old_w == FOUND_W


def test_the_lock_holds_until_the_guardian_has_restored_the_limit(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        assert wait_for_set(tmp_path, process)
        guardian = guardian_of(process.pid)
        assert guardian is not None
        os.kill(guardian, signal.SIGSTOP)
        process.kill()
        process.wait()
        lock = next(tmp_path.glob("opcost-*power-limit.lock"))
        assert Path(f"/proc/{guardian}/fd").exists()
        held = {os.readlink(link) for link in Path(f"/proc/{guardian}/fd").iterdir()}
        assert str(lock) in held
        os.kill(guardian, signal.SIGCONT)
        assert is_restored(tmp_path)
        deadline_s = time.monotonic() + 5
        while Path(f"/proc/{guardian}").exists() and time.monotonic() < deadline_s:
            time.sleep(0.01)


def test_what_cannot_be_set_or_read_is_one_line_and_the_old_limit_is_there(
    limit: partial[FileLimit], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="100 W cannot be set"), guarded_limit(limit) as guarded:
        guarded.set_w(100.0)
    (tmp_path / "no-right").touch()
    with pytest.raises(UserError, match="no right to set its power limit") as caught, guarded_limit(limit):
        raise AssertionError("nothing may run")
    assert len(caught.value.lines) == 1
    assert limit().limit_w() == FOUND_W
    (tmp_path / "no-right").unlink()
    limit().path.unlink()
    with pytest.raises(UserError, match="GPU-of-a-file: .*[Nn]o such file"), guarded_limit(limit):
        pass


@pytest.mark.parametrize(("variable", "is_given", "is_refused"), [("", 0, 1), ("", 1, 0), ("0", 0, 1), ("1", 0, 0)])
def test_consent_is_an_option_or_a_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, is_given: int, is_refused: int
) -> None:
    monkeypatch.setenv("OPCOST_ALLOW_POWER_LIMIT", variable)
    words = "owner has agreed; then add --allow-power-limit"
    with pytest.raises(UserError, match=words) if is_refused else nullcontext():
        check_consent(bool(is_given))
