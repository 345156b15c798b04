"""FLOPs and bytes of a run, counted for each ATen operation that torch dispatches.

FLOPs are those of matrix products, convolutions and attention, a multiply-add counted as two, by torch's formulas
(``torch.utils.flop_counter``) and those of ``formulas``. Bytes are each distinct input tensor once and each output
once, of every operation that is neither a view nor an allocation. Of some only a part is read (``formulas.READ``).
"""

from __future__ import annotations

import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any
from unittest.mock import patch

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from opcost.columns import grouped
from opcost.operators.counts import OperationWithoutFormula
from opcost.operators.tuples import META
from opcost.torch_backend.formulas import (
    ASKED_FOR_FORM,
    COMBINING,
    COMPLEX_FACTOR,
    FORMULAS,
    READ,
    RESULT,
    WITHOUT_PRODUCTS,
    WRITTEN,
    table_of,
)
from opcost.torch_backend.meta_device import RECURRENT, fused_attention, is_fused_attention, recurrent
from opcost.torch_backend.passes import DispatchMode
from opcost.torch_backend.values import arguments_by_name, is_dense, packed_tensors, stored_parts

ALLOCATIONS = frozenset(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_ set_ detach detach_ alias "
    "as_strided_ lift_fresh _unsafe_view _reshape_alias unsafe_split unsafe_chunk unsafe_split_with_sizes "
    "_local_scalar_dense is_same_size _efficientzerotensor _has_same_storage_numel".split()
)
"""Operations that compute nothing although their schema does not declare them as views."""

BACKENDS = {"cpu": ("CPU",), "cuda": ("CUDA",), META: ("CPU", "CUDA")}
"""torch's names of the kernels of a device. On shapes, an operation is a kernel if it is one on both devices."""

NAMESPACES = frozenset({"aten", "prims", "torchvision"})
"""The namespaces of the operations in these lists. An operation of the same name in another may do anything."""


@dataclass(frozen=True)
class OperationCost:
    """FLOPs (None if unknown) and bytes of operations, with the ordered names of those without a formula."""

    operation: str
    flop: int | None
    memory_bytes: int
    without_formula: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """The known FLOPs, the bytes and the number of the operations of a run."""

    flop: int
    memory_bytes: int
    operations: int

    @staticmethod
    def of(costs: Sequence[OperationCost]) -> Work:
        return Work(least_flop(costs), total(costs).memory_bytes, len(costs))


SOLE_USES = 4
"""The uses of a tensor that a mode of torch sees if autograd alone holds it."""

UNSHARED_USES = 2
"""The uses of the memory of a tensor that no other tensor shares, with the one that asks."""

_SUM: ContextVar[tuple[int, int] | None] = ContextVar("sum", default=None)
"""The terms of a sum of gradients that is observed now, by identity: inner observers see more uses of them."""


def unwatched(operation: Any, args: Sequence[Any]) -> Any:
    """Return an observed operation by the name that it has where no mode of torch observes it.

    Autograd adds gradients in place then, if nothing else holds the first one.
    """
    is_sum = operation is torch.ops.aten.add.Tensor and _SUM.get() == tuple(map(id, args[:2]))
    return torch.ops.aten.add_.Tensor if is_sum else operation


class _Backward(threading.local):
    """The node of autograd's graph that runs in a thread, and the memory that it has made."""

    node: int | None = None

    def __init__(self) -> None:
        self.made: set[int] = set()

    def is_sum_in_place(self, operation: Any, args: Sequence[Any]) -> bool:
        """Return whether an operation adds gradients in place where no mode observes it.

        What the running node has made itself is taken for a part of the node's own work. Nodes of a user's functions
        may hold their gradients in Python.
        """
        if operation is not torch.ops.aten.add.Tensor or not self._runs():
            return False
        first, second = args[:2]
        if not all(isinstance(one, torch.Tensor) and is_dense(one) for one in (first, second)):
            return False
        storage = first.untyped_storage()
        is_alike = (first.shape, first.dtype) == (second.shape, second.dtype)
        is_sole = first._use_count() <= SOLE_USES and torch._C._storage_Use_Count(storage._cdata) <= UNSHARED_USES
        is_whole = first.numel() * first.itemsize == storage.nbytes()
        return is_alike and is_sole and is_whole and storage._cdata not in self.made

    def note(self, result: Any) -> None:
        """Note what the node that runs has made."""
        if self._runs():
            self.made.update(one.untyped_storage()._cdata for one in tensors_of(result) if is_dense(one))

    def _runs(self) -> bool:
        node = None if torch.is_grad_enabled() else torch._C._current_autograd_node()
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            node = None
        number = None if node is None else node._sequence_nr()
        if number != self.node:
            self.node, self.made = number, set()
        return number is not None


