"""What calls_in_chains.py measured as rows for a database, until block 2 has measured its own chains on that card

The elementwise operators of that program make values equal when they run six times in a row, and equal values are
faster. They have no weights: the first block is as one behind a stream, the others are as in a chain as it is. So their
six blocks are put together from these two. What norms and products take longer is from six blocks, less that.
Errors are those that were asked for: 0.5 % of each measurement.
Example: PYTHONPATH=. python benchmarks/chain_rows.py docs/data/calls_in_chains.csv docs/data/whole_in_processes DIR
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pandas as pd

from opcost.calls_in_chains import ELEMENTWISE, NORM, PRODUCT, ChainRow
from opcost.command_line import Parser
from opcost.csv_database import CsvTable
from opcost.measurement import MeasurementRow
from opcost.request import CALLS_IN_CHAINS, FULL_MODEL_MEASUREMENTS
from opcost.statistics import Estimate

NAMES = {"elementwise": ELEMENTWISE, "norms": NORM, "products": PRODUCT}
BLOCKS = {"six": 6, "once": 1, "as it is": 0}
"""How often in a row behind a stream; 0 without one."""

CALLS, OWN_CALLS = 8, 4
"""In a block, and of its kind where that is not elementwise."""

RELATIVE_ERROR = 0.005


def excess(table: pd.DataFrame, kind: str, tensor_bytes: int, blocks: int, unit: str) -> Estimate:
    """Return what the calls of one block take longer in a chain, in s or J."""
    is_of = (table["kind"] == kind) & (table["tensor_bytes"] == tensor_bytes)
    row = table[is_of & (table["behind_a_stream"] == (blocks > 0)) & (table["repeats"] == max(blocks, 1))].iloc[-1]
    in_chain, alone = (float(row[f"{where}_{unit}"] / row["repeats"]) for where in ("in_chain", "alone"))
    return Estimate(in_chain - alone, RELATIVE_ERROR * math.hypot(in_chain, alone / math.sqrt(CALLS)))


def elementwise_block(table: pd.DataFrame, tensor_bytes: int, blocks: int, unit: str) -> Estimate:
    """Return what the calls of a block of elementwise operators take longer."""
    if blocks <= 1:
        return excess(table, "elementwise", tensor_bytes, blocks, unit)
    first, others = (excess(table, "elementwise", tensor_bytes, place, unit) for place in (1, 0))
    return first.times(1 / blocks).less(others.times((1 - blocks) / blocks))


def of_call(table: pd.DataFrame, kind: str, tensor_bytes: int, blocks: int, unit: str) -> Estimate:
    """Return what a call of a kind takes longer; half of the calls of norms and products are elementwise."""
    elementwise = elementwise_block(table, tensor_bytes, blocks, unit)
    if kind == "elementwise":
        return elementwise.times(1 / CALLS)
    of_block = excess(table, kind, tensor_bytes, blocks, unit)
    return of_block.less(elementwise.times(OWN_CALLS / CALLS)).times(1 / OWN_CALLS)


def rows(table: pd.DataFrame, like: MeasurementRow, blocks: str) -> list[ChainRow]:
    """Return rows for all kinds and sizes, under the conditions of another row of that card."""
    found = []
    for kind, name in NAMES.items():
        for size in map(int, sorted(table.loc[table["kind"] == kind, "tensor_bytes"].unique())):
            time_s, energy_j = (of_call(table, kind, size, BLOCKS[blocks], unit) for unit in ("s", "j"))
            found.append(
                ChainRow(
                    kind=name,
                    memory_bytes=2 * size,
                    calls=max(BLOCKS[blocks], 1) * (CALLS if name == ELEMENTWISE else OWN_CALLS),
                    time_s=time_s.value,
                    time_standard_error_s=time_s.standard_error,
                    energy_j=energy_j.value,
                    energy_standard_error_j=energy_j.standard_error,
                    measured_at=like.measurement.ended_at,
                    device_uuid=like.circumstances.device_uuid,
                    notes="by benchmarks/calls_in_chains.py; errors are those asked for",
                    design=f"benchmark, {blocks}",
                    conditions=like.conditions,
                )
            )
    return found


def main() -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("table", type=Path, help="what calls_in_chains.py wrote")
    parser.add_argument("like", type=Path, help="a database with a whole model of that board")
    parser.add_argument("database", type=Path, help="where the rows go")
    parser.add_argument("--blocks", choices=BLOCKS, default="six", help="which chains (default: six)")
    arguments = parser.parse_args()
    like = CsvTable(arguments.like / FULL_MODEL_MEASUREMENTS, MeasurementRow).rows()[-1]
    table = CsvTable(arguments.database / CALLS_IN_CHAINS, ChainRow)
    others = {row.design for row in table.rows()} - {f"benchmark, {arguments.blocks}"}
    if others:
        parser.error(f"{table.path} has rows of other chains ({', '.join(sorted(others))}): move them away")
    table.append_missing(rows(pd.read_csv(arguments.table), like, arguments.blocks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
