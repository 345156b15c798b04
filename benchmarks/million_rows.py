"""How long block 2 and the comparison take with a large database: the committed rows again and again under other keys

Block 2 is started with --dry-run for models that are counted already, so that it only looks up which rows exist. The
same with the committed database alone stands beside it.
Example: PYTHONPATH=. python benchmarks/million_rows.py --measurements measurements --rows 1000000
"""

from __future__ import annotations

import resource
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
from opcost.storage.database import Database
from opcost.storage.table import CsvTable

ROOT = Path(__file__).parent.parent
APPENDS = 20
HASH_DIGITS = 16


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
    return f"{number:0{HASH_DIGITS}x}-{key.partition('-')[2]}"


def run(script: str, *options: str) -> tuple[float, float]:
    """Return how long a script runs, in s, and the most memory that any has taken so far, in MB."""
    begin_s = time.perf_counter()
    subprocess.run([sys.executable, ROOT / script, *options], check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - begin_s, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


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
    options = ("--measurements", str(measurements), "--database", str(database), "--dry-run")
    start_s, start_mb = run("general_pipeline_block2.py", *options, "--device", "cpu")
    compare_s, _ = run("compare_sum_vs_full.py", *options, "--device", "cuda")
    table = Database(database).operator_measurements
    appended_ms = sorted(1e3 * each for each in appends_s(table))
    size_mb = table.path.stat().st_size / 1e6
    span = f"{appended_ms[0]:.1f} ms to {appended_ms[-1]:.1f} ms"
    return name, f"{size_mb:.0f} MB", f"{start_s:.1f} s", f"{start_mb:.0f} MB", span, f"{compare_s:.1f} s"


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
    print(markdown(("database", "size", "block 2 knows", "memory", "an append", "all compared"), lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
