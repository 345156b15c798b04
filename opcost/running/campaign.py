"""A campaign: measures the missing cases of some models one by one, and writes each row at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from opcost.columns import present_moment
from opcost.errors import CannotMeasureError
from opcost.estimates import value_of
from opcost.invocation import command
from opcost.measuring.conditions import GRAPH, WARM
from opcost.measuring.flags import Flag, flags_of
from opcost.measuring.protocol import MeasurementProtocol
from opcost.measuring.record import FailureRow, Measurement, MeasurementRow, quality_flags
from opcost.measuring.setting import USUAL, Setting
from opcost.operators.counts import case_columns, of_operators
from opcost.operators.texts import short_form, short_inputs
from opcost.operators.values import NORMAL_DATA
from opcost.prediction.durations import OPERATOR_BUILDING_S, run_s
from opcost.progress import Progress
from opcost.running.bench import Bench, SpentTime, measured_rows
from opcost.running.expected_times import expected_times, opening_parts_s
from opcost.running.plan import KnownRows, PlanItem, PlannedWork, Work, make_plan
from opcost.running.request import RunRequest
from opcost.storage.table import CsvTable
from opcost.summing.summation import common_basis
from opcost.units import millijoules, milliseconds, percent

EVERY = 100
"""Measurements between two checks: at half a second each, one check a minute."""

LOOP_S = 0.8
"""Loop of a check if other loops end at a relative error. Those are too short for nvidia-smi, which has a new value
every 0.1 s, to check the meter that energies come from."""


@dataclass(frozen=True)
class Outcome:
    """The result of a campaign for one model; rows and reasons of failures by key.

    Of the model's keys, ``found`` were in the database already, ``measured`` got a row, and ``remaining`` are still to
    be measured. ``expected_s`` is the time that these take, without those that an earlier model of the campaign has;
    ``taken_s`` is the time that the measured ones took, and ``steps_s`` the part of each step in it.
    """

    work: PlannedWork
    rows: Mapping[str, MeasurementRow]
    failures: Mapping[str, str]
    found: int
    measured: int
    remaining: int
    expected_s: float
    taken_s: float
    steps_s: Mapping[str, float]


@dataclass(eq=False)
class _Account:
    work: PlannedWork
    spent: SpentTime
    measured: int = 0


class DriftCheck:
    """Measures a bench's ``drift_case`` first, last and in between; if meters disagree on it, rows are flagged."""

    def __init__(self, bench: Bench, protocol: MeasurementProtocol, table: CsvTable[MeasurementRow]) -> None:
        self._bench = bench
        self.case = bench.drift_case
        is_short = protocol.relative_error is not None
        self._protocol = replace(protocol, loop_s=LOOP_S, relative_error=None) if is_short else protocol
        # Now, since a bench whose process ends with its first operator answers only what it was asked before.
        bench.circumstances(self._protocol)
        self._table = table
        self._rows: list[MeasurementRow] = []
        self._last_setting = USUAL
        self._measured_since = 0

    def measure_if_due(self, setting: Setting) -> None:
        if not self._rows or self._measured_since >= EVERY:
            self._measure(setting)

    def measure_last(self) -> None:
        if self._rows and self._measured_since:
            self._measure(self._last_setting)

    def expected_s(self, items: int) -> float:
        if self.case is None or not items:
            return 0.0
        checks = 2 + (items - 1) // EVERY
        return checks * (OPERATOR_BUILDING_S + run_s(0.0, GRAPH, self._protocol, "cuda"))

    def checked(self, row: MeasurementRow) -> MeasurementRow:
        """Count a row; return it, flagged if meters disagreed at the last check, unless it has a check of its own."""
        self._measured_since += 1
        meters_disagree = self._rows and Flag.METERS_DISAGREE in self._rows[-1].measurement.flags
        if not meters_disagree or row.measurement.check_power_w is not None:
            return row
        flags = flags_of([*row.measurement.flags, Flag.METERS_DISAGREED_BEFORE])
        return replace(row, measurement=replace(row.measurement, flags=flags))

    def report_drift(self) -> None:
        basis = common_basis(self._rows)
        energies_j = [value_of(basis.energy_of(row)) for row in self._rows]
        figures = {
            "time": [row.measurement.time_s for row in self._rows],
            "energy": [energy_j for energy_j in energies_j if energy_j],
        }
        texts = [
            f"{name} drifted by {percent(max(values) / min(values) - 1, digits=2)}"
            for name, values in figures.items()
            if len(values) > 1
        ]
        if texts:
            text = "drift check, %d measurements: %s"
            logging.getLogger(__name__).warning(text, len(self._rows), ", ".join(texts))

    def _measure(self, setting: Setting) -> None:
        if self.case is None:
            return
        self._table.prepare()
        try:
            row, *_ = measured_rows(self._bench, self.case, setting, self._protocol)
        except CannotMeasureError as error:
            logging.getLogger(__name__).warning("no drift check: %s", error)
            self.case = None
            return
        if Flag.METERS_DISAGREE in row.measurement.flags:
            before = f" The {self._measured_since} rows before may be wrong, too." if self._measured_since else ""
            text = "drift check: meters disagree (%.1f W and %.1f W). Rows from now on are flagged.%s Run %s."
            figures = (row.measurement.power_w, row.measurement.check_power_w)
            logging.getLogger(__name__).warning(text, *figures, before, command("qualify"))
        self._table.append(row)
        self._rows.append(row)
        self._last_setting = setting
        self._measured_since = 0


