"""The replay of counted operator tuples: each is rebuilt, run alone, and compared with its count."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from opcost.errors import CannotMeasureError
from opcost.measuring.conditions import AUTOCAST_DTYPES
from opcost.operators.counts import OperatorCount
from opcost.operators.tuples import META, OperatorTuple, PlainValue, Structure
from opcost.progress import Progress
from opcost.running.devices import choose_device
from opcost.running.request import COUNTS, Request, counted
from opcost.storage.configs import ModelConfig
from opcost.torch_backend.flops import CostCounter, OperationCost, operations_of, total
from opcost.torch_backend.meta_device import like_a_device
from opcost.torch_backend.passes import INFERENCE, Context
from opcost.torch_backend.switches import autocast
from opcost.torch_backend.values import plain_value
from opcost.torch_backend.workload import REFUSALS, one_line, operator_call

VALUE_DEPENDENT = frozenset(
    {"__getitem__", "__setitem__", "MultiScaleRoIAlign", "multinomial", "nms", "nonzero", "unique", "where"}
)
"""Operators whose work and outputs depend on values, such as a mask or overlapping boxes. Alone, on random values, they
may give other sizes than in the model, or fail."""


@dataclass(frozen=True)
class RebuildReport:
    """The operator tuples of one model that no earlier model has.

    ``rebuilt`` is the number of tuples with outputs, ATen operations, FLOPs and bytes as counted. The others differ:
    ``value_dependent`` ones may, ``failures`` must not.
    """

    name: str
    operators: int
    rebuilt: int
    value_dependent: tuple[str, ...]
    failures: tuple[str, ...]


def rebuild_operators(request: Request, progress: Progress) -> list[RebuildReport]:
    """Rebuild each distinct operator tuple of the chosen models once and run it.

    Tuples that were counted on the meta device run there, the others on the request's device.
    """
    models = counted(request, request.configs(), COUNTS)
    device = choose_device(request.device)
    seen: set[tuple[str | None, OperatorTuple]] = set()
    reports = []
    progress.start(len(models))
    try:
        for config, counts in models:
            progress.begin(config.name)
            dtype = AUTOCAST_DTYPES.get(config.precision)
            new = [count for count in counts.counts if (dtype, count.operator) not in seen]
            seen.update((dtype, count.operator) for count in new)
            counted_on = META if counts.device_type == META else device
            reports.append(_report(config, new, counted_on))
            progress.finish(f"{reports[-1].rebuilt} of {len(new)} new tuples rebuilt")
    finally:
        progress.end()
    return reports


def difference(count: OperatorCount, device: str, context: Context = nullcontext) -> str | None:
    """Run a counted operator alone; return how it differs from its count, None if it does not."""
    costs: list[OperationCost] = []
    try:
        function, args, kwargs = operator_call(count.operator, device)
        with INFERENCE.context(), context(), like_a_device(device), CostCounter(costs.append):
            outputs = plain_value(function(*args, **kwargs), {})
    except CannotMeasureError as error:
        return str(error)
    except (*REFUSALS, AttributeError) as error:
        return one_line(error)
    if _form(outputs) != _form(count.outputs):
        return f"outputs {outputs}, not {count.outputs}"
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


def _report(config: ModelConfig, counts: list[OperatorCount], device: str) -> RebuildReport:
    context = partial(autocast, config.precision, device)
    differences = [(count.operator, difference(count, device, context)) for count in counts]
    different = [(operator, text) for operator, text in differences if text is not None]
    return RebuildReport(
        name=config.name,
        operators=len(counts),
        rebuilt=len(counts) - len(different),
        value_dependent=tuple(_line(*item) for item in different if item[0].short_name in VALUE_DEPENDENT),
        failures=tuple(_line(*item) for item in different if item[0].short_name not in VALUE_DEPENDENT),
    )


def _shown(flop: int | None) -> str:
    return "unknown" if flop is None else str(flop)


def _line(operator: OperatorTuple, text: str) -> str:
    return f"{operator}: {text}"
