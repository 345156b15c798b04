"""One campaign per device at a time, kept by a lock that dies with its process."""

import os
import pickle
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from opcost.errors import UserError
from opcost.running.device_lock import DeviceBusyError, device_lock
from opcost.running.planned_bench import waiting
from opcost.running.worker_process import Answering, ChildProcess, ReportStep
from opcost.storage.database import Database

ROOT = Path(__file__).parents[2]
REMEDY = "wait for it, as measure, profile and sweep do with --wait, or choose another device"


SESSION_FOLDER = tempfile.gettempdir()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this test and of the programs that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def holder(name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a device's lock until its stdin is closed."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom opcost.running.device_lock import device_lock\n"
        f"with device_lock({name!r}):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def refusal(name: str) -> str:
    """The one line that refuses a device's lock."""
    with pytest.raises(UserError) as caught, device_lock(name):
        pass
    (line,) = caught.value.lines
    return line


def test_a_device_that_another_process_measures_is_refused_with_its_number_and_time() -> None:
    with holder("cuda:0") as process:
        number = rf"{process.pid} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\S+"
        for _ in range(2):
            # A refusal leaves the holder's lock and note as they are.
            assert re.fullmatch(rf"cuda:0 is being measured by process {number}; {REMEDY}", refusal("cuda:0"))
        with device_lock("cuda:1"):
            pass


def test_a_campaign_can_wait_until_the_device_is_free() -> None:
    with holder("cuda:0") as process:
        with pytest.raises(DeviceBusyError) as caught, device_lock("cuda:0"):
            pass
        sent = pickle.loads(pickle.dumps(caught.value))
        waiter = threading.Thread(target=sent.wait)
        waiter.start()
        waiter.join(0.2)
        assert waiter.is_alive()
        assert process.stdin is not None
        process.stdin.close()
        waiter.join(60)
        assert not waiter.is_alive()
    with device_lock("cuda:0"):
        pass


def test_an_opener_that_waits_opens_again_until_no_other_campaign_holds_the_device(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    opened: list[object] = []

    @contextmanager
    def busy_twice(*arguments: object) -> Iterator[str]:
        opened.append(arguments)
        if len(opened) < 3:
            raise DeviceBusyError("cuda:0 is being measured by process 1; wait", tmp_path / "no lock")
        yield "bench"

    with waiting(busy_twice)("cuda:0", Database(tmp_path), True) as bench:
        assert bench == "bench"
    assert opened == [("cuda:0", Database(tmp_path), True)] * 3
    assert caplog.messages == ["waiting: cuda:0 is being measured by process 1"] * 2


def test_the_process_that_somebody_started_is_named_not_its_child() -> None:
    with ChildProcess(held_lock) as child:
        child.ask("anything")
        assert f"is being measured by process {os.getpid()} since" in refusal("child")


@contextmanager
def held_lock(*, report_step: ReportStep) -> Iterator[Answering]:
    with device_lock("child"):
        yield str


def test_a_lock_is_free_after_its_process_was_killed_or_an_error_within_it() -> None:
    with holder("cpu") as process:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
        with device_lock("cpu"):
            assert f"process {os.getpid()} since" in refusal("cpu")
    with pytest.raises(ZeroDivisionError), device_lock("cpu"):
        raise ZeroDivisionError
    with device_lock("cpu"):
        pass


def test_the_file_stays_and_names_no_process_once_the_lock_is_free(folder: Path) -> None:
    with device_lock("NVIDIA H200/ü:0"):
        pass
    (file,) = folder.iterdir()
    assert re.fullmatch(r"opcost-[A-Za-z0-9_-]+\.lock", file.name)
    assert file.read_text() == ""


def test_a_shorter_note_leaves_nothing_of_a_longer_one(folder: Path) -> None:
    (folder / "opcost-cpu.lock").write_text("9" * 500)
    with device_lock("cpu"):
        assert f"process {os.getpid()} since" in refusal("cpu")


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_every_user_may_read_the_file_and_only_its_owner_write_it(folder: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with device_lock("cpu"):
            assert stat.S_IMODE((folder / "opcost-cpu.lock").stat().st_mode) == 0o644
    finally:
        os.umask(before)


def test_a_file_that_may_only_be_read_is_locked_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "opcost-cpu.lock"
    file.write_text("")
    file.chmod(0o444)
    if os.geteuid() == 0:  # who may write everything
        monkeypatch.setattr(os, "open", refuse_writing(os.open))
    with device_lock("cpu"):
        assert refusal("cpu") == f"cpu is being measured by another process; {REMEDY}"
    assert file.read_text() == ""


def refuse_writing(real_open: Callable[..., int]) -> Callable[..., int]:
    def open_to_read(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY) and not flags & os.O_EXCL:
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, flags, mode)

    return open_to_read


@pytest.mark.parametrize("note", [b"", b"12", b"\xff\x1b[2J 12", b"1 \x1b[2J", b"999999999 2026-11-23 10:00:00+00:00"])
def test_a_note_that_makes_no_sense_or_names_no_process_is_not_shown(folder: Path, note: bytes) -> None:
    with holder("cpu"):
        (folder / "opcost-cpu.lock").write_bytes(note)
        assert refusal("cpu") == f"cpu is being measured by another process; {REMEDY}"


def test_a_link_to_another_file_is_not_followed(folder: Path) -> None:
    precious = folder / "precious"
    precious.write_text("kept")
    (folder / "opcost-cpu.lock").symlink_to(precious)
    assert refusal("cpu").startswith(f"{folder / 'opcost-cpu.lock'}: cannot be locked (")
    assert precious.read_text() == "kept"


@pytest.mark.parametrize("writing", ["allowed", "refused"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.hardlink_to(path.with_name("precious"))])
def test_what_is_no_plain_file_of_its_own_is_neither_locked_nor_written(
    folder: Path, make: Callable[[Path], None], writing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user may put something at the path. A pipe would be waited for, and a hard link be truncated."""
    precious, file = folder / "precious", folder / "opcost-cpu.lock"
    precious.write_text("kept")
    make(file)
    if writing == "refused":
        monkeypatch.setattr(os, "open", refuse_writing(os.open))
    remedy = "remove it, or set TMPDIR to another folder"
    assert refusal("cpu") == f"{file}: cannot be locked (no plain file, or one with several names); {remedy}"
    assert precious.read_text() == "kept"


def test_no_temporary_folder_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "nowhere"))
    assert refusal("cpu").endswith("(No such file or directory); remove it, or set TMPDIR to another folder")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    assert refusal("cpu").startswith("no folder for temporary files can be written; ")


def test_the_tests_share_no_lock_with_a_users_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    command = [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"]
    assert subprocess.check_output(command, text=True).strip() == tempfile.gettempdir() == SESSION_FOLDER
    assert Path(SESSION_FOLDER).name.startswith("opcost-tests-")
