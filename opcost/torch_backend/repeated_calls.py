"""Repeated calls of an operator: values that do not drift, a defined state of the device's cache, other memory.

In a loop on one tensor, Hardswish passes through denormals to zeros in 160 rounds, and ``x += y`` grows to infinity.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import nn

from opcost.columns import grouped
from opcost.errors import CannotMeasureError
from opcost.measuring.flags import Flag
from opcost.measuring.workload import Call, Calls
from opcost.operators.input_roles import ADDED, ADDS, SETTLES
from opcost.torch_backend.cost_counter import (
    autocast_as_called,
    dispatches_itself,
    is_composite,
    is_free,
    tensors_of,
)
from opcost.torch_backend.formulas import WRITTEN
from opcost.torch_backend.passes import DispatchMode, running_calls
from opcost.torch_backend.values import arguments_by_name, own_tensors, stored_parts

PRODUCTS = ("prod", "multiply")
"""The reductions that are not reversed: factors and their inverses are rounded."""

COPIES_FIRST = WRITTEN.keys() | ADDS - {"add_", "sub_"}
"""In-place operations whose other variants copy the whole first argument before they run the kernel."""

MODIFIES = (Flag.MODIFIES_INPUT,)

AS_IT_IS = "in place, as in its model: its values do not drift"
IN_TURN = "in place: added and subtracted in turn"
RESTORED = "in place: its input written again before each call, which is subtracted"
ELSEWHERE = "in-place kernel run into another tensor"
ON_A_COPY = "in-place kernel run on a copy that each call makes"


WEIGHTS_OF_FUNCTIONS: Mapping[object, int] = {
    **dict.fromkeys(
        (F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d), 1
    ),
    torch.addmm: 2,
}
"""Functions with weights, and the place of these among their arguments."""


@dataclass(frozen=True, eq=False)
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
    def kind(self) -> str:
        """The name, of an operation on lists that of the same one on tensors."""
        return self.name.removeprefix("_foreach_")

    @property
    def given(self) -> dict[str, Any]:
        return arguments_by_name(self.function, self.args, self.kwargs)

    @property
    def is_in_place(self) -> bool:
        """Whether it returns a tensor that it writes; operations on lists return nothing."""
        returns = self.function._schema.returns
        return len(returns) == 1 and _is_written(returns[0])

    @property
    def writes_outputs(self) -> bool:
        """Whether it writes nothing but the tensors that it is given for its outputs."""
        return all(one.is_out for one in self.function._schema.arguments if _is_written(one))

    @property
    def written(self) -> list[torch.Tensor]:
        given = self.given
        return tensors_of([given.get(one.name) for one in self.function._schema.arguments if _is_written(one)])

    @property
    def read(self) -> list[torch.Tensor]:
        given = self.given
        return tensors_of([given.get(one.name) for one in self.function._schema.arguments if not _is_written(one)])

    def run(self) -> Any:
        return self.function(*self.args, **self.kwargs)

    def run_for_result(self) -> Any:
        """Return its result, with all that it writes as it was: of an operation in place it is what it would write."""
        written, returns = self.written, self.function._schema.returns
        if not returns:
            return None
        if all(map(_is_written, returns)):
            return written[0] if len(returns) == 1 else tuple(written)
        contents = contents_of(written)
        restore = restoring(contents, [one.clone() for one in contents])
        result = self.run()
        restore()
        return result


def _is_written(declared: Any) -> bool:
    return declared.alias_info is not None and bool(declared.alias_info.is_write)


def repeatable(call: Callable[[], object], inputs: Iterable[torch.Tensor], restores: bool = False) -> Calls:
    """Return calls of the same kernels that can be repeated; a CannotMeasureError if writes cannot be undone.

    ``restores``: writes may be undone by an overhead of a kernel. Others are undone by the operation's own kernel.
    """
    observer = _Observer(inputs)
    with running_calls(), observer:
        call()
    if not observer.writing:
        return Calls(call)
    written = {storage_of(one): one for operation in observer.writing for one in operation.written}
    # An input that is written may be read in its own place only.
    read = {storage_of(one) for operation in observer.operations for one in operation.read}
    if all(map(_settles, observer.writing)) and written.keys().isdisjoint(read):
        return Calls(call, flags=MODIFIES, notes=AS_IT_IS)
    if len(observer.operations) == 1:
        (operation,) = observer.operations
        undoing = opposite(operation)
        if undoing is not None:
            return _in_turn(operation, undoing)
        if not restores and operation.is_in_place:
            return elsewhere(operation)
    # With other lists an operation would allocate hundreds of tensors in each call.
    if restores or not all(operation.is_in_place for operation in observer.writing):
        return restored(call, written.values())
    names = ", ".join(operation.name for operation in observer.writing)
    raise CannotMeasureError(f"it cannot be repeated: {names} modifies its input, among other operations")


def _in_turn(operation: Operation, undoing: Operation) -> Calls:
    def in_turn() -> object:
        """Add and subtract the same, both with the operation's kernel."""
        operation.run()
        return undoing.run()

    return Calls(in_turn, period=2, flags=MODIFIES, notes=IN_TURN)


