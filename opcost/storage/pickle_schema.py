"""The schema of operator counts in a pickle: the types and limits of all fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import Any, TypeAlias

from opcost.operators.counts import OperationWithoutFormula, OperatorCount, OperatorCounts
from opcost.operators.input_roles import patterned_inputs, shown_inputs
from opcost.operators.modules import CalledModule, at_level, levels_of
from opcost.operators.patterns import Pattern
from opcost.operators.tuples import Constant, OperatorTuple, Structure, TensorSpec
from opcost.operators.values import InputStatistics

MAXIMUM_SIZE = 1_000_000
"""The most values and characters of a pickle of up to as many bytes, shared parts counted at each use: a dozen times as
many as the largest model of torchvision has. A few bytes of a pickle can describe more than any memory holds. Larger
pickles may have one for each byte; counts have less than a third of that."""

MAXIMUM_DEPTH = 32
"""The deepest nesting of tuples and objects; models of torchvision need 10."""

LONGEST_NAME = 1000
_PATTERNS = frozenset(pattern.value for pattern in Pattern)
INTEGER_LIMIT = 2**63
"""torch has no larger sizes, and Python refuses to print or divide very large integers."""


@dataclass
class _Budget:
    """The remaining number of values and characters."""

    size: int

    def spend(self, size: int, depth: int) -> None:
        self.size -= size
        if self.size < 0 or depth > MAXIMUM_DEPTH:
            raise UnpicklingError("it is larger than any model's counts")


_Kind: TypeAlias = Callable[[object, _Budget, int], None]
"""Checks a value at a depth; raises UnpicklingError if it is not of this kind."""


def checked_counts(value: object, pickle_bytes: int) -> OperatorCounts:
    """Return a value after checking that it is operator counts in all of its parts.

    Args:
        value: any value.
        pickle_bytes: the size of the pickle that it was read from.

    Raises:
        UnpicklingError: the value is not, or is too large.
    """
    _check(value, OperatorCounts, _Budget(max(MAXIMUM_SIZE, pickle_bytes)), 0)
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
    if isinstance(value, OperatorCounts):
        _check_callers(value)


def _is_tensor(spec: TensorSpec) -> bool:
    has_strides = spec.strides is None or len(spec.strides) == len(spec.shape)
    return has_strides and len(spec.shape) <= MAXIMUM_DEPTH * 2 and spec.elements < INTEGER_LIMIT


def _check_call(count: OperatorCount) -> None:
    if (count.flop is None) != bool(count.without_formula):
        raise UnpicklingError("its FLOPs do not match its operations without a formula")
    try:
        # This fails for inputs that the operator cannot have.
        inputs, patterned = len(shown_inputs(count.operator)), len(patterned_inputs(count.operator))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise UnpicklingError(f"it has an impossible call of {count.operator.short_name}") from None
    if count.statistics and len(count.statistics) != count.occurrences:
        raise UnpicklingError("its statistics do not match its calls")
    if count.weight_zeros and len(count.weight_zeros) != len(count.statistics):
        raise UnpicklingError("its weights do not match its calls")
    if count.patterns and len(count.patterns) != len(count.statistics):
        raise UnpicklingError("its patterns do not match its calls")
    if any(len(call) not in (0, patterned) for call in count.patterns):
        raise UnpicklingError("its patterns do not match its inputs")
    if any(len(call) != inputs for call in count.statistics):
        raise UnpicklingError("its statistics do not match its inputs")


def _check_callers(counts: OperatorCounts) -> None:
    paths = {module.path for module in counts.modules}
    if any(at_level(path, levels_of(path) - 1) not in paths for path in paths if path) or (paths and "" not in paths):
        raise UnpicklingError("it has a module in an unknown one")
    for count in counts.counts:
        numbers = {count.occurrences if counts.modules else 0}
        if {len(count.positions), len(count.callers)} != numbers:
            raise UnpicklingError("its modules do not match its calls")
        if any(caller >= len(counts.modules) for caller in count.callers):
            raise UnpicklingError("it has a call of an unknown module")


def _other(value: object, wanted: str) -> UnpicklingError:
    return UnpicklingError(f"it has a {type(value).__name__} instead of a {wanted}")


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


def _scalar(noun: str, allows: Callable[[Any], bool]) -> _Kind:
    def check(value: object, budget: _Budget, depth: int) -> None:
        if not allows(value):
            raise _other(value, noun)
        budget.spend(1 + len(value) if isinstance(value, str) else 1, depth)

    return check


_COUNT = _scalar("count", lambda value: type(value) is int and 0 <= value < INTEGER_LIMIT)
_NUMBER = _scalar("finite number", lambda value: type(value) is float and math.isfinite(value))
_FROM_0 = _scalar("number from 0 up", lambda value: type(value) is float and 0 <= value < math.inf)
_SHARE = _scalar("share", lambda value: type(value) is float and 0 <= value <= 1)
# Names are printed unchanged, so they must not contain line breaks or lone surrogates.
_NAME = _scalar("name", lambda value: type(value) is str and len(value) <= LONGEST_NAME and value.isprintable())
_PATTERN = _scalar("pattern", lambda value: type(value) is str and value in _PATTERNS)
_PLAIN_SCALAR = _scalar(
    "plain value",
    lambda value: (
        type(value) in (str, bool, float, type(None))
        or (type(value) is int and -INTEGER_LIMIT <= value < INTEGER_LIMIT)
    ),
)


def _named(value: object, budget: _Budget, depth: int) -> None:
    if type(value) is not tuple or len(value) != 2:
        raise _other(value, "name with a value")
    _NAME(value[0], budget, depth + 1)
    _plain(value[1], budget, depth + 1)


def _operation(value: object, budget: _Budget, depth: int) -> None:
    if type(value) is not tuple or len(value) != 2:
        raise _other(value, "operation with a number")
    _NAME(value[0], budget, depth + 1)
    _COUNT(value[1], budget, depth + 1)


def _plain(value: object, budget: _Budget, depth: int) -> None:
    cls = type(value)
    if cls is tuple:
        _PLAIN_TUPLE(value, budget, depth)
    elif cls in (TensorSpec, Constant, Structure):
        _check(value, cls, budget, depth)
    else:
        _PLAIN_SCALAR(value, budget, depth)


_PLAIN_TUPLE = _tuple_of(_plain)

FIELDS: Mapping[type[Any], Mapping[str, _Kind]] = {
    TensorSpec: {
        "shape": _tuple_of(_COUNT),
        "dtype": _NAME,
        "strides": _optional(_tuple_of(_COUNT)),
        "identity": _COUNT,
    },
    Constant: {"name": _NAME},
    Structure: {"kind": _NAME, "parts": _tuple_of(_named)},
    OperatorTuple: {
        "operator": _NAME,
        "parameters": _tuple_of(_named),
        "inputs": _PLAIN_TUPLE,
        "keyword_inputs": _tuple_of(_named),
        "mode": _optional(_NAME),
    },
    InputStatistics: {"zeros_ratio": _optional(_SHARE), "mean": _optional(_NUMBER), "spread": _optional(_FROM_0)},
    OperatorCount: {
        "operator": _record(OperatorTuple),
        "occurrences": _COUNT,
        "flop": _optional(_COUNT),
        "memory_bytes": _COUNT,
        "outputs": _plain,
        "statistics": _tuple_of(_tuple_of(_record(InputStatistics))),
        "without_formula": _tuple_of(_NAME),
        "operations": _tuple_of(_operation),
        "weight_zeros": _tuple_of(_SHARE),
        "patterns": _tuple_of(_tuple_of(_PATTERN)),
        "positions": _tuple_of(_COUNT),
        "callers": _tuple_of(_COUNT),
    },
    CalledModule: {
        "path": _NAME,
        "class_name": _NAME,
        "weights": _COUNT,
        "input_sizes": _optional(_NAME),
        "output_sizes": _optional(_NAME),
    },
    OperationWithoutFormula: {"operation": _NAME, "calls": _COUNT, "memory_bytes": _COUNT},
    OperatorCounts: {
        "model": _record(OperatorTuple),
        "counts": _tuple_of(_record(OperatorCount)),
        "total_flop": _COUNT,
        "total_memory_bytes": _COUNT,
        "parameters": _COUNT,
        "torch_version": _NAME,
        "device_type": _NAME,
        "outside": _tuple_of(_NAME),
        "composites": _tuple_of(_NAME),
        "without_formula": _tuple_of(_record(OperationWithoutFormula)),
        "modules": _tuple_of(_record(CalledModule)),
    },
}
"""The fields of each class that a pickle may hold, with the check of each field."""
