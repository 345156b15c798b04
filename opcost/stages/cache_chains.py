"""The measurement of cache corrections with chains of operators, once for each card and its software."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timezone

from opcost.comparing.corrections import (
    chain_dtype,
    chain_row,
    excess_of_call,
    is_corrected,
    missing_chains,
    of_the_same_card,
    refusal,
    refused_row,
)
from opcost.errors import CannotMeasureError, UserError
from opcost.measuring.conditions import GRAPH, Conditions
from opcost.measuring.protocol import MeasurementProtocol, protocol_for
from opcost.measuring.record import ChainRow, MeasurementRow
from opcost.measuring.setting import USUAL, Setting
from opcost.operators.cache_chains import ELEMENTWISE, SIDES, STREAM_BYTES, Chain
from opcost.operators.counts import Case
from opcost.operators.tuples import FLOAT32, OperatorTuple
from opcost.prediction.durations import ExpectedTimes, Size
from opcost.progress import Progress
from opcost.running.bench import Bench, SpentTime, measured_rows
from opcost.running.expected_times import rows_if_few
from opcost.storage.database import Database
from opcost.storage.table import CsvTable
from opcost.units import duration, percent

RELATIVE_ERROR = 0.01
LONGEST_LOOP_S = 1.0
"""Loops of chains are no longer or more precise than those of most operators. Runs differ by 0.2 % in time and by 0.4 %
in power anyway, so that half of this target reduces the errors of corrections by 2 %, and takes 25 % more time
(``docs/log/cache.md``)."""

BUDGET_S = 200.0
"""The longest time that a run spends on cache corrections in one dtype; the next run goes on. All 237 in bf16 take
140 s to 200 s on cards where a measurement takes 0.6 s to 0.85 s."""

FIRST_LOOK_RATIO = 0.25
"""A campaign that is expected to take less than this share of the time of the missing cache corrections is a first look
at a card, which they would delay; the next run measures them."""


@dataclass(frozen=True)
class Before:
    """The campaign before: its expected time in s, and the mean time that its measurements took, None if unknown."""

    expected_s: float = 0.0
    measurement_s: float | None = None


@dataclass(frozen=True)
class ChainTimes:
    """The expected times to measure the missing cache corrections: in this run, in later ones, and all of the card."""

    now_s: float
    later_s: float
    all_s: float


def chain_settings(setting: Setting, precisions: Iterable[str]) -> tuple[Setting, ...]:
    """Return the settings to measure cache corrections for sums in these precisions, one for each dtype of chains."""
    dtypes = dict.fromkeys(map(chain_dtype, precisions))
    return tuple(setting if dtype == FLOAT32 else replace(setting, precision="bf16") for dtype in dtypes)


def chain_times(
    bench: Bench, database: Database, settings: Iterable[Setting] = (USUAL,), before: Before = Before()
) -> ChainTimes | None:
    """Return the expected times to measure cache corrections after the operators; None if sums get none here.

    The database has the known cache corrections, and rows that show how long measurements take. ``settings`` are those
    of ``chain_settings``.
    """
    known = [
        astuple(_times(missing, database, bench.conditions(setting), before))
        for setting in settings
        if (missing := _missing(bench, database, setting)) is not None
    ]
    return ChainTimes(*map(sum, zip(*known, strict=True))) if known else None


def _missing(bench: Bench, database: Database, setting: Setting) -> list[Chain] | None:
    conditions = bench.conditions(setting)
    if not bench.is_gpu or not is_corrected(conditions):
        return None
    rows = of_the_same_card(database.calls_in_chains.rows(), conditions)
    return missing_chains(rows, chain_dtype(setting.precision))


def _times(missing: Sequence[Chain], database: Database, conditions: Conditions, before: Before) -> ChainTimes:
    one_s = before.measurement_s
    if not one_s:
        known = ExpectedTimes(conditions, rows_if_few(database.operator_measurements), {})
        sizes = [Size(0, Chain(ELEMENTWISE, side).memory_bytes) for side in SIDES]
        one_s = sum(known.unmeasured_s(size, GRAPH, _protocol()) for size in sizes) / len(sizes)
    missing_s, all_s = (one_s * sum(_new_parts(chains)) for chains in (missing, missing_chains(())))
    now_s = min(missing_s, BUDGET_S)
    if 0 < before.expected_s < FIRST_LOOK_RATIO * now_s:
        now_s = 0.0
    return ChainTimes(now_s, missing_s - now_s, all_s)


def measure_missing_chains(
    bench: Bench, database: Database, progress: Progress, setting: Setting = USUAL, before: Before = Before()
) -> None:
    """Measure the cache corrections that the database does not have for this card and software, within ``BUDGET_S``.

    After a first look at a card, only a message says that the next run measures them. A failure is logged, and the next
    run tries again: the rows of operators are written already. The other arguments are those of ``chain_times``.
    """
    log, table = logging.getLogger(__name__), database.calls_in_chains
    try:
        missing = _missing(bench, database, setting)
        if not missing:
            return
        times = _times(missing, database, bench.conditions(setting), before)
        if not times.now_s:
            text = (
                "cache corrections of this card are not measured yet: the same command again measures them in about %s"
            )
            log.warning(text, duration(min(times.later_s, BUDGET_S)))
            return
        log.warning("measuring cache corrections (once per card): about %s", duration(times.now_s))
        one_s = (times.now_s + times.later_s) / sum(_new_parts(missing))
        found = ChainBench(bench, setting).measure(missing, table, progress, one_s, BUDGET_S)
        if len(found) < len(missing):
            text = "cache corrections: %d of %d are measured; the next run measures the others"
            log.warning(text, len(found), len(missing))
    except UserError as error:
        log.warning("no cache corrections: %s", error)


class ChainBench:
    """Measures chains on a bench, each of their operators once, and logs the time that each step takes."""

    def __init__(self, bench: Bench, setting: Setting = USUAL) -> None:
        self._bench, self._setting, self._protocol = bench, setting, _protocol()
        self._known: dict[OperatorTuple, MeasurementRow | str] = {}
        self._spent = SpentTime(bench)

    def measure(
        self,
        chains: Sequence[Chain],
        table: CsvTable[ChainRow],
        progress: Progress,
        one_s: float = 0.0,
        budget_s: float = math.inf,
    ) -> list[ChainRow]:
        """Measure different chains in this order; append each row at once to a table, and return them.

        A chain that cannot be measured gets a row with the reason. ``one_s`` is the expected time of one measurement in
        s, 0 if unknown. All end within ``budget_s``, since others are left out; the first chain is always measured.
        """
        new_parts = _new_parts(chains)
        progress.start(len(chains), [one_s * parts for parts in new_parts] if one_s else ())
        found: list[ChainRow] = []
        try:
            for chain, parts in zip(chains, new_parts, strict=True):
                if found and self._spent.total_s * (1 + parts / len(self._known)) > budget_s:
                    break
                found.append(self._measured(chain, progress))
                table.append(found[-1])
        finally:
            progress.end()
            spent = [f", {name.replace('_', ' ')} {time_s:.1f} s" for name, time_s in self._spent.steps_s.items()]
            text = "cache corrections: %d measurements in %.1f s%s"
            logging.getLogger(__name__).info(text, len(self._known), self._spent.total_s, "".join(spent))
        return found

    def _measured(self, chain: Chain, progress: Progress) -> ChainRow:
        stream = f" behind {1e-6 * chain.stream_bytes:.0f} MB" if chain.stream_bytes < STREAM_BYTES else ""
        dtype = f"{chain.dtype} " if chain.dtype != FLOAT32 else ""
        progress.begin(f"cache correction: {dtype}{chain.kind}, {1e-6 * chain.memory_bytes:.1f} MB{stream}")
        rows: dict[OperatorTuple, MeasurementRow] = {}
        for operator in chain.parts:
            if operator not in self._known:
                with self._spent:
                    self._known[operator] = self._row(operator)
            row = self._known[operator]
            if isinstance(row, str):
                progress.fail(row)
                now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
                return refused_row(chain, row, self._bench.conditions(self._setting), now)
            rows[operator] = row
        whole, own = rows[chain.behind_a_stream], [rows[operator] for operator in chain.own]
        found = chain_row(chain, whole, excess_of_call(whole, rows[chain.subtracted], own, chain.blocks))
        energy = "no energy" if found.energy_j is None else f"{1e3 * found.energy_j:+.3f} mJ"
        progress.finish("" if found.time_s is None else f"{1e6 * found.time_s:+.2f} µs  {energy}")
        return found

    def _row(self, operator: OperatorTuple) -> MeasurementRow | str:
        """Return the row of an operator, or why it is refused."""
        try:
            row, *_ = measured_rows(self._bench, Case(operator), self._setting, self._protocol)
        except CannotMeasureError as error:
            return f"{operator.operator}: {error}"
        measured = row.measurement
        pairs = (measured.time_s, measured.time_standard_error_s), (measured.energy_j, measured.energy_standard_error_j)
        errors = (percent(error / value if value and error is not None else None, digits=2) for value, error in pairs)
        text = "%s: %.2f µs, a loop of %.2f s, error of the time %s and of the energy %s"
        figures = 1e6 * measured.time_s, measured.loop_time_s
        logging.getLogger(__name__).info(text, operator.short_name, *figures, *errors)
        return refusal(row) or row


def _protocol() -> MeasurementProtocol:
    return replace(protocol_for(True, relative_error=RELATIVE_ERROR), loop_s=LONGEST_LOOP_S)


def _new_parts(chains: Iterable[Chain]) -> list[int]:
    """Return the number of measurements that each chain needs besides those of the chains before it."""
    known: set[OperatorTuple] = set()
    numbers = []
    for chain in chains:
        numbers.append(len(set(chain.parts) - known))
        known.update(chain.parts)
    return numbers