def restored(call: Callable[[], object], written: Iterable[torch.Tensor]) -> Calls:
    """Return calls before each of which the tensors that they change, of those given, have their present values again.

    In a loop a ReLU finds its own results, and takes 4 % to 8 % less energy. Its kernel with another tensor as its
    output takes up to 27 % more time and 51 % more energy, where one tensor fits into the cache and two do not
    (``docs/log/states.md``).
    """
    contents = contents_of(written)
    kept = [one.clone() for one in contents]
    with running_calls():
        call()
    # The optimisers' fused kernels declare gradients that they only read.
    both = list(zip(contents, kept, strict=True))
    changed = [(one, before) for one, before in both if not torch.equal(one, before)] or both
    restore = restoring([one for one, _ in changed], [before for _, before in changed])
    restore()

    def restore_and_call() -> object:
        restore()
        return call()

    return Calls(restore_and_call, flags=MODIFIES, notes=RESTORED, overhead=restore)


def restoring(contents: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> Call:
    """Return a call that writes values into memories, into many by one kernel for each of their dtypes and devices.

    A copy into a single one would be no kernel on a GPU.
    """
    if len(contents) == 1:
        return _adding_0(contents[0], values[0])
    pairs = grouped(zip(contents, values, strict=True), lambda both: (both[0].dtype, both[0].device)).values()
    copies = [partial(torch._foreach_copy_, [to for to, _ in those], [value for _, value in those]) for those in pairs]

    def restore() -> None:
        for copy_all in copies:
            copy_all()

    return restore


def writer(tensor: torch.Tensor, copies: bool) -> Call:
    """Return a call that writes all memory of a tensor again with its present values, by a kernel.

    They come from a copy, which shares the cache with them, or from their own place if no call has changed them.
    """
    (content,) = contents_of([tensor])
    return _adding_0(content, content.clone() if copies else content)


def _adding_0(content: torch.Tensor, values: torch.Tensor) -> Call:
    return partial(torch.add, values, 0, out=content)


def contents_of(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the memories of tensors, each once, as integers."""
    memories = {storage_of(one): one for one in tensors}.values()
    contents = (torch.empty(0, dtype=torch.uint8, device=one.device).set_(one.untyped_storage()) for one in memories)
    # Wider elements are written faster.
    return [one.view(torch.int32) if one.numel() % 4 == 0 else one for one in contents]


def _settles(operation: Operation) -> bool:
    """Return whether an operation that reads the same writes the same values each time, at least after some calls.

    A mean with the table's values comes closer to that of the others with each call; the largest and the smallest value
    are the same after one.
    """
    given = operation.given
    if operation.writes_outputs:
        return True
    if "accumulate" in given:
        return not given["accumulate"]
    if "include_self" in given:
        return not given["include_self"] or given["reduce"] not in ("sum", *PRODUCTS)
    if operation.name == "scatter_":
        return "reduce" not in given
    return operation.kind in SETTLES or given.get("beta") == 0


def opposite(operation: Operation) -> Operation | None:
    """Return the same kernel's operation that undoes another; None for products, unsigned numbers, sums with itself."""
    given = operation.given
    target = given.pop("self", None)
    targets = tensors_of(target)
    is_itself = not set(map(storage_of, targets)).isdisjoint(map(storage_of, tensors_of(given)))
    is_signed = all(one.dtype.is_signed for one in targets)
    if is_itself or not is_signed or given.get("beta", 1) != 1 or given.get("reduce") in PRODUCTS:
        return None
    if operation.kind in ADDS and "alpha" in given:
        return replace(operation, kwargs={**operation.kwargs, "alpha": -given["alpha"]})
    added = next((name for name in ADDED.get(operation.kind, ()) if name in given), None)
    if added is None:
        return None
    negative = given[added]
    if isinstance(negative, torch.Tensor):
        negative = copy.deepcopy(negative)
        # Elements of expanded dimensions share memory, so the storage is negated.
        negative.as_strided((negative.untyped_storage().nbytes() // negative.itemsize,), (1,), 0).neg_()
    elif isinstance(negative, Sequence):
        negative = [-one for one in negative]
    else:
        negative = -negative
    return Operation(operation.function, (target,), {**given, added: negative})


def elsewhere(operation: Operation) -> Calls:
    """Return calls of an in-place operation's kernel that writes into a second buffer or a new tensor.

    torch runs the same kernel for ``add_``, ``add.out`` and ``add``. Calls that make a copy first do other work than in
    the model, and are flagged. Raises CannotMeasureError: the operation has no such variants.
    """

    def arguments(overload: Any) -> dict[str, str]:
        return {one.name: str(one.type) for one in overload._schema.arguments}

    packet = getattr(torch.ops.aten, operation.name.removesuffix("_"), None)
    overloads = [] if packet is None else [getattr(packet, name) for name in packet.overloads()]
    given, own = operation.given, {**arguments(operation.function), "out": ""}
    same = {one: "out" in arguments(one) for one in overloads if {**arguments(one), "out": ""} == own}
    # Generated ones (``relu.out``) come last, because they copy; of others, those into a buffer come first.
    variant = min(same, key=lambda one: (torch.Tag.generated in one.tags, not same[one]), default=None)
    if variant is None:
        raise CannotMeasureError(f"{operation.name} modifies its input and has no variant that does not")
    if same[variant]:
        given["out"] = torch.empty_like(operation.args[0])
    if operation.name in COPIES_FIRST or torch.Tag.generated in variant.tags:
        return Calls(lambda: variant(**given), flags=(*MODIFIES, Flag.NOT_AS_COUNTED), notes=ON_A_COPY)
    return Calls(lambda: variant(**given), flags=MODIFIES, notes=ELSEWHERE)


class ObservingMode(DispatchMode):
    """Runs operations by a function."""

    def __init__(self, run: Callable[[Operation], Any]) -> None:
        super().__init__()
        self._run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._run(Operation(func, args, kwargs or {}))


class _Observer(ObservingMode):
    """Records the operations that compute, and skips those that write into an input, which it notes."""

    def __init__(self, inputs: Iterable[torch.Tensor]) -> None:
        super().__init__(self._observed)
        self.operations: list[Operation] = []
        self.writing: list[Operation] = []
        self._storages = {storage_of(tensor) for tensor in inputs}

    def _observed(self, one: Operation) -> Any:
        if is_composite(one.function, one.args):
            with autocast_as_called(), self:
                return one.function._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *one.args, **one.kwargs)
        if not is_free(one.function):
            self.operations.append(one)
            if not self._storages.isdisjoint(map(storage_of, one.written)):
                self.writing.append(one)
                return one.run_for_result()
        return one.run()


def storage_of(tensor: torch.Tensor) -> int:
    """Return an identifier that is equal for tensors that share memory, also on the meta device."""
    return int(tensor.untyped_storage()._cdata)


def memory_peak_bytes(call: Call, held: Sequence[torch.Tensor]) -> int | None:
    """Return the most memory of a GPU that a call holds, with tensors that are there before; None if it is unknown.

    It has been called before. Other tensors of the process do not count. It is unknown on a CPU, and if a tensor is one
    of a class that holds others.
    """
    parts = [part for one in held for part in stored_parts(one) if part.is_cuda]
    if not parts or any(dispatches_itself(type(one)) for one in held):
        return None
    device = parts[0].device
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before_bytes = torch.cuda.memory_allocated(device)
    call()
    held_bytes = sum({storage_of(one): one.untyped_storage().nbytes() for one in parts}.values())
    return held_bytes + torch.cuda.max_memory_allocated(device) - before_bytes


@dataclass(frozen=True)
class Layer:
    """An operator with its weights and its inputs."""

    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]

    def call(self) -> object:
        return self.function(*self.args, **self.kwargs)

    @property
    def weights(self) -> list[torch.Tensor]:
        """A module's parameters and buffers, or the weights among a function's inputs."""
        if isinstance(self.function, nn.Module):
            return own_tensors(self.function)
        place = WEIGHTS_OF_FUNCTIONS.get(self.function, len(self.args))
        return [value for value in self.args[place : place + 1] if isinstance(value, torch.Tensor)]

    @property
    def inputs(self) -> list[torch.Tensor]:
        """All tensors among the arguments except weights."""
        weights = set(map(id, self.weights))
        return [tensor for tensor in tensors_of((self.args, dict(self.kwargs))) if id(tensor) not in weights]

    def relocated(self) -> Layer:
        """Return the same layer in other memory, with equal values, layouts and shared storage."""
        return Layer(*copy.deepcopy((self.function, self.args, self.kwargs)))


def repeated(layer: Layer, restores: bool = False) -> Calls:
    """Return repeated calls of a layer; ``restores`` as in ``repeatable``.

    They can be relocated, except for calls with an overhead, which is measured in one placement. Raises
    CannotMeasureError: the layer cannot be repeated.
    """
    calls = repeatable(layer.call, tensors_of((layer.args, dict(layer.kwargs))), restores)
    if calls.overhead is not None:
        return calls
    return replace(calls, relocated=lambda: repeated(layer.relocated(), restores).cycle)
