"""Repeated calls of in-place operators without modifying their inputs.

In a loop on one tensor, Hardswish passes through denormals to zeros in 160 rounds, and ``x += y`` grows to infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opcost.errors import CannotMeasureError
from opcost.measuring.calls import Calls
from opcost.measuring.flags import Flag
from opcost.torch_backend.flops import autocast_as_called, is_composite, is_free, tensors_of
from opcost.torch_backend.passes import INFERENCE

WRITES_THE_SAME = frozenset({"zero_", "fill_", "copy_", "index_put_", "_index_put_impl_", "index_fill_"})
"""In-place operations that write the same values each time."""

ADDS = frozenset({"add_", "sub_"})
"""In-place operations that the same kernel reverses, given the opposite ``alpha``."""

IN_PLACE = (Flag.MODIFIES_INPUT,)

ELSEWHERE = "in-place kernel run into another tensor"
IN_TURN = "in place: added and subtracted in turn"
SAME_VALUES = "in place: writes the same values each time"


@dataclass(frozen=True)
class Operation:
    """One ATen operation with the arguments that it was called with, which it keeps alive."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        """The name without the overload: ``add_``."""
        return str(self.function._overloadpacket.__name__)

    @property
    def is_in_place(self) -> bool:
        """Whether its result is its overwritten first argument."""
        returns = self.function._schema.returns
        return len(returns) == 1 and returns[0].alias_info is not None and bool(returns[0].alias_info.is_write)

    @property
    def written(self) -> list[torch.Tensor]:
        """The arguments that it writes into."""
        declared = self.function._schema.arguments
        values = [*zip(declared, self.args, strict=False), *((one, self.kwargs.get(one.name)) for one in declared)]
        return tensors_of([value for one, value in values if one.alias_info is not None and one.alias_info.is_write])

    def run(self) -> Any:
        """Run it with these arguments."""
        return self.function(*self.args, **self.kwargs)


def repeatable(call: Callable[[], object], inputs: Iterable[torch.Tensor]) -> Calls:
    """Return calls that run the same kernels as a call and can be repeated.

    ``call`` is made once to record its operations, without those that write into one of the ``inputs``. If it is a
    single in-place operation, the calls add and subtract in turn, or run its kernel with another tensor as output.

    Raises:
        CannotMeasureError: it writes into its input in another way.
    """
    observer = _Observer(inputs)
    with INFERENCE.context(), observer:
        call()
    writing = [operation.name for operation in observer.operations if observer.writes_into_input(operation)]
    if not writing:
        return Calls(call)
    if WRITES_THE_SAME.issuperset(writing):
        return Calls(call, flags=IN_PLACE, notes=SAME_VALUES)
    if len(observer.operations) == 1:
        (operation,) = observer.operations
        if _is_undone_by_itself(operation):
            return Calls(in_turn(operation), period=2, flags=IN_PLACE, notes=IN_TURN)
        return Calls(elsewhere(operation), flags=IN_PLACE, notes=ELSEWHERE)
    raise CannotMeasureError(f"it cannot be repeated: {', '.join(writing)} modifies its input, among other operations")


def in_turn(operation: Operation) -> Callable[[], object]:
    """Return a call that adds to a tensor in place and then subtracts the same, both with the operation's kernel."""
    alpha = operation.kwargs.get("alpha", 1)

    def both() -> object:
        operation.function(*operation.args, **{**operation.kwargs, "alpha": alpha})
        return operation.function(*operation.args, **{**operation.kwargs, "alpha": -alpha})

    return both


def _is_undone_by_itself(operation: Operation) -> bool:
    """Return whether the opposite ``alpha`` reverses it: for sums of floats, but not with the tensor itself."""
    if operation.name not in ADDS:
        return False
    target, other = operation.args
    is_itself = isinstance(other, torch.Tensor) and storage_of(other) == storage_of(target)
    return target.dtype.is_floating_point and not is_itself


def elsewhere(operation: Operation) -> Callable[[], object]:
    """Return a call of an in-place operation's kernel that writes into a second buffer or a new tensor.

    torch runs the same kernel for ``add_``, ``add.out`` and ``add``. A generated ``out`` variant (``relu.out``) adds a
    copy, so the functional variant is used instead; its memory comes from torch's allocator.

    Raises:
        CannotMeasureError: the operation has no such variants.
    """
    packet = getattr(torch.ops.aten, operation.name.removesuffix("_"), None)
    overload = operation.function._overloadname
    out = getattr(packet, "out" if overload in ("default", "Tensor") else f"{overload}_out", None)
    new = getattr(packet, overload, None)
    args, kwargs = operation.args, operation.kwargs
    if out is not None and torch.Tag.generated not in out.tags:
        buffer = torch.empty_like(args[0])
        return lambda: out(*args, **kwargs, out=buffer)
    if new is None:
        raise CannotMeasureError(f"{operation.name} modifies its input and has no variant that does not")
    return lambda: new(*args, **kwargs)


class _Observer(TorchDispatchMode):
    """Records the operations that compute, and skips those that write into an input."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler, which takes seconds and is not needed here."""
        return False

    def __init__(self, inputs: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []
        self._storages = {storage_of(tensor) for tensor in inputs}

    def writes_into_input(self, operation: Operation) -> bool:
        return operation.is_in_place and storage_of(operation.args[0]) in self._storages

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ) -> Any:
        kwargs = kwargs or {}
        if is_composite(func, args):
            with autocast_as_called(), self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        operation = Operation(func, args, kwargs)
        if not is_free(func):
            self.operations.append(operation)
            if self.writes_into_input(operation):
                return args[0]
        return func(*args, **kwargs)


def storage_of(tensor: torch.Tensor) -> int:
    """Return an identifier that is equal for tensors that share memory, also on the meta device."""
    return int(tensor.untyped_storage()._cdata)
