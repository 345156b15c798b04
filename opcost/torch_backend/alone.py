"""Operator tuples that run alone: the points of a grid or of a list are counted, and a count of a model is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from opcost.columns import grouped
from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import device_type_of
from opcost.measuring.flags import Flag
from opcost.operators.counts import (
    CAPTURED,
    Case,
    OperationWithoutFormula,
    OperatorCount,
    OperatorCounts,
    cases_of_count,
    without_single_calls,
)
from opcost.operators.grids import AnyGrid, GridPoint
from opcost.operators.input_roles import shown_inputs
from opcost.operators.texts import parse_tuple
from opcost.operators.tuples import DTYPE, FLOAT32, META, OperatorTuple, PlainValue, TensorSpec, mapped, value_text
from opcost.operators.values import NORMAL, InputData, InputValues
from opcost.torch_backend.capture import capture
from opcost.torch_backend.cost_counter import CostCounter, OperationCost, operations_of, total
from opcost.torch_backend.meta_device import like_a_device
from opcost.torch_backend.operators import UNKNOWN, find_operator
from opcost.torch_backend.passes import Context, in_phase, running_calls
from opcost.torch_backend.ready_model import ReadyModel
from opcost.torch_backend.repeated_calls import WEIGHTS_OF_FUNCTIONS
from opcost.torch_backend.switches import autocast
from opcost.torch_backend.values import plain_value
from opcost.torch_backend.workload import REFUSED, one_line, operator_call, operator_workload
from opcost.units import number_of, some_of

DEPENDING_ON_VALUES = frozenset(
    {"__getitem__", "__setitem__", "MultiScaleRoIAlign", "multinomial", "nms", "nonzero", "unique", "where"}
)
"""Operators whose work and outputs depend on values, such as a mask or overlapping boxes. Alone, on random values, they
may give other sizes than in the model, or fail."""

COPY = (("_to_copy", 1),)
"""The operations of a tensor's copy to another device, dtype, layout or memory format."""


@dataclass(frozen=True)
class Difference:
    """How an operator that runs alone differs from its count, for people, and the flag of its row."""

    text: str
    flag: Flag


def replay_device(counted_on: str, device: str) -> str | None:
    """Return a device of the kind that counted a tuple, as each kind has its own kernels; None if it is not here."""
    if counted_on == device_type_of(device):
        return device
    return counted_on if counted_on in (META, "cpu") else None


def replay(
    operator: OperatorTuple, device: str, context: Context = nullcontext
) -> tuple[PlainValue, list[OperationCost]]:
    """Return an operator's outputs and costs, alone on random values; a CannotMeasureError or one of ``REFUSED``."""
    costs: list[OperationCost] = []
    function, args, kwargs = operator_call(operator, device)
    with running_calls(), context(), like_a_device(device), CostCounter(costs.append):
        return plain_value(function(*args, **kwargs), {}), costs


def difference(count: OperatorCount, device: str, context: Context = nullcontext) -> Difference | None:
    """Run a counted operator alone; return how it differs from its count, None if it does not."""
    depends_on_values = count.operator.short_name in DEPENDING_ON_VALUES
    flag = Flag.VALUE_DEPENDENT if depends_on_values else Flag.NOT_AS_COUNTED
    try:
        with in_phase(count.phase):
            outputs, costs = replay(count.operator, device, context)
    except (CannotMeasureError, *REFUSED) as error:
        return Difference(str(error) if isinstance(error, CannotMeasureError) else one_line(error), flag)
    # Where it copied its input in the model, and alone returns it as it is, the copy changed nothing but the device, as
    # one from the host does. A tuple does not have the device of its input: alone it is where the operator runs.
    if count.operations == COPY and not costs and outputs == count.outputs:
        flag = Flag.VALUE_DEPENDENT
    cost, operations = total(costs), operations_of(costs)
    if _form(outputs) != _form(count.outputs):
        return Difference(f"outputs {value_text(outputs)}, not {value_text(count.outputs)}", flag)
    if count.operations and operations != count.operations:
        return Difference(f"operations {_names(operations)}, not {_names(count.operations)}", flag)
    if cost.flop != count.flop:
        shown, counted = ("unknown" if flop is None else flop for flop in (cost.flop, count.flop))
        return Difference(f"{shown} FLOPs, not {counted}", flag)
    # Older counts, which do not know their operations, have bytes by another rule.
    if count.operations and cost.memory_bytes != count.memory_bytes:
        return Difference(f"{cost.memory_bytes} bytes, not {count.memory_bytes}", flag)
    return None


