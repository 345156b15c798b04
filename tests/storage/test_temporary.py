"""Temporary folders of killed processes are removed; those of living ones, of others and links stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opcost.storage.temporary import held_folder

HOLDS = "import time; from opcost.storage.temporary import held_folder; hold = held_folder('opcost-x-')\n"
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
