"""The layers of a model with their parts of the sum of operators: as rows in the order of execution, and as a tree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, TypeAlias

from opcost.columns import ABOVE_0, COUNT, COUNT_FROM_1, Column, Columns, grouped
from opcost.comparing.model_result import ModelResult
from opcost.estimates import ratio_if_known, total_if_known, value_of
from opcost.measuring.record import time_of
from opcost.operators.counts import (
    SEPARATOR,
    TRAINING_MODE,
    CalledModule,
    OperatorCount,
    OperatorCounts,
    at_level,
    levels_of,
)
from opcost.operators.texts import short_inputs, short_outputs
from opcost.summing.summation import ModelCost, Part
from opcost.units import number_of

Place: TypeAlias = tuple[str, str | None]
"""The path of a module, and the name of a function that it calls, None for the module itself."""


@dataclass(frozen=True)
class LayerCall:
    """One call of an operator, in the module that is it or calls it; the time is None if the sum has no row for it."""

    module: CalledModule
    count: OperatorCount
    position: int
    time_s: float | None = None
    energy_j: float | None = None
    energy_missing_reason: str | None = None

    @property
    def lacks_row(self) -> bool:
        return self.time_s is None and self.count.computes

    def place(self, depth: int | None = None) -> Place:
        """Return its place in a tree with so many names in a path; None for all levels."""
        operator, path = self.count.operator, self.module.path
        # A function is one level below the module that calls it.
        if depth is None or levels_of(path) + operator.is_function <= depth:
            return path, operator.short_name if operator.is_function else None
        return at_level(path, depth), None


COMPUTES_NOTHING = "computes nothing"
NO_ROW = "not measured under these conditions"


@dataclass(frozen=True)
class LayerRow(Columns):
    """A layer of a model: one call of a module or function, several calls, or a module with all calls inside it.

    Rows are in the order of execution. Ratios are shares of the sum of all measured operators of the model; the rows
    add up to it. A row of several calls has the cost of those that are measured.
    """

    position: Annotated[int, Column("place of the first call among all calls of the run, from 0 up", COUNT)]
    path: Annotated[
        str, Column("the module's name in `named_modules`; of a function, the module that calls it; empty: the model")
    ]
    layer: Annotated[str, Column("class of the module, or name of the function")]
    operator: Annotated[str | None, Column("the operator tuple's name; empty for a module with layers inside it")]
    key: Annotated[str | None, Column("hash of the operator tuple; empty if there are several")]
    parameters: Annotated[str | None, Column("arguments of the constructor; empty if there are several")]
    input_sizes: Annotated[
        str | None, Column("sizes of the inputs; of a module with layers inside it those of its first call")
    ]
    output_sizes: Annotated[str | None, Column("sizes of the outputs, as for the inputs")]
    training_mode: Annotated[str | None, TRAINING_MODE]
    weights: Annotated[int | None, Column("number of the module's parameters, empty for functions", COUNT)]
    calls: Annotated[int, Column("calls of operators in one run", COUNT_FROM_1)]
    calls_without_row: Annotated[int, Column("those of them that compute something and are not measured", COUNT)]
    flop: Annotated[int | None, Column("floating-point operations of all calls, empty if unknown", COUNT, "FLOP")]
    memory_bytes: Annotated[int, Column("bytes that all calls read and write", COUNT)]
    time_s: Annotated[float | None, Column("time of all calls", ABOVE_0)]
    energy_j: Annotated[float | None, Column("energy of all calls", ABOVE_0)]
    time_ratio: Annotated[float | None, Column("share of the sum in time")]
    energy_ratio: Annotated[float | None, Column("share of the sum in energy")]
    missing_reason: Annotated[str | None, Column("reason why the time is empty, or is not that of all calls")]
    energy_missing_reason: Annotated[str | None, Column("reason why the energy is empty")]


@dataclass(frozen=True)
class LayerNode:
    """A module of a model or a function that it calls, with the layers inside it in order of their first call.

    ``name`` is the last one of the module's path, or the function's. The row of a module has the totals of its inside.
    """

    name: str
    row: LayerRow
    children: tuple[LayerNode, ...] = ()


@dataclass(frozen=True)
class Layers:
    """The calls of a run in order; ``are_means``: some share a mean cost."""

    calls: tuple[LayerCall, ...]
    modules: tuple[CalledModule, ...]
    are_means: bool = False

    @property
    def rows(self) -> tuple[LayerRow, ...]:
        return tuple(self._row(call.place(), [call]) for call in self.calls)

    def rows_to(self, depth: int) -> tuple[LayerRow, ...]:
        """Return a row for each module with so many names in its path, and for each layer above it."""
        places = grouped(self.calls, lambda call: call.place(depth))
        return tuple(self._row(place, calls) for place, calls in places.items())

    @property
    def tree(self) -> LayerNode:
        return self._node(("", None), 0, self.calls)

    @cached_property
    def _sums(self) -> tuple[float, float | None]:
        return math.fsum(call.time_s or 0.0 for call in self.calls), _energy_of(self.calls)

    @cached_property
    def _module_of(self) -> Mapping[str, CalledModule]:
        return {module.path: module for module in self.modules}

    def _node(self, place: Place, level: int, calls: Sequence[LayerCall]) -> LayerNode:
        path, function = place
        inside = grouped((call for call in calls if call.place() != place), lambda call: call.place(level + 1))
        children = tuple(self._node(child, level + 1, own) for child, own in inside.items())
        return LayerNode(function or path.rpartition(SEPARATOR)[2], self._row(place, calls), children)

    def _row(self, place: Place, calls: Sequence[LayerCall]) -> LayerRow:
        path, function = place
        module = self._module_of[path]
        is_leaf = all(call.place() == place for call in calls)
        operators = {call.count.operator.key: call.count for call in calls}.values() if is_leaf else ()
        known = [call.time_s for call in calls if call.time_s is not None]
        time_s = math.fsum(known) if known else None
        energy_j = _energy_of(calls) if known else None
        sum_s, sum_j = self._sums
        flops = [call.count.flop for call in calls if call.count.flop is not None]
        missing, missing_reason = sum(call.lacks_row for call in calls), None
        if missing:
            missing_reason = NO_ROW if len(calls) == 1 else f"{missing} of {number_of(len(calls), 'call')} {NO_ROW}"
        elif not any(call.count.computes for call in calls):
            missing_reason = COMPUTES_NOTHING
        return LayerRow(
            position=calls[0].position,
            path=path,
            layer=function or module.class_name,
            operator=_common(count.operator.operator for count in operators),
            key=_common(count.operator.key for count in operators),
            parameters=_common(count.operator.parameters_text for count in operators),
            input_sizes=_common(short_inputs(one.operator) for one in operators) if is_leaf else module.input_sizes,
            output_sizes=_common(short_outputs(one.outputs) for one in operators) if is_leaf else module.output_sizes,
            training_mode=_common(count.operator.mode for count in operators),
            weights=None if function is not None else module.weights,
            calls=len(calls),
            calls_without_row=missing,
            flop=sum(flops) if len(flops) == len(calls) else None,
            memory_bytes=sum(call.count.memory_bytes for call in calls),
            time_s=time_s,
            energy_j=energy_j,
            time_ratio=ratio_if_known(time_s, sum_s),
            energy_ratio=ratio_if_known(energy_j, sum_j),
            missing_reason=missing_reason,
            energy_missing_reason=next(filter(None, (call.energy_missing_reason for call in calls)), None),
        )


@dataclass(frozen=True)
class RunCosts:
    """Times and energies of one run, energies at the same temperature (None: as measured); None if unknown."""

    sum_time_s: float | None = None
    sum_energy_j: float | None = None
    corrected_time_s: float | None = None
    corrected_energy_j: float | None = None
    whole_time_s: float | None = None
    whole_energy_j: float | None = None
    reference_temperature_c: float | None = None

    @staticmethod
    def of(result: ModelResult) -> RunCosts:
        cost, whole = result.cost, result.whole
        basis = cost.basis if cost.parts else result.basis
        is_corrected = result.correction is not None
        return RunCosts(
            sum_time_s=value_of(cost.time_s),
            sum_energy_j=value_of(cost.energy_j),
            corrected_time_s=value_of(result.corrected[0]) if is_corrected else None,
            corrected_energy_j=value_of(result.corrected[1]) if is_corrected else None,
            whole_time_s=None if whole is None else time_of(whole).value,
            whole_energy_j=None if whole is None else value_of(basis.energy_of(whole)),
            reference_temperature_c=basis.temperature_c,
        )


def layers_of(counts: OperatorCounts, cost: ModelCost) -> Layers:
    """Return the layers of a model; the costs of all calls add up to the sum.

    Calls of one operator with different rows share their mean cost if it is unknown which is which: if the model was
    counted on shapes only, or on other values than the sum's. The counts are of a run whose modules are known, the sum
    is of operators with the same calls.
    """
    of_operator = grouped(cost.parts, lambda part: (part.case.operator.key, part.case.phase))
    found, are_means = [], False
    for count in counts.counts:
        parts = of_operator.get((count.operator.key, count.phase), [])
        costs = [_mean(parts)] * count.occurrences
        measured = Counter({part.case.input_data: part.occurrences for part in parts})
        if parts and count.statistics and count.captured_data == measured:
            of_data = {part.case.input_data: _mean([part]) for part in parts}
            costs = [of_data[data] for data in count.data_of_calls]
        elif len(parts) > 1:
            are_means = True
        for caller, position, of_call in zip(count.callers, count.positions, costs, strict=True):
            found.append(LayerCall(counts.modules[caller], count, position, **of_call))
    return Layers(tuple(sorted(found, key=lambda call: call.position)), counts.modules, are_means)


def _energy_of(calls: Iterable[LayerCall]) -> float | None:
    """Return the energy of all of these calls that have a row, None if one of theirs is unknown."""
    return total_if_known(call.energy_j for call in calls if call.time_s is not None)


def _mean(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the time and the energy of one call, with the reason if its energy is unknown; nothing without a row."""
    if not parts:
        return {}
    calls = sum(part.occurrences for part in parts)
    energy_j = total_if_known(part.energy_j for part in parts)
    reasons = (part.row.measurement.energy_missing_reason for part in parts if part.energy_j is None)
    reason = next(reasons, None) or "it cannot be normalised to 50 °C"
    return {
        "time_s": sum(part.time_s for part in parts) / calls,
        "energy_j": None if energy_j is None else energy_j / calls,
        "energy_missing_reason": None if energy_j is not None else reason,
    }


def _common(values: Iterable[str | None]) -> str | None:
    """Return the value that all have, None if they differ or there are none."""
    found = set(values)
    return next(iter(found)) if len(found) == 1 else None
