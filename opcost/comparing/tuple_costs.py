"""Costs of the operator tuples that compared models use, with the flags of their figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from opcost.comparing.comparison import Comparison
from opcost.comparing.roofline import FP32, TF32, Roofline, Work, is_beyond_sheet, memory_rate, roofline_of
from opcost.estimates import Estimate, value_of
from opcost.measuring.conditions import AUTOCAST_DTYPES, EAGER, Conditions
from opcost.measuring.flags import Flag
from opcost.measuring.record import MeasurementRow, does_other_work, has_impossible_power, is_doubtful, time_of
from opcost.operators.cases import Case, cases_of_count
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import FLOAT32, OperatorTuple
from opcost.summing.energy import EnergyBasis
from opcost.summing.summation import ModelCost, Part


class TupleFlag(Enum):
    """A named property of a tuple in the comparisons that use it. Tables show its value."""

    FLAGGED = "flagged"
    IMPOSSIBLE = "impossible"
    NOT_PRECISE = "imprecise"
    DUTY_CYCLE = "duty cycle"
    POWER_LIMIT = "power limit"
    EAGER = "eager"
    OTHER_WORK = "other work"
    OTHER_VALUES = "other values"
    OTHER_BOARD = "other board"
    NO_ENERGY = "no energy"
    NOT_MEASURED = "not measured"
    DROPPED = "not in the whitelist"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    TupleFlag.FLAGGED: "a flag casts doubt on the measurement; the next measurement of the model repeats it",
    TupleFlag.IMPOSSIBLE: "more power, FLOPs or bytes per second than the board's limit or the card's data sheet "
    "allow: its meter or its count is wrong, and it is in no roof",
    TupleFlag.NOT_PRECISE: "target precision not reached",
    TupleFlag.DUTY_CYCLE: "measured with pauses, because without them it is throttled by the power limit",
    TupleFlag.POWER_LIMIT: "at the power limit: throttled if the load lasts",
    TupleFlag.EAGER: "called from Python, not in a CUDA graph",
    TupleFlag.OTHER_WORK: "alone it does other work than was counted in the model",
    TupleFlag.OTHER_VALUES: "measured on other values than the model's",
    TupleFlag.OTHER_BOARD: "measured on another board than the whole model",
    TupleFlag.NO_ENERGY: "no energy measured",
    TupleFlag.NOT_MEASURED: "no row under the model's conditions",
    TupleFlag.DROPPED: "not in the sum, because it is not in the whitelist",
}


@dataclass(frozen=True)
class Use:
    """The calls of a tuple in one comparison, by the comparison's index. ``is_summed`` is False for dropped tuples."""

    comparison: int
    calls: int
    is_summed: bool = True


@dataclass
class TupleCost:
    """A case with its row, None if it has none, the count of its operator, and its uses in comparisons."""

    case: Case
    row: MeasurementRow | None
    count: OperatorCount
    uses: list[Use] = field(default_factory=list)
    flags: set[TupleFlag] = field(default_factory=set)

    @property
    def time_s(self) -> Estimate | None:
        return None if self.row is None else time_of(self.row)

    @property
    def energy_j(self) -> Estimate | None:
        return None if self.row is None else EnergyBasis.MEASURED.energy_of(self.row)

    @property
    def work(self) -> Work | None:
        """FLOPs, bytes and cost of one call; None without a row."""
        return None if self.row is None else work_of(self.count, self.row, EnergyBasis.MEASURED)


RECURRENT = frozenset({"lstm", "gru", "rnn", "rnn_tanh", "rnn_relu"})
"""Layers and functions that cuDNN computes as a whole; a cell of one step is products as others are."""


def arithmetic_of(operator: OperatorTuple, conditions: Conditions) -> str:
    """Return the format of an operator's products: that of autocast, its first floating-point input's, or TF32.

    torch has one TF32 switch for what cuDNN computes (convolutions, recurrent layers), and one for all other products.
    """
    dtype = next((spec.dtype for spec in operator.floating_inputs), FLOAT32)
    dtype = AUTOCAST_DTYPES.get(conditions.precision, dtype)
    if dtype != FLOAT32:
        return dtype
    if conditions.device_type == "cpu":
        return FP32
    name = operator.short_name.lower()
    is_of_cudnn = "conv" in name or name in RECURRENT
    return TF32 if (conditions.cudnn_tf32 if is_of_cudnn else conditions.matmul_tf32) else FP32


