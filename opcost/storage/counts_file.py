"""Files of operator counts: a pickle of plain data, followed by its SHA-256.

A pickle can run any code and take any amount of memory. A file is therefore read only if it is small, undamaged, made
of the opcodes that plain data needs, and names no classes but those of counts, whose fields have valid values.

Restricting the imports of Python's unpickler does not make it safe: a deeply nested key of a dict ends the process,
keys of equal hash take minutes, and BUILD sets attributes of an admitted class itself. The reader here executes only
the thirty harmless opcodes that protocol 4 writes for such data, and refuses all others.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from opcost.errors import UserError
from opcost.operators.counts import (
    CalledModule,
    OperationWithoutFormula,
    OperatorCount,
    OperatorCounts,
    at_level,
    levels_of,
)
from opcost.operators.input_roles import patterned_inputs, shown_inputs
from opcost.operators.tuples import Constant, OperatorTuple, Structure, TensorSpec
from opcost.operators.values import InputStatistics, Pattern
from opcost.printable import printable
from opcost.storage.files import replace_file

SCHEMA = "opcost operator counts 4"
MAXIMUM_BYTES = 16_000_000
DIGEST_BYTES = hashlib.sha256().digest_size

LONGEST_REASON = 200
"""The most characters of a reason in a message, because it may quote the file."""

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

_PLAIN_CLASSES = (TensorSpec, Constant, Structure)


def write_counts(path: Path, counts: OperatorCounts) -> None:
    """Write a model's operator counts; a ``UserError`` if they could not be read again, so an earlier file stays."""
    payload = pickle.dumps((SCHEMA, counts), protocol=4)
    content = payload + hashlib.sha256(payload).digest()
    try:
        _counts_in(content)
    # A value of any kind may fail in any way.
    except Exception as error:
        reason = f"they could not be read again: {_one_line(str(error))}"
        remedy = "count a smaller model, or fewer steps of it"
        raise UserError(f"{path}: these counts were not written ({reason}); {remedy}") from error
    replace_file(path, content)


def read_counts(path: Path, made_by: str) -> OperatorCounts:
    """Read a model's counts; a ``UserError`` names ``made_by``, the script to run, if the file does not hold any."""
    remedy = f"run {made_by} again"
    try:
        # Reading a pipe or a device may never end.
        if path.exists() and not path.is_dir() and not path.is_file():
            raise UnpicklingError("it is not a regular file")
        with path.open("rb") as file:
            return _counts_in(file.read(MAXIMUM_BYTES + 1))
    except _OtherVersionError:
        raise UserError(f"{path}: written by another version of opcost; {remedy}") from None
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run {made_by} first") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); fix that, or {remedy}") from None
    # A damaged pickle may raise almost any kind of error.
    except Exception as error:
        raise UserError(f"{path}: no operator counts ({_one_line(str(error))}); {remedy}") from error


def _one_line(reason: str) -> str:
    line = printable(reason[: LONGEST_REASON + 1])
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}..."


class _OtherVersionError(Exception):
    """The file is sound, but of another schema."""


def _counts_in(content: bytes) -> OperatorCounts:
    if len(content) > MAXIMUM_BYTES:
        raise UnpicklingError(f"it is larger than {MAXIMUM_BYTES} bytes")
    payload, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        raise UnpicklingError("wrong checksum")
    loaded = load(payload, ADMITTED)
    if not isinstance(loaded, tuple) or len(loaded) != 2 or loaded[0] != SCHEMA:
        raise _OtherVersionError
    return checked_counts(loaded[1], len(payload))


@dataclass
class _Budget:
    """The remaining number of values and characters."""

    size: int

    def spend(self, size: int, depth: int) -> None:
        self.size -= size
        if self.size < 0 or depth > MAXIMUM_DEPTH:
            raise UnpicklingError("it is larger than any model's counts")


@dataclass(frozen=True)
class _Optional:
    """None, or a value of a kind. In ``FIELDS``, a list is a tuple of any number of its kind, a tuple a pair."""

    kind: Any


def checked_counts(value: object, pickle_bytes: int) -> OperatorCounts:
    """Return a value of a pickle of so many bytes; an ``UnpicklingError`` unless all parts are those of counts."""
    _check(value, OperatorCounts, _Budget(max(MAXIMUM_SIZE, pickle_bytes)), 0)
    assert isinstance(value, OperatorCounts)
    return value


def _check(value: Any, kind: Any, budget: _Budget, depth: int) -> None:
    if kind == "plain":
        kind = [kind] if type(value) is tuple else type(value) if type(value) in _PLAIN_CLASSES else "scalar"
    if isinstance(kind, _Optional):
        if value is None:
            return
        kind = kind.kind
    if isinstance(kind, type):
        _check_object(value, kind, budget, depth)
    elif isinstance(kind, (list, tuple)):
        kinds = kind if isinstance(kind, tuple) or type(value) is not tuple else kind * len(value)
        if type(value) is not tuple or len(value) != len(kinds):
            raise UnpicklingError(f"it has a {type(value).__name__} of another kind")
        budget.spend(1, depth)
        for item, of_item in zip(value, kinds, strict=True):
            _check(item, of_item, budget, depth + 1)
    elif not KINDS[kind](value):
        raise UnpicklingError(f"it has a {type(value).__name__} that is no {kind}")
    else:
        budget.spend(1 + len(value) if isinstance(value, str) else 1, depth)


