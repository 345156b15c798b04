"""The tuples that models use: what each costs, in which models, and what to know about its figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from opcost.comparing.comparison import Comparison
from opcost.comparing.roofline import FP32, TF32, Roofline, Work, roofline_of
from opcost.estimates import Estimate, value_of
from opcost.measuring.conditions import EAGER, Conditions
from opcost.measuring.flags import Flag
from opcost.measuring.record import (
    MeasurementRow,
    is_doubtful,
    time_of,
)
from opcost.operators.cases import Case, cases_of
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import OperatorTuple
from opcost.summing.energy import EnergyBasis
from opcost.summing.summation import ModelCost, Part


class TupleFlag(Enum):
    """What is to be known of a tuple in the comparisons that use it. The value is how tables show it."""

    DOUBTFUL = "doubtful"
    NOT_PRECISE = "imprecise"
    DUTY_CYCLE = "duty cycle"
    POWER_LIMIT = "power limit"
    EAGER = "eager"
    OTHER_VALUES = "other values"
    OTHER_BOARD = "other board"
    NO_ENERGY = "no energy"
    NOT_MEASURED = "not measured"
    DROPPED = "not in the whitelist"

    @property
    def meaning(self) -> str:
        """What that means, in a few words."""
        return _MEANINGS[self]


_MEANINGS = {
    TupleFlag.DOUBTFUL: "something disturbed the measurement, or its meters disagree: a later run measures it again",
    TupleFlag.NOT_PRECISE: "target precision not reached",
    TupleFlag.DUTY_CYCLE: "measured with pauses: without them it would be throttled by the power limit",
    TupleFlag.POWER_LIMIT: "at the power limit: slower where the load lasts",
    TupleFlag.EAGER: "launched by Python's calls, not in a CUDA graph",
    TupleFlag.OTHER_VALUES: "measured on other values than the model's",
    TupleFlag.OTHER_BOARD: "measured on another board than the whole model",
    TupleFlag.NO_ENERGY: "no meter gave its energy",
    TupleFlag.NOT_MEASURED: "there is no row under the model's conditions",
    TupleFlag.DROPPED: "left out of the sum: the whitelist does not name it",
}


@dataclass(frozen=True)
class Use:
    """Calls of a tuple in one comparison, by its place among all; ``is_summed`` is False where they are left out."""

    comparison: int
    calls: int
    is_summed: bool = True


@dataclass
class TupleCost:
    """A tuple on a kind of values, the row that stands for it, None where there is none, and who uses it."""

    case: Case
    row: MeasurementRow | None
    flop: int
    memory_bytes: int
    uses: list[Use] = field(default_factory=list)
    flags: set[TupleFlag] = field(default_factory=set)

    @property
    def time_s(self) -> Estimate | None:
        """The time of one call."""
        return None if self.row is None else time_of(self.row)

    @property
    def energy_j(self) -> Estimate | None:
        """The energy of one call, as measured."""
        return None if self.row is None else EnergyBasis.MEASURED.energy_of(self.row)

    @property
    def work(self) -> Work | None:
        """What one call does and costs; None where it is not measured."""
        if self.row is None:
            return None
        energy_j = self.energy_j
        arithmetic = arithmetic_of(self.case.operator, self.row.conditions)
        return Work(self.flop, self.memory_bytes, self.row.measurement.time_s, value_of(energy_j), arithmetic)


def arithmetic_of(operator: OperatorTuple, conditions: Conditions) -> str:
    """Return what an operator multiplies in: its first floating input's type, TF32 where torch's switches allow that.

    torch has one switch for convolutions and one for all other products.
    """
    dtype = next((spec.dtype for spec in operator.floating_inputs), "float32")
    if dtype != "float32":
        return dtype
    if conditions.device_type == "cpu":
        return FP32
    is_convolution = "conv" in operator.short_name.lower()
    return TF32 if (conditions.cudnn_tf32 if is_convolution else conditions.matmul_tf32) else FP32


def tuple_costs(comparisons: Sequence[Comparison]) -> list[TupleCost]:
    """Return the tuples that compared models use, those first that cost the models most time.

    A tuple whose figures come from different rows, since models were measured on different boards or under different
    conditions, is there once for each row.
    """
    found: dict[tuple[str, ...], TupleCost] = {}
    for index, comparison in enumerate(comparisons):
        for cost, is_summed in ((comparison.cost, True), (comparison.left_out, False)):
            _add(found, comparison, cost, Place(index, is_summed))
    return sorted(found.values(), key=_total_time_s, reverse=True)


@dataclass(frozen=True)
class Place:
    """Which comparison, and whether in its sum."""

    comparison: int
    is_summed: bool


def _add(found: dict[tuple[str, ...], TupleCost], comparison: Comparison, cost: ModelCost, place: Place) -> None:
    counts = {count.operator: count for count in (*cost.summed, *cost.missing)}
    for part in cost.parts:
        key = (part.case.key, part.row.key, part.row.measurement.started_at)
        known = found.setdefault(key, _entry(part.case, part.row, counts[part.case.operator]))
        known.uses.append(Use(place.comparison, part.occurrences, place.is_summed))
        known.flags.update(_flags_of(part, comparison, place.is_summed))
    for case, calls, count in _missing(cost, comparison.runs.input_data):
        known = found.setdefault((case.key, comparison.conditions.key), _entry(case, None, count))
        known.uses.append(Use(place.comparison, calls, place.is_summed))
        known.flags.update({TupleFlag.NOT_MEASURED, *([] if place.is_summed else [TupleFlag.DROPPED])})


def _entry(case: Case, row: MeasurementRow | None, count: OperatorCount) -> TupleCost:
    return TupleCost(case, row, count.flop, count.memory_bytes)


def _missing(cost: ModelCost, input_data: str) -> Iterator[tuple[Case, int, OperatorCount]]:
    for count in cost.missing:
        if count.computes:
            for case, calls in cases_of([count], input_data).items():
                yield case, calls, count


def _flags_of(part: Part, comparison: Comparison, is_summed: bool) -> Iterator[TupleFlag]:
    measured = part.row.measurement
    board = comparison.full.circumstances.device_uuid
    held = {
        TupleFlag.DOUBTFUL: is_doubtful(measured),
        TupleFlag.NOT_PRECISE: Flag.IMPRECISE in measured.flags,
        TupleFlag.DUTY_CYCLE: Flag.DUTY_CYCLE in measured.flags,
        TupleFlag.POWER_LIMIT: not {Flag.AT_POWER_LIMIT, Flag.POWER_CAPPED}.isdisjoint(measured.flags),
        TupleFlag.EAGER: part.row.conditions.device_type != "cpu" and measured.executed_as == EAGER,
        TupleFlag.OTHER_VALUES: part.is_on_other_values,
        TupleFlag.OTHER_BOARD: part.row.circumstances.device_uuid != board,
        TupleFlag.NO_ENERGY: EnergyBasis.MEASURED.energy_of(part.row) is None,
        TupleFlag.DROPPED: not is_summed,
    }
    return (flag for flag, is_held in held.items() if is_held)


def _total_time_s(cost: TupleCost) -> float:
    return 0.0 if cost.row is None else cost.row.measurement.time_s * sum(use.calls for use in cost.uses)


def roofline_of_tuples(costs: Iterable[TupleCost]) -> Roofline | None:
    """Return the roofline of measured tuples, those left out whose figures are in doubt."""
    return roofline_of(cost.work for cost in costs if cost.work is not None and TupleFlag.DOUBTFUL not in cost.flags)
