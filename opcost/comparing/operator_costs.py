"""The operators of a model by their cost, and the time and energy that each would save at its roof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from opcost.columns import ABOVE_0, COUNT, COUNT_FROM_1, FROM_0, Column, Columns, one_of
from opcost.comparing.ranking import NAME, POWER, SAVING, TIME, ModelFigures
from opcost.comparing.roofline import COMPUTE, MEMORY, Roof, Roofline, Work
from opcost.comparing.tuple_costs import TupleFlag, Works, at_roof, flags_of_part
from opcost.estimates import total_if_known
from opcost.operators.cases import INPUTS, OPERATOR, PARAMETERS, TRAINING_MODE
from opcost.summing.summation import Part


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
    """Return the measured operator tuples of a model, the largest first; by name if asked for.

    Args:
        model: the model; without a sum there are none.
        roofline: the device's under these conditions, None if unknown.
        by: one of ``SORTS``.
    """
    shares = _Shares(model.works, roofline)
    board = None if model.whole is None else model.whole.circumstances.device_uuid
    found = []
    for operator, calls in _grouped(model.works, lambda part: part.case.operator).items():
        costs, first = shares.of(calls), calls[0][1]
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
    calls = model.works if model.is_representative else ()
    shares = _Shares(calls, roofline)
    found = [
        KindCosts(name, shares.of(own))
        for name, own in _grouped(calls, lambda part: part.case.operator.short_name).items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.costs.ratio(by), one.operator)))


def rank_of(one: OperatorCost | KindCosts, by: str) -> tuple[float, str]:
    """Return a key that sorts the largest first: by energy, or by time if any energy of the model is unknown.

    Args:
        one: an operator or a kind.
        by: one of ``SORTS``.
    """
    costs = one.costs
    has_energies = costs.energy_ratio is not None
    saving = costs.saving_energy_j if has_energies and costs.saving_energy_j is not None else costs.saving_time_s
    cost = costs.energy_j if has_energies else costs.time_s
    power_w = costs.power_w if has_energies else costs.time_s
    largest = {TIME: costs.time_s, POWER: power_w, SAVING: saving, NAME: 0.0}.get(by, cost)
    return -(largest or 0.0), one.operator


def _grouped(calls: Works, key: Callable[[Part], Any]) -> Mapping[Any, list[tuple[Part, Work]]]:
    groups: dict[Any, list[tuple[Part, Work]]] = {}
    for part, work in calls:
        groups.setdefault(key(part), []).append((part, work))
    return groups


class _Shares:
    """The shares that calls have of a sum, and their part above the roof."""

    def __init__(self, calls: Works, roofline: Roofline | None) -> None:
        self._roofline = roofline
        self._time_s = math.fsum(part.time_s for part, _ in calls)
        self._energy_j = total_if_known(part.energy_j for part, _ in calls)

    def of(self, calls: Works) -> CostShare:
        time_s = math.fsum(part.time_s for part, _ in calls)
        energy_j = total_if_known(part.energy_j for part, _ in calls)
        roofs = (None, None) if self._roofline is None else (self._roofline.time, self._roofline.energy)
        saving_s = _saving(roofs[0], [(part, work, work.time_s) for part, work in calls])
        saving_j = _saving(roofs[1], [(part, work, work.energy_j) for part, work in calls])
        return CostShare(
            calls=sum(part.occurrences for part, _ in calls),
            time_s=time_s,
            energy_j=energy_j,
            power_w=None if energy_j is None else energy_j / time_s,
            time_ratio=time_s / self._time_s,
            energy_ratio=None if energy_j is None or not self._energy_j else energy_j / self._energy_j,
            roof_time_ratio=None if saving_s is None else 1 - saving_s / time_s,
            roof_energy_ratio=None if saving_j is None or not energy_j else 1 - saving_j / energy_j,
            saving_time_s=saving_s,
            saving_energy_j=saving_j,
        )


def _saving(roof: Roof | None, calls: Iterable[tuple[Part, Work, float | None]]) -> float | None:
    """Return what calls would save at their roof; None if the roof, a cost or a call's work is unknown."""
    if roof is None:
        return None
    leasts = ((part, cost, None if cost is None else at_roof(roof, work, cost)) for part, work, cost in calls)
    return total_if_known(
        None if cost is None or least is None else part.occurrences * (cost - least) for part, cost, least in leasts
    )