def work_of(count: OperatorCount, row: MeasurementRow, basis: EnergyBasis) -> Work:
    """Return FLOPs, bytes and cost of one call of an operator. The energy is on this basis."""
    arithmetic = arithmetic_of(count.operator, row.conditions)
    energy_j = value_of(basis.energy_of(row))
    work = Work(count.flop, count.memory_bytes, row.measurement.time_s, energy_j, arithmetic)
    return replace(work, is_possible=not is_beyond_sheet(work, count.operator, row.conditions.device_product))


def tuple_costs(comparisons: Sequence[Comparison]) -> list[TupleCost]:
    """Return the tuples that compared models use, in descending order of their total time in the models.

    A tuple has one entry for each row, if models were measured on different boards or under different conditions.
    """
    found: dict[tuple[str, ...], TupleCost] = {}
    for index, comparison in enumerate(comparisons):
        for cost, is_summed in ((comparison.cost, True), (comparison.left_out, False)):
            _add(found, comparison, cost, Origin(index, is_summed))
    return sorted(found.values(), key=_total_time_s, reverse=True)


@dataclass(frozen=True)
class Origin:
    """The index of a comparison, and whether a cost is its sum."""

    comparison: int
    is_summed: bool


def _add(found: dict[tuple[str, ...], TupleCost], comparison: Comparison, cost: ModelCost, origin: Origin) -> None:
    counts = {count.operator: count for count in (*cost.summed, *cost.missing)}
    for part in cost.parts:
        key = (part.case.key, part.row.key, part.row.measurement.started_at)
        known = found.setdefault(key, _entry(part.case, part.row, counts[part.case.operator]))
        known.uses.append(Use(origin.comparison, part.occurrences, origin.is_summed))
        known.flags.update(flags_of_part(part, known.work, comparison.full.circumstances.device_uuid))
        known.flags.update([] if origin.is_summed else [TupleFlag.DROPPED])
    for case, calls, count in _missing(cost, comparison.runs.input_data):
        known = found.setdefault((case.key, comparison.conditions.key), _entry(case, None, count))
        known.uses.append(Use(origin.comparison, calls, origin.is_summed))
        known.flags.update({TupleFlag.NOT_MEASURED, *([] if origin.is_summed else [TupleFlag.DROPPED])})


def _entry(case: Case, row: MeasurementRow | None, count: OperatorCount) -> TupleCost:
    return TupleCost(case, row, count)


def _missing(cost: ModelCost, input_data: str) -> Iterator[tuple[Case, int, OperatorCount]]:
    for count in cost.missing:
        if count.computes:
            for case, calls in cases_of_count(count, input_data):
                yield case, calls, count


def flags_of_part(part: Part, work: Work | None, board: str | None) -> Iterator[TupleFlag]:
    """Yield the flags of a part of a sum.

    Args:
        part: the part.
        work: of one of its calls, None if unknown.
        board: the whole model's (a device's UUID), None if it is unknown.
    """
    measured = part.row.measurement
    held = {
        TupleFlag.FLAGGED: is_doubtful(part.row),
        TupleFlag.IMPOSSIBLE: has_impossible_power(part.row) or not (work is None or work.is_possible),
        TupleFlag.NOT_PRECISE: Flag.IMPRECISE in measured.flags,
        TupleFlag.DUTY_CYCLE: Flag.DUTY_CYCLE in measured.flags,
        TupleFlag.POWER_LIMIT: not {Flag.AT_POWER_LIMIT, Flag.POWER_CAPPED}.isdisjoint(measured.flags),
        TupleFlag.EAGER: part.row.conditions.device_type != "cpu" and measured.executed_as == EAGER,
        TupleFlag.OTHER_WORK: does_other_work(measured),
        TupleFlag.OTHER_VALUES: part.is_on_other_values,
        TupleFlag.OTHER_BOARD: board not in (None, part.row.circumstances.device_uuid),
        TupleFlag.NO_ENERGY: EnergyBasis.MEASURED.energy_of(part.row) is None,
    }
    return (flag for flag, is_held in held.items() if is_held)


def _total_time_s(cost: TupleCost) -> float:
    return 0.0 if cost.row is None else cost.row.measurement.time_s * sum(use.calls for use in cost.uses)


def roofline_of_tuples(costs: Iterable[TupleCost]) -> Roofline | None:
    """Return the roofline of measured tuples that are sound and possible, and do the counted work."""
    left_out = {TupleFlag.FLAGGED, TupleFlag.IMPOSSIBLE, TupleFlag.OTHER_WORK}
    sound = [cost for cost in costs if left_out.isdisjoint(cost.flags)]
    # Tuples of several cards have one roofline, that of the fastest.
    rates = [memory_rate(cost.row.conditions.device_product) for cost in sound if cost.row is not None]
    return roofline_of((cost.work for cost in sound if cost.work is not None), max(rates, default=math.inf))
