"""The operators of a model by their cost, and the time and energy that each would save at its roof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, TypeVar

from opcost.columns import ABOVE_0, COUNT, COUNT_FROM_1, FROM_0, Column, Columns, one_of
from opcost.comparing.ranking import NAME, POWER, SAVING, TIME, ModelFigures
from opcost.comparing.roofline import COMPUTE, MEMORY, Roofline, Work
from opcost.comparing.tuple_costs import TupleFlag, Works, flags_of_part, savings
from opcost.estimates import total_if_known
from opcost.operators.cases import INPUTS, OPERATOR, PARAMETERS, TRAINING_MODE
from opcost.summing.summation import Part

Key = TypeVar("Key")


@dataclass(frozen=True)
class CostShare(Columns):
    """The cost of some calls in one run of a model, and the part of it above the roof.

    Ratios of time and energy are shares of the sum of all measured operators of the model.
    """

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


def operator_costs(model: ModelFigures, roofline: Roofline | None, by: str) -> tuple[OperatorCost, ...]:
    """Return the measured operator tuples of a model, none without a sum, the largest first; ``by`` is of ``SORTS``."""
    board = None if model.whole is None else model.whole.circumstances.device_uuid
    found = []
    for operator, calls, costs in _shares(model.works, roofline, lambda part: part.case.operator):
        first = calls[0][1]
        flags = {flag for part, work in calls for flag in flags_of_part(part, work, board)}
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
                call_energy_j=None if costs.energy_j is None else costs.energy_j / costs.calls,
                flags="|".join(flag.value for flag in TupleFlag if flag in flags),
                costs=costs,
            )
        )
    return tuple(sorted(found, key=lambda one: rank_of(one, by)))


def kind_costs(model: ModelFigures, roofline: Roofline | None, by: str) -> tuple[KindCosts, ...]:
    """Return the kinds of operators in a model's sum, those with the largest share of its energy or time first.

    There are none if the sum does not show what dominates the model, because many bytes are missing.
    """
    works = model.works if model.is_representative else ()
    shares = _shares(works, roofline, lambda part: part.case.operator.short_name)
    found = [KindCosts(name, costs) for name, _, costs in shares]
    return tuple(sorted(found, key=lambda one: (-one.costs.ratio(by), one.operator)))


def rank_of(one: OperatorCost | KindCosts, by: str) -> tuple[float, str]:
    """Return a key that sorts the largest first: by energy, or by time if any energy of the model is unknown.

    ``by`` is one of ``SORTS``.
    """
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
    """Yield the calls of a sum with one key, and what they have of the sum."""
    groups: dict[Key, list[tuple[Part, Work]]] = {}
    for part, work in works:
        groups.setdefault(key(part), []).append((part, work))
    sum_s, sum_j = math.fsum(part.time_s for part, _ in works), total_if_known(part.energy_j for part, _ in works)
    for name, calls in groups.items():
        time_s, energy_j = (
            math.fsum(part.time_s for part, _ in calls),
            total_if_known(part.energy_j for part, _ in calls),
        )
        saving_s, saving_j = savings(calls, roofline)
        share = CostShare(
            calls=sum(part.occurrences for part, _ in calls),
            time_s=time_s,
            energy_j=energy_j,
            power_w=None if energy_j is None else energy_j / time_s,
            time_ratio=time_s / sum_s,
            energy_ratio=None if energy_j is None or not sum_j else energy_j / sum_j,
            roof_time_ratio=None if saving_s is None else 1 - saving_s / time_s,
            roof_energy_ratio=None if saving_j is None or not energy_j else 1 - saving_j / energy_j,
            saving_time_s=saving_s,
            saving_energy_j=saving_j,
        )
        yield name, calls, share
