"""A file is replaced as a whole or not at all."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from opcost.storage.files import held_folder, replace_file


def names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_new_file_is_written_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert names_in(path.parent) == ["file"]


def test_what_a_killed_writer_left_is_removed_by_the_next_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "table [1].csv"
    program = "import os, sys, opcost.storage.files as files; os.replace = lambda *_: os._exit(1)\n"
    program += "files.replace_file(files.Path(sys.argv[1]), b'new')"
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", program, path], check=False).returncode == 1
    others = [f".{path.name}.original", f".{path.name}x.a.opcost-tmp"]
    old, young = names_in(tmp_path)
    for name in (old, *others):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    replace_file(path, b"new")
    assert names_in(tmp_path) == sorted([path.name, young, *others])


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_an_old_file_is_replaced_and_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"something longer")
    path.chmod(mode)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert names_in(tmp_path) == ["file"]


def test_a_reader_that_has_the_file_open_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        replace_file(path, b"new")
        assert reader.read() == b"old"


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk is full"), KeyboardInterrupt()], ids=["full disk", "interrupt"])
def test_what_fails_on_the_way_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["file"]


def test_the_content_is_on_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (steps.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append("replace"), replace(*paths)))
    replace_file(tmp_path / "file", b"new")
    assert steps == ["fsync", "replace"]


HOLDS = "import time; from opcost.storage.files import held_folder; hold = held_folder('opcost-x-')\n"
HOLDS += "print(hold.__enter__(), flush=True); time.sleep(1000)"


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_holds_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    processes = [subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True) for _ in "ab"]
    try:
        left, held = [Path(process.stdout.readline().strip()) for process in processes if process.stdout]
        (left / "marks").touch()
        processes[0].kill()
        processes[0].wait()
        (tmp_path / "precious").mkdir()
        (tmp_path / "opcost-x-link").symlink_to(tmp_path / "precious")
        young = tmp_path / "opcost-x-young"
        young.mkdir()
        for path in (left, held, tmp_path / "precious"):
            os.utime(path, (0, 0))
        with held_folder("opcost-x-") as own:
            names = {path.name for path in tmp_path.iterdir()}
            assert names == {held.name, own.name, young.name, "precious", "opcost-x-link"}
        assert not own.exists()
    finally:
        for process in processes:
            process.kill()
            process.communicate()
