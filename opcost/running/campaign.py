"""A campaign: the missing cases of some models on a kind of device, as a job. Each row is on disk at once."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opcost.columns import present_moment
from opcost.estimates import value_of
from opcost.invocation import command
from opcost.measuring.conditions import GRAPH
from opcost.measuring.flags import Flag, flags_of
from opcost.measuring.protocol import ProtocolFor
from opcost.measuring.record import FailureRow, Measurement, MeasurementRow, quality_flags
from opcost.measuring.setting import USUAL
from opcost.operators.counts import case_columns, of_operators
from opcost.prediction.durations import OPERATOR_BUILDING_S, run_s
from opcost.progress import Progress
from opcost.running.engine import EVERY, Checked, Ended, Executor, Job, Worker, carry_out
from opcost.running.expected_times import expected_times, opening_parts_s
from opcost.running.plan import KnownRows, PlanItem, PlannedWork, Work, make_plan
from opcost.storage.database import Database
from opcost.storage.table import CsvTable
from opcost.summing.summation import common_basis
from opcost.units import millijoules, milliseconds, percent

LOOP_S = 0.8
"""Loop of a drift check if other loops end at a relative error. Those are too short for nvidia-smi, which has a new
value every 0.1 s, to check the meter that energies come from."""


@dataclass(eq=False)
class Outcome:
    """The result of a campaign for one model; of its keys, ``pending`` ones have not ended.

    ``taken_s`` is the time that the ``measured`` keys took, which got a row, and ``steps_s`` the part of each step in
    it, with each second shared among the workers of all kinds of devices, which are side by side.
    """

    campaign: Campaign
    work: PlannedWork
    pending: set[str]
    measured: int = 0
    taken_s: float = 0.0
    steps_s: Counter[str] = field(default_factory=Counter)

    @property
    def place(self) -> tuple[str, str]:
        """The kind of device and the name of the model."""
        return self.campaign.kind, self.work.name

    @property
    def reasons(self) -> list[str]:
        """Why keys have failed."""
        return [self.campaign.failed[key] for key in self.work.keys if key in self.campaign.failed]

    @property
    def found(self) -> int:
        """The number of keys that were in the database already."""
        own = {item.key for item in self.work.items}
        return sum(self.campaign.known.reason(key) is None for key in self.work.keys if key not in own)

    @property
    def remaining(self) -> int:
        """The number of keys that are still to be measured."""
        return sum(self.campaign.known.reason(key) is not None for key in self.work.keys)

    @property
    def expected_s(self) -> float:
        """The time that these take, without those that an earlier model of the campaign has."""
        left = (item for item in self.work.items if self.campaign.known.reason(item.key))
        return sum(map(self.campaign.item_s, left)) / self.campaign.workers


@dataclass(frozen=True)
class Demand:
    """The cases of some models that a table of a database is to have, by a protocol.

    With ``same_board`` rows of boards without a worker do not count. Those ``of_pairs`` count on the board of their
    work alone, and another campaign of the same run has drift checks.
    """

    works: Sequence[Work]
    protocol_for: ProtocolFor
    database: Database
    table: CsvTable[MeasurementRow]
    same_board: bool = False
    of_pairs: bool = False


class Campaign(Job):
    """Plans what a kind of device is to measure for a demand, and keeps the rows."""

    def __init__(self, executor: Executor, kind: str, demand: Demand) -> None:
        database, table, bench = demand.database, demand.table, executor.kinds[kind]
        self.kind, self.bench, self._table, self._failures = kind, bench, table, database.failures
        self._checks: dict[Worker, list[MeasurementRow]] = defaultdict(list)
        self._since_check: Counter[Worker] = Counter()
        self._check_table = database.drift_checks
        self.failed: dict[str, str] = {}
        self.protocol = protocol = demand.protocol_for(bench.is_gpu)
        # Now, since a bench whose process measures or has ended answers no more.
        self._circumstances = bench.circumstances(protocol)
        self.product = bench.conditions(USUAL).device_product
        rows = table.rows(of_operators(case.operator for work in demand.works for case in work.cases))
        boards = tuple(worker.board for worker in executor.workers if worker.kind == kind)
        # All may be lost by now.
        self.workers, self.of_all_kinds = max(1, len(boards)), max(1, len(executor.workers))
        works = [work for work in demand.works if demand.of_pairs and work.board is not None]
        board_of = {case.key: str(work.board) for work in works for case in work.cases}
        self.known = KnownRows(protocol, bench.has_meter, rows, boards if demand.same_board else None, board_of)
        conditions = {work.setting: bench.conditions(work.setting) for work in demand.works}
        failed_keys = {row.key for row in self._failures.rows()}
        self.plan = make_plan(demand.works, self.known, protocol, conditions, failed_keys)
        self._explained: set[Flag] = set()
        if not demand.of_pairs and bench.drift_case is not None:
            is_short = protocol.relative_error is not None
            self.check = replace(protocol, loop_s=LOOP_S, relative_error=None) if is_short else protocol
            bench.circumstances(self.check)
        self.checks_s = 0.0
        self._opening_parts_s = opening_parts_s(database, bench.is_gpu, boards, bench.has_meter)
        self._expected_s: dict[str, float] = {}
        if self.plan.items:
            times = expected_times(database, table, rows, demand.works, conditions[self.plan.items[0].setting])
            self._expected_s = {
                item.key: times.item_s(item.case, conditions[item.setting], protocol) for item in self.plan.items
            }
        self.number, self.expected_s = len(self.plan.items), list(self._expected_s.values())
        pending = {item.key for item in self.plan.items}
        self.outcomes = [Outcome(self, work, pending.intersection(work.keys)) for work in self.plan.works]
        self._own = {item.key: outcome for outcome in self.outcomes for item in outcome.work.items}
        self._waiting: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in self.outcomes:
            for key in outcome.pending:
                self._waiting[key].append(outcome)

    def item_s(self, item: PlanItem) -> float:
        return self._expected_s[item.key]

    @property
    def besides_parts_s(self) -> dict[str, float]:
        if not self.plan.items:
            return {}
        if self.check is None:
            return {**self._opening_parts_s}
        checks = 2 + (len(self.plan.items) - 1) // (EVERY * self.workers)
        checks_s = checks * (OPERATOR_BUILDING_S + run_s(0.0, GRAPH, self.check, "cuda"))
        return {**self._opening_parts_s, "drift_checks": checks_s}

    def prepare(self) -> None:
        """Raise UserError: a table takes no row; then nothing is measured."""
        if self.plan.items:
            self._table.prepare()
            if self.check is not None:
                self._check_table.prepare()

    def groups(self) -> Iterator[tuple[PlanItem]]:
        yield from ((item,) for item in self.plan.items)

    def completed(self, item: PlanItem | None = None) -> Iterator[Outcome]:
        """Yield the outcomes of the models that an item completes; without an item, of those that were complete."""
        for outcome in self.outcomes if item is None else self._waiting[item.key]:
            if item is not None:
                outcome.pending.remove(item.key)
            if not outcome.pending:
                yield outcome

    def keep(self, worker: Worker, item: PlanItem, content: Sequence[MeasurementRow]) -> str:
        rows = [self._checked(worker, row) for row in content]
        for row in rows:
            self._table.append(row)
        self.known.add(rows)
        self._own[item.key].measured += 1
        flags = flags_of(flag for row in rows for flag in quality_flags(row.measurement))
        for flag in flags:
            # Each flag that this campaign has not met yet.
            if flag not in self._explained:
                meaning = flag.meaning.removeprefix(f"{flag.value}: ")
                logging.getLogger(__name__).warning("(%s): %s", flag.value, meaning)
                self._explained.add(flag)
        names = f"  ({', '.join(flag.value for flag in flags)})" if flags else ""
        return f"{costs_of(rows[0].measurement)}{names}"

    def fail(self, item: PlanItem, reason: str) -> None:
        self.failed[item.key] = reason
        self._failures.append(
            FailureRow(
                key=item.key,
                **case_columns(item.case),
                reason=in_one_line(reason),
                failed_at=present_moment(),
                conditions=self.bench.conditions(item.setting),
                circumstances=self._circumstances,
            )
        )

    def ended(self, item: PlanItem, event: Ended) -> None:
        outcome = self._own[item.key]
        outcome.taken_s += event.taken_s / self.of_all_kinds
        outcome.steps_s.update({step: time_s / self.of_all_kinds for step, time_s in event.steps_s.items()})

    def checked(self, worker: Worker, event: Checked) -> None:
        self.checks_s += event.taken_s
        row = event.row
        if row is None:
            logging.getLogger(__name__).warning("no drift check: %s", event.reason)
            return
        if Flag.METERS_DISAGREE in row.measurement.flags:
            since = self._since_check[worker]
            before = f" The {since} rows before may be wrong, too." if since else ""
            text = "%sdrift check: meters disagree (%.1f W and %.1f W). Rows from now on are flagged.%s Run %s."
            figures = (row.measurement.power_w, row.measurement.check_power_w)
            logging.getLogger(__name__).warning(text, _prefix(worker), *figures, before, command("qualify"))
        self._since_check[worker] = 0
        self._check_table.append(row)
        self._checks[worker].append(row)

    def report_drift(self) -> None:
        for worker, rows in self._checks.items():
            basis = common_basis(rows)
            energies_j = [value_of(basis.energy_of(row)) for row in rows]
            figures = {
                "time": [row.measurement.time_s for row in rows],
                "energy": [energy_j for energy_j in energies_j if energy_j],
            }
            texts = [
                f"{name} drifted by {percent(max(values) / min(values) - 1, digits=2)}"
                for name, values in figures.items()
                if len(values) > 1
            ]
            if texts:
                text = "%sdrift check, %d measurements: %s"
                logging.getLogger(__name__).warning(text, _prefix(worker), len(rows), ", ".join(texts))

    def _checked(self, worker: Worker, row: MeasurementRow) -> MeasurementRow:
        """Return a row, flagged if meters disagreed at its board's last check, unless it has a check of its own."""
        self._since_check[worker] += 1
        last = self._checks[worker][-1:]
        meters_disagree = last and Flag.METERS_DISAGREE in last[0].measurement.flags
        if not meters_disagree or row.measurement.check_power_w is not None:
            return row
        flags = flags_of([*row.measurement.flags, Flag.METERS_DISAGREED_BEFORE])
        return replace(row, measurement=replace(row.measurement, flags=flags))


