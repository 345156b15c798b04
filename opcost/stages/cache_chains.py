"""The measurement of cache corrections with chains of operators, once for each card and its software."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timezone
from types import MappingProxyType

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
from opcost.errors import UserError
from opcost.measuring.conditions import GRAPH, Conditions
from opcost.measuring.protocol import MeasurementProtocol, protocol_for
from opcost.measuring.record import ChainRow, MeasurementRow
from opcost.measuring.setting import USUAL, Setting
from opcost.operators.cache_chains import ELEMENTWISE, SIDES, STREAM_BYTES, Chain
from opcost.operators.counts import Case
from opcost.operators.tuples import FLOAT32, OperatorTuple
from opcost.prediction.durations import ExpectedTimes, Size
from opcost.progress import Progress
from opcost.running.bench import Bench, measured_rows
from opcost.running.campaign import costs_of
from opcost.running.engine import Ended, Executor, Job, Worker, carry_out, executor_of
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
    bench: Bench | Executor,
    database: Database,
    progress: Progress,
    setting: Setting = USUAL,
    before: Mapping[str, Before] = MappingProxyType({}),
) -> None:
    """Measure the cache corrections that the database does not have for each card and its software, in ``BUDGET_S``.

    After a first look at a card, only a message says that the next run measures them. A failure is logged, and the next
    run tries again: the rows of operators are written already. ``before`` is that of each kind of device; the other
    arguments are those of ``chain_times``.
    """
    log, executor, wanted = logging.getLogger(__name__), executor_of(bench), 0
    jobs: dict[str, ChainJob] = {}
    try:
        for kind, one in executor.kinds.items():
            missing = _missing(one, database, setting)
            if not missing:
                continue
            times = _times(missing, database, one.conditions(setting), before.get(kind, Before()))
            if not times.now_s:
                text = (
                    "cache corrections of this card are not measured yet: the same command again measures them in "
                    "about %s"
                )
                log.warning(text, duration(min(times.later_s, BUDGET_S)))
                continue
            log.warning("measuring cache corrections (once per card): about %s", duration(times.now_s))
            one_s = (times.now_s + times.later_s) / sum(_new_parts(missing))
            jobs[kind] = ChainJob(one, missing, database.calls_in_chains, setting, one_s)
            wanted += len(missing)
        found = measure_chains(executor, jobs, progress)
        if len(found) < wanted:
            text = "cache corrections: %d of %d are measured; the next run measures the others"
            log.warning(text, len(found), wanted)
    except UserError as error:
        log.warning("no cache corrections: %s", error)


def measure_chains(executor: Executor, jobs: Mapping[str, ChainJob], progress: Progress) -> list[ChainRow]:
    """Measure the chains of jobs, by the kind of device, log the time of each step, and return the rows."""
    if not jobs:
        return []
    try:
        for _ in carry_out(executor, jobs, progress):
            pass
    finally:
        for job in jobs.values():
            job.log_times()
    return [row for job in jobs.values() for row in job.found]


@dataclass(frozen=True)
class ChainPart:
    """An operator of a chain; the chain's name is for people."""

    chain: str
    operator: OperatorTuple
    setting: Setting
    board: str | None = None

    @property
    def names(self) -> tuple[str]:
        return (f"cache correction: {self.chain}",)

    def run(self, bench: Bench) -> Iterator[MeasurementRow]:
        row, *_ = measured_rows(bench, Case(self.operator), self.setting, _protocol())
        yield row


class ChainJob(Job):
    """Measures different chains in their order, each operator once, and appends a row of each to a table.

    A chain that cannot be measured gets a row with the reason. ``one_s`` is the expected time of one measurement in s,
    0 if unknown. All end within about ``BUDGET_S``, since others are left out; the first chain is always measured.
    """

    unit_items = 1
    is_bound = True

    def __init__(
        self,
        bench: Bench,
        chains: Sequence[Chain],
        table: CsvTable[ChainRow],
        setting: Setting = USUAL,
        one_s: float = 0.0,
    ) -> None:
        self.found: list[ChainRow] = []
        self.number = sum(_new_parts(chains))
        self.expected_s = [one_s] * self.number if one_s else ()
        self._bench, self._chains, self._table, self._setting = bench, chains, table, setting
        self._taken_s = 0.0
        self._steps_s: Counter[str] = Counter()
        self._known: dict[OperatorTuple, MeasurementRow | str] = {}

    def groups(self) -> Iterator[tuple[ChainPart]]:
        for chain, parts in zip(self._chains, _new_parts(self._chains), strict=True):
            if self.found and self._taken_s * (1 + parts / len(self._known)) > BUDGET_S:
                return
            stream = f" behind {1e-6 * chain.stream_bytes:.0f} MB" if chain.stream_bytes < STREAM_BYTES else ""
            dtype = f"{chain.dtype} " if chain.dtype != FLOAT32 else ""
            name = f"{dtype}{chain.kind}, {1e-6 * chain.memory_bytes:.1f} MB{stream}"
            for operator in chain.parts:
                if operator not in self._known and not self._is_refused(chain):
                    yield (ChainPart(name, operator, self._setting),)
            self._complete(chain)

    def _is_refused(self, chain: Chain) -> bool:
        return any(isinstance(self._known.get(operator), str) for operator in chain.parts)

    def keep(self, worker: Worker, item: ChainPart, content: MeasurementRow) -> str:
        measured, operator = content.measurement, item.operator
        pairs = (measured.time_s, measured.time_standard_error_s), (measured.energy_j, measured.energy_standard_error_j)
        errors = (percent(error / value if value and error is not None else None, digits=2) for value, error in pairs)
        text = "%s: %.2f µs, a loop of %.2f s, error of the time %s and of the energy %s"
        figures = 1e6 * measured.time_s, measured.loop_time_s
        logging.getLogger(__name__).info(text, operator.short_name, *figures, *errors)
        self._known[operator] = refusal(content) or content
        return costs_of(measured)

    def fail(self, item: ChainPart, reason: str) -> None:
        self._known[item.operator] = f"{item.operator.operator}: {reason}"

    def ended(self, item: ChainPart, event: Ended) -> None:
        self._taken_s += event.taken_s
        self._steps_s.update(event.steps_s)

    def log_times(self) -> None:
        spent = [f", {name.replace('_', ' ')} {time_s:.1f} s" for name, time_s in self._steps_s.items()]
        text = "cache corrections: %d measurements in %.1f s%s"
        logging.getLogger(__name__).info(text, len(self._known), self._taken_s, "".join(spent))

    def _complete(self, chain: Chain) -> None:
        known = [self._known[operator] for operator in chain.parts if operator in self._known]
        reasons = [one for one in known if isinstance(one, str)]
        rows = {operator: row for operator, row in self._known.items() if not isinstance(row, str)}
        if reasons:
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            row = refused_row(chain, reasons[0], self._bench.conditions(self._setting), now)
        elif len(known) < len(chain.parts):
            # The worker was lost.
            return
        else:
            whole, own = rows[chain.behind_a_stream], [rows[operator] for operator in chain.own]
            row = chain_row(chain, whole, excess_of_call(whole, rows[chain.subtracted], own, chain.blocks))
        self._table.append(row)
        self.found.append(row)


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