def _check_object(value: Any, cls: type[Any], budget: _Budget, depth: int) -> None:
    if type(value) is not cls:
        raise UnpicklingError(f"it has a {type(value).__name__} instead of a {cls.__name__}")
    if not vars(value):
        raise UnpicklingError(f"it has an empty {cls.__name__}")
    budget.spend(1, depth)
    for name, kind in FIELDS[cls].items():
        _check(getattr(value, name), kind, budget, depth + 1)
    if isinstance(value, TensorSpec):
        has_strides = value.strides is None or len(value.strides) == len(value.shape)
        if not has_strides or len(value.shape) > MAXIMUM_DEPTH * 2 or value.elements >= INTEGER_LIMIT:
            raise UnpicklingError("its TensorSpec has an impossible layout")
    if isinstance(value, OperatorCount):
        _check_call(value)
    if isinstance(value, OperatorCounts):
        _check_callers(value)


def _check_call(count: OperatorCount) -> None:
    try:
        # This fails for inputs that the operator cannot have.
        inputs, patterned = len(shown_inputs(count.operator)), len(patterned_inputs(count.operator))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise UnpicklingError(f"it has an impossible call of {count.operator.short_name}") from None
    calls, seen = len(count.statistics), {0, len(count.statistics)}
    mistakes = {
        "its FLOPs do not match its operations without a formula": (count.flop is None) != bool(count.without_formula),
        "its statistics do not match its calls": calls not in (0, count.occurrences),
        "its weights do not match its calls": len(count.weight_zeros) not in seen,
        "its patterns do not match its calls": len(count.patterns) not in seen,
        "its patterns do not match its inputs": any(len(call) not in (0, patterned) for call in count.patterns),
        "its statistics do not match its inputs": any(len(call) != inputs for call in count.statistics),
    }
    for mistake, is_made in mistakes.items():
        if is_made:
            raise UnpicklingError(mistake)


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


KINDS: Mapping[str, Callable[[Any], bool]] = {
    "count": lambda value: type(value) is int and 0 <= value < INTEGER_LIMIT,
    "finite number": lambda value: type(value) is float and math.isfinite(value),
    "number from 0": lambda value: type(value) is float and 0 <= value < math.inf,
    "share": lambda value: type(value) is float and 0 <= value <= 1,
    # Names are printed unchanged, so they must not contain line breaks or lone surrogates.
    "name": lambda value: type(value) is str and len(value) <= LONGEST_NAME and value.isprintable(),
    "pattern": lambda value: type(value) is str and value in _PATTERNS,
    "scalar": lambda value: (
        type(value) in (str, bool, float, type(None))
        or (type(value) is int and -INTEGER_LIMIT <= value < INTEGER_LIMIT)
    ),
}
"""The kinds of single values, with the test of each. A ``plain`` value is a scalar, one of ``_PLAIN_CLASSES``, or a
tuple of such."""

_NAMED = [("name", "plain")]

FIELDS: Mapping[type[Any], Mapping[str, Any]] = {
    TensorSpec: {"shape": ["count"], "dtype": "name", "strides": _Optional(["count"]), "identity": "count"},
    Constant: {"name": "name"},
    Structure: {"kind": "name", "parts": _NAMED},
    OperatorTuple: {
        "operator": "name",
        "parameters": _NAMED,
        "inputs": ["plain"],
        "keyword_inputs": _NAMED,
        "mode": _Optional("name"),
    },
    InputStatistics: {
        "zeros_ratio": _Optional("share"),
        "mean": _Optional("finite number"),
        "spread": _Optional("number from 0"),
    },
    OperatorCount: {
        "operator": OperatorTuple,
        "occurrences": "count",
        "flop": _Optional("count"),
        "memory_bytes": "count",
        "outputs": "plain",
        "statistics": [[InputStatistics]],
        "without_formula": ["name"],
        "operations": [("name", "count")],
        "weight_zeros": ["share"],
        "patterns": [["pattern"]],
        "positions": ["count"],
        "callers": ["count"],
    },
    CalledModule: {
        "path": "name",
        "class_name": "name",
        "weights": "count",
        "input_sizes": _Optional("name"),
        "output_sizes": _Optional("name"),
    },
    OperationWithoutFormula: {"operation": "name", "calls": "count", "memory_bytes": "count"},
    OperatorCounts: {
        "model": OperatorTuple,
        "counts": [OperatorCount],
        "total_flop": "count",
        "total_memory_bytes": "count",
        "parameters": "count",
        "torch_version": "name",
        "device_type": "name",
        "outside": ["name"],
        "composites": ["name"],
        "without_formula": [OperationWithoutFormula],
        "modules": [CalledModule],
    },
}
"""The fields of each class that a pickle may hold, with the check of each field."""

