"""Kill `opcost sweep` at random moments, on the CPU with a tiny model: no repetition may be lost, none be there twice

Each sweep is a real command with its measuring process. It is killed (SIGKILL) at a random moment between its start and
its usual end, and the next command goes on. After each kill all rows from before are still there, and so are all
repetitions that the command has reported. When a sweep is complete, another one begins. About 8 minutes for 50 kills.
Example: PYTHONPATH=. python benchmarks/sweep_kills.py --kills 50
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from opcost.measuring.sweep_record import SweepRepetitionRow
from opcost.storage.database import Database

ROOT = Path(__file__).parents[1]

NET = """
from torch import nn, randn
def build(size=16):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), randn(1, 3, size, size)
"""
SIZES, REPETITIONS = (8, 16, 32), 8
OPTIONS = (
    *("--size", ",".join(map(str, SIZES)), "--repetitions", str(REPETITIONS), "--seconds", "0.2"),
    *("--allow-code", "--device", "cpu", "--no-predict", "--home", "home"),
)
REPORTED = re.compile(r"size ([0-9]+), repetition ([0-9]+): [0-9]")
FIRST_KILL_S, LAST_KILL_S = 3.0, 16.0
"""The moments of kills after a start: Python and torch take 5 s, and a sweep about 25 s."""

ENDED_WITHIN_S = 5.0
"""The time in which the measuring process ends after its parent, and gives the device back."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, metavar="NUMBER")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance, begin_s, kills, complete, reported = random.Random(arguments.seed), time.monotonic(), 0, 0, 0
    while kills < arguments.kills:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "net.py").write_text(NET, encoding="utf-8")
            is_complete = False
            while not is_complete:
                killed, found = run_once(Path(folder), chance)
                kills += killed
                reported += found
                is_complete = not killed
            complete += 1
        print(f"{kills} kills, {complete} sweeps complete", flush=True)
    print(
        f"{kills} kills, {complete} sweeps complete, {reported} repetitions reported: none lost, none twice "
        f"({time.monotonic() - begin_s:.0f} s)"
    )
    return 0


def run_once(folder: Path, chance: random.Random) -> tuple[bool, int]:
    """Run the command and kill it at a random moment; return whether it was, and how many repetitions it reported.

    Raises:
        AssertionError: a row is lost or there twice, or the command ended in another way.
    """
    before = rows_in(folder)
    log = folder / "stderr"
    with log.open("wb") as stderr:
        command = [sys.executable, "-m", "opcost", "sweep", "net.py:build", *OPTIONS]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=stderr)
        try:
            status = process.wait(chance.uniform(FIRST_KILL_S, LAST_KILL_S))
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
    text = log.read_text(encoding="utf-8", errors="replace")
    assert status in (0, -signal.SIGKILL), f"status {status}: {text}"
    time.sleep(ENDED_WITHIN_S if status else 0.0)
    after = rows_in(folder)
    numbers = Counter((row.place.size, row.repetition) for row in after)
    assert after[: len(before)] == before, "a row from before is lost"
    assert set(numbers.values()) <= {1}, "a repetition is there twice"
    found = {(int(size), int(number)) for size, number in REPORTED.findall(text)}
    assert found <= numbers.keys(), f"reported and not there: {found - numbers.keys()}"
    # The last line may have been cut off with the process.
    assert len(after) - len(before) - len(found) in (0, 1), f"{len(after) - len(before)} rows, {len(found)} reported"
    if status == 0:
        assert len(after) == len(SIZES) * REPETITIONS, f"complete with {len(after)} repetitions"
    return status != 0, len(found)


def rows_in(folder: Path) -> list[SweepRepetitionRow]:
    """Return the repetitions in a home."""
    return Database(folder / "home" / "database").sweep_repetitions.rows()


if __name__ == "__main__":
    sys.exit(main())
