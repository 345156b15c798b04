"""Operators that write into their own input, run again and again without eating it.

Run in a loop on one tensor, Hardswish passes through denormals to zeros in 160 rounds and ``x += y`` runs to infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opcost.errors import CannotMeasureError
from opcost.torch_flops import is_composite, is_free

WRITES_THE_SAME = frozenset({"zero_", "fill_", "copy_", "index_put_", "_index_put_impl_", "index_fill_"})
"""In-place operations that write the same values each time, whatever was there before."""

INTO_BUFFER = "in-place kernel run into a second buffer"
SAME_VALUES = "in place: writes the same values each time"


@dataclass(frozen=True)
class Operation:
    """One ATen operation with the arguments that it was called with."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        """The name without the overload: ``add_``."""
        return str(self.function._overloadpacket.__name__)

    @property
    def is_in_place(self) -> bool:
        """Whether its result is its first argument, written over."""
        returns = self.function._schema.returns
        return len(returns) == 1 and returns[0].alias_info is not None and bool(returns[0].alias_info.is_write)


def repeatable(call: Callable[[], object]) -> tuple[Callable[[], object], str]:
    """Return a call that does what a call does, as often as one likes, and a note on how.

    ``call`` is made once for a look at its operations; those in place do not run. Where it is one in-place operation,
    its kernel is run on the same input into a second buffer, made beforehand.

    Raises:
        CannotMeasureError: it writes into its input in another way.
    """
    operations = observed(call)
    in_place = [operation for operation in operations if operation.is_in_place]
    if not in_place:
        return call, ""
    if all(operation.name in WRITES_THE_SAME for operation in in_place):
        return call, SAME_VALUES
    if len(operations) == 1:
        return into_buffer(operations[0]), INTO_BUFFER
    names = ", ".join(operation.name for operation in in_place)
    raise CannotMeasureError(f"{names} would work on what it wrote itself, and has company that hides its input")


def into_buffer(operation: Operation) -> Callable[[], object]:
    """Return a call of an in-place operation's kernel that writes into a buffer of its own.

    torch runs one kernel for ``add_`` and ``add.out``: they differ in where the result goes.

    Raises:
        CannotMeasureError: the operation has no such form.
    """
    overload = operation.function._overloadname
    form = "out" if overload in ("default", "Tensor") else f"{overload}_out"
    out = getattr(getattr(torch.ops.aten, operation.name.removesuffix("_"), None), form, None)
    if out is None:
        raise CannotMeasureError(f"{operation.name} writes into its input, and has no form with another output")
    source, *rest = operation.args
    buffer = torch.empty_like(source)
    return lambda: out(source, *rest, **operation.kwargs, out=buffer)


def observed(call: Callable[[], object]) -> list[Operation]:
    """Return the operations that compute in one call, in order; those in place are only looked at."""
    observer = _Observer()
    with torch.inference_mode(), observer:
        call()
    return observer.operations


class _Observer(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ) -> Any:
        kwargs = kwargs or {}
        if is_composite(func):
            with self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        operation = Operation(func, args, kwargs)
        if not is_free(func):
            self.operations.append(operation)
            if operation.is_in_place:
                return args[0]
        return func(*args, **kwargs)
