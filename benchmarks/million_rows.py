"""Time and memory of commands with a large database: the committed rows again and again under other keys

Block 2 is started with --dry-run for models that are counted already, so that it only looks up which rows exist. The
same with the committed database alone stands beside it.
Example: PYTHONPATH=. python benchmarks/million_rows.py --measurements measurements --rows 1000000
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from tables import markdown

from opcost.command.options import Parser, add_options, folder_option
from opcost.measuring.record import MeasurementRow
from opcost.operators.tuples import short_hash
from opcost.storage.database import Database
from opcost.storage.table import CsvTable

ROOT = Path(__file__).parent.parent
APPENDS = 20
MODELS = tuple(f"{name}_32x3x224x224" for name in ("resnet18", "resnet34", "resnet50", "alexnet", "vgg11"))


def enlarged(database: Path, folder: Path, rows: int) -> Path:
    """Return a copy of a database whose operators have so many rows: further ones are of operators that are none."""
    large = folder / "database"
    shutil.copytree(database, large, ignore=shutil.ignore_patterns("power_logs*", "run_logs"))
    table = Database(large).operator_measurements
    known = table.rows()
    numbers = count()
    for first in range(len(known), rows, len(known)):
        chunk = known[: rows - first]
        others = [replace(row, key=_other_key(row.key, next(numbers))) for row in chunk]
        lines = table.text(others).partition("\n")[2]
        with table.path.open("a", encoding="utf-8", newline="") as file:
            file.write(lines)
    return large


def _other_key(key: str, number: int) -> str:
    # Hashes are spread evenly, so that samples by the beginning of keys are samples.
    return f"{short_hash(str(number))}-{key.partition('-')[2]}"


def run(*arguments: str) -> str:
    """Return how long a run of Python takes, and the most memory that it has, in words."""
    begin_s = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, arguments)
    return f"{time.perf_counter() - begin_s:.1f} s, {usage.ru_maxrss / 1024:.0f} MB"


def appends_s(table: CsvTable[MeasurementRow]) -> list[float]:
    """Return how long each of some appends takes, in s."""
    row = Database(ROOT / "database").operator_measurements.rows()[0]
    times_s = []
    for number in range(APPENDS):
        begin_s = time.perf_counter()
        table.append(replace(row, key=_other_key(row.key, 2**60 + number)))
        times_s.append(time.perf_counter() - begin_s)
    return times_s


def line(name: str, database: Path, measurements: Path) -> Sequence[str]:
    """Return a line of the table."""
    options = ("--measurements", str(measurements), "--database", str(database))
    page = str(database / "report.html")
    found = [
        run("general_pipeline_block2.py", *options, "--dry-run", "--device", "cpu"),
        run("general_pipeline_block2.py", *options, "--dry-run", "--device", "NVIDIA H200", *MODELS),
        run("compare_sum_vs_full.py", *options, "--dry-run", "--device", "cuda"),
        run("-m", "opcost", "show", *options),
        run("-m", "opcost", "show", "--conditions", *options),
        run("-m", "opcost", "report", "--output", page, *options, *MODELS),
    ]
    table = Database(database).operator_measurements
    appended_ms = sorted(1e3 * each for each in appends_s(table))
    size_mb = table.path.stat().st_size / 1e6
    span = f"{appended_ms[0]:.1f} ms to {appended_ms[-1]:.1f} ms"
    return name, f"{size_mb:.0f} MB", span, *found


def main() -> int:
    parser = Parser(description=__doc__)
    rows = folder_option("--database", "the rows to begin with")
    add_options(parser, folder_option("--measurements", "models that block 1 has filtered"), rows)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small = enlarged(arguments.database, Path(folder) / "small", 0)
        lines = [line("as it is", small, arguments.measurements)]
        large = enlarged(arguments.database, Path(folder) / "large", arguments.rows)
        lines.append(line(f"{arguments.rows} rows", large, arguments.measurements))
    commands = ("block 2 knows", "a plan for an H200", "all compared", "show", "show --conditions", "a report")
    print(markdown(("database", "size", "an append", *commands), lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
