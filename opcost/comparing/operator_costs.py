"""The operators of a model by their cost, with what each would save at its roof, and those of compared models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from opcost.columns import ABOVE_0, COUNT, COUNT_FROM_1, FROM_0, Column, Columns, grouped, one_of
from opcost.comparing.model_result import ModelResult
from opcost.comparing.ranking import NAME, POWER, SAVING, TIME
from opcost.comparing.roofline import COMPUTE, MEMORY, Roofline, Work, Works, savings, work_of
from opcost.estimates import Estimate, ratio_if_known, value_of
from opcost.measuring.conditions import EAGER
from opcost.measuring.flags import Flag, WithMeaning
from opcost.measuring.record import MeasurementRow, does_other_work, has_impossible_power, is_doubtful, time_of
from opcost.operators.counts import INPUTS, OPERATOR, PARAMETERS, TRAINING_MODE, Case, OperatorCount, cases_of_count
from opcost.summing.summation import EnergyBasis, Part, totals

Key = TypeVar("Key")


@dataclass(frozen=True)
class CostShare(Columns):
    """The cost of some calls, its share of the sum of all measured operators, and the part of it above the roof."""

    calls: Annotated[int, Column("calls in one run", COUNT_FROM_1)]
    time_s: Annotated[float, Column("time of all calls", ABOVE_0)]
    energy_j: Annotated[float | None, Column("energy of all calls", ABOVE_0)]
    power_w: Annotated[float | None, Column("mean power: energy / time", ABOVE_0)]
    time_ratio: Annotated[float, Column("share of the sum in time")]
    energy_ratio: Annotated[float | None, Column("share of the sum in energy")]
    roof_time_ratio: Annotated[float | None, Column("share of the roof that is reached in time, at most 1")]
    roof_energy_ratio: Annotated[float | None, Column("share of the roof that is reached in energy, at most 1")]
    saving_time_s: Annotated[float | None, Column("time that all calls would save at their roof", FROM_0)]
    saving_energy_j: Annotated[float | None, Column("energy that all calls would save at their roof", FROM_0)]

    def ratio(self, by: str) -> float:
        """Return the share of the time for ``time``, or if an energy of the model is unknown; else of the energy."""
        return self.time_ratio if by == TIME or self.energy_ratio is None else self.energy_ratio


@dataclass(frozen=True)
class OperatorCost(Columns):
    """An operator tuple of a model, with the cost of its calls on all input data."""

    key: Annotated[str, Column("hash of the operator tuple: the first part of a measurement's key")]
    operator: Annotated[str, OPERATOR]
    parameters: Annotated[str, PARAMETERS]
    inputs: Annotated[str, INPUTS]
    training_mode: Annotated[str | None, TRAINING_MODE]
    flop: Annotated[int | None, Column("floating-point operations of one call, empty if unknown", COUNT, "FLOP")]
    memory_bytes: Annotated[int, Column("bytes that one call reads and writes", COUNT)]
    bound: Annotated[str | None, Column("bound of the roof", one_of(MEMORY, COMPUTE))]
    call_time_s: Annotated[float, Column("mean time of one call", ABOVE_0)]
    call_energy_j: Annotated[float | None, Column("mean energy of one call", ABOVE_0)]
    flags: Annotated[str, Column("flags of its rows as in the report, separated by |")]
    costs: CostShare


@dataclass(frozen=True)
class KindCosts(Columns):
    """The cost of all calls of one kind of operator in a model."""

    operator: Annotated[str, Column("name of the operators, such as `Conv2d`")]
    costs: CostShare


def operator_costs(model: ModelResult, roofline: Roofline | None, by: str) -> tuple[OperatorCost, ...]:
    """Return the measured operator tuples of a model, none without a sum, the largest first; ``by`` is of ``SORTS``."""
    found = []
    for operator, calls, costs in _shares(model.works, roofline, lambda part: part.case.operator):
        first = calls[0][1]
        flags = {flag for part, work in calls for flag in flags_of_part(part, work, model.board)}
        found.append(
            OperatorCost(
                key=operator.key,
                operator=operator.operator,
                parameters=operator.parameters_text,
                inputs=operator.inputs_text,
                training_mode=operator.mode,
                flop=first.flop,
                memory_bytes=first.memory_bytes,
                bound=None if roofline is None else roofline.time.side(first),
                call_time_s=costs.time_s / costs.calls,
                call_energy_j=ratio_if_known(costs.energy_j, costs.calls),
                flags="|".join(flag.value for flag in TupleFlag if flag in flags),
                costs=costs,
            )
        )
    return tuple(sorted(found, key=lambda one: rank_of(one, by)))


def kind_costs(model: ModelResult, roofline: Roofline | None, by: str) -> tuple[KindCosts, ...]:
    """Return the kinds of operators in a sum, the largest share first; none if the sum lacks many of the bytes."""
    works = model.works if model.is_representative else ()
    shares = _shares(works, roofline, lambda part: part.case.operator.short_name)
    found = [KindCosts(name, costs) for name, _, costs in shares]
    return tuple(sorted(found, key=lambda one: (-one.costs.ratio(by), one.operator)))


def rank_of(one: OperatorCost | KindCosts, by: str) -> tuple[float, str]:
    """Return a key that sorts the largest first by one of ``SORTS``: energy, or time if any energy is unknown."""
    costs = one.costs
    has_energies = costs.energy_ratio is not None
    saving = costs.saving_energy_j if has_energies and costs.saving_energy_j is not None else costs.saving_time_s
    cost = costs.energy_j if has_energies else costs.time_s
    power_w = costs.power_w if has_energies else costs.time_s
    largest = {TIME: costs.time_s, POWER: power_w, SAVING: saving, NAME: 0.0}.get(by, cost)
    return -(largest or 0.0), one.operator


def _shares(
    works: Works, roofline: Roofline | None, key: Callable[[Part], Key]
) -> Iterator[tuple[Key, Works, CostShare]]:
    """Yield the calls of a sum with one key, and their cost."""
    sum_s, sum_j = totals(part for part, _ in works)
    for name, calls in grouped(works, lambda one: key(one[0])).items():
        (time_s, energy_j), (saving_s, saving_j) = totals(part for part, _ in calls), savings(calls, roofline)
        costs = CostShare(
            calls=sum(part.occurrences for part, _ in calls),
            time_s=time_s,
            energy_j=energy_j,
            power_w=ratio_if_known(energy_j, time_s),
            time_ratio=time_s / sum_s,
            energy_ratio=ratio_if_known(energy_j, sum_j),
            roof_time_ratio=None if saving_s is None else 1 - saving_s / time_s,
            roof_energy_ratio=None if saving_j is None or not energy_j else 1 - saving_j / energy_j,
            saving_time_s=saving_s,
            saving_energy_j=saving_j,
        )
        yield name, calls, costs


# The operator tuples that compared models use


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


def tuple_costs(comparisons: Sequence[ModelResult]) -> list[TupleCost]:
    """Return the tuples that compared models use, one for each row, in descending order of total time."""
    found: dict[tuple[str, ...], TupleCost] = {}
    for index, comparison in enumerate(comparisons):
        for cost, is_summed in ((comparison.cost, True), (comparison.left_out, False)):
            dropped = set() if is_summed else {TupleFlag.DROPPED}
            for part in cost.parts:
                key = (part.case.key, part.row.key, part.row.measurement.started_at)
                known = found.setdefault(key, TupleCost(part.case, part.row, part.count))
                known.uses.append(Use(index, part.occurrences, is_summed))
                known.flags.update(flags_of_part(part, known.work, comparison.board), dropped)
            for count in cost.missing:
                for case, calls in cases_of_count(count, comparison.runs.input_data) if count.computes else ():
                    known = found.setdefault((case.key, comparison.conditions.key), TupleCost(case, None, count))
                    known.uses.append(Use(index, calls, is_summed))
                    known.flags.update({TupleFlag.NOT_MEASURED}, dropped)
    return sorted(found.values(), key=lambda one: -(value_of(one.time_s) or 0.0) * sum(use.calls for use in one.uses))


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
