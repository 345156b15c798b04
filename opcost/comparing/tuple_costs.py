"""Costs of the operator tuples that compared models use, with their flags, and what calls would save at their roof.

The roof of a call is the highest rate that any measured operator reached (see ``roofline``). Data in caches may exceed
the memory's rate; such calls save nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from opcost.comparing.comparison import Comparison
from opcost.comparing.data_sheets import FP32, TF32, memory_rate
from opcost.comparing.roofline import Roof, Roofline, Work, is_beyond_sheet, roofline_of
from opcost.estimates import Estimate, total_if_known, value_of
from opcost.measuring.conditions import EAGER, Conditions
from opcost.measuring.flags import Flag, WithMeaning
from opcost.measuring.precisions import AUTOCAST_DTYPES
from opcost.measuring.record import MeasurementRow, does_other_work, has_impossible_power, is_doubtful, time_of
from opcost.operators.cases import Case, cases_of_count, tuple_key
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import FLOAT32, OperatorTuple
from opcost.operators.values import has_zeros_in_weights
from opcost.summing.energy import EnergyBasis, common_basis
from opcost.summing.summation import ModelCost, Part


class TupleFlag(WithMeaning):
    """A named property of a tuple in the comparisons that use it, with its meaning. Tables show its value."""

    FLAGGED = "flagged", "a flag casts doubt on the measurement; the next measurement of the model repeats it"
    IMPOSSIBLE = (
        "impossible",
        "more power, FLOPs or bytes per second than the board's limit or the card's data sheet "
        "allow: its meter or its count is wrong, and it is in no roof",
    )
    NOT_PRECISE = "imprecise", "target precision not reached"
    DUTY_CYCLE = "duty cycle", "measured with pauses, because without them it is throttled by the power limit"
    POWER_LIMIT = "power limit", "at the power limit: throttled if the load lasts"
    EAGER = "eager", "called from Python, not in a CUDA graph"
    OTHER_WORK = "other work", "alone it does other work than was counted in the model"
    OTHER_VALUES = "other values", "measured on other values than the model's"
    OTHER_BOARD = "other board", "measured on another board than the whole model"
    NO_ENERGY = "no energy", "no energy measured"
    NOT_MEASURED = "not measured", "no row under the model's conditions"
    DROPPED = "not in the whitelist", "not in the sum, because it is not in the whitelist"


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
            dropped = set() if is_summed else {TupleFlag.DROPPED}
            counts = {count.operator: count for count in (*cost.summed, *cost.missing)}
            for part in cost.parts:
                key = (part.case.key, part.row.key, part.row.measurement.started_at)
                known = found.setdefault(key, TupleCost(part.case, part.row, counts[part.case.operator]))
                known.uses.append(Use(index, part.occurrences, is_summed))
                known.flags.update(flags_of_part(part, known.work, comparison.full.circumstances.device_uuid), dropped)
            for count in cost.missing:
                for case, calls in cases_of_count(count, comparison.runs.input_data) if count.computes else ():
                    known = found.setdefault((case.key, comparison.conditions.key), TupleCost(case, None, count))
                    known.uses.append(Use(index, calls, is_summed))
                    known.flags.update({TupleFlag.NOT_MEASURED}, dropped)
    costs = found.values()
    times_s = [(value_of(one.time_s) or 0.0) * sum(use.calls for use in one.uses) for one in costs]
    return [one for _, one in sorted(zip(times_s, costs, strict=True), key=lambda pair: -pair[0])]


def flags_of_part(part: Part, work: Work | None, board: str | None) -> Iterator[TupleFlag]:
    """Yield the flags of a part of a sum; the work of a call, and the whole model's board (a UUID), may be unknown."""
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


def roofline_of_tuples(costs: Iterable[TupleCost]) -> Roofline | None:
    """Return the roofline of measured tuples that are sound and possible, and do the counted work."""
    left_out = {TupleFlag.FLAGGED, TupleFlag.IMPOSSIBLE, TupleFlag.OTHER_WORK}
    sound = [cost for cost in costs if left_out.isdisjoint(cost.flags)]
    # Tuples of several cards have one roofline, that of the fastest.
    rates = [memory_rate(cost.row.conditions.device_product) for cost in sound if cost.row is not None]
    return roofline_of((cost.work for cost in sound if cost.work is not None), max(rates, default=math.inf))


# Potential


Works: TypeAlias = Sequence[tuple[Part, Work]]
"""Parts of a sum, each with the work of one call."""


def works_of(cost: ModelCost) -> Works:
    """Return the parts of a sum, each with the work of one call."""
    counts = {count.operator: count for count in cost.summed}
    return [(part, work_of(counts[part.case.operator], part.row, part.basis)) for part in cost.parts]


def roofline_of_rows(rows: Iterable[MeasurementRow], counts: Mapping[str, OperatorCount]) -> Roofline | None:
    """Return the roofline of rows under the same conditions that are sound and do the counted work.

    Rows with zeros in weights are left out: they draw less power than any model does. So is what the card cannot do.
    Energies are at the reference temperature where that is known. ``counts`` are by operators' keys; rows of other
    operators are left out.
    """
    # All boards and repeats: the roof is the best rate of any, so neither order nor length of loops matters.
    usual = (row for row in rows if not has_zeros_in_weights(row.input_data))
    sound = (row for row in usual if not (is_doubtful(row) or does_other_work(row.measurement)))
    works: list[Work] = []
    product = ""
    for row in sound:
        count, product = counts.get(tuple_key(row.key)), row.conditions.device_product
        if count is not None:
            works.append(work_of(count, row, common_basis([row])))
    return roofline_of(works, memory_rate(product))


def roof_share(works: Works, roofline: Roofline | None) -> tuple[float | None, float | None]:
    """Return the shares of the roof that calls reach in time and energy, up to 1; None if unknown.

    The share of several calls is their cost at the roof over their cost.
    """
    time_s, energy_j = math.fsum(part.time_s for part, _ in works), total_if_known(part.energy_j for part, _ in works)
    saving_s, saving_j = savings(works, roofline)
    return (
        None if saving_s is None or not works else 1 - saving_s / time_s,
        None if saving_j is None or not energy_j else 1 - saving_j / energy_j,
    )


def savings(works: Works, roofline: Roofline | None) -> tuple[float | None, float | None]:
    """Return time and energy that calls would save at their roof; None if the roof, a cost or a call's work is unknown.

    Calls beyond their roof save nothing.
    """

    def saved(roof: Roof | None, costs: Iterable[tuple[int, Work, float | None]]) -> float | None:
        if roof is None:
            return None
        found: list[float | None] = []
        for calls, work, cost in costs:
            reached = None if cost is None else roof.reached(work, cost)
            found.append(None if cost is None or reached is None else calls * (cost - cost * min(1.0, reached)))
        return total_if_known(found)

    if roofline is None:
        return None, None
    return (
        saved(roofline.time, ((part.occurrences, work, work.time_s) for part, work in works)),
        saved(roofline.energy, ((part.occurrences, work, work.energy_j) for part, work in works)),
    )