class Campaign:
    """Plans the measurements of some models and carries the plan out, with drift checks if the bench has a case for it.

    The request says where the database is and whether rows of other boards count. ``table`` has the known rows, and new
    ones are appended. ``works`` are the cases of each model.
    """

    def __init__(
        self,
        bench: Bench,
        protocol: MeasurementProtocol,
        request: RunRequest,
        table: CsvTable[MeasurementRow],
        works: Sequence[Work],
    ) -> None:
        self._bench = bench
        self._table = table
        self._failures = request.database.failures
        self._failed: dict[str, str] = {}
        # Now, since a bench whose process ends with its first operator answers no more.
        self._circumstances = bench.circumstances(protocol)
        boards = (self._circumstances.device_uuid,) if request.same_board else None
        wanted = of_operators(case.operator for work in works for case in work.cases)
        rows = table.rows(wanted)
        self._known = KnownRows(protocol, bench.has_meter, rows, boards)
        conditions = {work.setting: bench.conditions(work.setting) for work in works}
        failed_keys = {row.key for row in self._failures.rows()}
        self.plan = make_plan(works, self._known, protocol, conditions, failed_keys)
        self._explained: set[Flag] = set()
        self._checking = SpentTime(bench)
        self._drift_check = DriftCheck(bench, protocol, request.database.drift_checks)
        uuid = self._circumstances.device_uuid
        self._opening_parts_s = opening_parts_s(request.database, bench.is_gpu, uuid, bench.has_meter)
        self._expected_s: dict[str, float] = {}
        if self.plan.items:
            times = expected_times(request.database, table, rows, works, conditions[self.plan.items[0].setting])
            self._expected_s = {
                item.key: times.item_s(item.case, conditions[item.setting], protocol) for item in self.plan.items
            }

    def without_drift_checks(self) -> Campaign:
        """Return the campaign; another one of the same run has drift checks."""
        self._drift_check.case = None
        return self

    @property
    def expected_s(self) -> float:
        return sum(self._expected_s.values())

    def item_s(self, item: PlanItem) -> float:
        return self._expected_s[item.key]

    @property
    def besides_parts_s(self) -> dict[str, float]:
        if not self.plan.items:
            return {}
        checks_s = self._drift_check.expected_s(len(self.plan.items))
        return {**self._opening_parts_s, **({"drift_checks": checks_s} if checks_s else {})}

    def besides_taken_s(self, besides_s: float, cache_corrections_s: float = 0.0) -> dict[str, float]:
        parts = {"drift_checks": self._checking.total_s, "cache_corrections": cache_corrections_s}
        known = {name: time_s for name, time_s in parts.items() if time_s}
        return {"start": besides_s - sum(known.values()), **known}

    def outlook(self) -> list[Outcome]:
        return [self._outcome(_Account(work, SpentTime(self._bench))) for work in self.plan.works]

    def run(self, progress: Progress) -> Iterator[Outcome]:
        """Yield each complete model's outcome. Raises UserError: the table takes no row; then nothing is measured."""
        items = self.plan.items
        if items:
            self._table.prepare()
        accounts = [_Account(work, SpentTime(self._bench)) for work in self.plan.works]
        pending = {item.key for item in items}
        account_of = {item.key: account for account in accounts for item in account.work.items}
        progress.start(len(items), [self._expected_s[item.key] for item in items])
        try:
            yield from self._completed(accounts, pending)
            for item in items:
                account = account_of[item.key]
                with self._checking:
                    self._drift_check.measure_if_due(item.setting)
                with account.spent:
                    account.measured += self._measure(item, account.work.name, progress)
                pending.remove(item.key)
                yield from self._completed(accounts, pending)
            with self._checking:
                self._drift_check.measure_last()
        finally:
            progress.end()
            self._drift_check.report_drift()

    def _completed(self, accounts: list[_Account], pending: Set[str]) -> Iterator[Outcome]:
        for account in [one for one in accounts if pending.isdisjoint(one.work.keys)]:
            accounts.remove(account)
            yield self._outcome(account)

    def _outcome(self, account: _Account) -> Outcome:
        work = account.work
        own = {item.key for item in work.items}
        complete = [key for key in work.keys if self._known.reason(key) is None]
        return Outcome(
            work=work,
            rows=self._known.best,
            failures=self._failed,
            found=sum(key not in own for key in complete),
            measured=account.measured,
            remaining=len(work.keys) - len(complete),
            expected_s=sum(self._expected_s[item.key] for item in work.items if self._known.reason(item.key)),
            taken_s=account.spent.total_s,
            steps_s=account.spent.steps_s,
        )

    def _measure(self, item: PlanItem, model: str, progress: Progress) -> bool:
        progress.begin(_name(item, model))
        try:
            rows = measured_rows(self._bench, item.case, item.setting, self.plan.protocol)
        except CannotMeasureError as error:
            self._fail(item, str(error))
            progress.fail(str(error))
            return False
        except Exception as error:
            # A bug, or a fault that ends the process: the next campaign measures this operator last.
            self._fail(item, f"{type(error).__name__}: {error}")
            raise
        rows = list(map(self._drift_check.checked, rows))
        for row in rows:
            self._table.append(row)
        self._known.add(rows)
        flags = flags_of(flag for row in rows for flag in quality_flags(row.measurement))
        for flag in flags:
            # Each flag that this campaign has not met yet.
            if flag not in self._explained:
                meaning = flag.meaning.removeprefix(f"{flag.value}: ")
                logging.getLogger(__name__).warning("(%s): %s", flag.value, meaning)
                self._explained.add(flag)
        names = f"  ({', '.join(flag.value for flag in flags)})" if flags else ""
        progress.finish(f"{costs_of(rows[0].measurement)}{names}")
        return True

    def _fail(self, item: PlanItem, reason: str) -> None:
        self._failed[item.key] = reason
        self._failures.append(
            FailureRow(
                key=item.key,
                **case_columns(item.case),
                reason=in_one_line(reason),
                failed_at=present_moment(),
                conditions=self._bench.conditions(item.setting),
                circumstances=self._circumstances,
            )
        )


def in_one_line(reason: str) -> str:
    """Return a reason as a table has it; frames of a user's code are further lines."""
    return "; ".join(line.strip() for line in reason.splitlines())


def costs_of(measurement: Measurement) -> str:
    """Return time and energy of a measurement for people."""
    energy = "no energy" if measurement.energy_j is None else millijoules(measurement.energy_j)
    return f"{milliseconds(measurement.time_s)}  {energy}"


def _name(item: PlanItem, model: str) -> str:
    """Return an item's name for people. A whole has that of its config: the tuples of users' models have no names."""
    operator, data = item.case.operator, item.case.input_data
    if operator.is_model:
        return model
    values = "" if data == NORMAL_DATA else f" ({data})"
    cache = "" if item.setting.cache == WARM else f", {item.setting.cache} cache"
    return " on ".join(filter(None, (short_form(operator), short_inputs(operator)))) + values + cache
