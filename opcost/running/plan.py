"""What a campaign is to measure: what a database lacks of what some models want, and why, as plain data.

A plan knows neither a device nor a file: it may be handed to another process, or to another machine.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from opcost.measuring.conditions import Conditions, measurement_key
from opcost.measuring.protocol import FULL_LOOP_S, MeasurementProtocol
from opcost.measuring.record import MeasurementRow, is_doubtful
from opcost.measuring.retries import RETRIES
from opcost.measuring.setting import Setting
from opcost.operators.cases import Case
from opcost.summing.index import best_rows

OVERHEAD_S = 0.1
"""What building an operator, its capture and the last rows of the log take on an H200."""

PRECISE_LOOP_S = 0.3
"""What a loop to within 1 % takes on an H200 on average."""


class Reason(Enum):
    """Why something is to be measured: what there is of it in the database. The value is how people read it."""

    MISSING = "missing"
    OTHER_BOARD = "on another board"
    SHORTER = "shorter or less precise than asked"
    LACKS_ENERGY = "lacks energy"
    FLAGGED = "flagged"


@dataclass(frozen=True)
class Work:
    """What one model wants measured, each case once; ``name`` is the model's."""

    name: str
    setting: Setting
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Demand:
    """What rows must be like. ``boards`` are those whose rows count, by their UUID; None for all."""

    protocol: MeasurementProtocol
    has_meter: bool
    boards: tuple[str | None, ...] | None = None

    def shortcoming(self, row: MeasurementRow) -> Reason | None:
        """Return why a row does not count, None if it does."""
        if not row.circumstances.is_as_good_as(self.protocol.loop_s, self.protocol.relative_error, FULL_LOOP_S):
            return Reason.SHORTER
        if self.boards is not None and row.circumstances.device_uuid not in self.boards:
            return Reason.OTHER_BOARD
        return None


class KnownRows:
    """The rows that meet a demand, and which keys they settle.

    A key is settled by a row that no flag casts doubt on and that has energy, where there is a meter; or by
    ``RETRIES.runs`` others. What was disturbed in one run need not be so in the next.
    """

    def __init__(self, demand: Demand, rows: Iterable[MeasurementRow]) -> None:
        self._demand = demand
        self._shortcomings: dict[str, Reason] = {}
        self.best: dict[str, MeasurementRow] = {}
        self._numbers: Counter[str] = Counter()
        self.add(rows)

    def add(self, rows: Iterable[MeasurementRow]) -> None:
        """Count further rows."""
        counting = []
        for row in rows:
            shortcoming = self._demand.shortcoming(row)
            if shortcoming is None:
                counting.append(row)
            else:
                self._shortcomings[row.key] = shortcoming
        self._numbers.update(row.key for row in counting)
        known = [self.best[key] for key in {row.key for row in counting} & self.best.keys()]
        self.best |= best_rows([*known, *counting])

    def reason(self, key: str) -> Reason | None:
        """Return why a key is to be measured, None if it is settled."""
        row = self.best.get(key)
        if row is None:
            return self._shortcomings.get(key, Reason.MISSING)
        if self._numbers[key] >= RETRIES.runs:
            return None
        if self._demand.has_meter and row.measurement.energy_j is None:
            return Reason.LACKS_ENERGY
        return Reason.FLAGGED if is_doubtful(row.measurement) else None


@dataclass(frozen=True)
class PlanItem:
    """One case that is to be measured. ``has_failed`` says that it may be what ended an earlier campaign."""

    case: Case
    setting: Setting
    key: str
    reason: Reason
    has_failed: bool = False


@dataclass(frozen=True)
class PlannedWork:
    """What is to be measured for a model.

    ``keys`` are of all that it wants, ``items`` what of that is lacking, in the order in which it is measured, but for
    what a model before wants, too.
    """

    name: str
    keys: tuple[str, ...]
    items: tuple[PlanItem, ...]

    @property
    def reasons(self) -> dict[str, int]:
        """How many items are to be measured for each reason, as people read it."""
        counts = Counter(item.reason for item in self.items)
        return {reason.value: counts[reason] for reason in Reason if counts[reason]}


@dataclass(frozen=True)
class Plan:
    """What is to be measured, model by model, and how long or precisely."""

    protocol: MeasurementProtocol
    works: tuple[PlannedWork, ...]

    @property
    def item_s(self) -> float:
        """How long an item takes if nothing disturbs it."""
        loop_s = self.protocol.loop_s if self.protocol.relative_error is None else PRECISE_LOOP_S
        return self.protocol.warm_up_s + loop_s + OVERHEAD_S

    @property
    def items(self) -> tuple[PlanItem, ...]:
        """All of them, in the order in which they are measured."""
        return tuple(item for work in self.works for item in work.items)


def make_plan(
    works: Sequence[Work],
    known: KnownRows,
    protocol: MeasurementProtocol,
    conditions: Mapping[Setting, Conditions],
    failed_keys: Collection[str] = (),
) -> Plan:
    """Plan what the known rows do not settle.

    Models come in their order, but for those that lack what failed before: these come last. So it is within a model,
    where what has no row yet comes before what has one that is no good.

    Args:
        works: what is wanted.
        known: what there is.
        protocol: how long or precisely to measure; with an ``order_seed`` each model's operators come in shuffled
            order, so that drifts do not follow its layers.
        conditions: under which each setting measures.
        failed_keys: of what failed before.
    """
    planned = [_planned(work, known, protocol.order_seed, conditions[work.setting], failed_keys) for work in works]
    planned.sort(key=lambda work: any(item.has_failed for item in work.items))
    wanted_before: set[str] = set()
    apart = []
    for work in planned:
        items = tuple(item for item in work.items if item.key not in wanted_before)
        apart.append(replace(work, items=items))
        wanted_before |= {item.key for item in items}
    return Plan(protocol, tuple(apart))


def _planned(
    work: Work, known: KnownRows, order_seed: int | None, conditions: Conditions, failed_keys: Collection[str]
) -> PlannedWork:
    keys = {case: measurement_key(case, conditions) for case in work.cases}
    cases = list(work.cases)
    if order_seed is not None:
        random.Random(order_seed).shuffle(cases)
    items = [
        PlanItem(case, work.setting, keys[case], reason, keys[case] in failed_keys)
        for case in cases
        if (reason := known.reason(keys[case])) is not None
    ]
    items.sort(key=lambda item: (item.has_failed, item.key in known.best))
    return PlannedWork(work.name, tuple(keys.values()), tuple(items))
