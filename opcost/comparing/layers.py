"""The layers of a model with their parts of the sum of operators: as rows in the order of execution, and as a tree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from opcost.operators.training import Training, training_of
from opcost.operators.tuples import Phase
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
        # A backward has the module of its forward, and no function.
        is_function = operator.is_function and not self.count.phase.is_part
        # A function is one level below the module that calls it.
        if depth is None or levels_of(path) + is_function <= depth:
            return path, operator.short_name if is_function else None
        return at_level(path, depth), None


LOSS, OPTIMIZER, NO_LAYER = "(loss)", "(optimizer)", "(no layer)"
"""The paths of what is in no layer of a training step; a backward without a layer is of no forward."""

COMPUTES_NOTHING = "computes nothing"
NO_ROW = "not measured under these conditions"


@dataclass(frozen=True)
class LayerRow(Columns):
    """A layer of a model: one call of a module or function, several calls, or a module with all calls inside it.

    Rows are in the order of execution. Ratios are shares of the sum of all measured operators of the model; the rows
    add up to it. A row of several calls has the cost of those that are measured.

    In a training step a row has the calls of a module itself, and of their backward. Those of the loss, of the
    optimizer and the backward without a layer are rows of their own.
    """

    position: Annotated[int, Column("place of the first call among all calls of the run, from 0 up", COUNT)]
    path: Annotated[
        str,
        Column(
            "the module's name in `named_modules`; of a function, the module that calls it; empty: the model; "
            f"of a training step also {LOSS}, {OPTIMIZER} and {NO_LAYER}"
        ),
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
    forward_time_s: Annotated[
        float | None, Column("time in the forward; empty if the run is no training step", ABOVE_0)
    ]
    forward_energy_j: Annotated[float | None, Column("energy in the forward", ABOVE_0)]
    forward_time_ratio: Annotated[float | None, Column("the forward's share of the sum in time")]
    forward_energy_ratio: Annotated[float | None, Column("the forward's share of the sum in energy")]
    backward_time_s: Annotated[
        float | None, Column("time in the backward; empty if the run is no training step", ABOVE_0)
    ]
    backward_energy_j: Annotated[float | None, Column("energy in the backward", ABOVE_0)]
    backward_time_ratio: Annotated[float | None, Column("the backward's share of the sum in time")]
    backward_energy_ratio: Annotated[float | None, Column("the backward's share of the sum in energy")]
    saved_bytes: Annotated[
        int | None, Column("memory that it keeps for the backward; empty if the run is no training step", COUNT)
    ]
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
    def are_of_step(self) -> bool:
        return any(call.count.phase.is_part for call in self.calls)

    @property
    def rows(self) -> tuple[LayerRow, ...]:
        """A row for each call, of a training step for each module with calls of its own."""
        if self.are_of_step:
            return self.rows_to(None)
        return tuple(self._row(call.place(), [call]) for call in self.calls)

    def rows_to(self, depth: int | None) -> tuple[LayerRow, ...]:
        """Return a row for each module with so many names in its path, None for any, and for each layer above it."""
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
        # The operators of a backward say nothing of the layer's form.
        own = [call for call in calls if call.count.phase is not Phase.BACKWARD] or calls
        operators = {call.count.operator.key: call.count for call in own}.values() if is_leaf else ()
        flops = [call.count.flop for call in calls if call.count.flop is not None]
        saved = [module.saved_bytes for module in {call.module for call in calls}]
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
            # A module that calls functions has other weights, too: those of its children.
            weights=None if any(one.operator.is_function for one in operators) else module.weights,
            calls=len(calls),
            calls_without_row=missing,
            flop=sum(flops) if len(flops) == len(calls) else None,
            memory_bytes=sum(call.count.memory_bytes for call in calls),
            **self._costs("", calls),
            **self._costs("forward_", [call for call in calls if call.count.phase is Phase.FORWARD]),
            **self._costs("backward_", [call for call in calls if call.count.phase is Phase.BACKWARD]),
            saved_bytes=None if None in saved else sum(filter(None, saved)),
            missing_reason=missing_reason,
            energy_missing_reason=next(filter(None, (call.energy_missing_reason for call in calls)), None),
        )

    def _costs(self, prefix: str, calls: Sequence[LayerCall]) -> dict[str, Any]:
        """Return the costs of those calls that have a row, as columns with a prefix."""
        known = [call.time_s for call in calls if call.time_s is not None]
        time_s, energy_j = (math.fsum(known), _energy_of(calls)) if known else (None, None)
        sum_s, sum_j = self._sums
        return {
            f"{prefix}time_s": time_s,
            f"{prefix}energy_j": energy_j,
            f"{prefix}time_ratio": ratio_if_known(time_s, sum_s),
            f"{prefix}energy_ratio": ratio_if_known(energy_j, sum_j),
        }


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


def with_paths(summed: OperatorCounts, counted: OperatorCounts | None) -> OperatorCounts:
    """Return the counts of a sum with the paths of another count, without them if it has not the same calls."""
    if summed.modules or counted is None:
        return summed
    others = {(count.operator.key, count.phase): count for count in counted.counts}
    found = [others.get((count.operator.key, count.phase)) for count in summed.counts]
    pairs = zip(found, summed.counts, strict=True)
    same = [one for one, count in pairs if one is not None and one.occurrences == count.occurrences]
    is_same = len(same) == len(summed.counts)
    return replace(summed, counts=tuple(same), modules=counted.modules) if is_same else summed


def layers_of(counts: OperatorCounts, cost: ModelCost) -> Layers:
    """Return the layers of a model; the costs of all calls add up to the sum.

    Calls of one operator with different rows share their mean cost if it is unknown which is which: if the model was
    counted on shapes only, or on other values than the sum's. The counts are of a run whose modules are known, the sum
    is of operators with the same calls.
    """
    of_operator = grouped(cost.parts, lambda part: (part.case.operator.key, part.case.phase))
    training, found, are_means = training_of(counts.model), [], False
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
            found.append(LayerCall(_owner(training, count.phase, counts.modules[caller]), count, position, **of_call))
    # Modules that call nothing contain others.
    inside = [one if training is None else _in_model(one) for one in counts.modules]
    modules = tuple(dict.fromkeys([*filter(None, inside), *(call.module for call in found)]))
    return Layers(tuple(sorted(found, key=lambda call: call.position)), modules, are_means)


def _in_model(module: CalledModule) -> CalledModule | None:
    """Return a module of a training step with its path in the user's model, None if it is not in it."""
    first, _, path = module.path.partition(SEPARATOR)
    return replace(module, path=path) if first == "model" else None


def _owner(training: Training | None, phase: Phase, caller: CalledModule) -> CalledModule:
    """Return the module whose layer a call is in; a loss, an optimizer and no layer are modules without weights."""
    if training is None:
        return caller
    if phase is Phase.OPTIMIZER:
        return CalledModule(OPTIMIZER, training.optimizer, 0, saved_bytes=0)
    is_of_loss = phase is Phase.FORWARD or caller.path
    other = CalledModule(LOSS, training.loss, 0) if is_of_loss else CalledModule(NO_LAYER, str(phase), 0)
    return _in_model(caller) or replace(other, saved_bytes=caller.saved_bytes)


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
