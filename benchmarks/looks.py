"""CPU time and memory of commands that look: at the shipped rows, and at mistakes in a config and in a user's file.

Each command runs once before it is timed, as Python then has its compiled files and opcost what it keeps. A command
that another process slows down takes less time the next time, so the shortest of its runs counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = (
    "--version",
    "show",
    "show resnet50",
    "show --conditions",
    "predict resnet50 --device H200 --batch 64",
    "report --output {folder}/report.html",
    "layers resnet50",
    "show mistaken --measurements {folder}",
    "profile {folder}/syntax.py:build --allow-code",
    "profile {folder}/net.py:biuld --allow-code",
    "profile {folder}/net.py:build --allow-code --argument widht=3",
)
FILES = {
    "mistaken/summary.yml": "model_nme: resnet50\n",
    "net.py": "import torch\ndef build(width=4): ...\n",
    "syntax.py": "def build(:\n",
}


def cost(words: list[str]) -> tuple[float, float]:
    """Return the CPU time of a program in s, and its largest memory in MB."""
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(child.pid, 0)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def main() -> None:
    usage = "PYTHONPATH=. python benchmarks/looks.py [-h] [--runs RUNS]"
    parser = argparse.ArgumentParser(usage=usage, description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each command (default: %(default)s)")
    runs = parser.parse_args().runs
    python = [sys.executable]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        opcost = {one: [*python, "-m", "opcost", *one.format(folder=folder).split()] for one in COMMANDS}
        print("    s   MB")
        for name, words in {"import opcost": [*python, "-c", "import opcost"], **opcost}.items():
            cost(words)
            time_s, memory_mb = min(cost(words) for _ in range(runs))
            print(f"{time_s:5.2f} {memory_mb:4.0f}  {name}", flush=True)


if __name__ == "__main__":
    main()
