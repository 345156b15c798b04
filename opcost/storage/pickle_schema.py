"""What the fields of operator counts may hold: a file may name the right classes and fill them with anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import Any, TypeAlias

from opcost.operators.counts import OperatorCount, OperatorCounts
from opcost.operators.input_roles import shown_inputs
from opcost.operators.tuples import Constant, OperatorTuple, Structure, TensorSpec
from opcost.operators.values import InputStatistics

MAXIMUM_SIZE = 1_000_000
"""Values and characters with each shared part as often as it is told: a dozen times those of the largest model of
torchvision. A few bytes of a pickle can describe more than any memory holds."""

MAXIMUM_DEPTH = 32
"""Of tuples and objects in each other; models of torchvision take 10."""

LONGEST_NAME = 1000
INTEGER_LIMIT = 2**63
"""torch has no larger sizes, and Python neither prints nor divides integers of any size."""


@dataclass
class _Budget:
    """How much may still come."""

    size: int = MAXIMUM_SIZE

    def spend(self, size: int, depth: int) -> None:
        self.size -= size
        if self.size < 0 or depth > MAXIMUM_DEPTH:
            raise UnpicklingError("it describes more than a model has")


_Kind: TypeAlias = Callable[[object, _Budget, int], None]
"""Looks at a value at a depth, and raises UnpicklingError if it is none of its kind."""


def checked_counts(value: object) -> OperatorCounts:
    """Return a value that is operator counts in every part.

    Raises:
        UnpicklingError: it is not, or is too large.
    """
    _check(value, OperatorCounts, _Budget(), 0)
    assert isinstance(value, OperatorCounts)
    return value


def _check(value: object, cls: type[Any], budget: _Budget, depth: int) -> None:
    if type(value) is not cls:
        raise _other(value, cls.__name__)
    if not vars(value):
        raise UnpicklingError(f"it has an empty {cls.__name__}")
    budget.spend(1, depth)
    for name, kind in FIELDS[cls].items():
        kind(getattr(value, name), budget, depth + 1)
    if isinstance(value, TensorSpec) and not _is_tensor(value):
        raise UnpicklingError("its TensorSpec has an impossible layout")
    if isinstance(value, OperatorCount):
        _check_call(value)


def _is_tensor(spec: TensorSpec) -> bool:
    has_strides = spec.strides is None or len(spec.strides) == len(spec.shape)
    return has_strides and len(spec.shape) <= MAXIMUM_DEPTH * 2 and spec.elements < INTEGER_LIMIT


def _check_call(count: OperatorCount) -> None:
    try:
        # What is known of an operator's inputs is told by their order: others are no call of it.
        inputs = len(shown_inputs(count.operator))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise UnpicklingError(f"it has a call of {count.operator.short_name} that cannot have been") from None
    if count.statistics and len(count.statistics) != count.occurrences:
        raise UnpicklingError("its statistics are not those of its calls")
    if any(len(call) != inputs for call in count.statistics):
        raise UnpicklingError("its statistics are not those of its inputs")


def _other(value: object, wanted: str) -> UnpicklingError:
    return UnpicklingError(f"it has a {type(value).__name__} where a {wanted} belongs")


def _record(cls: type[Any]) -> _Kind:
    return lambda value, budget, depth: _check(value, cls, budget, depth)


def _tuple_of(kind: _Kind) -> _Kind:
    def check(value: object, budget: _Budget, depth: int) -> None:
        if type(value) is not tuple:
            raise _other(value, "tuple")
        budget.spend(1, depth)
        for item in value:
            kind(item, budget, depth + 1)

    return check


def _optional(kind: _Kind) -> _Kind:
    def check(value: object, budget: _Budget, depth: int) -> None:
        if value is not None:
            kind(value, budget, depth)

    return check


def _count(value: object, budget: _Budget, depth: int) -> None:
    if type(value) is not int or not 0 <= value < INTEGER_LIMIT:
        raise _other(value, "count")
    budget.spend(1, depth)


def _number(value: object, budget: _Budget, depth: int) -> None:
    if type(value) is not float or not math.isfinite(value):
        raise _other(value, "finite number")
    budget.spend(1, depth)


def _positive(value: object, budget: _Budget, depth: int) -> None:
    _number(value, budget, depth)
    if not isinstance(value, float) or value < 0:
        raise _other(value, "number from 0 up")


def _ratio(value: object, budget: _Budget, depth: int) -> None:
    _number(value, budget, depth)
    if not isinstance(value, float) or not 0 <= value <= 1:
        raise _other(value, "share")


def _name(value: object, budget: _Budget, depth: int) -> None:
    # Names are printed as they are: a line break would make two lines of one, and half a character none.
    if type(value) is not str or len(value) > LONGEST_NAME or not value.isprintable():
        raise _other(value, "name")
    budget.spend(1 + len(value), depth)


def _named(value: object, budget: _Budget, depth: int) -> None:
    if type(value) is not tuple or len(value) != 2:
        raise _other(value, "name with a value")
    _name(value[0], budget, depth + 1)
    _plain(value[1], budget, depth + 1)


def _plain(value: object, budget: _Budget, depth: int) -> None:
    cls = type(value)
    if cls is tuple:
        _PLAIN_TUPLE(value, budget, depth)
    elif cls in (TensorSpec, Constant, Structure):
        _check(value, cls, budget, depth)
    elif isinstance(value, str):
        budget.spend(1 + len(value), depth)
    elif cls in (bool, float, type(None)) or (isinstance(value, int) and -INTEGER_LIMIT <= value < INTEGER_LIMIT):
        budget.spend(1, depth)
    else:
        raise _other(value, "plain value")


_PLAIN_TUPLE = _tuple_of(_plain)

FIELDS: Mapping[type[Any], Mapping[str, _Kind]] = {
    TensorSpec: {
        "shape": _tuple_of(_count),
        "dtype": _name,
        "strides": _optional(_tuple_of(_count)),
        "identity": _count,
    },
    Constant: {"name": _name},
    Structure: {"kind": _name, "parts": _tuple_of(_named)},
    OperatorTuple: {
        "operator": _name,
        "parameters": _tuple_of(_named),
        "inputs": _PLAIN_TUPLE,
        "keyword_inputs": _tuple_of(_named),
        "mode": _optional(_name),
    },
    InputStatistics: {"zeros_ratio": _optional(_ratio), "mean": _optional(_number), "spread": _optional(_positive)},
    OperatorCount: {
        "operator": _record(OperatorTuple),
        "occurrences": _count,
        "flop": _count,
        "memory_bytes": _count,
        "outputs": _plain,
        "statistics": _tuple_of(_tuple_of(_record(InputStatistics))),
    },
    OperatorCounts: {
        "model": _record(OperatorTuple),
        "counts": _tuple_of(_record(OperatorCount)),
        "total_flop": _count,
        "total_memory_bytes": _count,
        "parameters": _count,
        "torch_version": _name,
        "device_type": _name,
        "outside": _tuple_of(_name),
        "composites": _tuple_of(_name),
    },
}
"""The fields of each class that a pickle may hold, and what they are."""
