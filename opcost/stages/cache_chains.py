"""The measurement of cache corrections with chains of operators, once for each card and its software."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial

from opcost.comparing.cache_chains import (
    BLOCKS,
    ChainRow,
    before,
    chain_row,
    chains_of,
    excess_of_call,
    is_corrected,
    missing_sides,
    of_the_same_card,
    refusal,
    refused_row,
)
from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.protocol import protocol_for
from opcost.measuring.record import MeasurementRow
from opcost.measuring.setting import USUAL, Setting
from opcost.operators.cases import Case
from opcost.operators.tuples import OperatorTuple
from opcost.running.bench import Bench, measured_row
from opcost.storage.table import CsvTable
from opcost.units import duration

RELATIVE_ERROR = 0.005
"""Half of the usual target precision: the result is a small difference of two large figures."""

SECONDS_PER_SIDE = 12.5
SECONDS_PER_SIDE_OF_OTHER_CARDS = 29.0
"""Time of a dozen measurements: on an H200, which has rows, the 144 of all sides took 150 s (two boards, 2026-11-22).
On an H100, which has none, they took 345 s (2026-11-23)."""


FIRST_LOOK_RATIO = 0.25
"""A campaign that is expected to take less than this share of the time of the missing cache corrections is a first look
at a card, which they would delay; the next run measures them."""


@dataclass(frozen=True)
class ChainTimes:
    """The expected times to measure the cache corrections that a table does not have, and all of them.

    ``are_later`` says that another run measures the missing ones.
    """

    missing_s: float
    all_s: float
    are_later: bool = False


def chain_times(
    bench: Bench, table: CsvTable[ChainRow], setting: Setting = USUAL, campaign_s: float = 0.0
) -> ChainTimes | None:
    """Return the expected times to measure cache corrections; None if sums get none on this device.

    Args:
        bench: the device.
        table: the known cache corrections.
        setting: how operators are run.
        campaign_s: the expected time of the operators that are measured before, in s.
    """
    conditions = bench.conditions(setting)
    if not bench.is_gpu or not is_corrected(conditions):
        return None
    rows = table.rows()
    is_known = any(row.conditions.device_product == conditions.device_product for row in rows)
    side_s = SECONDS_PER_SIDE if is_known else SECONDS_PER_SIDE_OF_OTHER_CARDS
    missing = missing_sides(of_the_same_card(rows, conditions))
    missing_s = side_s * len(missing)
    return ChainTimes(missing_s, side_s * len(missing_sides(())), 0 < campaign_s < FIRST_LOOK_RATIO * missing_s)


def measure_missing_chains(
    bench: Bench, table: CsvTable[ChainRow], setting: Setting = USUAL, campaign_s: float = 0.0
) -> None:
    """Measure the cache corrections that the table does not have for this card and software.

    After a first look at a card, only a message says that the next run measures them. A failure is logged, and the next
    run tries again: the rows of operators are written already. The arguments are those of ``chain_times``.
    """
    conditions = bench.conditions(setting)
    log = logging.getLogger(__name__)
    try:
        times = chain_times(bench, table, setting, campaign_s)
        if times is None or not times.missing_s:
            return
        if times.are_later:
            text = (
                "cache corrections of this card are not measured yet: the same command again measures them in about %s"
            )
            log.warning(text, duration(times.missing_s))
            return
        log.warning("measuring cache corrections (once per card): about %s", duration(times.missing_s))
        sides = missing_sides(of_the_same_card(table.rows(), conditions))
        for side in sides:
            measure_chains(bench, table, side, setting=setting)
    except UserError as error:
        log.warning("no cache corrections: %s", error)


def measure_chains(
    bench: Bench, table: CsvTable[ChainRow], side: int, blocks: int = BLOCKS, setting: Setting = USUAL
) -> list[ChainRow]:
    """Measure the cache corrections for images of one side; append the rows to a table and return them.

    A correction that cannot be measured gets a row with the reason.
    """
    elementwise, *others = chains_of(side, blocks)
    measured: dict[OperatorTuple, MeasurementRow | str] = {}
    found: list[ChainRow] = []
    for chain in (elementwise, *others):
        wanted = (*elementwise.operators, before(side), elementwise.behind_a_stream, *chain.own, chain.behind_a_stream)
        rows = _rows(partial(_measured, bench, setting), dict.fromkeys(wanted), measured)
        if isinstance(rows, str):
            text = "no cache correction of %s operators on images of %d pixels a side: %s"
            logging.getLogger(__name__).warning(text, chain.kind, side, rows)
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            found.append(refused_row(chain, rows, bench.conditions(setting), now))
            continue
        less = before(side) if chain == elementwise else elementwise.behind_a_stream
        whole = rows[chain.behind_a_stream]
        own = [rows[operator] for operator in chain.own]
        found.append(chain_row(chain, whole, excess_of_call(whole, rows[less], own, blocks)))
    table.append_missing(found)
    return found


def _rows(
    measure: Callable[[OperatorTuple], MeasurementRow | str],
    wanted: Iterable[OperatorTuple],
    known: dict[OperatorTuple, MeasurementRow | str],
) -> dict[OperatorTuple, MeasurementRow] | str:
    """Return the rows of operators, measured if not known, or why one of them is refused."""
    rows = {}
    for operator in wanted:
        if operator not in known:
            known[operator] = measure(operator)
        row = known[operator]
        if isinstance(row, str):
            return row
        rows[operator] = row
    return rows


def _measured(bench: Bench, setting: Setting, operator: OperatorTuple) -> MeasurementRow | str:
    """Return an operator's row, or why it is refused."""
    protocol = protocol_for(True, relative_error=RELATIVE_ERROR)
    try:
        row = measured_row(bench, Case(operator), setting, protocol, bench.circumstances(protocol))
    except CannotMeasureError as error:
        return f"{operator.operator}: {error}"
    return refusal(row) or row
