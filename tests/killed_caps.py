"""A power-cap sweep on a limit in a file, as a process of its own that is killed at random moments.

As a program it sweeps in a folder: the limit is ``limit``, the work sleeps. The folder's ``limit`` is 650 before.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

from file_limit import FileLimit

from opcost.command.run import run
from opcost.metering.cap_rows import CapCost, Wish
from opcost.progress import Progress
from opcost.stages.power_cap import CapBoard, CapSweepPlan, sweep_caps

FOUND_W = 650.0
WORK_S = 0.02
LONGEST_END_S = 10.0
ROOT = Path(__file__).parents[1]


class SleepingWork:
    """Takes 20 ms at full power and longer below 500 W; a child process sleeps, as a command would."""

    name = "sleep"
    is_steady = True

    def __init__(self, limit: FileLimit) -> None:
        self._limit = limit

    def measure(self) -> CapCost:
        cap_w = self._limit.limit_w()
        subprocess.run(["sleep", str(WORK_S)], check=True)
        time_s = WORK_S * max(1.0, 500.0 / cap_w)
        return CapCost(time_s, time_s * min(cap_w, 600.0))


def sweep(folder: Path) -> int:
    limit = FileLimit(folder / "limit")
    board = CapBoard("cuda:0", limit.name, partial(FileLimit, folder / "limit"))
    sweep_caps(board, lambda: nullcontext(SleepingWork(limit)), CapSweepPlan(Wish(), 3), lambda _: None, Progress())
    return 0


def started(folder: Path) -> subprocess.Popen[bytes]:
    """Start a sweep in a folder."""
    (folder / "limit").write_text(str(FOUND_W))
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder)}
    command = [sys.executable, __file__, str(folder)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, start_new_session=True)


def guardian_of(process: int) -> int | None:
    """Return the guardian of a process, None if there is none."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == process and b"power_limit import serve" in words:
                return int(entry.name)
    return None


def wait_for_end(process: int) -> None:
    """Wait until a killed process holds no files: it does, until it is run once more."""
    with suppress(OSError):
        while (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
            time.sleep(0.002)


def wait_for_set(folder: Path, process: subprocess.Popen[bytes], cap_below_w: float = FOUND_W) -> bool:
    """Wait until a cap is set; return False if the process ended before."""
    while process.poll() is None:
        if float((folder / "limit").read_text()) < cap_below_w:
            return True
        time.sleep(0.002)
    return False


def is_restored(folder: Path, within_s: float = LONGEST_END_S) -> bool:
    """Return whether the limit is the old one within some time, and stays so for a moment."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        if float((folder / "limit").read_text()) == FOUND_W:
            time.sleep(0.1)
            return float((folder / "limit").read_text()) == FOUND_W
        time.sleep(0.01)
    return False


def kill_once(chance: random.Random, number: int = signal.SIGKILL) -> tuple[bool, bool]:
    """Start a sweep and send it a signal at a random moment; return whether a cap was set then, and if it is restored.

    Half of the moments are anywhere after the start, half are soon after a cap was set.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with started(folder) as process:
            if chance.random() < 0.5:
                time.sleep(chance.uniform(0.0, 2.0))
            else:
                wait_for_set(folder, process)
                time.sleep(chance.uniform(0.0, 0.3))
            was_capped = float((folder / "limit").read_text()) != FOUND_W
            process.send_signal(number)
            process.wait(LONGEST_END_S)
            # The guardian holds the pipe of errors open until it ends.
        return was_capped, is_restored(folder)


if __name__ == "__main__":
    run(lambda: sweep(Path(sys.argv[1])))
