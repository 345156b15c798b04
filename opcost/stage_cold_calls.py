"""Find out, once for each kind of card and its software, what a call takes longer in cold caches."""

from __future__ import annotations

import logging
from pathlib import Path

from opcost.bench import Bench, measured_row
from opcost.cold_calls import CALLS, CHAIN, ColdCallsRow, can_be_cold, cold_calls_row, cold_calls_under, refusal
from opcost.conditions import TORCH_DEFAULT
from opcost.csv_database import CsvTable
from opcost.errors import CannotMeasureError
from opcost.ports import protocol_for
from opcost.request import COLD_CALLS
from opcost.subjects import Subject
from opcost.units import millijoules, milliseconds

RELATIVE_ERROR = 0.005
"""Half of what operators are usually asked for: a small difference of two large figures is wanted."""


def cold_calls_in(database: Path) -> CsvTable[ColdCallsRow]:
    """Return the table of what calls take longer in cold caches."""
    return CsvTable(database / COLD_CALLS, ColdCallsRow)


def find_cold_calls_if_unknown(bench: Bench, database: Path) -> None:
    """Find out what calls take longer in cold caches, where a database does not know it of this card and software."""
    conditions = bench.conditions(TORCH_DEFAULT)
    if not bench.is_gpu or not can_be_cold(conditions):
        return
    if cold_calls_under(cold_calls_in(database).rows(), conditions) is None:
        logging.getLogger(__name__).warning("what calls take longer in cold caches is found out last: once, some 15 s")
        find_cold_calls(bench, database)


def find_cold_calls(bench: Bench, database: Path) -> ColdCallsRow | None:
    """Measure what calls take longer in cold caches and keep it; None where that fails or makes no sense."""
    log = logging.getLogger(__name__)
    protocol = protocol_for(True, relative_error=RELATIVE_ERROR)
    circumstances = bench.circumstances(protocol)
    try:
        *alone, chain = (
            measured_row(bench, Subject(operator), TORCH_DEFAULT, protocol, circumstances)
            for operator in (*CALLS, CHAIN)
        )
    except CannotMeasureError as error:
        log.warning("what calls take longer in cold caches is not known: %s", error)
        return None
    found = cold_calls_row(alone, chain)
    reason = refusal((*alone, chain), found)
    if reason:
        log.warning("what calls take longer in cold caches is not known: %s; the next run tries again", reason)
        return None
    cold_calls_in(database).append(found)
    log.warning("a call takes %s longer there, and %s", milliseconds(found.time_s), millijoules(found.energy_j))
    return found
