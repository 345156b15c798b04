"""A reader of pickles of plain data and a few dataclasses, without Python's unpickler.

Restricting the imports of Python's unpickler does not make it safe: a deeply nested key of a dict ends the process,
keys of equal hash take minutes, and BUILD sets attributes of an admitted class itself. This reader executes only the
thirty harmless opcodes that protocol 4 writes for such data, and refuses all others.
"""

from __future__ import annotations

import pickletools
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pickle import UnpicklingError
from typing import Any

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

    An instance of a dataclass has either all of its fields, with values of any types, or none. Fields that the pickle
    does not have are at their default. Raises ``UnpicklingError``, ``ValueError`` or ``IndexError`` if the pickle is
    damaged, or uses other opcodes or classes.
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
