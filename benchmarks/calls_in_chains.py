"""Measure the cache correction with chains of any number of blocks -> a database; print it by kind and size

Block 2 measures chains of six blocks by itself. Rows of other chains correct no sums: they are for comparison. Nothing
else may run on the GPU.
Example: PYTHONPATH=. python benchmarks/calls_in_chains.py --blocks 12 DATABASE
         PYTHONPATH=. python benchmarks/calls_in_chains.py --evaluate database/calls_in_chains.csv FILE
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from tables import markdown

from opcost.command.options import Parser
from opcost.comparing.cache_chains import BLOCKS, SIDES, chains_of
from opcost.reporting.terminal import progress_on_stderr
from opcost.running.worker_bench import open_child_bench
from opcost.stages.cache_chains import ChainBench
from opcost.storage.database import Database


def add_rows(database: Database, blocks: int) -> None:
    """Measure chains of this number of blocks on images of all sizes."""
    chains = [chain for side in SIDES for chain in chains_of(side, blocks)]
    with open_child_bench("cuda", database, True) as bench:
        ChainBench(bench).measure(chains, database.calls_in_chains, progress_on_stderr())


def report(table: pd.DataFrame) -> str:
    """Return the cache correction of a call by kind and size, in Markdown: for each design the mean of its rows."""
    places = ["kind", "memory_bytes"]
    found = table.groupby([*places, "design"], sort=False)[["time_s", "energy_j"]].mean()
    designs = list(dict.fromkeys(table["design"]))
    sizes = table[places].drop_duplicates().sort_values(places)
    lines = []
    for kind, size in sizes.itertuples(index=False):
        places_of = [(kind, size, design) for design in designs]
        cells = [_cell(found.loc[place]) if place in found.index else "" for place in places_of]
        lines.append([kind, f"{size / 1e6:.1f} MB", *cells])
    return markdown(("kind", "in and out", *designs), lines)


def _cell(row: pd.Series) -> str:
    energy = "" if pd.isna(row["energy_j"]) else f", {1e6 * row['energy_j']:+.0f} uJ"
    return f"{1e6 * row['time_s']:+.2f} us{energy}"


def known(files: Sequence[Path]) -> pd.DataFrame:
    """Return the rows of some files that have a time."""
    return pd.concat([pd.read_csv(file) for file in files]).dropna(subset=["time_s"])


def main() -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=BLOCKS, help=f"of each chain (default: {BLOCKS})")
    parser.add_argument("--evaluate", action="store_true", help="print the rows of one or more files")
    parser.add_argument("paths", nargs="+", type=Path, metavar="DATABASE | FILE")
    arguments = parser.parse_args()
    if arguments.evaluate:
        print(report(known(arguments.paths)))
        return 0
    if len(arguments.paths) > 1 or arguments.blocks < 1:
        parser.error("name one folder to measure into, and at least one block")
    add_rows(Database(arguments.paths[0]), arguments.blocks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
