"""Find out, once for each kind of card and its software, what calls take longer in chains of others."""

from __future__ import annotations

import logging
from pathlib import Path

from opcost.bench import Bench, measured_row
from opcost.calls_in_chains import (
    SIDES,
    ChainRow,
    MeasuredChain,
    before,
    chain_row,
    chains_of,
    of_the_same_kind,
    refusal,
    takes_longer,
)
from opcost.conditions import TORCH_DEFAULT
from opcost.csv_database import CsvTable
from opcost.errors import CannotMeasureError
from opcost.measurement import MeasurementRow
from opcost.operators import OperatorTuple
from opcost.ports import protocol_for
from opcost.request import CALLS_IN_CHAINS
from opcost.subjects import Subject

RELATIVE_ERROR = 0.005
"""Half of what operators are usually asked for: a small difference of two large figures is wanted."""


def calls_in_chains_in(database: Path) -> CsvTable[ChainRow]:
    """Return the table of what calls take longer in chains."""
    return CsvTable(database / CALLS_IN_CHAINS, ChainRow)


def find_chains_if_unknown(bench: Bench, database: Path) -> None:
    """Find out what calls take longer in chains, where a database does not know it of this card and software."""
    conditions = bench.conditions(TORCH_DEFAULT)
    if not bench.is_gpu or not takes_longer(conditions):
        return
    table = calls_in_chains_in(database)
    known = {(row.kind, row.memory_bytes) for row in of_the_same_kind(table.rows(), conditions)}
    unknown = [side for side in SIDES if {(chain.kind, chain.memory_bytes) for chain in chains_of(side)} - known]
    if unknown:
        logging.getLogger(__name__).warning(
            "what calls take longer in chains of others is found out last: once, about a minute (%d sizes)",
            len(unknown),
        )
    for side in unknown:
        find_chains(bench, table, side)


def find_chains(bench: Bench, table: CsvTable[ChainRow], side: int) -> list[ChainRow]:
    """Measure what calls take longer in chains on images of one side; keep and return what is sound."""
    log = logging.getLogger(__name__)
    measured: dict[OperatorTuple, MeasurementRow] = {}
    found: list[ChainRow] = []
    for chain in chains_of(side):
        try:
            for operator in (*chain.operators, before(side), chain.behind_a_stream):
                if operator not in measured:
                    measured[operator] = _measured(bench, operator)
        except CannotMeasureError as error:
            log.warning("what calls take longer in chains of %d pixels a side is not known: %s", side, error)
            break
        rows = MeasuredChain(
            chain,
            measured[chain.behind_a_stream],
            measured[before(side)],
            [measured[operator] for operator in chain.operators],
        )
        reason = refusal(rows.rows)
        if reason:
            text = "what calls take longer in chains of %d pixels a side is not known: %s; the next run tries again"
            log.warning(text, side, reason)
            break
        # The first is the elementwise chain, which tells of the elementwise calls in the others.
        found.append(chain_row(rows, found[0] if found else None))
    for row in found:
        table.append(row)
    return found


def _measured(bench: Bench, operator: OperatorTuple) -> MeasurementRow:
    protocol = protocol_for(True, relative_error=RELATIVE_ERROR)
    return measured_row(bench, Subject(operator), TORCH_DEFAULT, protocol, bench.circumstances(protocol))