def _prefix(worker: Worker) -> str:
    return f"{worker.name}: " if worker.name else ""


def campaigns_of(executor: Executor, demand: Demand) -> dict[str, Campaign]:
    return {kind: Campaign(executor, kind, demand) for kind in executor.kinds}


def outcomes(executor: Executor, campaigns: Mapping[str, Campaign], progress: Progress) -> Iterator[Outcome]:
    """Measure what campaigns lack; yield the outcome of each model once it is complete.

    Raises UserError: a table takes no row, and then nothing is measured; or no worker is left.
    """
    for campaign in campaigns.values():
        campaign.prepare()
    try:
        for campaign in campaigns.values():
            yield from campaign.completed()
        for kind, item in carry_out(executor, campaigns, progress):
            yield from campaigns[kind].completed(item)
    finally:
        for campaign in campaigns.values():
            campaign.report_drift()


def in_one_line(reason: str) -> str:
    """Return a reason as a table has it; frames of a user's code are further lines."""
    return "; ".join(line.strip() for line in reason.splitlines())


def costs_of(measurement: Measurement) -> str:
    """Return time and energy of a measurement for people."""
    energy = "no energy" if measurement.energy_j is None else millijoules(measurement.energy_j)
    return f"{milliseconds(measurement.time_s)}  {energy}"