FORMER_MODULES = ("opcost.operators", "opcost.input_values")
"""The modules of the classes up to version 0.2, as named by older pickles."""

ADMITTED = {(module, cls.__qualname__): cls for cls in FIELDS for module in (cls.__module__, *FORMER_MODULES)}


# The reader of pickles

MAXIMUM_OPCODES = 500_000
"""More than three times as many as the largest model of torchvision needs (ssd300_vgg16); they take a second."""

LEAST_BYTES_PER_OPCODE = 2
"""Beyond ``MAXIMUM_OPCODES``. Counts have 2.1 to 2.7 bytes for each opcode."""

IGNORED = frozenset({"PROTO", "FRAME"})
ARGUMENTS = frozenset("BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE".split())
"""Opcodes that push their argument."""

CONSTANTS: Mapping[str, object] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
TUPLES: Mapping[str, int] = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def load(payload: bytes, admitted: Mapping[tuple[str, str], type[Any]]) -> object:
    """Return the object that a pickle describes; ``admitted`` are the dataclasses that it may name, by module and name.

    Fields that it does not have are at their default. Raises ``UnpicklingError``, ``ValueError`` or ``IndexError`` if
    the pickle is damaged, or uses other opcodes or classes.
    """
    machine = _Machine(admitted)
    for number, (opcode, argument, position) in enumerate(pickletools.genops(payload), start=1):
        # Not the payload's size: a large file of tiny opcodes is refused as early as a small one.
        if number > MAXIMUM_OPCODES and number * LEAST_BYTES_PER_OPCODE > (position or 0):
            raise UnpicklingError(f"it has more than {MAXIMUM_OPCODES} opcodes for its size")
        if opcode.name == "STOP":
            break
        machine.execute(opcode.name, argument)
    (loaded,) = machine.stack
    return loaded


class _Machine:
    """The stack and the memo of the pickle machine."""

    def __init__(self, admitted: Mapping[tuple[str, str], type[Any]]) -> None:
        self.stack: list[object] = []
        self._admitted = admitted
        self._marks: list[int] = []
        self._memo: list[object] = []
        self._actions = {
            "MARK": lambda: self._marks.append(len(self.stack)),
            "MEMOIZE": lambda: self._memo.append(self.stack[-1]),
            "EMPTY_DICT": lambda: self.stack.append({}),
            "TUPLE": lambda: self.stack.append(tuple(self._popped_to_mark())),
            "SETITEM": lambda: self._set_items(self._popped(2)),
            "SETITEMS": lambda: self._set_items(self._popped_to_mark()),
            "STACK_GLOBAL": self._push_class,
            "NEWOBJ": self._push_instance,
            "BUILD": self._set_fields,
        }

    def execute(self, name: str, argument: Any) -> None:
        if name in ARGUMENTS:
            self.stack.append(argument)
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self._memo[argument])
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name])
        elif name in TUPLES:
            self.stack.append(tuple(self._popped(TUPLES[name])))
        elif name in self._actions:
            self._actions[name]()
        elif name not in IGNORED:
            raise UnpicklingError(f"it uses {name}")

    def _popped(self, number: int) -> list[object]:
        if len(self.stack) < number:
            raise UnpicklingError("it takes from an empty stack")
        values = self.stack[-number:]
        del self.stack[-number:]
        return values

    def _popped_to_mark(self) -> list[object]:
        mark = self._marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    def _set_items(self, items: list[object]) -> None:
        target = self.stack[-1]
        # Hashing keys other than texts could take any time and depth.
        if type(target) is not dict or len(items) % 2 or not all(type(key) is str for key in items[::2]):
            raise UnpicklingError("it has a dict that is no object's state")
        target.update(zip(items[::2], items[1::2], strict=True))

    def _push_class(self) -> None:
        module, name = self._popped(2)
        if not isinstance(module, str) or not isinstance(name, str):
            raise UnpicklingError("it refers to a class without a name")
        if (module, name) not in self._admitted:
            raise UnpicklingError(f"it refers to {module}.{name}")
        self.stack.append(self._admitted[module, name])

    def _push_instance(self) -> None:
        cls, arguments = self._popped(2)
        if not isinstance(cls, type) or arguments != ():
            raise UnpicklingError("it makes an object of something else than a class")
        self.stack.append(object.__new__(cls))

    def _set_fields(self) -> None:
        (state,) = self._popped(1)
        instance: Any = self.stack[-1]
        if type(instance) not in self._admitted.values() or vars(instance) or type(state) is not dict:
            raise UnpicklingError("it sets the state of something else than a new object")
        known = fields(instance)
        # Older versions wrote the fields without a default alone, and some of the others.
        required = {field.name for field in known if field.default is MISSING}
        if not required <= state.keys() <= {field.name for field in known}:
            raise UnpicklingError(f"its {type(instance).__name__} has other fields")
        for field in known:
            # Frozen dataclasses cannot be set in another way.
            object.__setattr__(instance, field.name, state.get(field.name, field.default))