class Operations(DispatchMode):
    """While active, calls operations by ``run``, which gets an operation with its arguments, also within others."""

    supports_higher_order_operators = True

    def __init__(self, run: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        super().__init__()
        self._run = run
        self._backward = _Backward()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # TorchScript calls an operation here with function modes on, which would take it for a call of the model.
        with torch._C.DisableTorchFunction():
            # A subclass of tensors, such as a jagged one, calls operations on its parts instead.
            if any(map(dispatches_itself, types)):
                return NotImplemented
            if isinstance(func, HigherOrderOperator):
                with self:
                    return run_parts(func, args, kwargs or {})
            is_sum = _SUM.get() is None and self._backward.is_sum_in_place(func, args)
            before = _SUM.set((id(args[0]), id(args[1]))) if is_sum else None
            try:
                result = self._run(func, args, kwargs or {})
            finally:
                if before is not None:
                    _SUM.reset(before)
            self._backward.note(result)
            return result


class CostCounter(Operations):
    """While active, calls ``record`` with the cost of every ATen operation that computes."""

    def __init__(self, record: Callable[[OperationCost], None]) -> None:
        super().__init__(self._counted)
        self._record = record

    def _counted(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_fused_attention(func, args, kwargs):
            with self:
                return fused_attention(args, kwargs)
        if func.name() in RECURRENT and args[0].is_meta:
            with autocast_as_called(), self:
                return recurrent(func, args)
        # In inference mode composite operations (linear, batch_norm, reshape) arrive undecomposed.
        if not has_formula(func) and is_composite(func, args):
            with autocast_as_called(), self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        result = func(*args, **kwargs)
        if not is_free(func):
            self._record(operation_cost(unwatched(func, args), args, kwargs, result))
        return result


def run_parts(operator: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the parts of a higher-order operator in eager mode; some implementations assert that no mode is active."""
    key = torch._C.DispatchKey.CompositeExplicitAutograd
    module = sys.modules[operator.py_kernels[key].__module__] if key in operator.py_kernels else None
    asks, thread = "_get_current_dispatch_mode", threading.get_ident()
    ask: Callable[[], Any] | None = getattr(module, asks, None)
    if ask is None:
        return operator.dispatch(key, *args, **kwargs)
    with patch.object(module, asks, lambda: None if threading.get_ident() == thread else ask()):
        return operator.dispatch(key, *args, **kwargs)


def operation_cost(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> OperationCost:
    """Return the FLOPs and bytes of one operation."""
    args, kwargs = tree_map_only(torch.ScriptObject, lambda one: packed_tensors(one) or one, (args, kwargs))
    name = func._overloadpacket.__name__
    memory_bytes = _moved_bytes(name, func, args, kwargs, result)
    # The products of a sparse matrix depend on its values, and some packed weights cannot be read.
    are_readable = (
        one.is_nested or is_dense(one) if isinstance(one, torch.Tensor) else not isinstance(one, torch.ScriptObject)
        for one in tree_leaves((args, kwargs))
    )
    is_counted = is_known(func) and (not has_formula(func) or all(are_readable))
    flops = [_flop(func, *sample) for sample in _samples((args, kwargs, result))] if is_counted else [None]
    known = [flop for flop in flops if flop is not None]
    if len(known) < len(flops):
        return OperationCost(name, None, memory_bytes, (func._schema.name,))
    return OperationCost(name, sum(known), memory_bytes)


def _samples(values: Any) -> Iterator[Any]:
    """Yield the arguments and results of an operation for each sample in nested tensors, all at once without one."""
    nested = next((tensor for tensor in tensors_of(values) if tensor.is_nested), None)
    if nested is None:
        yield values
        return

    def sample_of(value: torch.Tensor, place: int) -> torch.Tensor:
        sizes = value._nested_tensor_size()[place].tolist() if value.is_nested else []
        return torch.empty(1, *sizes, dtype=value.dtype, device=META) if value.is_nested else value

    with _disable_current_modes():
        for place in range(nested.size(0)):
            yield tree_map_only(torch.Tensor, partial(sample_of, place=place), values)


def _moved_bytes(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Return the bytes of distinct inputs whose values are asked for, and of outputs; of a table those touched."""
    inputs = tensors_of((args, {key: value for key, value in kwargs.items() if key != "out"}))
    place = ASKED_FOR_FORM.get(name, ASKED_FOR_FORM.get(func.__name__)) if func.namespace in NAMESPACES else None
    if place is not None:
        del inputs[place]
    distinct = {id(tensor): tensor for tensor in inputs}
    outputs = tensors_of(result)
    if func.namespace not in NAMESPACES or not func._schema.returns:
        # An operation of a user may write in place what it does not return; ATen's return what they write, or nothing.
        declared = func._schema.arguments
        named = [(one, kwargs[one.name]) for one in declared if one.name in kwargs]
        pairs = [*zip(declared, args, strict=False), *named]
        # A fused optimizer writes gradients only where it scales them.
        is_scaled = any(one.name == "grad_scale" and value is not None for one, value in pairs)
        outputs += tensors_of([value for one, value in pairs if one.is_write and (one.name != "grads" or is_scaled)])
    name = _name_in_lists(func)
    if name not in READ.keys() | WRITTEN.keys():
        return sum(map(tensor_bytes, distinct.values())) + sum(map(tensor_bytes, outputs))
    given = {**arguments_by_name(func, args, kwargs), RESULT: result}
    argument, touched = READ[name] if name in READ else ("self", WRITTEN[name])
    table = table_of(given[argument])
    part: int = min(tensor_bytes(table), touched(given) * table.element_size())
    others = sum(tensor_bytes(tensor) for key, tensor in distinct.items() if key != id(table))
    if name in READ:
        return others + part + sum(map(tensor_bytes, outputs))
    is_combining = name in COMBINING or given.get("accumulate") or given.get("reduce") is not None
    return others + part + (part if is_combining else 0)


def is_composite(func: Any, args: tuple[Any, ...]) -> bool:
    """Return whether an ATen operation consists of others on the device of its arguments.

    Only torch's own kernels count: some of its decompositions for compilers run other operations (dropout clones). Some
    operations consist of others on one device only (``_fused_rms_norm``).
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    if not has_kernel(func.name(), "CompositeImplicitAutograd"):
        return False
    places = {(tensor.device.type, "NestedTensor" if tensor.is_nested else "") for tensor in tensors_of(args)}
    return not any(
        all(has_kernel(func.name(), f"{kind}{backend}") for backend in BACKENDS[device])
        for device, kind in places
        if device in BACKENDS
    )


@contextmanager
def autocast_as_called() -> Iterator[None]:
    """While active, parts of a composite run under autocast if it does: torch disables that in a mode's handler."""
    with torch._C._RestorePythonTLSSnapshot():  # type: ignore[attr-defined]
        devices = [device for device in BACKENDS if device != META and torch.is_autocast_enabled(device)]
    for device in devices:
        torch.set_autocast_enabled(device, True)
    try:
        yield
    finally:
        for device in devices:
            torch.set_autocast_enabled(device, False)


def unfused() -> AbstractContextManager[None]:
    """While active, scripted code runs operation by operation. Kernels that TorchScript fuses pass no dispatcher."""
    return torch.jit.optimized_execution(False)  # type: ignore[attr-defined]


def is_free(func: Any) -> bool:
    """Return whether an operation only makes a view, allocates memory, or notes something for a profiler."""
    if func.namespace == "profiler" or torch.Tag.inplace_view in func.tags:
        return True
    declared = (value.alias_info for value in func._schema.returns)
    is_view = any(alias is not None and not alias.is_write for alias in declared)
    return is_view or func._overloadpacket.__name__ in ALLOCATIONS


def has_formula(func: Any) -> bool:
    """Return whether an ATen operation has a formula for its FLOPs. One of a user may have the name of another."""
    return func._overloadpacket in flop_registry or _name_in_lists(func) in FORMULAS


def _name_in_lists(func: Any) -> str:
    """Return the name of an operation in lists: the qualified one, without its namespace if it is of ``NAMESPACES``."""
    return str(func._overloadpacket.__name__ if func.namespace in NAMESPACES else func._schema.name)


def is_known(func: Any) -> bool:
    """Return whether an ATen operation has a formula for its FLOPs, or is known to have none."""
    if has_formula(func) or torch.Tag.pointwise in func.tags:
        return True
    # Those of ``prims`` have no tags, and the names of ATen's.
    named = getattr(torch.ops.aten, func._overloadpacket.__name__, None) if func.namespace == "prims" else None
    if named is not None and torch.Tag.pointwise in getattr(named, named.overloads()[0]).tags:
        return True
    name = _name_in_lists(func)
    # The gradient of an operation without products has none.
    forward = getattr(torch.ops.aten, name.removesuffix("_backward"), None) if name.endswith("_backward") else None
    if forward is not None and forward.overloads():
        operation = getattr(forward, forward.overloads()[0])
        if is_known(operation) and not has_formula(operation):
            return True
    # One that is in place does as the other; ``_foreach_`` runs an elementwise one on each tensor of a list.
    return not {name, name.removesuffix("_")}.isdisjoint(WITHOUT_PRODUCTS) or name.startswith("_foreach_")


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements in memory; expanded dimensions (stride 0) count once."""
    if not is_dense(tensor):
        return sum(part.numel() * part.element_size() for part in stored_parts(tensor))
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    distinct = math.prod(size for size, stride in sizes if stride or not size)
    return distinct * tensor.element_size()


def dispatches_itself(cls: type[torch.Tensor]) -> bool:
    """Return whether tensors of a class, such as jagged ones, call other operations than they are called with."""
    return cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def tensors_of(values: Any) -> list[torch.Tensor]:
    """Return all tensors in nested arguments or results, in order."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _flop(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int | None:
    """Return the FLOPs of an operation, 0 without a formula, None if values give them that are not there."""
    if not has_formula(func):
        return 0
    is_complex = any(tensor.is_complex() for tensor in tensors_of((args, kwargs)))
    name = _name_in_lists(func)
    # Formulas of Fourier transforms are those of complex numbers already.
    factor = COMPLEX_FACTOR if is_complex and not name.startswith("_fft_") else 1
    if name not in FORMULAS:
        return int(flop_registry[func._overloadpacket](*args, **kwargs, out_val=result)) * factor
    flop = FORMULAS[name]({**arguments_by_name(func, args, kwargs), RESULT: result})
    return None if math.isnan(flop) else round(flop * factor)


def operations_of(costs: Iterable[OperationCost]) -> tuple[tuple[str, int], ...]:
    """Return the names of operations, each with its number, ordered."""
    return tuple(sorted(Counter(cost.operation for cost in costs).items()))


def total(costs: Iterable[OperationCost]) -> OperationCost:
    """Return the sum of costs; its FLOPs are None if those of one are unknown."""
    items = list(costs)
    return OperationCost(
        operation="total",
        flop=None if any(cost.flop is None for cost in items) else least_flop(items),
        memory_bytes=sum(cost.memory_bytes for cost in items),
        without_formula=tuple(sorted({name for cost in items for name in cost.without_formula})),
    )


def least_flop(costs: Iterable[OperationCost]) -> int:
    """Return the FLOPs of the costs that are known."""
    return sum(cost.flop for cost in costs if cost.flop is not None)


def operations_without_formula(costs: Iterable[OperationCost]) -> tuple[OperationWithoutFormula, ...]:
    """Return the operations without a formula in the costs of single operations, ordered by name."""
    found = grouped(((name, cost.memory_bytes) for cost in costs for name in cost.without_formula), itemgetter(0))
    return tuple(
        OperationWithoutFormula(name, len(of), sum(size for _, size in of)) for name, of in sorted(found.items())
    )
