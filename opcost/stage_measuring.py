"""Block 2 and the full-model script: measure what the database lacks under the present conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from opcost.apparatus import Apparatus, check_models
from opcost.conditions import Circumstances, Conditions, measurement_key
from opcost.config_files import ModelConfig, set_done
from opcost.csv_database import CsvTable
from opcost.errors import CannotMeasureError, UserError
from opcost.measurement import FULL_LOOP_S, MeasurementProtocol, MeasurementRow, measure
from opcost.operators import OperatorTuple
from opcost.progress import Progress
from opcost.request import (
    FAILURES,
    FILTERED_COUNTS,
    FULL_MODEL_MEASUREMENTS,
    OPERATOR_MEASUREMENTS,
    Request,
    counted,
    model_tuple,
)
from opcost.units import millijoules, milliseconds

OVERHEAD_S = 0.3
"""What building an operator, its first call and the last rows of the log took on an H200, per operator."""

OpenApparatus = Callable[[str | None, Path, bool], AbstractContextManager[Apparatus]]
"""As ``apparatus.open_apparatus``: device, database, whether to log power. Tests open a simulated one."""


@dataclass(frozen=True)
class FailureRow:
    """One operator or model that could not be measured, and why."""

    key: str
    operator: str
    reason: str
    failed_at: str
    parameters: str
    inputs: str
    training_mode: str
    conditions: Conditions
    circumstances: Circumstances


@dataclass(frozen=True)
class OperatorsReport:
    """What block 2 did for one model.

    ``operators`` are wanted; of these ``found`` were in the database already, ``measured`` and ``failed`` in this run,
    and ``remaining`` are still lacking. ``expected_s`` is how long the remaining ones take, those left out that an
    earlier model of the run wants too.
    """

    name: str
    operators: int
    found: int
    measured: int
    failed: int
    remaining: int
    expected_s: float
    done: bool
    reasons: tuple[str, ...]
    without_energy: int
    energy_missing_reasons: tuple[str, ...]


@dataclass(frozen=True)
class FullModelReport:
    """What the full-model script found or measured of one model; time and energy per run, None if not measured."""

    name: str
    time_s: float | None
    energy_j: float | None
    power_w: float | None
    newly_measured: bool
    failed: bool
    expected_s: float
    reason: str | None


@dataclass(frozen=True)
class Work:
    """What one model wants measured."""

    config: ModelConfig
    operators: tuple[OperatorTuple, ...]


@dataclass(frozen=True)
class Outcome:
    """What a campaign did for one piece of work; rows and reasons of failures by key."""

    keys: tuple[str, ...]
    rows: Mapping[str, MeasurementRow]
    failures: Mapping[str, str]
    found: int
    measured: int
    expected_s: float


def measure_operators(
    request: Request, protocol: MeasurementProtocol, open_apparatus: OpenApparatus, progress: Progress
) -> list[OperatorsReport]:
    """Measure each operator tuple of the chosen models that the database lacks; set ``done`` where it is due."""
    works = [
        Work(config, tuple(count.operator for count in counts.counts))
        for config, counts in counted(request, request.open_configs(), FILTERED_COUNTS)
    ]
    _check_any_operators(works)
    with open_apparatus(request.device, request.database, not request.dry_run) as apparatus:
        campaign = Campaign(apparatus, protocol, request.database, OPERATOR_MEASUREMENTS)
        reports = []
        for work, outcome in campaign.run(works, progress, request.dry_run):
            is_full_protocol = protocol.loop_s >= FULL_LOOP_S and apparatus.is_gpu
            is_due = is_full_protocol and not _remaining(outcome) and not request.dry_run
            if is_due:
                set_done(work.config.path)
            reports.append(_operators_report(work, outcome, done=is_due or work.config.done))
    return reports


def measure_full_models(
    request: Request, protocol: MeasurementProtocol, open_apparatus: OpenApparatus, progress: Progress
) -> list[FullModelReport]:
    """Measure each chosen model as a whole, where the database lacks it."""
    configs = request.configs()
    check_models(configs)
    works = [Work(config, (model_tuple(config),)) for config in configs]
    with open_apparatus(request.device, request.database, not request.dry_run) as apparatus:
        campaign = Campaign(apparatus, protocol, request.database, FULL_MODEL_MEASUREMENTS)
        return [_full_model_report(work, outcome) for work, outcome in campaign.run(works, progress, request.dry_run)]


class Campaign:
    """Measures operators that a table lacks, each once, however many models want it."""

    def __init__(self, apparatus: Apparatus, protocol: MeasurementProtocol, database: Path, table_name: str) -> None:
        self._apparatus = apparatus
        self._protocol = protocol
        self._table = CsvTable(database / table_name, MeasurementRow)
        self._failures = CsvTable(database / FAILURES, FailureRow)
        # A row of a shorter loop than the one asked for does not do.
        self._rows = {row.key: row for row in self._table.rows() if row.circumstances.loop_s >= protocol.loop_s}
        self._failed: dict[str, str] = {}

    def run(self, works: list[Work], progress: Progress, dry_run: bool) -> Iterator[tuple[Work, Outcome]]:
        """Measure what is lacking, and yield each model's outcome as soon as the model is complete."""
        lacking = self._newly_lacking(works)
        progress.start(sum(lacking), self._item_s)
        try:
            for work, newly_lacking in zip(works, lacking, strict=True):
                yield work, self._outcome(work, newly_lacking, progress, dry_run)
        finally:
            progress.end()

    def _outcome(self, work: Work, newly_lacking: int, progress: Progress, dry_run: bool) -> Outcome:
        keys = [self._key(work, operator) for operator in work.operators]
        found = sum(key in self._rows for key in keys)
        measured = 0 if dry_run else sum(self._measure(work, operator, progress) for operator in work.operators)
        expected_s = (newly_lacking - measured) * self._item_s
        return Outcome(tuple(keys), self._rows, self._failed, found, measured, expected_s)

    @property
    def _item_s(self) -> float:
        return self._protocol.warm_up_s + self._protocol.loop_s + OVERHEAD_S

    def _newly_lacking(self, works: list[Work]) -> list[int]:
        """Return how many operators each model adds to what the database and the models before it hold."""
        known = set(self._rows)
        numbers = []
        for work in works:
            wanted = {self._key(work, operator) for operator in work.operators}
            numbers.append(len(wanted - known))
            known |= wanted
        return numbers

    def _key(self, work: Work, operator: OperatorTuple) -> str:
        return measurement_key(operator, self._apparatus.conditions(work.config.precision))

    def _measure(self, work: Work, operator: OperatorTuple, progress: Progress) -> bool:
        """Measure one operator unless that is done or has failed; return whether a row was added."""
        key = self._key(work, operator)
        if key in self._rows or key in self._failed:
            return False
        progress.begin(f"{operator.short_name}({operator.parameters_text}) on {operator.inputs_text}")
        try:
            row = self._row(key, operator, work.config.precision)
        except CannotMeasureError as error:
            self._fail(key, operator, work.config.precision, str(error))
            progress.fail(str(error))
            return False
        self._table.append(row)
        self._rows[key] = row
        energy = "no energy" if row.measurement.energy_j is None else millijoules(row.measurement.energy_j)
        progress.finish(f"{milliseconds(row.measurement.time_s)}  {energy}")
        return True

    def _row(self, key: str, operator: OperatorTuple, precision: str) -> MeasurementRow:
        log_name = f"{key}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}"
        with self._apparatus.precision(precision), self._apparatus.workload(operator) as workload:
            measurement = measure(workload, self._apparatus.meter(log_name), self._apparatus.clock, self._protocol)
        return MeasurementRow(
            key=key,
            operator=operator.operator,
            measurement=measurement,
            parameters=operator.parameters_text,
            inputs=operator.inputs_text,
            training_mode=operator.mode,
            conditions=self._apparatus.conditions(precision),
            circumstances=self._apparatus.circumstances(self._protocol),
        )

    def _fail(self, key: str, operator: OperatorTuple, precision: str, reason: str) -> None:
        self._failed[key] = reason
        self._failures.append(
            FailureRow(
                key=key,
                operator=operator.operator,
                reason=reason,
                failed_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                parameters=operator.parameters_text,
                inputs=operator.inputs_text,
                training_mode=operator.mode,
                conditions=self._apparatus.conditions(precision),
                circumstances=self._apparatus.circumstances(self._protocol),
            )
        )


