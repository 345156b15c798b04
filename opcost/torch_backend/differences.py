"""How a counted operator tuple differs from its count: it is rebuilt, run alone, and compared."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace

from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import device_type_of
from opcost.measuring.flags import Flag
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import META, OperatorTuple, PlainValue, Structure, value_text
from opcost.torch_backend.cost_counter import CostCounter, OperationCost, operations_of, total
from opcost.torch_backend.meta_device import like_a_device
from opcost.torch_backend.passes import INFERENCE, Context
from opcost.torch_backend.values import plain_value
from opcost.torch_backend.workload import REFUSED, one_line, operator_call

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
    """Return the device to replay a tuple on: of the kind that it was counted on; None if that is not here.

    Another kind of device may run other operations, because each has kernels of its own, as for attention.
    """
    if counted_on == device_type_of(device):
        return device
    return counted_on if counted_on in (META, "cpu") else None


def replay(
    operator: OperatorTuple, device: str, context: Context = nullcontext
) -> tuple[PlainValue, list[OperationCost]]:
    """Run an operator alone on random values; return its outputs and the costs of its ATen operations.

    Raises CannotMeasureError: it cannot be built here; an error of ``REFUSED``: torch refuses the call.
    """
    costs: list[OperationCost] = []
    function, args, kwargs = operator_call(operator, device)
    with INFERENCE.context(), context(), like_a_device(device), CostCounter(costs.append):
        return plain_value(function(*args, **kwargs), {}), costs


def difference(count: OperatorCount, device: str, context: Context = nullcontext) -> Difference | None:
    """Run a counted operator alone; return how it differs from its count, None if it does not."""
    depends_on_values = count.operator.short_name in DEPENDING_ON_VALUES
    flag = Flag.VALUE_DEPENDENT if depends_on_values else Flag.NOT_AS_COUNTED
    try:
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
