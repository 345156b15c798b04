"""FLOPs and bytes of a run, counted per ATen operation as torch dispatches it.

FLOPs are those of matrix products, convolutions and attention, a multiply-add counted as two, by torch's own
formulas (``torch.utils.flop_counter``) and those added here. Bytes are each distinct input tensor once and each
output once, of every operation that is neither a view nor an allocation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

ALLOCATIONS = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_", "detach", "alias"}
    | {"lift_fresh", "_unsafe_view", "_reshape_alias", "_local_scalar_dense", "is_same_size"}
)
"""Operations that compute nothing, though their schema does not declare them to be views."""

WRITE_ONLY = frozenset({"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_"})
"""In-place operations that do not read the tensor that they write."""


@dataclass(frozen=True)
class OperationCost:
    """What one ATen operation computes and moves."""

    operation: str
    flop: int
    memory_bytes: int


class CostCounter(TorchDispatchMode):
    """While active, calls ``record`` with the cost of every ATen operation that computes."""

    def __init__(self, record: Callable[[OperationCost], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._record = record

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, func, types, args=(), kwargs=None
    ) -> Any:
        kwargs = kwargs or {}
        # In inference mode composite operations (linear, batch_norm, reshape) arrive whole: look inside them.
        if func._overloadpacket not in flop_registry and func._can_decompose():
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if not is_free(func):
            self._record(operation_cost(func, args, kwargs, result))
        return result


def operation_cost(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> OperationCost:
    """Return the FLOPs and bytes of one ATen operation, given its arguments and its result."""
    name = func._overloadpacket.__name__
    inputs = tensors_of((args, kwargs))
    read = inputs[1:] if name in WRITE_ONLY else inputs
    distinct = {id(tensor): tensor for tensor in read}.values()
    memory_bytes = sum(map(tensor_bytes, distinct)) + sum(map(tensor_bytes, tensors_of(result)))
    return OperationCost(name, _flop(func, args, kwargs, result), memory_bytes)


def is_free(func: Any) -> bool:
    """Return whether an ATen operation only makes a view or memory."""
    if func._overloadpacket.__name__ in ALLOCATIONS:
        return True
    schema = func._schema
    returns_view = any(_is_alias(value) for value in schema.returns)
    writes = any(value.alias_info is not None and value.alias_info.is_write for value in schema.arguments)
    return returns_view and not writes


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes that a tensor's elements take in memory; expanded dimensions (stride 0) count once."""
    if tensor.numel() == 0:
        return 0
    distinct = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        distinct *= size if stride != 0 else 1
    return distinct * tensor.element_size()


def tensors_of(values: Any) -> list[torch.Tensor]:
    """Return all tensors in nested arguments or results, in order."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _flop(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    packet = func._overloadpacket
    if packet is torch.ops.aten._native_multi_head_attention:
        return _native_attention_flop(*args, **kwargs)
    if packet not in flop_registry:
        # Older versions of torch have no formula for attention's kernel on a CPU.
        is_attention = packet.__name__ == "_scaled_dot_product_flash_attention_for_cpu"
        return int(sdpa_flop_count(*(tensor.shape for tensor in args[:3]))) if is_attention else 0
    return int(flop_registry[packet](*args, **kwargs, out_val=result))


def _native_attention_flop(query: Any, key: Any, value: Any, embed_dim: int, *_: Any, **__: Any) -> int:
    """FLOPs of ``_native_multi_head_attention`` on (batch, length, width) inputs.

    Four projections of width x width per position, and two products of length x length x width per sample.
    """
    batch, length, _ = query.shape
    source_length = key.shape[1]
    projections = 2 * batch * (2 * length + 2 * source_length) * embed_dim * embed_dim
    return int(projections + 2 * 2 * batch * length * source_length * embed_dim)


def _is_alias(value: Any) -> bool:
    return value.alias_info is not None and not value.alias_info.is_write


def total(costs: Iterable[OperationCost]) -> OperationCost:
    """Return the sum of costs."""
    items = list(costs)
    return OperationCost("total", sum(cost.flop for cost in items), sum(cost.memory_bytes for cost in items))
