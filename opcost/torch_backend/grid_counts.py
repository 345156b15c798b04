"""Counts of a grid or a list of tuples: each of its points is run once, as a model with one operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from opcost.errors import CannotMeasureError
from opcost.operators.cases import CAPTURED, Case, cases_of_count
from opcost.operators.counts import OperationWithoutFormula, OperatorCount, OperatorCounts
from opcost.operators.grids import AnyGrid, GridPoint
from opcost.operators.input_roles import shown_inputs
from opcost.operators.tuples import DTYPE, FLOAT32, META, OperatorTuple, TensorSpec
from opcost.operators.values import NORMAL, InputData, InputValues
from opcost.torch_backend.capture import capture
from opcost.torch_backend.operators import UNKNOWN, find_operator
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.repetition import WEIGHTS_OF_FUNCTIONS
from opcost.torch_backend.workload import REFUSED, one_line, operator_call
from opcost.units import number_of, some_of


@dataclass(frozen=True)
class Refusal:
    """The reason why points of a grid are no operator tuples, their number, the first of them, and the word for one."""

    reason: str
    points: int
    first: str
    noun: str

    def __str__(self) -> str:
        return f"{number_of(self.points, self.noun)} left out ({self.reason}), such as {self.first}"


def count_grid(grid: AnyGrid, device: str) -> tuple[OperatorCounts, list[Refusal]]:
    """Run each point of a grid once; return its counts, and the points that torch refuses by their reason.

    Points that are the same case, because a parameter has no effect, count as one.
    """
    found: dict[Case, OperatorCounts] = {}
    refused: dict[str, list[GridPoint]] = {}
    for point in grid.points():
        try:
            counts = count_point(point, device)
        except CannotMeasureError as error:
            # The error names the point, its cause does not.
            reason = one_line(error.__cause__) if isinstance(error.__cause__, REFUSED) else str(error)
            refused.setdefault(reason, []).append(point)
        else:
            ((case, _),) = cases_of_count(counts.counts[0], CAPTURED)
            found.setdefault(case, counts)
    refusals = [Refusal(reason, len(points), str(points[0]), grid.noun) for reason, points in refused.items()]
    return _together(grid, list(found.values()), device), refusals


def count_point(point: GridPoint, device: str) -> OperatorCounts:
    """Run a point of a grid once, and return its counts: one call of one operator.

    Raises CannotMeasureError: torch refuses it, it is no single operator, or it has nothing to set to zero.
    """
    function = find_operator(point.operator.operator)
    # As an operator tuple that can be built; the captured one has its parameters in another form.
    operator, dtype = point.operator, () if point.dtype == FLOAT32 else ((DTYPE, point.dtype),)
    if isinstance(function, type) or operator.is_function:
        asked = replace(operator, parameters=(*operator.parameters, *dtype))
    else:
        asked = OperatorTuple(operator.operator, (), operator.inputs, operator.parameters, None)
    data = InputData.of(list(_kinds(function, asked, point)), point.weight_zeros)
    try:
        call, args, kwargs = operator_call(asked, device, data)
        module = call if isinstance(call, nn.Module) else _Calling(call)
        counts = capture(ReadyModel(module, args, kwargs), asked)
    except REFUSED as error:
        raise CannotMeasureError(one_line(error)) from error
    if not counts.counts:
        raise CannotMeasureError("it runs no operation")
    count = counts.counts[0]
    if len(counts.counts) > 1 or count.occurrences > 1:
        names = some_of(sorted({one.operator.operator for one in counts.counts}))
        raise CannotMeasureError(f"it is more than one operator; ask for each of {names}")
    if UNKNOWN in dict(count.operator.parameters):
        raise CannotMeasureError("it does not keep all of its arguments, so that its tuple cannot be run again")
    kinds = tuple(_kinds(function, count.operator, point))
    shown = zip(kinds, shown_inputs(count.operator), strict=True)
    if point.input_zeros and not any(is_shown and kind.zeros_ratio > 0 for kind, is_shown in shown):
        raise CannotMeasureError("the operator has no floating-point input whose values affect its cost")
    statistics = tuple(kind.statistics() for kind in kinds)
    weights = (point.weight_zeros,) if point.weight_zeros else ()
    # The points of a grid are no layers of one model.
    alone = replace(count, statistics=(statistics,), weight_zeros=weights, patterns=(), positions=(), callers=())
    return replace(counts, counts=(alone,), modules=())


class _Calling(nn.Module):
    """A model that calls one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def _kinds(function: Callable[..., Any], operator: OperatorTuple, point: GridPoint) -> Iterator[InputValues]:
    """Yield the kinds of values of an operator's floating-point inputs; weights among them are not among its inputs."""
    place = None if isinstance(function, type) else WEIGHTS_OF_FUNCTIONS.get(function)
    weights = None if place is None or place >= len(operator.inputs) else operator.inputs[place]
    for spec in operator.floating_inputs:
        is_weights = isinstance(weights, TensorSpec) and spec.identity == weights.identity
        yield NORMAL if is_weights else InputValues(point.input_zeros)


def _together(grid: AnyGrid, points: Sequence[OperatorCounts], device: str) -> OperatorCounts:
    """Return the counts of all points as those of a model that calls each once."""
    groups: dict[OperatorTuple, list[OperatorCount]] = {}
    missing: dict[str, list[OperationWithoutFormula]] = {}
    for point in points:
        groups.setdefault(point.counts[0].operator, []).append(point.counts[0])
        for one in point.without_formula:
            missing.setdefault(one.operation, []).append(one)
    counts = []
    for calls in groups.values():
        zeros = tuple(next(iter(call.weight_zeros), 0.0) for call in calls)
        statistics = tuple(one for call in calls for one in call.statistics)
        weight_zeros = zeros if any(zeros) else ()
        counts.append(replace(calls[0], occurrences=len(calls), statistics=statistics, weight_zeros=weight_zeros))
    return OperatorCounts(
        model=grid.model,
        counts=tuple(counts),
        total_flop=sum(one.total_flop for one in points),
        total_memory_bytes=sum(one.total_memory_bytes for one in points),
        parameters=0,
        torch_version=str(torch.__version__),
        device_type=META if device == META else torch.device(device).type,
        without_formula=tuple(
            OperationWithoutFormula(name, sum(one.calls for one in those), sum(one.memory_bytes for one in those))
            for name, those in sorted(missing.items())
        ),
    )
