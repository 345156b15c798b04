"""The plans of a campaign and of a sweep: cases or repetitions that the database is missing, as plain data, and why.

A plan knows neither a device nor a file, and each of its items says what to ask a bench: it can be passed to another
process or machine.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from opcost.measuring.conditions import WARM, Conditions, LookupKey, lookup_key, measurement_key
from opcost.measuring.protocol import FULL_LOOP_S, RETRIES, MeasurementProtocol
from opcost.measuring.record import MeasurementRow, is_doubtful
from opcost.measuring.setting import Setting
from opcost.measuring.sweep_record import SweepRepetitionRow
from opcost.operators.counts import Case, case_key
from opcost.operators.texts import short_form, short_inputs
from opcost.operators.values import NORMAL_DATA
from opcost.prediction.durations import Size
from opcost.running.bench import Bench, measured_rows
from opcost.summing.summation import best_rows


class Reason(Enum):
    """Why a case is to be measured. The value is the text that people read."""

    MISSING = "missing"
    OTHER_BOARD = "on another board"
    SHORTER = "shorter or less precise than asked"
    NO_ENERGY = "lacks energy"
    FLAGGED = "flagged"


REPEATED = frozenset({Reason.NO_ENERGY, Reason.FLAGGED})
"""The reasons of cases that have a row which is precise enough."""


class KnownRows:
    """The rows that are as precise as a protocol, of some boards (UUIDs; None for all), and the keys they complete.

    Of cases with keys in ``board_of`` only rows of that board count.

    A key is complete with one row that is not flagged and, if there is a meter, has energy; or with ``RETRIES.runs``
    other rows. A measurement that was disturbed in one run need not be so in the next. Rows under other conditions may
    complete a case, too (``measuring.conditions``).
    """

    def __init__(
        self,
        protocol: MeasurementProtocol,
        has_meter: bool,
        rows: Iterable[MeasurementRow],
        boards: tuple[str | None, ...] | None = None,
        board_of: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._protocol, self._has_meter, self._boards, self._board_of = protocol, has_meter, boards, board_of
        self._shortcomings: dict[str, Reason] = {}
        self.best: dict[str, MeasurementRow] = {}
        self._numbers: Counter[str] = Counter()
        self._conditions: dict[str, dict[str, Conditions]] = {}
        self.add(rows)

    def add(self, rows: Iterable[MeasurementRow]) -> None:
        counting = []
        for row in rows:
            circumstances, own = row.circumstances, self._board_of.get(case_key(row.key))
            boards = self._boards if own is None else (own,)
            if not circumstances.suffices_for(self._protocol.loop_s, self._protocol.relative_error, FULL_LOOP_S):
                self._shortcomings[row.key] = Reason.SHORTER
            elif boards is not None and circumstances.device_uuid not in boards:
                self._shortcomings[row.key] = Reason.OTHER_BOARD
            else:
                counting.append(row)
                self._conditions.setdefault(case_key(row.key), {})[row.key] = row.conditions
        self._numbers.update(row.key for row in counting)
        known = [self.best[key] for key in {row.key for row in counting} & self.best.keys()]
        self.best |= best_rows([*known, *counting])

    def key(self, case: Case, conditions: Conditions) -> str:
        """Return the key of a case: of rows under other conditions if only these complete it."""
        own, wanted = measurement_key(case, conditions), lookup_key(case.operator, conditions)
        of_others = self._conditions.get(case.key, {}).items()
        same = (key for key, other in of_others if lookup_key(case.operator, other) == wanted)
        return next((key for key in (own, *same) if self.reason(key) is None), own)

    def reason(self, key: str) -> Reason | None:
        row = self.best.get(key)
        if row is None:
            return self._shortcomings.get(key, Reason.MISSING)
        if self._numbers[key] >= RETRIES.runs:
            return None
        # In state only the time is measured.
        if self._has_meter and row.measurement.energy_j is None and not row.state:
            return Reason.NO_ENERGY
        return Reason.FLAGGED if is_doubtful(row) else None


@dataclass(frozen=True)
class Work:
    """The cases of the model ``name``, each once, the known sizes of their operators by key, and a board for them."""

    name: str
    setting: Setting
    cases: tuple[Case, ...]
    sizes: Mapping[str, Size] = field(default_factory=dict)
    board: str | None = None


@dataclass(frozen=True)
class PlanItem:
    """One case that is to be measured for a model. ``has_failed`` says that it may have ended an earlier campaign.

    ``board`` is that of rows that it is compared with, None for any.
    """

    model: str
    case: Case
    setting: Setting
    protocol: MeasurementProtocol
    key: str
    reason: Reason
    has_failed: bool = False
    board: str | None = None

    @property
    def names(self) -> tuple[str]:
        """The name for people. A whole has that of its config: the tuples of users' models have no names."""
        operator, data = self.case.operator, self.case.input_data
        if operator.is_model:
            return (self.model,)
        values = "" if data == NORMAL_DATA else f" ({data})"
        cache = "" if self.setting.cache == WARM else f", {self.case.state or f'{self.setting.cache} cache'}"
        return (" on ".join(filter(None, (short_form(operator), short_inputs(operator)))) + values + cache,)

    def run(self, bench: Bench) -> Iterator[list[MeasurementRow]]:
        yield measured_rows(bench, self.case, self.setting, self.protocol)

    @property
    def turn(self) -> tuple[bool, bool]:
        """The rank among the items of all models: those without a row come first, those that failed before last."""
        return self.has_failed, self.reason in REPEATED


