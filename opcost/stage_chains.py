"""Find out, once for each kind of card and its software, what calls take longer in chains of others."""

from __future__ import annotations

import logging
from pathlib import Path

from opcost.bench import Bench, measured_row
from opcost.calls_in_chains import (
    ELEMENTWISE,
    Chain,
    ChainRow,
    before,
    chain_row,
    chains_of,
    excess_of_call,
    is_corrected,
    of_this_design,
    refusal,
    unsettled_sides,
)
from opcost.conditions import TORCH_DEFAULT
from opcost.csv_database import CsvTable
from opcost.errors import CannotMeasureError, UserError
from opcost.measurement import MeasurementRow
from opcost.operators import OperatorTuple
from opcost.ports import protocol_for
from opcost.request import CALLS_IN_CHAINS
from opcost.subjects import Subject

RELATIVE_ERROR = 0.005
"""Half of what operators are usually asked for: a small difference of two large figures is wanted."""

SECONDS_PER_SIZE = 7
"""About: a dozen measurements of half a second."""


def calls_in_chains_in(database: Path) -> CsvTable[ChainRow]:
    """Return the table of what calls take longer in chains."""
    return CsvTable(database / CALLS_IN_CHAINS, ChainRow)


def find_chains_if_unknown(bench: Bench, database: Path) -> None:
    """Find out what calls take longer in chains, where a database does not know it of this card and software.

    Operators are on disk by then: what goes wrong here is told, and tried again by the next run.
    """
    conditions = bench.conditions(TORCH_DEFAULT)
    if not bench.is_gpu or not is_corrected(conditions):
        return
    log = logging.getLogger(__name__)
    table = calls_in_chains_in(database)
    try:
        sides = unsettled_sides(of_this_design(table.rows(), conditions))
        if sides:
            text = "what calls take longer among others is found out last: once, some %d s"
            log.warning(text, SECONDS_PER_SIZE * len(sides))
        for side in sides:
            find_chains(bench, table, side)
    except UserError as error:
        log.warning("what calls take longer among others is not known: %s", error)


def find_chains(bench: Bench, table: CsvTable[ChainRow], side: int) -> list[ChainRow]:
    """Measure what calls take longer in chains on images of one side; keep and return it, or why it was refused."""
    chains = {chain.kind: chain for chain in chains_of(side)}
    measured: dict[OperatorTuple, MeasurementRow] = {}
    reason = ""
    for operator in dict.fromkeys(operator for chain in chains.values() for operator in _wanted(chain)):
        try:
            measured[operator] = _measured(bench, operator)
        except CannotMeasureError as error:
            logging.getLogger(__name__).warning("%s is not known: %s", _about(side), error)
            return []
        reason = refusal(measured[operator])
        if reason:
            logging.getLogger(__name__).warning("%s is not known: %s; the next run tries again", _about(side), reason)
            break
    last = next(reversed(measured.values()))
    found = [
        chain_row(chain, last, None, reason) if reason else _row(chain, chains[ELEMENTWISE], measured)
        for chain in chains.values()
    ]
    table.append_missing(found)
    return found


def _about(side: int) -> str:
    return f"what calls take longer in chains on images of {side} pixels a side"


def _wanted(chain: Chain) -> tuple[OperatorTuple, ...]:
    return (*chain.operators, before(chain.side), chain.behind_a_stream)


def _row(chain: Chain, elementwise: Chain, measured: dict[OperatorTuple, MeasurementRow]) -> ChainRow:
    whole = measured[chain.behind_a_stream]
    less = before(chain.side) if chain.kind == ELEMENTWISE else elementwise.behind_a_stream
    own = [measured[operator] for operator in chain.own]
    return chain_row(chain, whole, excess_of_call(whole, measured[less], own), whole.measurement.notes)


def _measured(bench: Bench, operator: OperatorTuple) -> MeasurementRow:
    protocol = protocol_for(True, relative_error=RELATIVE_ERROR)
    return measured_row(bench, Subject(operator), TORCH_DEFAULT, protocol, bench.circumstances(protocol))
