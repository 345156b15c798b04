"""A campaign: everything that some models want measured on a device, each operator once, and on disk at once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import measurement_key
from opcost.measuring.protocol import FULL_LOOP_S, MeasurementProtocol
from opcost.measuring.record import FailureRow, MeasurementRow, doubts_of, is_doubtful
from opcost.measuring.retries import RETRIES
from opcost.operators.subjects import Subject, about
from opcost.operators.values import NORMAL_DATA
from opcost.progress import Progress
from opcost.running.bench import Bench, measured_row
from opcost.running.drift_check import Sentinel
from opcost.running.request import Request
from opcost.storage.configs import ModelConfig
from opcost.storage.table import CsvTable
from opcost.summing.index import best_rows
from opcost.units import millijoules, milliseconds

OVERHEAD_S = 0.1
"""What building an operator, its capture and the last rows of the log take on an H200."""

PRECISE_LOOP_S = 0.3
"""What a loop to within 1 % takes on an H200 on average."""


@dataclass(frozen=True)
class Work:
    """What one model wants measured."""

    config: ModelConfig
    subjects: tuple[Subject, ...]


@dataclass(frozen=True)
class Outcome:
    """What a campaign did for one piece of work; rows and reasons of failures by key.

    Of the keys ``found`` were settled before and ``measured`` got a row; ``remaining`` are not settled yet.
    """

    keys: tuple[str, ...]
    rows: Mapping[str, MeasurementRow]
    failures: Mapping[str, str]
    found: int
    measured: int
    remaining: int
    expected_s: float


class Campaign:
    """Measures the operators of some works that a table lacks, each once, however many models want it.

    With an ``order_seed`` in the protocol each model's operators come in shuffled order, so that drifts do not follow
    its layers. Where the bench has a sentinel, that is measured first, last, and now and then in between.

    A row settles its operator if its loop was at least as long or precise as the one asked for now, and if nothing
    disturbed it and it has energy, or there is no meter; or if there are ``RETRIES.runs`` rows. Rows of other boards
    settle nothing if the request is for the ``same_board``.
    """

    def __init__(
        self,
        bench: Bench,
        protocol: MeasurementProtocol,
        request: Request,
        table: CsvTable[MeasurementRow],
        works: Sequence[Work],
    ) -> None:
        self._bench = bench
        self._works = works
        self._protocol = protocol
        # Asked for now: where a bench's process ends with its first operator, it answers no more.
        self._circumstances = bench.circumstances(protocol)
        self._table = table
        self._failures = request.database.failures
        asked = (protocol.loop_s, protocol.relative_error, FULL_LOOP_S)
        wanted = about(subject.operator for work in works for subject in work.subjects)
        rows = [row for row in self._table.rows(wanted) if row.circumstances.is_as_good_as(*asked)]
        if request.same_board:
            rows = [row for row in rows if row.circumstances.device_uuid == self._circumstances.device_uuid]
        self._rows = best_rows(rows)
        self._attempts = Counter(row.key for row in rows)
        self._sentinel = Sentinel(bench, protocol, request.database.sentinel_measurements)
        self._tried: set[str] = set()
        self._failed: dict[str, str] = {}
        self._failed_before = {row.key for row in self._failures.rows()}

    def run(self, progress: Progress, dry_run: bool) -> Iterator[tuple[Work, Outcome]]:
        """Measure what is lacking, and yield each model's outcome as soon as the model is complete.

        What failed before comes last: it may be what ended the last campaign.
        """
        works = sorted(
            self._works, key=lambda work: any(self._is_suspect(self._key(work, one)) for one in work.subjects)
        )
        lacking = self._newly_lacking(works)
        progress.start(sum(lacking), self._item_s)
        try:
            for work, newly_lacking in zip(works, lacking, strict=True):
                yield work, self._outcome(work, newly_lacking, progress, dry_run)
            self._sentinel.look_last()
        finally:
            progress.end()
            self._sentinel.tell_drift()

    def _outcome(self, work: Work, newly_lacking: int, progress: Progress, dry_run: bool) -> Outcome:
        keys = [self._key(work, subject) for subject in work.subjects]
        found = sum(map(self._is_settled, keys))
        subjects = sorted(self._in_order(work.subjects), key=lambda subject: self._turn(work, subject))
        measured = 0 if dry_run else sum(self._measure(work, subject, progress) for subject in subjects)
        remaining = sum(not self._is_settled(key) for key in keys)
        return Outcome(
            keys=tuple(keys),
            rows=self._rows,
            failures=self._failed,
            found=found,
            measured=measured,
            remaining=remaining,
            expected_s=(newly_lacking if dry_run else remaining) * self._item_s,
        )

    def _in_order(self, subjects: tuple[Subject, ...]) -> list[Subject]:
        """Return subjects shuffled by the seed, if there is one: neighbours in a model are not neighbours in time."""
        shuffled = list(subjects)
        if self._protocol.order_seed is not None:
            random.Random(self._protocol.order_seed).shuffle(shuffled)
        return shuffled

    @property
    def _item_s(self) -> float:
        loop_s = self._protocol.loop_s if self._protocol.relative_error is None else PRECISE_LOOP_S
        return self._protocol.warm_up_s + loop_s + OVERHEAD_S

    def _newly_lacking(self, works: list[Work]) -> list[int]:
        """Return how many operators each model adds to what is settled and what the models before it want."""
        known: set[str] = set()
        numbers = []
        for work in works:
            wanted = {key for subject in work.subjects if not self._is_settled(key := self._key(work, subject))}
            numbers.append(len(wanted - known))
            known |= wanted
        return numbers

    def _key(self, work: Work, subject: Subject) -> str:
        return measurement_key(subject, self._bench.conditions(work.config.precision))

    def _is_settled(self, key: str) -> bool:
        row = self._rows.get(key)
        if row is None:
            return False
        lacks_energy = row.measurement.energy_j is None and self._bench.has_meter
        return not (lacks_energy or is_doubtful(row.measurement)) or self._attempts[key] >= RETRIES.runs

    def _turn(self, work: Work, subject: Subject) -> tuple[bool, bool]:
        """Return by what subjects are sorted: first those without a row, last those that may end the campaign."""
        key = self._key(work, subject)
        return self._is_suspect(key), key in self._rows

    def _has_suspects(self, work: Work) -> bool:
        return any(self._is_suspect(self._key(work, subject)) for subject in work.subjects)

    def _is_suspect(self, key: str) -> bool:
        return key in self._failed_before and not self._is_settled(key)

    def _measure(self, work: Work, subject: Subject, progress: Progress) -> bool:
        """Measure one operator unless it is settled or was tried in this run; return whether a row was added."""
        key = self._key(work, subject)
        if key in self._tried or self._is_settled(key):
            return False
        self._tried.add(key)
        self._sentinel.look_if_due(work.config.precision)
        progress.begin(_name(subject))
        try:
            row = measured_row(self._bench, subject, work.config.precision, self._protocol, self._circumstances)
        except CannotMeasureError as error:
            self._fail(key, subject, work.config.precision, str(error))
            progress.fail(str(error))
            return False
        except Exception as error:
            # A bug, or a fault that the process does not survive: the next campaign takes this operator last.
            self._fail(key, subject, work.config.precision, f"{type(error).__name__}: {error}")
            raise
        row = self._sentinel.doubted(row)
        self._add(row)
        energy = "no energy" if row.measurement.energy_j is None else millijoules(row.measurement.energy_j)
        doubts = "".join(f"  ({doubt.meaning})" for doubt in doubts_of(row.measurement))
        progress.finish(f"{milliseconds(row.measurement.time_s)}  {energy}{doubts}")
        return True

    def _add(self, row: MeasurementRow) -> None:
        self._table.append(row)
        self._attempts[row.key] += 1
        known = [self._rows[row.key]] if row.key in self._rows else []
        self._rows |= best_rows([*known, row])

    def _fail(self, key: str, subject: Subject, precision: str, reason: str) -> None:
        self._failed[key] = reason
        self._failures.append(
            FailureRow(
                key=key,
                operator=subject.operator.operator,
                reason=reason,
                failed_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                parameters=subject.operator.parameters_text,
                inputs=subject.operator.inputs_text,
                training_mode=subject.operator.mode,
                input_data=str(subject.input_data),
                conditions=self._bench.conditions(precision),
                circumstances=self._circumstances,
            )
        )


def _name(subject: Subject) -> str:
    operator, data = subject.operator, subject.input_data
    values = "" if data == NORMAL_DATA else f" ({data})"
    return f"{operator.short_name}({operator.parameters_text}) on {operator.inputs_text}{values}"