# The tries of a measurement ask again.
@lru_cache(maxsize=1)
def quick_difference(count: OperatorCount, counted_on: str, device: str, precision: str) -> Difference | None:
    """Return the difference on a device of the kind that counted an operator, None if none is here.

    One that was counted on a CPU runs on shapes first, in milliseconds. If it differs there, it runs on values, which
    takes a CPU up to a second. Of 3,816 shipped tuples that were counted on CPUs none differed either way.
    """
    kind = replay_device(counted_on, device)
    # Shapes have no autocast: it is an error there.
    if kind is None or (kind == "cpu" and difference(count, META, partial(autocast, precision, META)) is None):
        return None
    return difference(count, kind, partial(autocast, precision, kind))


FIRST = (
    "torch.nn.functional.conv2d on (float32[8, 64, 28, 28], float32[64, 64, 3, 3], float32[64])",
    "torch.nn.functional.conv2d on (float32[8, 64, 28, 28], float32[64, 1, 3, 3], None, 1, 1, 1, 64)",
    "torch.nn.functional.linear on (float32[256, 256], float32[512, 256], float32[512])",
    "torch.Tensor.matmul on (float32[16, 64, 64], float32[16, 64, 64])",
    "torch.nn.functional.batch_norm on (float32[8, 64, 28, 28], float32[64], float32[64])",
    "torch.nn.functional.layer_norm on (float32[256, 256], (256,))",
    "torch.nn.functional.scaled_dot_product_attention on (float32[2, 4, 64, 64], float32[2, 4, 64, 64], "
    "float32[2, 4, 64, 64])",
    "torch.nn.functional.softmax on (float32[256, 256], dim=-1)",
    "torch.nn.functional.gelu on (float32[256, 256])",
    "torch.nn.functional.relu on (float32[256, 256], inplace=True)",
    "torch.Tensor.add on (float32[256, 256], float32[256, 256])",
    "torch.Tensor.mean on (float32[256, 256], -1)",
    "torch.cat on ((float32[256, 256], float32[256, 256]), dim=1)",
    "torch.nn.functional.max_pool2d on (float32[8, 64, 28, 28], 2)",
    "torch.nn.functional.adaptive_avg_pool2d on (float32[8, 64, 28, 28], (1, 1))",
    "torch.nn.functional.embedding on (int64[256], float32[256, 256])",
)
"""Operators of each library of a GPU, and of the common kernels of torch's own."""


def load_libraries(device: str) -> None:
    """Run small operators as a measurement does: it would wait 4 s to 20 s for the libraries that its first ones load.

    One that the device does not take is left out.
    """
    for text in FIRST:
        for dtype in (FLOAT32, "bfloat16"):
            operator = parse_tuple(text.replace(FLOAT32, dtype))
            with suppress(CannotMeasureError, *REFUSED):
                operator_workload(operator, device).run(1)
                # On shapes torch imports its compiler.
                replay(operator, META)


def _names(operations: Iterable[tuple[str, int]]) -> str:
    return ", ".join(name if number == 1 else f"{number} {name}" for name, number in operations) or "none"


def _form(outputs: PlainValue) -> PlainValue:
    """Return outputs with the type of each number in its place: a number depends on the values of tensors."""
    return mapped(outputs, lambda part: type(part).__name__ if isinstance(part, (bool, int, float)) else part)


# Grids


def count_grid(grid: AnyGrid, device: str) -> tuple[OperatorCounts, list[str]]:
    """Run each point once; return the counts, of equal cases once, and the points that torch refuses by reason."""
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
    refusals = [
        f"{number_of(len(points), grid.noun)} left out ({reason}), such as {points[0]}"
        for reason, points in refused.items()
    ]
    return _together(grid, list(found.values()), device), refusals


def count_point(point: GridPoint, device: str) -> OperatorCounts:
    """Return a point's counts, one call; a CannotMeasureError if torch refuses it, or it is no single operator."""
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
    alone = replace(without_single_calls(count), statistics=(statistics,), weight_zeros=weights)
    return replace(counts, counts=(alone,), modules=())


class _Calling(nn.Module):
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
    groups = grouped((point.counts[0] for point in points), attrgetter("operator"))
    missing = grouped((one for point in points for one in point.without_formula), attrgetter("operation"))
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