def _check_any_operators(works: list[Work]) -> None:
    """Refuse models of which no operator is kept: a model without work would be done at once."""
    mistakes = [
        f"{FILTERED_COUNTS.path(work.config)}: the whitelist keeps no operator; mend it and run block 1 again"
        for work in works
        if not work.operators
    ]
    if mistakes:
        raise UserError(*mistakes)


def _operators_report(work: Work, outcome: Outcome, done: bool) -> OperatorsReport:
    reasons = [outcome.failures[key] for key in outcome.keys if key in outcome.failures]
    rows = [outcome.rows[key].measurement for key in outcome.keys if key in outcome.rows]
    without_energy = [str(row.energy_missing_reason) for row in rows if row.energy_j is None]
    return OperatorsReport(
        name=work.config.name,
        operators=len(outcome.keys),
        found=outcome.found,
        measured=outcome.measured,
        failed=len(reasons),
        remaining=_remaining(outcome),
        expected_s=outcome.expected_s,
        done=done,
        reasons=tuple(dict.fromkeys(reasons)),
        without_energy=len(without_energy),
        energy_missing_reasons=tuple(dict.fromkeys(without_energy)),
    )


def _full_model_report(work: Work, outcome: Outcome) -> FullModelReport:
    (key,) = outcome.keys
    row = outcome.rows.get(key)
    return FullModelReport(
        name=work.config.name,
        time_s=row.measurement.time_s if row else None,
        energy_j=row.measurement.energy_j if row else None,
        power_w=row.measurement.power_w if row else None,
        newly_measured=outcome.measured > 0,
        failed=key in outcome.failures,
        expected_s=outcome.expected_s,
        reason=outcome.failures.get(key) or (row.measurement.energy_missing_reason if row else None),
    )


def _remaining(outcome: Outcome) -> int:
    return sum(key not in outcome.rows for key in outcome.keys)