@dataclass(frozen=True)
class PlannedWork:
    """The plan for one model.

    ``keys`` are those of all its cases, perhaps of rows under other conditions. ``items`` are the cases to measure,
    without those of an earlier model.
    """

    name: str
    keys: tuple[str, ...]
    items: tuple[PlanItem, ...]

    @property
    def reasons(self) -> dict[str, int]:
        counts = Counter(item.reason for item in self.items)
        return {reason.value: counts[reason] for reason in Reason if counts[reason]}


@dataclass(frozen=True)
class Plan:
    """The plan for all models."""

    works: tuple[PlannedWork, ...]

    @property
    def items(self) -> tuple[PlanItem, ...]:
        """The items of all models, in the order in which they are measured.

        Within a turn models keep their order: an interrupted campaign has as many rows as possible, then as many
        complete models as possible.
        """
        return tuple(sorted((item for work in self.works for item in work.items), key=lambda item: item.turn))


def make_plan(
    works: Sequence[Work],
    known: KnownRows,
    protocol: MeasurementProtocol,
    conditions: Mapping[Setting, Conditions],
    failed_keys: Collection[str] = (),
) -> Plan:
    """Plan the measurements of all keys that are not complete.

    ``known`` are the rows of the database, ``conditions`` those of each setting. With an ``order_seed`` of the protocol
    each model's operators come in shuffled order, so that drift does not follow its layers. ``failed_keys`` are those
    that failed before.
    """
    # One key for all settings in which rows of a case stand for each other.
    keys: dict[tuple[str, LookupKey], tuple[str, Setting]] = {}
    planned_keys: set[str] = set()
    planned = []
    for work in works:
        under = conditions[work.setting]
        chosen: dict[Case, tuple[str, Setting]] = {}
        for case in work.cases:
            place = case.key, lookup_key(case.operator, under)
            if place not in keys:
                keys[place] = known.key(case, under), work.setting
            chosen[case] = keys[place]
        cases = list(work.cases)
        if protocol.order_seed is not None:
            random.Random(protocol.order_seed).shuffle(cases)
        items = []
        for case in cases:
            key, setting = chosen[case]
            reason = known.reason(key)
            if reason is not None and key not in planned_keys:
                failed = key in failed_keys
                items.append(PlanItem(work.name, case, setting, protocol, key, reason, failed, work.board))
        planned_keys |= {item.key for item in items}
        planned.append(PlannedWork(work.name, tuple(key for key, _ in chosen.values()), tuple(items)))
    return Plan(tuple(planned))


IN_A_BLOCK = 5
"""Repetitions that share one build. Two builds of ten repetitions show whether builds differ; a build of a model takes
as long as several repetitions."""


@dataclass(frozen=True)
class Block:
    """The numbers of some repetitions of the size with a key, which share build ``number`` of this size."""

    key: str
    number: int
    repetitions: tuple[int, ...]


@dataclass(frozen=True)
class Wanted:
    """Repetitions of each size on a board, by loops of a length in s."""

    repetitions: int
    loop_s: float
    device_uuid: str | None

    def counts(self, row: SweepRepetitionRow) -> bool:
        """Return whether a row is one of them: repetitions on other boards or with other loops are not."""
        circumstances = row.circumstances
        return circumstances.loop_s == self.loop_s and circumstances.device_uuid == self.device_uuid


def planned_blocks(
    keys: Sequence[str], rows: Iterable[SweepRepetitionRow], wanted: Wanted, last: Iterable[str], seed: int
) -> tuple[Block, ...]:
    """Return the blocks of missing repetitions.

    The first block of each size comes before any second one, so that a sweep that ends early has all sizes. Within such
    a round sizes are shuffled, so that drift does not follow them.

    ``keys`` are those of the sizes, ``rows`` known repetitions of any sizes. The blocks of sizes that failed before,
    with keys ``last``, come last.
    """
    known, failed, chance = by_key(rows, wanted), set(last), random.Random(seed)
    placed: list[tuple[tuple[bool, int, float], Block]] = []
    for key in keys:
        found = known.get(key, [])
        first = 1 + max((row.block for row in found), default=0)
        missing = sorted(set(range(1, wanted.repetitions + 1)) - {row.repetition for row in found})
        for turn, begin in enumerate(range(0, len(missing), IN_A_BLOCK)):
            block = Block(key, first + turn, tuple(missing[begin : begin + IN_A_BLOCK]))
            placed.append(((key in failed, turn, chance.random()), block))
    return tuple(block for _, block in sorted(placed, key=lambda one: one[0]))


def by_key(rows: Iterable[SweepRepetitionRow], wanted: Wanted) -> Mapping[str, list[SweepRepetitionRow]]:
    """Return the repetitions that count, by the key of their size. A number that is there twice counts once."""
    found: dict[str, dict[int, SweepRepetitionRow]] = {}
    for row in rows:
        if wanted.counts(row):
            found.setdefault(row.place.key, {}).setdefault(row.repetition, row)
    return {key: list(numbers.values()) for key, numbers in found.items()}
