"""How a counted operator tuple differs from its count: it is rebuilt, run alone, and compared."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace

from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import device_type_of
from opcost.measuring.flags import Flag
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import META, OperatorTuple, PlainValue, Structure, value_text
from opcost.torch_backend.flops import CostCounter, OperationCost, operations_of, total
from opcost.torch_backend.meta_device import like_a_device
from opcost.torch_backend.passes import INFERENCE, Context
from opcost.torch_backend.values import plain_value
from opcost.torch_backend.workload import REFUSED, one_line, operator_call

VALUE_DEPENDENT = frozenset(
    {"__getitem__", "__setitem__", "MultiScaleRoIAlign", "multinomial", "nms", "nonzero", "unique", "where"}
)
"""Operators whose work and outputs depend on values, such as a mask or overlapping boxes. Alone, on random values, they
may give other sizes than in the model, or fail."""


def replay_device(counted_on: str, device: str) -> str | None:
    """Return the device to replay a tuple on: of the kind that it was counted on; None if that is not here.

    Another kind of device may run other operations, because each has kernels of its own, as for attention.

    Args:
        counted_on: the type of the device of the count.
        device: the device that is here.
    """
    if counted_on == device_type_of(device):
        return device
    return counted_on if counted_on in (META, "cpu") else None


def flag_of_difference(operator: OperatorTuple) -> Flag:
    """Return the flag of an operator that differs from its count."""
    return Flag.VALUE_DEPENDENT if operator.short_name in VALUE_DEPENDENT else Flag.NOT_AS_COUNTED


def replay(
    operator: OperatorTuple, device: str, context: Context = nullcontext
) -> tuple[PlainValue, list[OperationCost]]:
    """Run an operator alone on random values; return its outputs and the costs of its ATen operations.

    Raises:
        CannotMeasureError: it cannot be built here; an error of ``REFUSED``: torch refuses the call.
    """
    costs: list[OperationCost] = []
    function, args, kwargs = operator_call(operator, device)
    with INFERENCE.context(), context(), like_a_device(device), CostCounter(costs.append):
        return plain_value(function(*args, **kwargs), {}), costs


def difference(count: OperatorCount, device: str, context: Context = nullcontext) -> str | None:
    """Run a counted operator alone; return how it differs from its count, None if it does not."""
    try:
        outputs, costs = replay(count.operator, device, context)
    except CannotMeasureError as error:
        return str(error)
    except REFUSED as error:
        return one_line(error)
    if _form(outputs) != _form(count.outputs):
        return f"outputs {value_text(outputs)}, not {value_text(count.outputs)}"
    cost, operations = total(costs), operations_of(costs)
    if count.operations and operations != count.operations:
        return f"operations {_names(operations)}, not {_names(count.operations)}"
    if cost.flop != count.flop:
        return f"{_shown(cost.flop)} FLOPs, not {_shown(count.flop)}"
    # Older counts, which do not know their operations, have bytes by another rule.
    is_same = not count.operations or cost.memory_bytes == count.memory_bytes
    return None if is_same else f"{cost.memory_bytes} bytes, not {count.memory_bytes}"


def _names(operations: Iterable[tuple[str, int]]) -> str:
    return ", ".join(name if number == 1 else f"{number} {name}" for name, number in operations) or "none"


def _form(outputs: PlainValue) -> PlainValue:
    """Return outputs with the type of each number in its place: a number depends on the values of tensors."""
    if isinstance(outputs, (bool, int, float)):
        return type(outputs).__name__
    if isinstance(outputs, tuple):
        return tuple(map(_form, outputs))
    if isinstance(outputs, Structure):
        return replace(outputs, parts=tuple((name, _form(part)) for name, part in outputs.parts))
    return outputs


def _shown(flop: int | None) -> str:
    return "unknown" if flop is None else str(flop)
